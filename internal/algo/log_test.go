package algo

import (
	"math/rand/v2"
	"testing"
)

// TestLogEdges walks a log of 3 in 10 past every edge.
func TestLogEdges(t *testing.T) {
	l := Make(SlidingLog, 3, 0, 10, 0, false)
	walk(t, &l, []edge{
		{0, 1, true, 2, 0, 10},
		{0, 3, false, 2, 10, 10},
		{4, 2, true, 0, 0, 10},
		{9, 1, false, 0, 1, 5},
		{9, 2, false, 0, 5, 5},
		{10, 1, true, 0, 0, 10},
		{13, 2, false, 0, 1, 7},
		{14, 2, true, 0, 0, 10},
		{14, 3, false, 0, 10, 10},
		{24, 3, true, 0, 0, 10},
		{34, 3, true, 0, 0, 10},
	})
}

// edge is a cost taken at a time, if it fits, and what is told after it.
type edge struct {
	at, cost                int64
	fits                    bool
	remaining, retry, reset int64
}

func walk(t *testing.T, l *Limit, edges []edge) {
	t.Helper()
	var s State
	for _, e := range edges {
		fits, o := look(l, &s, e.at, e.cost)
		if fits {
			Charge(l, &s, e.at, e.cost)
			o = Decide(l, &s, e.at, 0)
		}
		if want := (Outcome{e.remaining, e.retry, e.reset}); fits != e.fits || o != want {
			t.Errorf("%s: at %d, %d: fits=%t %+v, want %t %+v", l, e.at, e.cost, fits, o, e.fits, want)
		}
	}
}

// TestBucketsEdges: units of one part count as long as the newest of them.
func TestBucketsEdges(t *testing.T) {
	l := Make(SlidingBuckets, 3, 0, 100, 10, false)
	walk(t, &l, []edge{
		{0, 1, true, 2, 0, 100},
		{9, 1, true, 1, 0, 100},
		{10, 1, true, 0, 0, 100},
		{99, 1, false, 0, 10, 11},
		{108, 1, false, 0, 1, 2},
		{109, 2, true, 0, 0, 100},
		{109, 1, false, 0, 1, 100},
		{110, 1, true, 0, 0, 100},
	})
}

// TestPartsAreEven: each part is Part long, before zero, across it and after.
func TestPartsAreEven(t *testing.T) {
	l := Make(SlidingBuckets, 1000, 0, 100, 10, false)
	for from := int64(-50); from < 50; from += 10 {
		var s State
		Charge(&l, &s, from, 1)
		for d := range int64(10) {
			if AddsCell(&l, &s, from+d) {
				t.Errorf("%d and %d are in two parts", from, from+d)
				break
			}
		}
		if !AddsCell(&l, &s, from+10) {
			t.Errorf("%d and %d are in one part of 10", from, from+10)
		}
	}
}

// TestAddsCell foretells what Charge does, so that a store can make room.
func TestAddsCell(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 5000 {
		l, s, now := randomState(r)
		if !l.Kind.HasCells() {
			continue
		}
		now += r.Int64N(l.Window+1) - l.Window/2
		Settle(&l, &s, now)
		adds, before := AddsCell(&l, &s, now), len(s.Cells)
		if adds && r.IntN(2) == 0 {
			Compact(&l, &s)
			before = len(s.Cells)
		}
		Charge(&l, &s, now, 1)
		if grown := len(s.Cells) - before; grown > 1 || grown > 0 && !adds {
			t.Fatalf("%s: it adds a cell: %t, but %d were added", l, adds, grown)
		}
	}
}

// TestCompact drops what no decision can see: nothing is decided otherwise
// from a Window before the newest stamp on.
func TestCompact(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	dropped := 0
	for range 5000 {
		l, s, _ := randomState(r)
		if !l.Kind.HasCells() {
			continue
		}
		small := clone(s)
		Compact(&l, &small)
		dropped += len(s.Cells) - len(small.Cells)
		if most := 5 * l.Max; int64(len(small.Cells)) > most {
			t.Fatalf("%s: %d cells are left for %d units", l, len(small.Cells), most)
		}
		for now := s.T - l.Window; now < s.T+2*l.Window; now++ {
			for cost := range l.Max {
				fits, want := look(&l, &s, now, cost+1)
				if got, o := look(&l, &small, now, cost+1); got != fits || o != want {
					t.Fatalf("%s: at %d, %d: %+v decides otherwise than %+v", l, now, cost+1, small, s)
				}
			}
			for d := range l.Window {
				if Count(&l, &s, now, d+1) != Count(&l, &small, now, d+1) {
					t.Fatalf("%s: at %d, the last %d: %+v counts otherwise than %+v", l, now, d+1, small, s)
				}
			}
		}
	}
	if dropped == 0 {
		t.Error("nothing was ever compacted")
	}
}

// look tells whether a cost fits and what a caller is told, without taking.
func look(l *Limit, s *State, now, cost int64) (bool, Outcome) {
	if Fits(l, s, now, cost) {
		return true, Decide(l, s, now, 0)
	}
	return false, Decide(l, s, now, cost)
}

// TestLogRemembers: a charge far above the limit delays what follows by a
// Window, and what is remembered of it stays bounded.
func TestLogRemembers(t *testing.T) {
	for _, kind := range []Kind{SlidingLog, SlidingBuckets} {
		l := Make(kind, 3, 0, 100, 100, false)
		var s State
		for now := range int64(10_000) {
			Charge(&l, &s, now, 1+now%5)
			if len(s.Cells) > 64 {
				Compact(&l, &s)
			}
			if len(s.Cells) > 64 {
				t.Fatalf("%s: %d cells for a limit of 3", l, len(s.Cells))
			}
		}
		if o := Decide(&l, &s, 9999, 1); o.Retry != 100 {
			t.Errorf("%s: %+v", l, o)
		}
	}
}

// TestLogRefundIsSound keeps a naive account beside the log: whatever is taken,
// charged beyond the limit and given back, under whatever changes of Max, the
// log never counts fewer units than are live, and exactly those for as long as
// nothing was charged beyond twice the limit.
func TestLogRefundIsSound(t *testing.T) {
	type charge struct {
		at, units int64
		mark      Mark
	}
	r := rand.New(rand.NewPCG(8, 8))
	for round := range 20_000 {
		window := 1 + r.Int64N(30)
		l := Make(SlidingLog+Kind(round%2), 1+r.Int64N(6), 0, window, 1+r.Int64N(5), false)
		var charges []charge
		var s State
		now, exact := r.Int64N(100)-50, l.Kind == SlidingLog
		for range 1 + r.IntN(25) {
			now += r.Int64N(window/2 + 2)
			if round%3 == 0 {
				l.Max = 1 + r.Int64N(6)
				l.Burst = l.Max
			}
			switch verb := r.IntN(10); {
			case verb < 3 && len(charges) > 0:
				c := &charges[max(0, len(charges)-1-r.IntN(5))]
				c.units -= Refund(&l, &s, now, min(c.units, 1+r.Int64N(3)), c.mark)
			case verb == 3:
				k := RefundOldest(&l, &s, now, 1+r.Int64N(3))
				for i := range charges {
					if c := &charges[i]; c.at > now-window {
						back := min(k, c.units)
						c.units, k = c.units-back, k-back
					}
				}
				exact = false // of units merged, which are the oldest?
			case verb == 4 && r.IntN(3) == 0:
				Compact(&l, &s)
			default:
				cost := 1 + r.Int64N(l.Max)
				if verb == 5 {
					cost = 1 + r.Int64N(4*l.Max)
				}
				if Fits(&l, &s, now, cost) || verb == 5 {
					charges = append(charges, charge{now, cost, Charge(&l, &s, now, cost)})
					exact = exact && logLive(&l, &s, now, window) <= 2*l.Max
				}
			}
			var live int64
			for _, c := range charges {
				if c.at > now-window {
					live += c.units
				}
			}
			if got := logLive(&l, &s, now, window); got < live || exact && got != live {
				t.Fatalf("%s: at %d, %d units are counted and %d are live (exact: %t): %+v of %+v", l, now, got, live, exact, s, charges)
			}
		}
	}
}
