package storetest

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// The seed of all histories; another one is another run of the suite.
const seed = 20260101

// sameAsModel compares every answer with the pure functions'. With a clock
// that steps back there is one key only: a store may forget an expired state
// as soon as another key is used, and the model does not.
func sameAsModel(open Open) error {
	for _, t := range []traits{
		{steps: 60},
		{steps: 60, changes: true},
		{steps: 60, keys: 1, back: true, only: []string{"take", "take", "take", "peek", "charge", "refund", "oldest", "count"}},
	} {
		if err := search(open, seed, 300, t, likeModel); err != nil {
			return err
		}
	}
	return nil
}

func likeModel(open Open, steps []Step) (int, error) {
	want, err := play(func(now func() time.Time) (weir.Store, error) { return NewModel(now), nil }, steps)
	if err != nil {
		return len(want), err
	}
	got, err := play(open, steps)
	for i := range got {
		if err := got[i].differs(want[i]); err != nil {
			return i, fmt.Errorf("%s: %w", steps[i], err)
		}
	}
	return len(got), err
}

func (a answer) differs(want answer) error {
	if a.number != want.number {
		return fmt.Errorf("got %d, want %d", a.number, want.number)
	}
	if err := differs(a.Decision, want.Decision); err != nil {
		return err
	}
	for i := range a.Rows {
		if err := differs(a.Rows[i], want.Rows[i]); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

// differs compares what callers see, and whether a receipt was given.
func differs(got, want weir.Decision) error {
	charged := got.Receipt.IsZero() == want.Receipt.IsZero()
	got.Rows, want.Rows, got.Receipt, want.Receipt = nil, nil, weir.Receipt{}, weir.Receipt{}
	if show(got) != show(want) || !charged {
		return fmt.Errorf("got %s, want %s", show(got), show(want))
	}
	return nil
}

func show(d weir.Decision) string {
	return fmt.Sprintf("allowed=%t reason=%s limit=%d remaining=%d retry=%s reset=%s",
		d.Allowed, d.Reason, d.Limit, d.Remaining, d.RetryAfter, d.ResetAfter)
}

// use is units admitted at a time, less what has been given back.
type use struct {
	at      time.Duration
	units   int64
	receipt string
}

// ledger is a naive account of one history: what each key has been admitted.
type ledger struct {
	limits map[string]weir.Limit
	uses   map[string][]use
}

func newLedger() *ledger {
	return &ledger{limits: make(map[string]weir.Limit), uses: make(map[string][]use)}
}

// enter records what a step was answered.
func (l *ledger) enter(s Step, a answer) {
	switch s.Verb {
	case "limit":
		l.limits[s.Rows[0].Name] = s.Limit
	case "take":
		if a.Allowed {
			l.uses[s.Rows[0].Name] = append(l.uses[s.Rows[0].Name], use{s.At, s.Rows[0].Cost, s.Receipt})
		}
	case "refund":
		for _, uses := range l.uses {
			for i := range uses {
				if uses[i].receipt == s.Receipt {
					uses[i].units -= a.number
				}
			}
		}
	}
}

// within sums what was admitted in (from, to].
func (l *ledger) within(key string, from, to time.Duration) (n int64) {
	for _, u := range l.uses[key] {
		if u.at > from && u.at <= to {
			n += u.units
		}
	}
	return n
}

// bounds checks every window: the units of any window [s, s+W) lie in
// (t-W, t], t being the last admission in it, so it is enough to look back
// from each admission, at what had not been given back by then.
func bounds(open Open) error {
	for _, a := range algorithms {
		for _, t := range []traits{
			{steps: 80, only: []string{"take", "take", "take", "refund", "peek"}},
			{steps: 60, only: []string{"take", "refund"}, keys: 1},
		} {
			t.algorithms = []weir.Algorithm{a}
			if err := search(open, seed+1, 150, t, bounded); err != nil {
				return err
			}
		}
	}
	return nil
}

func bounded(open Open, steps []Step) (int, error) {
	answers, err := play(open, steps)
	l := newLedger()
	fixed := make(map[string]*fixedWindow)
	for i, a := range answers {
		s := steps[i]
		l.enter(s, a)
		if s.Verb != "take" || !a.Allowed {
			continue
		}
		key := s.Rows[0].Name
		if fixed[key] == nil {
			fixed[key] = new(fixedWindow)
		}
		if err := l.bound(key, s, fixed[key]); err != nil {
			return i, fmt.Errorf("%s: %w", s, err)
		}
	}
	return len(answers), err
}

// bound checks the published bound of an algorithm after an admission.
func (l *ledger) bound(key string, s Step, f *fixedWindow) error {
	limit := l.limits[key]
	w := limit.Window
	in := l.within(key, s.At-w, s.At)
	switch limit.Algorithm {
	case weir.SlidingLog, weir.SlidingBuckets:
		if in > limit.Max {
			return fmt.Errorf("%d units in the window that ends here, at most %d are promised", in, limit.Max)
		}
	case weir.TokenBucket:
		for _, u := range l.uses[key] {
			n := l.within(key, u.at-1, s.At)
			if n > limit.Burst+int64(s.At-u.at)*limit.Max/int64(w) {
				return fmt.Errorf("%d units since %s, above Burst + rate", n, u.at)
			}
		}
	case weir.FixedWindow, weir.SlidingCounter:
		if in > 2*limit.Max {
			return fmt.Errorf("%d units in the window that ends here, at most twice %d are promised", in, limit.Max)
		}
		if limit.Algorithm == weir.FixedWindow {
			return f.check(l, key, s)
		}
	}
	return nil
}

// fixedWindow follows the windows of one key naively.
type fixedWindow struct {
	start time.Duration
	open  bool
}

func (f *fixedWindow) check(l *ledger, key string, s Step) error {
	limit, at := l.limits[key], s.At
	earlier := l.within(key, f.start-1, at) - s.Rows[0].Cost
	if limit.Epoch || !f.open || at >= f.start+limit.Window || earlier == 0 {
		f.start = opened(limit, at)
	}
	f.open = true
	if n := l.within(key, f.start-1, at); n > limit.Max {
		return fmt.Errorf("%d units in the window from %s, at most %d are promised", n, f.start, limit.Max)
	}
	return nil
}

// exact compares sliding-log with a naive log in both directions.
func exact(open Open) error {
	t := traits{algorithms: []weir.Algorithm{weir.SlidingLog}, steps: 80, only: []string{"take", "take", "take", "take", "refund", "peek"}}
	return search(open, seed+2, 400, t, likeNaive)
}

// bucketsStrict checks that sliding-buckets is at most one part too strict.
func bucketsStrict(open Open) error {
	t := traits{algorithms: []weir.Algorithm{weir.SlidingBuckets}, steps: 80, only: []string{"take", "take", "take", "refund", "count"}}
	return search(open, seed+3, 300, t, func(open Open, steps []Step) (int, error) {
		answers, err := play(open, steps)
		l := newLedger()
		for i, a := range answers {
			s := steps[i]
			if s.Verb != "limit" && s.Verb != "refund" {
				if err := l.strict(s, a); err != nil {
					return i, fmt.Errorf("%s: %w", s, err)
				}
			}
			l.enter(s, a)
		}
		return len(answers), err
	})
}

// part is the width of a part of a sliding-buckets window.
func part(l weir.Limit) time.Duration {
	n := time.Duration(l.Buckets) * time.Microsecond
	return (l.Window + n - 1) / n * time.Microsecond
}

func (l *ledger) strict(s Step, a answer) error {
	key, limit := s.Rows[0].Name, l.limits[s.Rows[0].Name]
	switch s.Verb {
	case "take":
		if used := l.within(key, s.At-limit.Window-part(limit), s.At); !a.Allowed && used+s.Rows[0].Cost <= limit.Max {
			return fmt.Errorf("denied, though only %d of %d were used in the last window and part", used, limit.Max)
		}
	case "count":
		low, high := l.within(key, s.At-s.Last, s.At), l.within(key, s.At-s.Last-part(limit), s.At)
		if a.number < low || a.number > high {
			return fmt.Errorf("got %d, want %d to %d", a.number, low, high)
		}
	}
	return nil
}

// leastRetry peeks into the future after every answer, and comes back.
func leastRetry(open Open) error {
	for _, t := range []traits{{steps: 40}, {steps: 40, changes: true}, {steps: 40, keys: 1, back: true}} {
		if err := search(open, seed+4, 150, t, retryIsLeast); err != nil {
			return err
		}
	}
	return nil
}

func retryIsLeast(open Open, steps []Step) (int, error) {
	p, err := newPlayer(open)
	if err != nil {
		return 0, err
	}
	defer p.store.Close()
	for i, s := range steps {
		a, err := p.do(s)
		for j := range a.Rows {
			if err == nil {
				err = p.future(s, s.Rows[j], a.Rows[j])
			}
		}
		if err != nil {
			return i, fmt.Errorf("%s: %w", s, err)
		}
	}
	return len(steps), nil
}

// future checks what a row's RetryAfter and ResetAfter promise. Rows that
// share their state with another row speak for their sum and are left out.
func (p *player) future(s Step, row Row, d weir.Decision) error {
	n := 0
	for _, r := range s.Rows {
		if r.Name == row.Name {
			n++
		}
	}
	if n > 1 || row.Mode == weir.Record || s.Verb == "charge" {
		return nil
	}
	at := func(wait time.Duration) (weir.Decision, error) {
		a, err := p.do(Step{At: s.At + wait, Verb: "peek", Rows: []Row{{Name: row.Name, Cost: row.Cost}}})
		return a.Decision, err
	}
	if d.Allowed || d.Reason == weir.Never {
		if d.RetryAfter != 0 {
			return fmt.Errorf("RetryAfter is %s, want 0 where nothing is to be waited for", d.RetryAfter)
		}
		return nil
	}
	if then, err := at(d.RetryAfter); err != nil || !then.Allowed {
		return fmt.Errorf("after RetryAfter %s the cost still does not pass (%s) %w", d.RetryAfter, show(then), err)
	}
	if then, err := at(d.RetryAfter - time.Microsecond); err != nil || then.Allowed {
		return fmt.Errorf("one microsecond before RetryAfter %s the cost passes %w", d.RetryAfter, err)
	}
	if then, err := at(d.ResetAfter); err != nil || then.Remaining != then.Limit || then.ResetAfter != 0 {
		return fmt.Errorf("after ResetAfter %s the key is not as good as unused (%s) %w", d.ResetAfter, show(then), err)
	}
	if then, err := at(d.ResetAfter - time.Microsecond); err != nil || then.ResetAfter != time.Microsecond {
		return fmt.Errorf("one microsecond before ResetAfter %s nothing is left to reset (%s) %w", d.ResetAfter, show(then), err)
	}
	return nil
}

// denialsAreFree plays a history again without what was denied or peeked at.
func denialsAreFree(open Open) error {
	return search(open, seed+5, 300, traits{steps: 80, sameMode: true}, func(open Open, steps []Step) (int, error) {
		all, err := play(open, steps)
		if err != nil {
			return len(all), err
		}
		var kept []Step
		var want []answer
		for i, s := range steps {
			free := s.Verb == "peek" || s.Verb == "count" || s.Verb == "take" && !all[i].Allowed || s.Verb == "all" && !all[i].Allowed
			if !free {
				kept, want = append(kept, s), append(want, all[i])
			}
		}
		got, err := play(open, kept)
		for i := range got {
			if err := got[i].differs(want[i]); err != nil {
				return len(steps), fmt.Errorf("without the denials %s: %w", kept[i], err)
			}
		}
		return len(steps), err
	})
}

// peeks looks at every key a step uses.
func (p *player) peeks(s Step) ([]weir.Decision, error) {
	ds := make([]weir.Decision, len(s.Rows))
	for i, r := range s.Rows {
		a, err := p.do(Step{At: s.At, Verb: "peek", Rows: []Row{{Name: r.Name, Cost: 1}}})
		if err != nil {
			return nil, err
		}
		ds[i] = a.Decision
	}
	return ds, nil
}

// lists plays a history of lists and shows each with its keys before and after.
func lists(open Open, seed uint64, check func(s Step, a answer, before, after []weir.Decision) error) error {
	t := traits{steps: 50, only: []string{"all", "all", "take", "refund"}}
	return search(open, seed, 200, t, func(open Open, steps []Step) (int, error) {
		p, err := newPlayer(open)
		if err != nil {
			return 0, err
		}
		defer p.store.Close()
		for i, s := range steps {
			var before, after []weir.Decision
			if s.Verb == "all" {
				before, err = p.peeks(s)
			}
			a, err2 := p.do(s)
			if s.Verb == "all" && err == nil && err2 == nil {
				after, err = p.peeks(s)
				if err == nil {
					err = check(s, a, before, after)
				}
			}
			if err = firstOf(err, err2); err != nil {
				return i, fmt.Errorf("%s: %w", s, err)
			}
		}
		return len(steps), nil
	})
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func allOrNothing(open Open) error {
	return lists(open, seed+6, func(s Step, a answer, before, after []weir.Decision) error {
		recorded := make(map[string]bool)
		for _, r := range s.Rows {
			recorded[r.Name] = recorded[r.Name] || r.Mode == weir.Record
		}
		admitted := true
		for i, r := range s.Rows {
			admitted = admitted && (a.Rows[i].Allowed || r.Mode != weir.Enforce)
			charged := !a.Rows[i].Receipt.IsZero()
			if r.Mode == weir.Enforce && charged != a.Allowed || r.Mode == weir.Peek && charged || r.Mode == weir.Record && !charged {
				return fmt.Errorf("row %d: charged=%t in a list with allowed=%t", i, charged, a.Allowed)
			}
			if !a.Allowed && !recorded[r.Name] && show(before[i]) != show(after[i]) {
				return fmt.Errorf("a denied list changed %s from %s to %s", r.Name, show(before[i]), show(after[i]))
			}
		}
		enforced := false
		for _, r := range s.Rows {
			enforced = enforced || r.Mode == weir.Enforce
		}
		if enforced && admitted != a.Allowed {
			return fmt.Errorf("allowed=%t, but its Enforce rows say %t", a.Allowed, admitted)
		}
		return nil
	})
}

func shadow(open Open) error {
	return lists(open, seed+7, func(s Step, a answer, before, after []weir.Decision) error {
		admitted := true
		for i, r := range s.Rows {
			admitted = admitted && (a.Rows[i].Allowed || r.Mode != weir.Enforce)
		}
		for i, r := range s.Rows {
			if r.Mode != weir.Shadow {
				continue
			}
			charged := !a.Rows[i].Receipt.IsZero()
			if charged != (admitted && a.Rows[i].Allowed) {
				return fmt.Errorf("row %d: allowed=%t in a list with admitted=%t was charged=%t", i, a.Rows[i].Allowed, admitted, charged)
			}
			if left := before[i].Remaining - r.Cost; charged && !shares(s, i) && after[i].Remaining != left {
				return fmt.Errorf("row %d: a charged shadow row leaves %d, want %d", i, after[i].Remaining, left)
			}
		}
		return nil
	})
}

func shares(s Step, i int) bool {
	for j, r := range s.Rows {
		if j != i && r.Name == s.Rows[i].Name {
			return true
		}
	}
	return false
}
