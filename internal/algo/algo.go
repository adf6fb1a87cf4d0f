// Package algo holds the limiting algorithms as pure integer functions: no
// clock, no lock, no I/O. Every store runs them, or a port of them checked
// against them, so a limit means the same thing everywhere.
//
// Each algorithm is one file whose opening comment is its specification. The
// functions here pick the algorithm; they are what a store calls, in this
// order, on the state it keeps for one identity:
//
//	Settle            repairs a state stamped too far ahead (a clock that stepped back)
//	Fits              would this cost pass now?            the reading half of step
//	Charge            record it                            the writing half of step
//	Decide            what the caller is told
//
// Time is in microseconds of the store's clock. Intervals are half-open: a
// unit taken at t stops counting at exactly t+Window. Stamps never decrease:
// what is charged at now is stamped max(now, newest stamp).
package algo

import (
	"math"
	"math/bits"
)

// Kind names an algorithm.
type Kind uint8

// The algorithms. The numbers are part of stored state: never renumber them.
const (
	SlidingLog Kind = 1 + iota
	SlidingBuckets
	SlidingCounter
	FixedWindow
	TokenBucket
)

const (
	// maxRecorded caps what windows and buckets remember, however often Charge
	// is called: twice the largest limit.
	maxRecorded = 1 << 32
	// maxLogged and maxInBuckets do so for logs: far more than twice the largest
	// limit, and few enough that running totals of 24 and 40 bits can wrap around.
	maxLogged    = 1<<23 - 1
	maxInBuckets = 1<<39 - 1
	// maxWait caps a wait, so that it fits a time.Duration and, added to any
	// clock reading, stays below 2^53 microseconds.
	maxWait = 1 << 52
)

// Limit is a validated limit with every default filled in.
type Limit struct {
	Kind   Kind
	Max    int64 // units per Window
	Burst  int64 // capacity of a token bucket; else equal to Max
	Window int64 // microseconds
	Part   int64 // width of a part of the window in microseconds; 1 for the log
	Epoch  bool  // fixed-window only: windows start at multiples of Window
}

// State is what is kept for one identity. Its fields mean what the algorithm's
// file says; the zero State is an unused key.
type State struct {
	T, N, R, V, M int64
	Cells         []Cell
}

// Cell is one older stamp of a log and the running total up to and including it.
type Cell struct{ T, Sum int64 }

// Mark is what a Receipt remembers of the state it was charged to.
type Mark struct {
	Stamp int64 // the stamp of the charge, or the start of its window
	Level int64 // token bucket: units owed just after the charge
	Place int64 // token bucket: the place in line behind its last unit
	Back  int64 // token bucket: units ever given back before it
}

// Outcome is a decision on one state, in microseconds and units.
type Outcome struct {
	Remaining int64
	Retry     int64 // least wait after which the cost fits; 0 if it fits now or never will
	Reset     int64 // wait after which the state is as good as unused
}

// Settle makes a state that is stamped more than one Window ahead of now (the
// clock stepped back) as if it had been charged now, so that a step never
// delays anything by more than one Window. It reports whether it changed s.
func Settle(l *Limit, s *State, now int64) bool {
	if s.newest(l)-now <= l.Window || s.empty(l) {
		return false
	}
	switch l.Kind {
	case SlidingLog, SlidingBuckets:
		logRestamp(l, s, now)
	case SlidingCounter, FixedWindow:
		s.T, s.V = windowStart(l, now), now
	default:
		s.T = now
	}
	return true
}

// newest returns the stamp of the last charge.
func (s *State) newest(l *Limit) int64 {
	if l.Kind == SlidingCounter || l.Kind == FixedWindow {
		return s.V
	}
	return s.T
}

// empty reports whether nothing is recorded, so that the stamp means nothing.
func (s *State) empty(l *Limit) bool {
	switch l.Kind {
	case SlidingLog, SlidingBuckets:
		return s.N == s.R
	case SlidingCounter:
		return s.N == 0 && s.R == 0
	default:
		return s.N == 0
	}
}

// Fits reports whether cost units would be admitted at now. s must be settled.
func Fits(l *Limit, s *State, now, cost int64) bool {
	switch l.Kind {
	case SlidingLog, SlidingBuckets:
		return logFits(l, s, now, cost)
	case SlidingCounter:
		return counterFits(l, s, now, cost)
	case FixedWindow:
		return windowFits(l, s, now, cost)
	default:
		return bucketFits(l, s, now, cost)
	}
}

// Charge records cost units at now, whether they fit or not, and returns the
// mark by which exactly these units can be given back. s must be settled.
func Charge(l *Limit, s *State, now, cost int64) Mark {
	switch l.Kind {
	case SlidingLog, SlidingBuckets:
		logCharge(l, s, now, cost)
	case SlidingCounter:
		counterCharge(l, s, now, cost)
	case FixedWindow:
		windowCharge(l, s, now, cost)
	default:
		bucketCharge(l, s, now, cost)
	}
	return Last(l, s)
}

// Last returns the mark of the charge that s was written by.
func Last(l *Limit, s *State) Mark {
	if l.Kind == TokenBucket {
		return Mark{Stamp: s.T, Level: s.N, Place: (s.V + s.N) % lineLength, Back: s.M}
	}
	return Mark{Stamp: s.T}
}

// Decide tells what a caller learns from s at now. cost is the cost that was
// found not to fit, or 0 when there is nothing to wait for.
func Decide(l *Limit, s *State, now, cost int64) Outcome {
	if cost > l.Burst {
		cost = 0
	}
	switch l.Kind {
	case SlidingLog, SlidingBuckets:
		return logDecide(l, s, now, cost)
	case SlidingCounter:
		return counterDecide(l, s, now, cost)
	case FixedWindow:
		return windowDecide(l, s, now, cost)
	default:
		return bucketDecide(l, s, now, cost)
	}
}

// Refund gives back up to cost of the units charged under m, as many as are
// still recorded there, and returns how many. s must be settled.
func Refund(l *Limit, s *State, now, cost int64, m Mark) int64 {
	switch l.Kind {
	case SlidingLog, SlidingBuckets:
		return logRefund(l, s, now, cost, m)
	case SlidingCounter:
		return counterRefund(l, s, now, cost, m)
	case FixedWindow:
		return windowRefund(l, s, now, cost, m)
	default:
		return bucketRefund(l, s, now, cost, m)
	}
}

// RefundOldest gives back up to cost units, the oldest live ones first, and
// returns how many. s must be settled.
func RefundOldest(l *Limit, s *State, now, cost int64) int64 {
	switch l.Kind {
	case SlidingLog, SlidingBuckets:
		return logRefundOldest(l, s, now, cost)
	case SlidingCounter:
		return counterRefundOldest(l, s, now, cost)
	case FixedWindow:
		return windowRefundOldest(l, s, now, cost)
	default:
		return bucketRefundOldest(l, s, now, cost)
	}
}

// Counts reports whether Count is defined for the algorithm.
func (k Kind) Counts() bool { return k == SlidingLog || k == SlidingBuckets }

// HasCells reports whether the algorithm keeps Cells.
func (k Kind) HasCells() bool { return k == SlidingLog || k == SlidingBuckets }

// mulDivFloor returns floor(a*b/d) for non-negative a, b and positive d, or
// math.MaxInt64 if that is larger, and the remainder (0 when saturated).
func mulDivFloor(a, b, c, d int64) (q, r int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c), 0)
	hi += carry
	if hi >= uint64(d) {
		return math.MaxInt64, 0
	}
	uq, ur := bits.Div64(hi, lo, uint64(d))
	if uq > math.MaxInt64 {
		return math.MaxInt64, 0
	}
	return int64(uq), int64(ur)
}

// mulDivCeil returns ceil((a*b-c)/d), saturated like mulDivFloor; a*b >= c.
func mulDivCeil(a, b, c, d int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, borrow := bits.Sub64(lo, uint64(c), 0)
	hi -= borrow
	if hi >= uint64(d) {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, uint64(d))
	if q >= math.MaxInt64 {
		return math.MaxInt64
	}
	if r > 0 {
		q++
	}
	return int64(q)
}

// later returns how long until t, never negative and never above maxWait.
func later(t, now int64) int64 { return min(max(0, t-now), maxWait) }

// Make returns a Limit. burst and buckets count only where the kind has them.
func Make(kind Kind, limit, burst, window, buckets int64, epoch bool) Limit {
	l := Limit{Kind: kind, Max: limit, Burst: limit, Window: window, Part: 1, Epoch: epoch}
	switch kind {
	case TokenBucket:
		l.Burst = burst
	case SlidingBuckets:
		l.Part = (window + buckets - 1) / buckets
	}
	return l
}
