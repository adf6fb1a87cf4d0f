package check

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Extra is how many units more than Bound events may let pass under a limit
// from one time to another. The event of losing a state, for one, adds
// limit.Capacity().
type Extra func(limit weir.Limit, from, to time.Time) int64

// Bound is the most that a normal limit may admit in any interval of length d:
// what docs/guarantees.md states for normal operation.
func Bound(limit weir.Limit, d time.Duration) int64 {
	windows := max(1, int64((d+limit.Window-1)/limit.Window))
	switch limit.Algorithm {
	case weir.TokenBucket:
		n := new(big.Int).Mul(big.NewInt(limit.Max), big.NewInt(int64(d)))
		return limit.Burst + n.Quo(n, big.NewInt(int64(limit.Window))).Int64()
	case weir.SlidingCounter:
		return 2 * windows * limit.Max
	case weir.FixedWindow:
		return (windows + 1) * limit.Max
	}
	return windows * limit.Max
}

// Windows checks that no window of any key has admitted more than Bound and
// extra, which may be nil if nothing happened. The error shows the first that has.
//
// A Taken counts by what Enforce rows of it were admitted and Shadow rows
// charged, except rows admitted by OnFailureAllow, which nothing bounds; what
// was given back by the end of the window does not count. When within its call
// a store or share decided it is not known, so a window has it only if all of
// the call lies within: a window is never accused of too much. A Cleared within
// a window adds a capacity.
func Windows(ops []Op, extra Extra) error {
	if extra == nil {
		extra = func(weir.Limit, time.Time, time.Time) int64 { return 0 }
	}
	var first error
	for _, l := range ledgers(ops) {
		l.extra = extra
		if err := l.check(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// use is units admitted between two times.
type use struct {
	from, to time.Time
	cost     int64
	stamp    int64
	stored   bool // by the store, not a share
	returned []back
}

// back is units given back from a time on.
type back struct {
	from  time.Time
	units int64
}

// by is what of u has not been given back by a time.
func (u *use) by(t time.Time) int64 {
	n := u.cost
	for _, b := range u.returned {
		if !b.from.After(t) {
			n -= b.units
		}
	}
	return max(0, n)
}

// ledger is what was admitted of one state, by time of return.
type ledger struct {
	key    string
	limit  weir.Limit // the largest
	uses   []*use
	resets []Op
	extra  Extra
}

// ledgers puts what was admitted to the account of its state.
func ledgers(ops []Op) []*ledger {
	var all []*ledger
	of := make(map[identity]*ledger)
	ledgerOf := func(r *weir.Request) *ledger {
		id := identityOf(r)
		l := of[id]
		if l == nil {
			l = &ledger{key: r.Key, limit: r.Limit}
			of[id], all = l, append(all, l)
		}
		l.limit.Max, l.limit.Burst = max(l.limit.Max, r.Limit.Max), max(l.limit.Burst, r.Limit.Burst)
		return l
	}
	charges := make(map[uint64]*use)
	for i := range ops {
		o := &ops[i]
		for j := range o.Requests {
			r := &o.Requests[j]
			switch {
			case o.Verb == Cleared:
				l := ledgerOf(r)
				l.resets = append(l.resets, *o)
			case o.Verb == Taken && o.counts(j):
				l, receipt := ledgerOf(r), o.Rows[j].Receipt
				u := &use{from: o.Call, to: o.Return, cost: r.Cost, stamp: receipt.Stamp, stored: o.Rows[j].Reason == weir.OK}
				l.uses = append(l.uses, u)
				charges[receipt.ID] = u
			}
		}
	}
	for i := range ops {
		giveBack(&ops[i], charges)
	}
	for _, l := range all {
		slices.SortStableFunc(l.uses, func(a, b *use) int { return a.to.Compare(b.to) })
	}
	return all
}

// counts reports whether row i of a Taken was let through and is bounded.
func (o *Op) counts(i int) bool {
	if !o.Admitted() || !o.Rows[i].Allowed || o.Rows[i].Reason == weir.StoreAllowed {
		return false
	}
	mode := o.Requests[i].Mode
	return mode == weir.Enforce || mode == weir.Shadow && !o.Rows[i].Receipt.IsZero()
}

// giveBack takes what a refund may have given back off the charges: all that it
// asked for, unless it was answered less.
func giveBack(o *Op, charges map[uint64]*use) {
	for _, r := range o.Receipts {
		u := charges[r.ID]
		if u == nil || r.IsZero() {
			continue
		}
		n := r.Units
		if o.Err == nil {
			n = min(n, o.N)
		}
		u.returned = append(u.returned, back{o.Call, n})
	}
}

// tick is how much a store whose clock counts microseconds may cut a window short.
const tick = time.Microsecond

func (l *ledger) check() error {
	for _, first := range l.uses {
		var err error
		if l.limit.Algorithm == weir.TokenBucket {
			err = l.intervals(first.from)
		} else {
			err = l.interval(first.from, first.from.Add(l.limit.Window-tick), Bound(l.limit, l.limit.Window))
		}
		if err != nil {
			return err
		}
	}
	return l.fixed()
}

// intervals checks all intervals from a time on.
func (l *ledger) intervals(from time.Time) error {
	var all int64
	for _, u := range l.uses {
		if u.from.Before(from) {
			continue
		}
		all += u.cost
		if bound := Bound(l.limit, u.to.Sub(from)+tick); all > bound {
			if err := l.interval(from, u.to, bound); err != nil {
				return err
			}
		}
	}
	return nil
}

// interval checks one.
func (l *ledger) interval(from, to time.Time, bound int64) error {
	n := sum(l.uses, from, to)
	if n <= bound {
		return nil
	}
	for i := range l.resets {
		o := &l.resets[i]
		if until := o.until(); !o.Call.After(to) && (until.IsZero() || !until.Before(from)) {
			bound += l.limit.Capacity()
		}
	}
	if more := l.extra(l.limit, from, to); n > bound+more {
		return fmt.Errorf("key %q, %s %s: %d units admitted from %s within %s, at most %d and %d for what happened are promised",
			l.key, l.limit.Algorithm, l.limit, n, from.Format(clock), to.Sub(from), bound, more)
	}
	return nil
}

// until is the latest time at which an Op can have been done; zero if any.
func (o *Op) until() time.Time {
	if o.Err != nil && !o.Absent {
		return o.At
	}
	return o.Return
}

// clock is the layout of times in errors.
const clock = "15:04:05.000000000"

// sum is what was admitted, and not given back, in [from, to].
func sum(uses []*use, from, to time.Time) (n int64) {
	// Uses are sorted by their end.
	end, _ := slices.BinarySearchFunc(uses, to, func(u *use, t time.Time) int { return cmp.Or(u.to.Compare(t), -1) })
	for i := end - 1; i >= 0 && !uses[i].to.Before(from); i-- {
		if !uses[i].from.Before(from) {
			n += uses[i].by(to)
		}
	}
	return n
}

// fixed checks the windows that the store has opened, as their charges name
// them: not more than Max in each.
func (l *ledger) fixed() error {
	if l.limit.Algorithm != weir.FixedWindow {
		return nil
	}
	windows := make(map[int64][]*use)
	for _, u := range l.uses {
		if u.stored {
			windows[u.stamp] = append(windows[u.stamp], u)
		}
	}
	for _, uses := range windows {
		from := slices.MinFunc(uses, func(a, b *use) int { return a.from.Compare(b.from) }).from
		own := &ledger{key: l.key, limit: l.limit, uses: uses, resets: l.resets, extra: l.extra}
		if err := own.interval(from, uses[len(uses)-1].to, l.limit.Max); err != nil {
			return err
		}
	}
	return nil
}
