//go:build long

package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// history is what is asked of a key under one limit.
type history struct {
	Algorithm string `json:"algorithm"`
	Limit     limit  `json:"limit"`
	Steps     []step `json:"steps"`
	name      string // for a failure
	limit     weir.Limit
}

// limit is a weir.Limit as the page's scripts have it; the window is in microseconds.
type limit struct {
	Max     int64 `json:"max"`
	Window  int64 `json:"window"`
	Burst   int64 `json:"burst"`
	Buckets int   `json:"buckets"`
	Epoch   bool  `json:"epoch"`
}

type step struct {
	At   int64 `json:"at"` // microseconds
	Cost int64 `json:"cost"`
	Peek bool  `json:"peek"`
}

// outcome is what a step comes to; waits are in microseconds.
type outcome struct {
	Verdict   string `json:"verdict"`
	Remaining int64  `json:"remaining"`
	Retry     int64  `json:"retry"`
	Reset     int64  `json:"reset"`
}

func newHistory(t *testing.T, name string, l weir.Limit) history {
	t.Helper()
	l, err := l.Normal()
	if err != nil {
		t.Fatal(err)
	}
	return history{Algorithm: l.Algorithm.String(), name: name, limit: l,
		Limit: limit{Max: l.Max, Window: l.Window.Microseconds(), Burst: l.Capacity(), Buckets: l.Buckets, Epoch: l.Epoch}}
}

// TestLongAlgorithms holds that the page's algorithms are weir's: over the vectors
// that have one limit, whose clock moves forward, and which only take and peek, and
// over random histories.
func TestLongAlgorithms(t *testing.T) {
	vectors := fromVectors(t)
	seen := make(map[string]int)
	for _, h := range vectors {
		seen[h.Algorithm]++
	}
	for _, algorithm := range []string{"sliding-log", "sliding-buckets", "sliding-counter", "fixed-window", "token-bucket"} {
		if seen[algorithm] < 3 {
			t.Errorf("%d vectors of %s are played, want at least 3", seen[algorithm], algorithm)
		}
	}
	histories := append(vectors, drawn(t, 400)...)
	got := play(t, histories)
	for i, h := range histories {
		want := h.decided(t)
		for j := range want {
			if got[i][j] != want[j] {
				t.Errorf("%s, %s: step %d of %+v:\ngot  %+v\nwant %+v", h.name, h.limit, j, h.Steps[:j+1], got[i][j], want[j])
				break
			}
		}
	}
}

// fromVectors returns the vectors that the page's algorithms are for.
func fromVectors(t *testing.T) (all []history) {
	scripts, err := storetest.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		if len(script.Steps) == 0 || script.Steps[0].Verb != "limit" {
			continue
		}
		h := newHistory(t, script.Name, script.Steps[0].Limit)
		plain := true
		for i, s := range script.Steps[1:] {
			plain = plain && (s.Verb == "take" || s.Verb == "peek") && s.Receipt == "" && (i == 0 || s.At >= script.Steps[i].At)
			if plain {
				h.Steps = append(h.Steps, step{At: (storetest.Epoch.UnixMicro() + s.At.Microseconds()), Cost: s.Rows[0].Cost, Peek: s.Verb == "peek"})
			}
		}
		if plain {
			all = append(all, h)
		}
	}
	return all
}

// drawn returns random histories, an algorithm after the other.
func drawn(t *testing.T, n int) (all []history) {
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := weir.Limit{Max: 1 + r.Int64N(20), Window: time.Duration(1+r.Int64N(5000)) * time.Microsecond, Algorithm: weir.Algorithm(1 + seed%5)}
		switch l.Algorithm {
		case weir.TokenBucket:
			l.Burst = r.Int64N(30)
		case weir.SlidingBuckets:
			l.Buckets = 1 + r.IntN(20)
		case weir.FixedWindow:
			l.Epoch = r.IntN(2) == 0
		}
		h := newHistory(t, fmt.Sprintf("seed %d", seed), l)
		now, most := storetest.Epoch.UnixMicro(), h.Limit.Window
		for range 80 {
			now += max(0, r.Int64N(most)-most/2)
			h.Steps = append(h.Steps, step{At: now, Cost: 1 + r.Int64N(1+l.Max/2), Peek: r.IntN(4) == 0})
		}
		all = append(all, h)
	}
	return all
}

// decided returns what weir decides.
func (h history) decided(t *testing.T) (all []outcome) {
	t.Helper()
	var now time.Time
	limiter := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return now }})})
	for _, s := range h.Steps {
		now = time.UnixMicro(s.At)
		mode := weir.Enforce
		if s.Peek {
			mode = weir.Peek
		}
		d, err := limiter.AllowAll(context.Background(), weir.Request{Key: "key", Limit: h.limit, Cost: s.Cost, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		verdict := map[weir.Reason]string{weir.OK: "ok", weir.OverLimit: "deny", weir.Never: "never"}[d.Reason]
		all = append(all, outcome{verdict, d.Remaining, d.RetryAfter.Microseconds(), d.ResetAfter.Microseconds()})
	}
	return all
}

// play returns what the page's algorithms decide.
func play(t *testing.T, histories []history) [][]outcome {
	t.Helper()
	text, err := json.Marshal(histories)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, serve(t), wide)
	return eval[[][]outcome](b, `import("/algorithms.js").then(({limiter}) => `+string(text)+`.map(({algorithm, limit, steps}) => {
		const {peek, take} = limiter(algorithm, limit);
		return steps.map(({at, cost, peek: peeks}) => (peeks ? peek : take)(at, cost));
	}))`)
}

// TestLongLimits holds that the page reads limits as weir does.
func TestLongLimits(t *testing.T) {
	texts := []string{
		"100/30m", "5/minute", "10/s burst=20", "50000/h buckets=60", "1/500us", "3/1h30m", "7/1.5s", "2/w", " 5/1m  epoch ", "2147483648/366d",
		"", "5", "0/s", "5/", "5/x", "-5/s", "5/0s", "5/367d", "2147483649/s", "5/s burst=0", "5/s burst", "5/s nonsense", "5/s=20", "a/b", "5/1m2", "5 / s",
	}
	text, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, serve(t), wide)
	got := eval[[]*limit](b, `import("/limit.js").then(({parseLimit}) => `+string(text)+`.map((text) => { try { return parseLimit(text) } catch { return null } }))`)
	read := 0
	for i, text := range texts {
		want, err := weir.ParseLimit(text)
		if (err == nil) != (got[i] != nil) {
			t.Errorf("%q: the page reads %+v, weir %+v, %v", text, got[i], want, err)
			continue
		}
		if err != nil {
			continue
		}
		read++
		l := limit{want.Max, want.Window.Microseconds(), want.Capacity(), 100, want.Epoch}
		if want.Buckets > 0 {
			l.Buckets = want.Buckets
		}
		if *got[i] != l {
			t.Errorf("%q: the page reads %+v, weir %+v", text, *got[i], l)
		}
	}
	if i := slices.Index(texts, ""); read != i {
		t.Errorf("%d limits were read, want the first %d", read, i)
	}
}
