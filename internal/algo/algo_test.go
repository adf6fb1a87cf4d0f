package algo

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

const day = 86_400_000_000 // in microseconds

// largest is the largest of everything that a valid limit may have.
const (
	largestUnits  = 1 << 31
	largestWindow = 366 * day
	largestLog    = 100_000
)

// limitsOf returns a limit of n units per window for each algorithm.
func limitsOf(n, window int64) []Limit {
	var all []Limit
	for k := SlidingLog; k <= TokenBucket; k++ {
		if k != SlidingLog || n <= largestLog {
			all = append(all, Make(k, n, n, window, 10, false))
		}
	}
	return append(all, Make(FixedWindow, n, 0, window, 0, true))
}

func (l Limit) String() string {
	return fmt.Sprintf("kind=%d max=%d burst=%d window=%d part=%d epoch=%t", l.Kind, l.Max, l.Burst, l.Window, l.Part, l.Epoch)
}

// bigMulDiv is floor or ceil of (a*b+c)/d, saturated at the largest int64.
func bigMulDiv(a, b, c, d int64, ceil bool) (q, r int64) {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	n.Add(n, big.NewInt(c))
	bq, br := new(big.Int).DivMod(n, big.NewInt(d), new(big.Int))
	if ceil && br.Sign() > 0 {
		bq.Add(bq, big.NewInt(1))
	}
	if !bq.IsInt64() {
		return math.MaxInt64, 0
	}
	return bq.Int64(), br.Int64()
}

func checkMulDiv(t *testing.T, a, b, c, d int64) {
	t.Helper()
	q, r := mulDivFloor(a, b, c, d)
	if wq, wr := bigMulDiv(a, b, c, d, false); q != wq || q != math.MaxInt64 && r != wr {
		t.Fatalf("floor((%d*%d+%d)/%d) = %d rest %d, want %d rest %d", a, b, c, d, q, r, wq, wr)
	}
	if product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b)); product.Cmp(big.NewInt(c)) < 0 {
		return // mulDivCeil asks for a*b >= c
	}
	q = mulDivCeil(a, b, c, d)
	if wq, _ := bigMulDiv(a, b, -c, d, true); q != wq {
		t.Fatalf("ceil((%d*%d-%d)/%d) = %d, want %d", a, b, c, d, q, wq)
	}
}

func TestMulDiv(t *testing.T) {
	interesting := []int64{
		0, 1, 2, 3, 5, 7, 999_999, 1 << 31, 1<<31 + 1, 1<<32 - 1, 1 << 32, 1 << 33, 1<<40 - 1, 1 << 40,
		largestWindow, 1 << 52, 1<<53 - 1, 1 << 62, 1<<63 - 2, 1<<63 - 1,
	}
	// The quotient is 2^64-1 with a rest: one more must not wrap around.
	checkMulDiv(t, 1<<32, 1<<33, 1, 2)
	for _, a := range interesting {
		for _, b := range interesting {
			for _, c := range interesting {
				for _, d := range interesting[1:] {
					checkMulDiv(t, a, b, c, d)
				}
			}
		}
	}
}

func FuzzMulDiv(f *testing.F) {
	f.Add(int64(3), int64(7), int64(1), int64(2))
	f.Add(int64(1)<<40, int64(largestWindow), int64(largestWindow-1), int64(1))
	f.Add(int64(1)<<32, int64(1)<<33, int64(1), int64(2))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, a, b, c, d int64) {
		if a >= 0 && b >= 0 && c >= 0 && d > 0 {
			checkMulDiv(t, a, b, c, d)
		}
	})
}

func clone(s State) State {
	s.Cells = slices.Clone(s.Cells)
	return s
}

func same(a, b State) bool {
	return a.T == b.T && a.N == b.N && a.R == b.R && a.V == b.V && slices.Equal(a.Cells, b.Cells)
}

// TestBoundaries: a unit taken at t counts until t+Window-1 and stops counting
// at exactly t+Window, from one microsecond to the longest window, at any time.
func TestBoundaries(t *testing.T) {
	for _, window := range []int64{1, 2, 3, 1000, day, largestWindow} {
		for _, n := range []int64{1, 7, 100_000, largestUnits} {
			for _, at := range []int64{0, 1, -1, -largestWindow, 1_767_225_600_000_000, 1 << 52} {
				for _, l := range limitsOf(n, window) {
					at := at
					if l.Epoch { // its windows start where they start
						at = windowStart(&l, at)
					}
					full(t, l, at)
				}
			}
		}
	}
}

// full takes the whole limit at one time and looks at both ends of the wait.
func full(t *testing.T, l Limit, at int64) {
	var s State
	if o := Decide(&l, &s, at, 0); o != (Outcome{Remaining: l.Burst}) {
		t.Errorf("%s: unused: %+v", l, o)
	}
	if !Fits(&l, &s, at, l.Burst) || Fits(&l, &s, at, l.Burst+1) {
		t.Errorf("%s: unused, it fits other than %d", l, l.Burst)
	}
	Charge(&l, &s, at, l.Burst)
	for _, cost := range []int64{1, (l.Burst + 1) / 2, l.Burst} {
		if Fits(&l, &s, at, cost) {
			t.Errorf("%s: full at %d, %d fit", l, at, cost)
			continue
		}
		o := Decide(&l, &s, at, cost)
		if Fits(&l, &s, at+o.Retry-1, cost) || !Fits(&l, &s, at+o.Retry, cost) {
			t.Errorf("%s: full at %d: %d are the least wait for %d, but it fits %t before and %t then",
				l, at, o.Retry, cost, Fits(&l, &s, at+o.Retry-1, cost), Fits(&l, &s, at+o.Retry, cost))
		}
		after, before := Decide(&l, &s, at+o.Reset, 0), Decide(&l, &s, at+o.Reset-1, 0)
		if after != (Outcome{Remaining: l.Burst}) || before.Reset != 1 {
			t.Errorf("%s: full at %d: reset after %d, but then %+v and just before %+v", l, at, o.Reset, after, before)
		}
		if wait := l.Window; l.Kind == SlidingLog && (o.Retry != wait || o.Reset != wait) {
			t.Errorf("%s: %+v", l, o)
		}
	}
}

// TestPure: looking at a state changes nothing in it.
func TestPure(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		l, s, now := randomState(r)
		before := clone(s)
		for range 20 {
			at := now + r.Int64N(3*l.Window+1) - l.Window
			Fits(&l, &s, at, 1+r.Int64N(l.Burst))
			Decide(&l, &s, at, r.Int64N(l.Burst+2))
			AddsCell(&l, &s, at)
			if l.Kind.Counts() {
				Count(&l, &s, at, 1+r.Int64N(l.Window))
			}
		}
		if !same(s, before) {
			t.Fatalf("%s: looking changed %+v to %+v", l, before, s)
		}
	}
}

// randomState returns a state after some random charges and refunds.
func randomState(r *rand.Rand) (Limit, State, int64) {
	limits := limitsOf(1+r.Int64N(9), 1+r.Int64N(30))
	l := limits[r.IntN(len(limits))]
	if l.Kind == TokenBucket {
		l.Burst = 1 + r.Int64N(9)
	}
	var s State
	var marks []Mark
	now := r.Int64N(200) - 100
	for range r.IntN(30) {
		now += r.Int64N(l.Window/2 + 2)
		Settle(&l, &s, now)
		switch r.IntN(6) {
		case 0:
			if len(marks) > 0 {
				Refund(&l, &s, now, 1+r.Int64N(3), marks[r.IntN(len(marks))])
			}
		case 1:
			RefundOldest(&l, &s, now, 1+r.Int64N(3))
		case 2:
			marks = append(marks, Charge(&l, &s, now, 1+r.Int64N(2*l.Max)))
		default:
			if cost := 1 + r.Int64N(l.Burst); Fits(&l, &s, now, cost) {
				marks = append(marks, Charge(&l, &s, now, cost))
			}
		}
	}
	return l, s, now
}

// TestLeastWait: from any state, the wait is the least one and so is the
// reset, looked at microsecond by microsecond.
func TestLeastWait(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 5000 {
		l, s, now := randomState(r)
		cost := 1 + r.Int64N(l.Burst)
		o := Decide(&l, &s, now, 0)
		if !Fits(&l, &s, now, cost) {
			o = Decide(&l, &s, now, cost)
		}
		for wait := range o.Retry {
			if Fits(&l, &s, now+wait, cost) {
				t.Fatalf("%s %+v: at %d, %d fit after %d already, not only after %d", l, s, now, cost, wait, o.Retry)
			}
		}
		if !Fits(&l, &s, now+o.Retry, cost) {
			t.Fatalf("%s %+v: at %d, %d do not fit after %d", l, s, now, cost, o.Retry)
		}
		for wait := range o.Reset {
			if got := Decide(&l, &s, now+wait, 0).Reset; got != o.Reset-wait {
				t.Fatalf("%s %+v: at %d the reset is in %d, but after %d it is in %d", l, s, now, o.Reset, wait, got)
			}
		}
	}
}

// TestAsGoodAsUnused: a state with nothing to reset answers, from then on, what
// an unused one answers, so a store may forget it.
func TestAsGoodAsUnused(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 5000 {
		l, s, now := randomState(r)
		now += Decide(&l, &s, now, 0).Reset
		var fresh State
		for range 10 {
			cost := 1 + r.Int64N(l.Burst)
			fits := Fits(&l, &s, now, cost)
			if fits != Fits(&l, &fresh, now, cost) {
				t.Fatalf("%s %+v: at %d, %d fit: %t, other than in an unused state", l, s, now, cost, fits)
			}
			if fits {
				Charge(&l, &s, now, cost)
				Charge(&l, &fresh, now, cost)
			}
			if got, want := Decide(&l, &s, now, 0), Decide(&l, &fresh, now, 0); got != want {
				t.Fatalf("%s %+v: at %d, after %d units: %+v, where an unused state has %+v", l, s, now, cost, got, want)
			}
			now += r.Int64N(l.Window + 2)
		}
	}
}

// TestSettle: only a state that is stamped more than a Window ahead changes,
// and never twice.
func TestSettle(t *testing.T) {
	for _, l := range limitsOf(5, 1000) {
		for _, back := range []int64{0, 1, 999, 1000, 1001, 5000, 1 << 50} {
			s := State{}
			at := int64(1_000_000)
			Charge(&l, &s, at, 3)
			stamp := s.T
			before := clone(s)
			now := at - back
			want := stamp-now > l.Window
			if got := Settle(&l, &s, now); got != want || !want && !same(s, before) {
				t.Errorf("%s: a step back of %d: settled %t", l, back, got)
			}
			if Settle(&l, &s, now) {
				t.Errorf("%s: a step back of %d is settled twice", l, back)
			}
			if left := Decide(&l, &s, now, 0).Remaining; left != 2 {
				t.Errorf("%s: a step back of %d leaves %d of 2", l, back, left)
			}
			if o := Decide(&l, &s, now, 5); o.Retry > 3*l.Window {
				t.Errorf("%s: a step back of %d makes all wait %d", l, back, o.Retry)
			}
		}
		if s := (State{T: 1 << 52}); Settle(&l, &s, 0) {
			t.Errorf("%s: a state with nothing in it is settled", l)
		}
	}
}

// TestCountsNeverOverflow: charging the most there is, for ever, neither wraps
// around nor lets anything pass.
func TestCountsNeverOverflow(t *testing.T) {
	for _, n := range []int64{1, 100_000, largestUnits} {
		for _, window := range []int64{1, largestWindow} {
			for _, l := range limitsOf(n, window) {
				var s State
				now := int64(1_767_225_600_000_000)
				for range 3000 {
					Charge(&l, &s, now, 1<<41)
					if l.Kind.HasCells() {
						Compact(&l, &s)
					}
					o := Decide(&l, &s, now, 1)
					if Fits(&l, &s, now, 1) || o.Remaining != 0 || o.Retry <= 0 || o.Retry > maxWait || o.Reset < o.Retry || s.N < 0 || s.V < 0 {
						t.Fatalf("%s: %+v: %+v", l, s, o)
					}
					now += window/7 + 1
					if window == 1 && l.Kind == FixedWindow || window == 1 && l.Kind.HasCells() {
						now-- // stay in the window
					}
				}
			}
		}
	}
}

func TestNeverAsksForNoWait(t *testing.T) {
	for _, l := range limitsOf(5, 1000) {
		var s State
		for range 2 {
			for _, cost := range []int64{6, largestUnits, 1 << 41} {
				if Fits(&l, &s, 10, cost) || Decide(&l, &s, 10, cost).Retry != 0 {
					t.Errorf("%s: %d of 5: %+v", l, cost, Decide(&l, &s, 10, cost))
				}
			}
			Charge(&l, &s, 10, 3)
		}
	}
}

// TestMake fills in what a limit's kind has and leaves out what it has not.
func TestMake(t *testing.T) {
	for _, tt := range []struct {
		kind                   Kind
		burst, window, buckets int64
		wantBurst, wantPart    int64
	}{
		{SlidingLog, 0, 1000, 0, 5, 1},
		{SlidingBuckets, 0, 1000, 100, 5, 10},
		{SlidingBuckets, 0, 1000, 7, 5, 143},
		{SlidingBuckets, 0, 1, 10_000, 5, 1},
		{SlidingBuckets, 0, largestWindow, 1, 5, largestWindow},
		{SlidingCounter, 0, 1000, 0, 5, 1},
		{FixedWindow, 0, 1000, 0, 5, 1},
		{TokenBucket, 9, 1000, 0, 9, 1},
	} {
		if l := Make(tt.kind, 5, tt.burst, tt.window, tt.buckets, false); l.Burst != tt.wantBurst || l.Part != tt.wantPart || l.Max != 5 || l.Window != tt.window {
			t.Errorf("%+v makes %s", tt, l)
		}
	}
}
