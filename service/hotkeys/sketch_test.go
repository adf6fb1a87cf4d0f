package hotkeys_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/service/hotkeys"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// event is a key at a time.
type event struct {
	key string
	at  time.Time
}

// decayed counts exactly what a sketch estimates.
func decayed(events []event, halfLife time.Duration, now time.Time) (counts map[string]float64, total float64) {
	counts = make(map[string]float64)
	for _, e := range events {
		w := 1.0
		if halfLife > 0 {
			w = math.Exp2(-float64(now.Sub(e.at)) / float64(halfLife))
		}
		counts[e.key] += w
		total += w
	}
	return counts, total
}

// check compares a sketch with exact counts by all that it promises.
func check(t *testing.T, events []event, slots int, halfLife time.Duration) {
	t.Helper()
	s := hotkeys.New(slots, halfLife)
	for _, e := range events {
		s.Add(e.key, 1, e.at)
	}
	now := events[len(events)-1].at.Add(halfLife / 3)
	counts, total := decayed(events, halfLife, now)
	top, told := s.Top(slots+1, now)
	const tiny = 1e-6
	if math.Abs(told-total) > tiny*total || len(top) > slots {
		t.Fatalf("%d slots, half-life %v: total %v of %d keys, want %v", slots, halfLife, told, len(top), total)
	}
	bound := total/float64(slots) + tiny*total
	kept := make(map[string]bool)
	for i, e := range top {
		kept[e.Key] = true
		over := e.Count - counts[e.Key]
		if over < -tiny*total || over > e.Error+tiny*total || e.Error > bound {
			t.Errorf("%d slots, half-life %v: %q is estimated at %v within %v, and is %v; the bound is %v", slots, halfLife, e.Key, e.Count, e.Error, counts[e.Key], bound)
		}
		if i > 0 && e.Count > top[i-1].Count {
			t.Errorf("%q stands before %q", top[i-1].Key, e.Key)
		}
	}
	for key, n := range counts {
		if n > bound && !kept[key] {
			t.Errorf("%d slots, half-life %v: %q came %v times, above %v, and is not there", slots, halfLife, key, n, bound)
		}
	}
}

func TestBoundOnRandomStreams(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		keys := rand.NewZipf(random, 1.01+random.Float64(), 1+random.Float64(), 1+random.Uint64N(500))
		events := make([]event, 1+random.IntN(3000))
		at := start
		for i := range events {
			at = at.Add(time.Duration(random.IntN(int(100 * time.Millisecond))))
			events[i] = event{fmt.Sprint(keys.Uint64()), at}
		}
		for _, halfLife := range []time.Duration{0, time.Second, time.Minute} {
			check(t, events, 1+random.IntN(40), halfLife)
		}
	}
}

// The clients of a real log, whose lines end up out of order by some seconds.
func TestBoundOnAnAccessLog(t *testing.T) {
	text, err := os.ReadFile("../../../shared/data/access.log")
	if err != nil {
		if text, err = os.ReadFile("../../sim/testdata/access-extract.log"); err != nil {
			t.Fatal(err)
		}
	}
	var events []event
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		client, _, _ := strings.Cut(line, " ")
		events = append(events, event{client, start.Add(time.Duration(i) * 10 * time.Millisecond)})
	}
	for _, slots := range []int{1, 10, 100, 5000} {
		for _, halfLife := range []time.Duration{0, 5 * time.Second, time.Minute} {
			check(t, events, slots, halfLife)
		}
	}
}

func TestWeightsDoNotOverflow(t *testing.T) {
	s := hotkeys.New(3, time.Second)
	for i := range 10_000 {
		s.Add("a", 2, start.Add(time.Duration(i)*time.Minute))
	}
	top, total := s.Top(1, start.Add(9_999*time.Minute))
	if len(top) != 1 || math.Abs(top[0].Count-2) > 1e-6 || math.Abs(total-2) > 1e-6 {
		t.Errorf("got %v of %v", top, total)
	}
}

func TestTopOfNothing(t *testing.T) {
	if top, total := hotkeys.New(0, time.Second).Top(5, start); len(top) != 0 || total != 0 {
		t.Errorf("got %v of %v", top, total)
	}
}

func BenchmarkAdd(b *testing.B) {
	s := hotkeys.New(1000, time.Minute)
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprint(i * i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(keys[i*7919%len(keys)], 1, start.Add(time.Duration(i)*time.Microsecond))
	}
}
