package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// traits shape a random history.
type traits struct {
	algorithms []weir.Algorithm // empty: all
	steps      int
	only       []string        // verbs; empty: all
	back       bool            // the clock steps back now and then
	changes    bool            // Max and Burst change now and then
	keys       int             // 0: three
	sameMode   bool            // lists have Enforce rows only
	dense      bool            // many steps within each window
	windows    []time.Duration // empty: from one microsecond to a day
}

var algorithms = []weir.Algorithm{
	weir.SlidingLog, weir.SlidingBuckets, weir.SlidingCounter, weir.FixedWindow, weir.TokenBucket,
}

// windows are those of histories that name none.
var windows = []time.Duration{
	time.Microsecond, 7 * time.Microsecond, 10 * time.Microsecond, 100 * time.Microsecond,
	997 * time.Microsecond, time.Millisecond, time.Minute, 24 * time.Hour,
}

// history draws a history: limits with small counts and windows from one
// microsecond to days, and times that prefer the edges of windows and parts.
func history(r *rand.Rand, t traits) []Step {
	g := generator{r: r, traits: t, limits: make(map[string]weir.Limit)}
	if g.keys == 0 {
		g.keys = 3
	}
	for k := range g.keys {
		g.limit(fmt.Sprintf("k%d", k), g.draw())
	}
	for range t.steps {
		g.tick()
		g.step()
	}
	return g.out
}

type generator struct {
	traits
	r        *rand.Rand
	out      []Step
	limits   map[string]weir.Limit
	at       time.Duration
	receipts int
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (g *generator) draw() weir.Limit {
	kinds := g.algorithms
	if len(kinds) == 0 {
		kinds = algorithms
	}
	lengths := g.windows
	if len(lengths) == 0 {
		lengths = windows
	}
	l := weir.Limit{
		Max:       pick[int64](g.r, 1, 2, 2, 3, 3, 5, 5, 7, 12, 20, 30),
		Window:    pick(g.r, lengths...),
		Algorithm: pick(g.r, kinds...),
	}
	switch l.Algorithm {
	case weir.SlidingBuckets:
		l.Buckets = pick(g.r, 1, 2, 3, 10, 100)
	case weir.TokenBucket:
		l.Burst = pick[int64](g.r, 1, 2, 5, 20)
	case weir.FixedWindow:
		l.Epoch = g.r.IntN(3) == 0
	}
	return l
}

func (g *generator) limit(key string, l weir.Limit) {
	l, err := l.Normal()
	if err != nil {
		panic(err) // draw draws valid limits
	}
	g.limits[key] = l
	g.out = append(g.out, Step{Verb: "limit", Rows: []Row{{Name: key}}, Limit: l})
}

func (g *generator) key() string { return fmt.Sprintf("k%d", g.r.IntN(g.keys)) }

// tick moves the clock by an amount that means something to some limit.
func (g *generator) tick() {
	l := g.limits[g.key()]
	w := l.Window
	if g.dense {
		g.at += time.Duration(g.r.Int64N(int64(w)/16 + 1)).Truncate(time.Microsecond)
		return
	}
	part := max(time.Microsecond, w/time.Duration(max(1, l.Buckets)))
	emission := max(time.Microsecond, w/time.Duration(l.Max))
	d := pick(g.r, 0, 0, 1, emission, emission-1, part, part-1, w/2, w-1, w, w+1, 2*w, w/3+1)
	if d < 0 || d%time.Microsecond != 0 {
		d = d.Truncate(time.Microsecond) + time.Microsecond
	}
	if g.back && g.r.IntN(12) == 0 {
		d = -pick(g.r, time.Microsecond, part, w/2, w, w+time.Microsecond, 3*w).Truncate(time.Microsecond)
	}
	g.at += d
}

func (g *generator) step() {
	verbs := g.only
	if len(verbs) == 0 {
		verbs = []string{"take", "take", "take", "take", "all", "all", "peek", "charge", "refund", "refund", "oldest", "count", "reset"}
	}
	verb := pick(g.r, verbs...)
	if g.changes && g.r.IntN(15) == 0 {
		key := g.key()
		l := g.limits[key]
		l.Max = pick[int64](g.r, 1, 2, 4, 9)
		if l.Algorithm == weir.TokenBucket {
			l.Burst = pick[int64](g.r, 1, 3, 6)
		}
		g.limit(key, l)
	}
	s := Step{At: g.at, Verb: verb, Rows: []Row{g.row()}}
	l := g.limits[s.Rows[0].Name]
	switch verb {
	case "take", "charge":
		g.receipts++
		s.Receipt = fmt.Sprintf("r%d", g.receipts)
	case "all":
		g.receipts++
		s.Receipt = fmt.Sprintf("r%d", g.receipts)
		for range 1 + g.r.IntN(3) {
			row := g.row()
			if !g.sameMode {
				row.Mode = pick(g.r, weir.Enforce, weir.Enforce, weir.Shadow, weir.Peek, weir.Record)
			}
			s.Rows = append(s.Rows, row)
		}
	case "refund":
		if g.receipts == 0 {
			return
		}
		// Recent receipts are more often still recorded.
		back := min(g.receipts-1, g.r.IntN(1+g.r.IntN(6)))
		s.Receipt, s.N = fmt.Sprintf("r%d", g.receipts-back), pick[int64](g.r, 0, 0, 1, 2)
	case "count":
		if l.Algorithm != weir.SlidingLog && l.Algorithm != weir.SlidingBuckets {
			return
		}
		s.Last = max(time.Microsecond, time.Duration(g.r.Int64N(int64(l.Window)+1)).Truncate(time.Microsecond))
	}
	g.out = append(g.out, s)
}

func (g *generator) row() Row {
	key := g.key()
	l := g.limits[key]
	return Row{Name: key, Cost: pick(g.r, 1, 1, 1, 2, 1+g.r.Int64N(l.Capacity()+1))}
}

// property checks one history on a store; the step it returns is the first
// that shows the break, or the length of the history if it has no such.
type property func(Open, []Step) (int, error)

// search draws histories until one breaks the property, then shrinks it. With
// go test -short it draws a fifth of them.
func search(open Open, seed uint64, histories int, t traits, check property) error {
	if testing.Testing() && testing.Short() {
		histories = (histories + 4) / 5
	}
	for i := range histories {
		steps := history(rand.New(rand.NewPCG(seed, uint64(i))), t)
		at, err := check(open, steps)
		if err == nil {
			continue
		}
		short := shrink(open, steps[:min(at+1, len(steps))], check)
		_, err = check(open, short)
		return fail(short, "seed %d, history %d: %v", seed, i, err)
	}
	return nil
}

// shrink drops steps for as long as the rest still breaks the property.
func shrink(open Open, steps []Step, check property) []Step {
	for size := len(steps) / 2; size > 0; size /= 2 {
		for i := 0; i+size <= len(steps); {
			fewer := slices.Delete(slices.Clone(steps), i, i+size)
			if wellFormed(fewer) {
				if _, err := check(open, fewer); err != nil {
					steps = fewer
					continue
				}
			}
			i += size
		}
	}
	return steps
}

// wellFormed reports whether every key is used under some limit.
func wellFormed(steps []Step) bool {
	limited := make(map[string]bool)
	for _, s := range steps {
		for _, r := range s.Rows {
			if s.Verb == "limit" {
				limited[r.Name] = true
			} else if !limited[r.Name] {
				return false
			}
		}
	}
	return true
}

// play plays a history and returns the answer of each step.
func play(open Open, steps []Step) ([]answer, error) {
	p, err := newPlayer(open)
	if err != nil {
		return nil, err
	}
	defer p.store.Close()
	answers := make([]answer, len(steps))
	for i, s := range steps {
		if answers[i], err = p.do(s); err != nil {
			return answers[:i], fmt.Errorf("%s: %w", s, err)
		}
	}
	return answers, nil
}
