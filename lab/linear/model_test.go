package linear

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// verb is what a client does to a key.
type verb string

const (
	take   verb = "take"
	peek   verb = "peek"
	charge verb = "charge"
	refund verb = "refund"
	count  verb = "count"
	reset  verb = "reset"
)

// question is what a client asked, and when.
type question struct {
	verb    verb
	key     string
	limit   weir.Limit
	cost    int64         // of take, peek and charge
	receipt weir.Receipt  // of refund
	last    time.Duration // of count
	// from and to are when it was sent and when the answer was there, in
	// microseconds of this machine's clock, which is the server's as well.
	from, to int64
}

// answer is all that a client was told.
type answer struct {
	allowed                bool
	reason                 weir.Reason
	limit, remaining       int64
	retryAfter, resetAfter time.Duration
	mark                   algo.Mark
	n                      int64 // refunded, counted or reset
	birth                  int64 // of the state that was charged; a store's own affair
}

func answerOf(d weir.Decision) answer {
	r := d.Receipt
	return answer{
		allowed: d.Allowed, reason: d.Reason, limit: d.Limit, remaining: d.Remaining, retryAfter: d.RetryAfter, resetAfter: d.ResetAfter,
		mark: algo.Mark{Stamp: r.Stamp, Level: r.Level, Place: r.Place, Back: r.Back}, birth: r.Birth,
	}
}

// outcome puts an operation among those that are alike.
func (q question) outcome(a answer) string {
	switch q.verb {
	case refund, count, reset:
		if a.n > 0 {
			return string(q.verb) + " of some"
		}
		return string(q.verb) + " of none"
	}
	if a.allowed {
		return string(q.verb) + " allowed"
	}
	return string(q.verb) + " denied"
}

// compare orders the answers that one question gets from one state by the time
// of asking: stamps never decrease, and of those of one stamp, as of those
// without, what is left to wait, refund, count or reset never increases.
func (a *answer) compare(b *answer) int {
	return cmp.Or(cmp.Compare(a.mark.Stamp, b.mark.Stamp), cmp.Compare(b.resetAfter, a.resetAfter), cmp.Compare(b.n, a.n))
}

// state is the pure state of a key.
type state struct {
	algo.State
	birth int64 // when it was first charged after a reset; 0 before that
	now   int64 // the latest time that is known to have passed
}

func (s *state) equal(o *state) bool {
	return s.T == o.T && s.N == o.N && s.R == o.R && s.V == o.V && s.M == o.M &&
		s.birth == o.birth && s.now == o.now && slices.Equal(s.Cells, o.Cells)
}

// model is the pure step, for each key by itself. No answer says when it was
// made, but there must be a time between question and answer, and not before
// that of an earlier answer, at which step gives it.
var model = porcupine.Model{
	Partition: byKey,
	Init:      func() any { return state{} },
	Step: func(before, input, output any) (bool, any) {
		s, q, a := before.(state), input.(question), output.(answer)
		return s.step(&q, &a)
	},
	Equal: func(a, b any) bool {
		s, o := a.(state), b.(state)
		return s.equal(&o)
	},
}

func describe(o porcupine.Operation) string {
	q, a := o.Input.(question), o.Output.(answer)
	about := fmt.Sprint(q.cost)
	switch q.verb {
	case refund:
		about = fmt.Sprintf("%d of %d", q.receipt.Units, q.receipt.Stamp)
	case count:
		about = q.last.String()
	}
	return fmt.Sprintf("\n\t%d to %d: %s %s: %+v", q.from, q.to, q.verb, about, a)
}

func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	keys := make(map[string][]porcupine.Operation)
	for _, o := range history {
		key := o.Input.(question).key
		keys[key] = append(keys[key], o)
	}
	var parts [][]porcupine.Operation
	for _, part := range keys {
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		parts = append(parts, part)
	}
	return parts
}

// step looks for a time at which q gets the answer a. If there are several, the
// states that they leave behind differ in nothing that can be asked later, and
// the first of them rules out least.
func (s *state) step(q *question, a *answer) (bool, state) {
	from := max(q.from, s.now)
	n := int(q.to - from + 1)
	i := sort.Search(n, func(i int) bool {
		_, got := s.at(from+int64(i), q, a.birth)
		return got.compare(a) >= 0
	})
	if i >= n {
		return false, *s
	}
	next, got := s.at(from+int64(i), q, a.birth)
	return got == *a, next
}

// at answers q at a time, and returns the state after it.
func (s *state) at(now int64, q *question, birth int64) (state, answer) {
	l := algo.Make(algo.Kind(q.limit.Algorithm), q.limit.Max, q.limit.Burst, q.limit.Window.Microseconds(), int64(q.limit.Buckets), q.limit.Epoch)
	next := state{s.State, s.birth, now}
	next.Cells = slices.Clone(s.Cells)
	algo.Settle(&l, &next.State, now)
	used := algo.Decide(&l, &next.State, now, 0).Reset > 0
	a := answer{}
	switch q.verb {
	case refund:
		r := &q.receipt
		if r.Stamp >= next.birth {
			a.n = algo.Refund(&l, &next.State, now, r.Units, algo.Mark{Stamp: r.Stamp, Level: r.Level, Place: r.Place, Back: r.Back})
		}
	case count:
		a.n = algo.Count(&l, &next.State, now, q.last.Microseconds())
	case reset:
		if used {
			a.n = 1
		}
		next = state{now: now}
	default:
		if !used && birth == now { // a store may forget what is of no use any more
			next.State, next.birth = algo.State{}, 0
		}
		a = next.decide(&l, q, birth)
	}
	if l.Kind.HasCells() {
		algo.Compact(&l, &next.State)
	}
	return next, a
}

// decide takes, charges or peeks at next.now.
func (s *state) decide(l *algo.Limit, q *question, birth int64) answer {
	a := answer{allowed: q.verb == charge || algo.Fits(l, &s.State, s.now, q.cost), limit: l.Burst}
	cost := int64(0)
	switch {
	case a.allowed && q.verb != peek:
		a.mark, a.birth = algo.Charge(l, &s.State, s.now, q.cost), birth
		if s.birth == 0 {
			s.birth = s.now
		}
	case a.allowed:
	case q.cost > l.Burst:
		a.reason = weir.Never
	default:
		a.reason, cost = weir.OverLimit, q.cost
	}
	o := algo.Decide(l, &s.State, s.now, cost)
	a.remaining = o.Remaining
	a.retryAfter = time.Duration(o.Retry) * time.Microsecond
	a.resetAfter = time.Duration(o.Reset) * time.Microsecond
	return a
}
