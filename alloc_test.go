//go:build !race

// The race detector makes sync.Pool drop what it is given, so these bounds
// hold without it.

package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// scale divides the size of the largest tests; see race_test.go.
const scale = 1

// TestAllocations holds the bounds on one decision: none for a single key, one
// (the rows that are returned) for a list.
func TestAllocations(t *testing.T) {
	ctx := context.Background()
	const runs = 2000
	const most = 100_000 // more than all the runs take
	for _, limit := range everyAlgorithm(most, time.Hour) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			lim, store, clock := newFake(t, 0)
			list := func(prefix string) []weir.Request {
				return []weir.Request{{Key: prefix + "a", Limit: limit}, {Key: prefix + "b", Limit: limit, Mode: weir.Shadow}, {Key: prefix + "c", Limit: limit}}
			}
			few, full := list("few"), list("full")
			for _, r := range append(list("full"), weir.Request{Key: "full", Limit: limit}) {
				mustAllow(t, lim, r.Key, limit, most, true)
			}
			var lists [1]weir.List
			lists[0] = weir.List{Requests: few, Rows: make([]weir.Decision, 3)}
			for _, tt := range []struct {
				name    string
				allocs  float64
				allowed bool
				do      func() (weir.Decision, error)
			}{
				{"Allow", 0, true, func() (weir.Decision, error) { return lim.Allow(ctx, "few", limit) }},
				{"Allow denied", 0, false, func() (weir.Decision, error) { return lim.Allow(ctx, "full", limit) }},
				{"AllowN", 0, true, func() (weir.Decision, error) { return lim.AllowN(ctx, "fewN", limit, 2) }},
				{"AllowN denied", 0, false, func() (weir.Decision, error) { return lim.AllowN(ctx, "full", limit, 3) }},
				{"AllowN never", 0, false, func() (weir.Decision, error) { return lim.AllowN(ctx, "full", limit, most+1) }},
				{"Peek", 0, true, func() (weir.Decision, error) { return lim.Peek(ctx, "few", limit) }},
				{"Peek denied", 0, false, func() (weir.Decision, error) { return lim.Peek(ctx, "full", limit) }},
				{"Peek unused", 0, true, func() (weir.Decision, error) { return lim.Peek(ctx, "unused", limit) }},
				{"Charge", 0, true, func() (weir.Decision, error) { return lim.Charge(ctx, "charged", limit, 3) }},
				{"AllowAll", 1, true, func() (weir.Decision, error) { return lim.AllowAll(ctx, few...) }},
				{"AllowAll denied", 1, false, func() (weir.Decision, error) { return lim.AllowAll(ctx, full...) }},
				{"AllowEach", 1, true, func() (weir.Decision, error) {
					ds, err := lim.AllowEach(ctx, few...)
					return ds[2], err
				}},
				{"AllowEach denied", 1, false, func() (weir.Decision, error) {
					ds, err := lim.AllowEach(ctx, full...)
					return ds[2], err
				}},
				{"Take", 0, true, func() (weir.Decision, error) {
					lim.Take(ctx, lists[:])
					return lists[0].Decide(), lists[0].Err
				}},
			} {
				got := testing.AllocsPerRun(runs, func() {
					d, err := tt.do()
					if err != nil || d.Allowed != tt.allowed {
						t.Fatalf("%s: %+v (%v)", tt.name, d, err)
					}
					clock.Advance(600 * time.Nanosecond)
				})
				if got > tt.allocs {
					t.Errorf("%s allocates %v times, want at most %v", tt.name, got, tt.allocs)
				}
			}
			if s := store.Stats(); s.Keys == 0 || s.Keys > 20 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestNewKeysAllocateRarely: a key that is new takes a slot that is there.
func TestNewKeysAllocateRarely(t *testing.T) {
	lim, _, _ := newFake(t, 2000)
	keys := keyNames("k", 20_000)
	i := 0
	got := testing.AllocsPerRun(len(keys)-1, func() {
		mustAllow(t, lim, keys[i], weir.PerHour(5), 1, true)
		i++
	})
	if got > 0 {
		t.Errorf("a new key in a full store allocates %v times", got)
	}
}
