package algo

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestBucketEdges(t *testing.T) {
	l := Make(TokenBucket, 2, 3, 10, 0, false) // a unit every 5
	walk(t, &l, []edge{
		{0, 3, true, 0, 0, 15},
		{0, 1, false, 0, 5, 15},
		{4, 1, false, 0, 1, 11},
		{4, 3, false, 0, 11, 11},
		{5, 1, true, 0, 0, 15},
		{9, 1, false, 0, 1, 11},
		{14, 1, true, 0, 0, 11}, // 4 of 5 drained of the next
		{15, 1, true, 0, 0, 15},
		{100, 3, true, 0, 0, 15},
		{1000, 2, true, 1, 0, 10},
		{1000, 2, false, 1, 5, 10},
	})
}

// TestBucketNeverDrifts asks far more often than units drain, at rates that
// divide nothing: what is admitted is Burst + floor(Max*T/Window) exactly, for
// as long as one asks and the bucket never runs empty.
func TestBucketNeverDrifts(t *testing.T) {
	for _, tt := range []struct{ max, window, burst, step int64 }{
		{1, 7_000_000, 2, 1_000},
		{1, 7_000_000, 3, 999},
		{3, 7, 2, 1},
		{7, 3_000_001, 7, 1_001},
		{999_983, 1_000_003, 5, 1},
		{1, largestWindow, 2, largestWindow / 9_973},
		{largestUnits, largestWindow, 10, 1},
		{largestUnits - 1, largestWindow, 2, 7},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			l := Make(TokenBucket, tt.max, tt.burst, tt.window, 0, false)
			r := rand.New(rand.NewPCG(6, 6))
			const start = 1_767_225_600_000_000
			var s State
			now, admitted := int64(start), int64(0)
			for range 100_000 {
				for Fits(&l, &s, now, 1) {
					Charge(&l, &s, now, 1)
					admitted++
				}
				drained := new(big.Int).Mul(big.NewInt(now-start), big.NewInt(tt.max))
				drained.Div(drained, big.NewInt(tt.window))
				if want := tt.burst + drained.Int64(); admitted != want {
					t.Fatalf("after %d: %d were admitted, want %d", now-start, admitted, want)
				}
				now += 1 + r.Int64N(tt.step)
			}
		})
	}
}

// TestBucketRefundIsSound: whatever is taken and given back, in whatever order
// and under whatever changes of Max, it leaves no more room than if what came
// back had never been taken.
func TestBucketRefundIsSound(t *testing.T) {
	type charge struct {
		limit     Limit
		at, units int64
		mark      Mark
	}
	r := rand.New(rand.NewPCG(7, 7))
	for round := range 40_000 {
		window, burst := 1+r.Int64N(20), 1+r.Int64N(9)
		l := Make(TokenBucket, 1+r.Int64N(5), burst, window, 0, false)
		var charges []charge
		var s State
		now := int64(0)
		for range 1 + r.IntN(12) {
			now += r.Int64N(2*window/l.Max + 2)
			if i := len(charges) - 1 - r.IntN(4); i >= 0 && r.IntN(2) == 0 {
				c := &charges[i]
				c.units -= Refund(&c.limit, &s, now, min(c.units, 1+r.Int64N(3)), c.mark)
			} else {
				if round%2 == 0 {
					l.Max = 1 + r.Int64N(5)
				}
				if cost := 1 + r.Int64N(burst); Fits(&l, &s, now, cost) {
					charges = append(charges, charge{l, now, cost, Charge(&l, &s, now, cost)})
				}
			}
			// never is the bucket in which what came back was never taken.
			var never State
			for _, c := range charges {
				Charge(&c.limit, &never, c.at, c.units)
			}
			if got, most := Decide(&l, &s, now, 0).Remaining, Decide(&l, &never, now, 0).Remaining; got > most {
				t.Fatalf("%s: at %d, %d are left, but never having taken what came back leaves %d: %+v", l, now, got, most, charges)
			}
		}
	}
}
