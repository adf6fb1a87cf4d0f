package sim_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/sim"
)

// bursts is a log whose bursts straddle the boundaries of minutes: three
// addresses, a request every few seconds for an hour, and a dozen more just
// before and just after each full minute.
func bursts() string {
	random := rand.New(rand.NewPCG(1, 2))
	var log strings.Builder
	for sec := range 3600 {
		near := sec%60 < 3 || sec%60 > 57
		for _, ip := range []string{"a", "b", "c"} {
			for range random.IntN(5) {
				if near || random.IntN(20) == 0 {
					log.WriteString(line(ip, sec))
				}
			}
		}
	}
	return log.String()
}

// peak is the largest number of requests that an address was admitted in any
// window, found by looking at every window that ends with one.
func peak(t *testing.T, events []sim.Event, limit weir.Limit) int64 {
	t.Helper()
	most := int64(0)
	admitted := make(map[string][]time.Time)
	for _, e := range admittedOf(t, events, limit) {
		ip, n := e.Attributes["ip"], int64(1)
		for _, earlier := range admitted[ip] {
			if earlier.After(e.Time.Add(-limit.Window)) {
				n++
			}
		}
		admitted[ip] = append(admitted[ip], e.Time)
		most = max(most, n)
	}
	return most
}

// admittedOf returns the events that a limit per address admits.
func admittedOf(t *testing.T, events []sim.Event, limit weir.Limit) []sim.Event {
	t.Helper()
	r, err := sim.NewReplay(sim.Options{Policy: compile(t, perIP(limit)), Domain: "web"})
	if err != nil {
		t.Fatal(err)
	}
	var admitted []sim.Event
	for _, e := range events {
		if err := r.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if r.Report().Admitted > int64(len(admitted)) {
			admitted = append(admitted, e)
		}
	}
	return admitted
}

func TestAlgorithmsDifferAcrossBoundaries(t *testing.T) {
	_, events := read(t, strings.NewReader(bursts()))
	exact := naive(events, weir.PerMinute(10))
	tests := []struct {
		algorithm    weir.Algorithm
		buckets      int  // of 3 s, since parts below the log's 1 s make it exact
		bounded      bool // no window holds more than Max
		over, under  bool // it admits what the exact one denies; it denies what that admits
		more, differ bool // it admits more in all
	}{
		{algorithm: weir.SlidingLog, bounded: true},
		{algorithm: weir.SlidingBuckets, buckets: 20, bounded: true, over: true, under: true, differ: true},
		{algorithm: weir.SlidingCounter, over: true, under: true, differ: true},
		{algorithm: weir.FixedWindow, over: true, under: true, more: true, differ: true},
		{algorithm: weir.TokenBucket, over: true, under: true, more: true, differ: true},
	}
	for i, test := range tests {
		t.Run(test.algorithm.String(), func(t *testing.T) {
			limit := weir.Limit{Max: 10, Window: time.Minute, Algorithm: test.algorithm, Buckets: test.buckets}
			rule := replay(t, events, perIP(limit)).Rules[0]
			got := rule.Algorithms[i]
			if got.Algorithm != test.algorithm.String() || !got.Configured {
				t.Fatalf("place %d is %+v", i, got)
			}
			if got.Admitted != rule.Admitted || got.Denied != rule.Denied {
				t.Errorf("compared %+v, decided %d admitted, %d denied", got, rule.Admitted, rule.Denied)
			}
			if got.Admitted != exact+got.Over-got.Under {
				t.Errorf("%+v does not add up with %d admitted exactly", got, exact)
			}
			if got.Over > 0 != test.over || got.Under > 0 != test.under || got.Admitted > exact != test.more || got.Admitted != exact != test.differ {
				t.Errorf("%+v, exact admits %d; want %+v", got, exact, test)
			}
			if most := peak(t, events, limit); most <= 10 != test.bounded {
				t.Errorf("%d admitted within one window, want at most 10 to be %t", most, test.bounded)
			}
		})
	}
}

func TestComparisonKeepsTheLimitsOwnBurst(t *testing.T) {
	events := []sim.Event{at(0, "a"), at(0, "a"), at(0, "a")}
	for burst, want := range map[int64]int64{1: 1, 2: 2, 0: 3} {
		limit := weir.Limit{Max: 3, Window: time.Minute, Algorithm: weir.TokenBucket, Burst: burst}
		algorithms := replay(t, events, perIP(limit)).Rules[0].Algorithms
		if exact, bucket := algorithms[0], algorithms[4]; exact.Admitted != 3 || bucket.Admitted != want || bucket.Under != 3-want {
			t.Errorf("burst %d: exact %+v, token bucket %+v, want %d admitted", burst, exact, bucket, want)
		}
	}
}

func TestComparisonOfLimitsAboveWhatALogMayKeep(t *testing.T) {
	const most = 100_001
	rule := perIP(weir.PerHour(most))
	e := at(0, "a")
	events := make([]sim.Event, most+2)
	for i := range events {
		events[i] = e
	}
	for _, got := range replay(t, events, rule).Rules[0].Algorithms {
		if got.Admitted != most || got.Denied != 2 || got.Over+got.Under != 0 || got.Configured != (got.Algorithm == "sliding-buckets") {
			t.Errorf("%+v, want %d admitted and 2 denied, as every algorithm does at one time", got, most)
		}
	}
}
