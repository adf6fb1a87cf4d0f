package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// Linearizable checks that there is an order, within the times of the calls, in
// which the pure step gives every answer of a history. It searches for at most
// `patience` for keys that no list ties to others.
//
// Degraded answers are the shares', not the store's: what is searched for is
// what the calls did to the store. A call whose answer is not the store's may
// have been done at any later time or never, unless its At or Absent tells.
// What follows on its keys proves nothing, up to the next Cleared.
func Linearizable(ops []Op, patience time.Duration) error {
	var errs []error
	for _, part := range parts(ops) {
		errs = append(errs, refuse(part, patience))
	}
	return errors.Join(errs...)
}

// parts cuts a history into those of states that no Op ties to each other.
// Events are part of each.
func parts(ops []Op) [][]porcupine.Operation {
	shares := sharesOf(ops)
	var inputs []*input
	var events []*Op
	keep := false
	roots := new(forest)
	for i := range ops {
		o := &ops[i]
		switch {
		case o.Verb == Stepped || o.Verb == Lost:
			events = append(events, o)
			keep = keep || !o.To.IsZero()
		case o.matters(shares):
			inputs = append(inputs, newInput(o, roots, shares))
		}
	}
	of := make(map[int][]*input)
	for _, in := range inputs {
		if len(in.states) > 0 {
			root := roots.find(in.states[0])
			of[root] = append(of[root], in)
		}
	}
	var all [][]porcupine.Operation
	for _, part := range of {
		for _, e := range events {
			part = append(part, &input{Op: e})
		}
		all = append(all, operations(part, keep))
	}
	return all
}

// sharesOf returns the IDs of receipts that are not the store's.
func sharesOf(ops []Op) map[uint64]bool {
	ids := make(map[uint64]bool)
	for i := range ops {
		for _, d := range ops[i].Rows {
			if d.Reason == weir.StoreLocal {
				ids[d.Receipt.ID] = true
			}
		}
	}
	return ids
}

// matters reports whether the store can have done an Op and anything follows
// from it.
func (o *Op) matters(shares map[uint64]bool) bool {
	var failed *weir.StoreError
	switch {
	case o.Absent, o.Err != nil && errors.As(o.Err, &failed) && !failed.Unknown:
		return false
	case o.Verb == Refunded:
		return slices.ContainsFunc(o.Receipts, func(r weir.Receipt) bool { return !shares[r.ID] })
	}
	return !o.never() || !o.At.IsZero()
}

// never reports whether all that a Taken was told is that it never passes, which
// takes no store to say.
func (o *Op) never() bool {
	return o.Verb == Taken && o.Err == nil && !slices.ContainsFunc(o.Rows, func(d weir.Decision) bool { return d.Reason != weir.Never })
}

// newInput prepares an Op; roots numbers the states.
func newInput(o *Op, roots *forest, shares map[uint64]bool) *input {
	in := &input{Op: o, judged: o.Err == nil && !o.Return.IsZero() && !o.Degraded() && !o.never()}
	about := func(r *weir.Request) {
		l := r.Limit
		in.states = append(in.states, roots.add(identityOf(r)))
		in.limits = append(in.limits, algo.Make(algo.Kind(l.Algorithm), l.Max, l.Burst, l.Window.Microseconds(), int64(l.Buckets), l.Epoch))
	}
	for i := range o.Requests {
		about(&o.Requests[i])
	}
	for i := range o.Receipts {
		about(&o.Receipts[i].Request)
		in.judged = in.judged && !shares[o.Receipts[i].ID]
	}
	for _, at := range in.states {
		roots.tie(in.states[0], at)
	}
	return in
}

// operations numbers the states of a part anew and orders it by time.
func operations(part []*input, keep bool) []porcupine.Operation {
	states := make(map[int]int)
	for _, in := range part {
		in.keep = keep
		for i, at := range in.states {
			if _, ok := states[at]; !ok {
				states[at] = len(states)
			}
			in.states[i] = states[at]
		}
	}
	history := make([]porcupine.Operation, 0, len(part))
	for _, in := range part {
		call, end := in.Call, in.Return
		if !in.judged && in.Verb != Stepped && in.Verb != Lost {
			end = time.Unix(0, 1<<63-1)
		}
		from, to := call, end
		if !in.At.IsZero() {
			from, to = in.At, in.At
			if !in.judged {
				call, end = from, to
			}
		}
		in.from, in.to = from.UnixMicro(), to.UnixMicro()
		history = append(history, porcupine.Operation{
			ClientId: in.Client, Input: in, Output: len(states), Call: call.UnixNano(), Return: end.UnixNano(),
		})
	}
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return history
}

// modelOf returns the pure step for so many states at once.
func modelOf(states int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return &world{states: make([]state, states)} },
		Step: func(before, in, _ any) (bool, any) { return before.(*world).step(in.(*input)) },
		Equal: func(a, b any) bool {
			return a.(*world).equal(b.(*world))
		},
	}
}

// refuse says why there is no order for a part of a history.
func refuse(part []porcupine.Operation, patience time.Duration) error {
	result, info := porcupine.CheckOperationsVerbose(modelOf(part[0].Output.(int)), part, patience)
	if result == porcupine.Ok {
		return nil
	}
	var best []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(best) {
				best = order
			}
		}
	}
	text := new(strings.Builder)
	fmt.Fprintf(text, "not linearizable: %s: of %d operations at most %d are in order. The last of them:", result, len(part), len(best))
	for _, o := range best[max(0, len(best)-20):] {
		fmt.Fprintf(text, "\n\t%s", o.Input.(*input))
	}
	for _, o := range part {
		if !slices.Contains(best, o) {
			fmt.Fprintf(text, "\nDoes not follow:\n\t%s", o.Input.(*input))
			break
		}
	}
	return errors.New(text.String())
}

// String tells all of an Op in a line.
func (o *Op) String() string {
	text := new(strings.Builder)
	fmt.Fprintf(text, "client %d, %s to %s: %s", o.Client, o.Call.Format(clock), o.Return.Format(clock), o.Verb)
	for i := range o.Requests {
		r := &o.Requests[i]
		fmt.Fprintf(text, " [%s %d of %q, %s]", r.Mode, r.Cost, r.Key, r.Limit)
	}
	for i := range o.Rows {
		d := &o.Rows[i]
		fmt.Fprintf(text, " -> %t %s remaining=%d retry=%s reset=%s stamp=%d", d.Allowed, d.Reason, d.Remaining, d.RetryAfter, d.ResetAfter, d.Receipt.Stamp)
	}
	for i := range o.Receipts {
		r := &o.Receipts[i]
		fmt.Fprintf(text, " %d of %d at %d of %q", r.Units, r.Request.Cost, r.Stamp, r.Request.Key)
	}
	switch {
	case o.Err != nil:
		fmt.Fprintf(text, ": %v", o.Err)
	case o.Verb == Counted:
		fmt.Fprintf(text, " in %s: %d", o.Last, o.N)
	case o.Verb == Stepped:
		fmt.Fprintf(text, " by %s", o.By)
	case o.Verb == Lost:
		fmt.Fprintf(text, " what is newer than %s", o.To.Format(clock))
	case o.Verb != Taken:
		fmt.Fprintf(text, ": %d", o.N)
	}
	if !o.At.IsZero() {
		fmt.Fprintf(text, " (done at %s)", o.At.Format(clock))
	}
	return text.String()
}

// forest is the states of a history, those tied to each other in one tree.
type forest struct {
	numbers map[identity]int
	parents []int
}

func (f *forest) add(id identity) int {
	if f.numbers == nil {
		f.numbers = make(map[identity]int)
	}
	n, ok := f.numbers[id]
	if !ok {
		n = len(f.parents)
		f.numbers[id] = n
		f.parents = append(f.parents, n)
	}
	return n
}

func (f *forest) find(n int) int {
	for f.parents[n] != n {
		n = f.parents[n]
	}
	return n
}

func (f *forest) tie(a, b int) { f.parents[f.find(b)] = f.find(a) }
