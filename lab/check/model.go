package check

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// world is the pure states of all that a part of a history is about.
type world struct {
	states []state
	now    int64         // the latest time that is known to have passed, in microseconds of the callers' clock
	ahead  time.Duration // of the store's clock before theirs
	past   *world        // the one before; kept if a loss brings it back
}

// state is the pure state of a key.
type state struct {
	algo.State

	birth int64 // when it was first charged after a reset; 0 before that
	any   bool  // an Op that may have changed it did so, or not
}

func (s *state) equal(o *state) bool {
	return s.T == o.T && s.N == o.N && s.R == o.R && s.V == o.V && s.M == o.M &&
		s.birth == o.birth && s.any == o.any && slices.Equal(s.Cells, o.Cells)
}

func (w *world) equal(o *world) bool {
	for ; w != o; w, o = w.past, o.past {
		if w == nil || o == nil || w.now != o.now || w.ahead != o.ahead ||
			!slices.EqualFunc(w.states, o.states, func(a, b state) bool { return a.equal(&b) }) {
			return false
		}
	}
	return true
}

// input is an Op, and what of the world it is about: a state and its limit for
// each request or receipt.
type input struct {
	*Op

	from, to int64 // when it can have been done, in microseconds of the callers' clock
	states   []int
	limits   []algo.Limit
	judged   bool // its answer is the store's
	keep     bool // the past
}

// answer is all that a client was told.
type answer struct {
	rows []told
	n    int64
}

// told is all that was told about one request.
type told struct {
	allowed                bool
	reason                 weir.Reason
	limit, remaining       int64
	retryAfter, resetAfter time.Duration
	mark                   algo.Mark
}

func (o *Op) answer() answer {
	a := answer{n: o.N}
	for _, d := range o.Rows {
		a.rows = append(a.rows, told{
			d.Allowed, d.Reason, d.Limit, d.Remaining, d.RetryAfter, d.ResetAfter, markOf(&d.Receipt),
		})
	}
	return a
}

func markOf(r *weir.Receipt) algo.Mark {
	return algo.Mark{Stamp: r.Stamp, Level: r.Level, Place: r.Place, Back: r.Back}
}

func (a *answer) equal(b *answer) bool { return a.n == b.n && slices.Equal(a.rows, b.rows) }

// reaches orders the answers that one question gets from one world by the time
// of asking: stamps never decrease, and of those of one stamp, as of those
// without, what is left to wait, refund, count or reset never increases. It
// reports whether a comes at the time of b or later, for each row.
func (a *answer) reaches(b *answer) bool {
	for i := range a.rows {
		x, y := &a.rows[i], &b.rows[i]
		if cmp.Or(cmp.Compare(x.mark.Stamp, y.mark.Stamp), cmp.Compare(y.resetAfter, x.resetAfter)) < 0 {
			return false
		}
	}
	return a.n <= b.n
}

// step looks for a time at which the world gives the answer of an Op, and
// returns the world after it. No answer says when it was made, but there must
// be a time between question and answer, and not before that of an earlier
// one. If there are several, the worlds that they leave behind differ in nothing
// that can be asked later, and the first of them rules out least.
func (w *world) step(in *input) (bool, *world) {
	switch {
	case in.Verb == Stepped:
		next := *w
		next.ahead += in.By
		return true, &next
	case in.Verb == Lost:
		return true, w.lose(in)
	case !in.judged && in.At.IsZero(), w.uncertain(in.states):
		return true, w.doubt(in)
	}
	a := in.answer()
	from := max(in.from, w.now)
	n := int(in.to - from + 1)
	i := 0
	if in.judged {
		i = sort.Search(n, func(i int) bool {
			_, got := w.at(from+int64(i), in)
			return got.reaches(&a)
		})
	}
	if i >= n {
		return false, w
	}
	next, got := w.at(from+int64(i), in)
	return !in.judged || got.equal(&a), next
}

// lose returns the world that is left of w. What is lost is no longer its past.
func (w *world) lose(in *input) *world {
	next := &world{states: make([]state, len(w.states)), now: w.now, ahead: w.ahead}
	if in.To.IsZero() {
		return next
	}
	left, to := w, in.To.UnixMicro()
	for left.past != nil && left.now > to {
		left = left.past
	}
	next.states, next.past = left.states, left
	return next
}

func (w *world) uncertain(states []int) bool {
	return slices.ContainsFunc(states, func(i int) bool { return w.states[i].any })
}

// doubt is step for an Op that may have changed its states, or that met such
// ones. A reset makes them certain again.
func (w *world) doubt(in *input) *world {
	next := *w
	next.states = slices.Clone(w.states)
	for _, i := range in.states {
		next.states[i] = state{any: !in.judged || in.Verb != Cleared}
	}
	return &next
}

// at does what an Op says at a time, and returns the world after it.
func (w *world) at(now int64, in *input) (*world, answer) {
	next := &world{states: slices.Clone(w.states), now: now, ahead: w.ahead}
	if in.keep {
		next.past = w
	}
	t := now + w.ahead.Microseconds()
	for i, at := range in.states {
		s := &next.states[at]
		s.Cells = slices.Clone(s.Cells)
		algo.Settle(&in.limits[i], &s.State, t)
	}
	a := answer{}
	if in.Verb == Taken {
		a.rows = next.take(t, in)
	} else {
		a.n = next.count(t, in)
	}
	for i, at := range in.states {
		if in.limits[i].Kind.HasCells() {
			algo.Compact(&in.limits[i], &next.states[at].State)
		}
	}
	return next, a
}

// count is at for what is answered by a number.
func (w *world) count(now int64, in *input) (n int64) {
	for i, at := range in.states {
		s, l := &w.states[at], &in.limits[i]
		switch in.Verb {
		case Refunded:
			if r := &in.Receipts[i]; r.Stamp >= s.birth {
				n += algo.Refund(l, &s.State, now, r.Units, markOf(r))
			}
		case Counted:
			n += algo.Count(l, &s.State, now, in.Last.Microseconds())
		default:
			if algo.Decide(l, &s.State, now, 0).Reset > 0 {
				n++
			}
			*s = state{}
		}
	}
	return n
}

// take is at for a list.
func (w *world) take(now int64, in *input) []told {
	rows := make([]told, len(in.Requests))
	admitted := true
	for i := range rows {
		s, l, r := &w.states[in.states[i]], &in.limits[i], &in.Requests[i]
		if in.forgot(i, now) && algo.Decide(l, &s.State, now, 0).Reset == 0 {
			*s = state{}
		}
		rows[i].allowed = algo.Fits(l, &s.State, now, r.Cost)
		admitted = admitted && (rows[i].allowed || r.Mode != weir.Enforce)
	}
	for i := range rows {
		s, l, r := &w.states[in.states[i]], &in.limits[i], &in.Requests[i]
		switch fits := rows[i].allowed; {
		case r.Mode == weir.Record, admitted && fits && r.Mode != weir.Peek:
			rows[i].allowed = true
			rows[i].mark = algo.Charge(l, &s.State, now, r.Cost)
			if s.birth == 0 || rows[i].mark.Stamp < s.birth { // the clock stepped back
				s.birth = min(now, rows[i].mark.Stamp)
			}
		}
		rows[i].tell(l, s, now, r.Cost)
	}
	return rows
}

// forgot reports whether a receipt says that a state was new to the store. It
// may forget what is of no use any more.
func (in *input) forgot(i int, now int64) bool {
	if !in.judged || in.Rows[i].Receipt.IsZero() {
		return false
	}
	r := &in.Rows[i].Receipt
	return r.Birth == now || r.Request.Limit.Algorithm == weir.TokenBucket && r.Place == r.Level && r.Back == 0
}

func (d *told) tell(l *algo.Limit, s *state, now, cost int64) {
	d.limit = l.Burst
	switch {
	case d.allowed:
		cost = 0
	case cost > l.Burst:
		d.reason, cost = weir.Never, 0
	default:
		d.reason = weir.OverLimit
	}
	o := algo.Decide(l, &s.State, now, cost)
	d.remaining = o.Remaining
	d.retryAfter = time.Duration(o.Retry) * time.Microsecond
	d.resetAfter = time.Duration(o.Reset) * time.Microsecond
}
