// Package fleet simulates fleets: nodes that ask one store over a network, in
// which all that can go wrong does, at times that a seed draws. A schedule takes
// seconds of simulated time and none of the clock on the wall, and a seed
// repeats it.
package fleet

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/lab/check"
)

var only = flag.Uint64("seed", 0, "run the schedule of this seed, and no other")

func TestFleet(t *testing.T) { schedules(t, 200) }

// schedules runs those of the seeds from 1 on.
func schedules(t *testing.T, n uint64) {
	if *only > 0 {
		t.Run(fmt.Sprint("seed=", *only), func(t *testing.T) { schedule(t, *only) })
		return
	}
	for seed := range n {
		t.Run(fmt.Sprint("seed=", seed+1), func(t *testing.T) {
			t.Parallel()
			schedule(t, seed+1)
		})
	}
}

// run simulates a seed, and panics if a goroutine is left in its bubble.
func run(t *testing.T, seed uint64) (s *simulation) {
	synctest.Test(t, func(*testing.T) { s = simulate(seed) })
	return s
}

func schedule(t *testing.T, seed uint64) {
	s := run(t, seed)
	if err := s.judge(); err != nil {
		t.Errorf("%v\n%s\nrepeat it by: go test ./fleet -run '^TestFleet$' -seed %d", err, s.plan, seed)
	}
}

// TestSeedRepeats runs seeds twice: the same happens at the same times.
func TestSeedRepeats(t *testing.T) {
	for seed := range uint64(20) {
		first, second := run(t, seed+1).trace(), run(t, seed+1).trace()
		if hash(first) == hash(second) {
			continue
		}
		for i := range first {
			if i >= len(second) || first[i] != second[i] {
				t.Errorf("seed %d, call %d was\n%s\nand is\n%s", seed+1, i, first[i], second[min(i, len(second)-1)])
				break
			}
		}
	}
}

// trace is all that clients asked and were told, in order. What an error says
// is left out: at a deadline, the store's may come first or the layer's own.
func (s *simulation) trace() (lines []string) {
	for _, o := range s.ops() {
		failed := o.Err != nil
		o.Err = nil
		lines = append(lines, fmt.Sprintf("%s failed=%t", &o, failed))
	}
	return lines
}

func hash(lines []string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strings.Join(lines, "\n")))
	return h.Sum64()
}

func (p *plan) String() string {
	text := fmt.Sprintf("seed %d: %d nodes of %d clients for %s, deadline %s, in flight %d", p.seed, p.nodes, p.clients, p.end.Sub(p.start), p.deadline, p.inFlight)
	for _, r := range p.rules {
		text += fmt.Sprintf("\n\t%s: %s, on failure %s, deadline %s", r.Key, r.Limit, r.OnFailure, r.Deadline)
	}
	for _, e := range p.events {
		text += "\n\t" + e.String()
	}
	return text
}

// ops returns the history, with what only a simulation knows.
func (s *simulation) ops() (ops []check.Op) {
	n := make(map[*trip]int)
	for _, r := range s.records {
		i := n[r.trip]
		n[r.trip]++
		if done := r.trip.done; i < len(done) {
			r.At = done[i]
		}
		r.Absent = r.At.IsZero()
		ops = append(ops, r.Op)
	}
	return append(ops, s.network.server.events...)
}

// judge checks all that is promised of a history.
func (s *simulation) judge() error {
	ops := s.ops()
	errs := []error{
		check.Windows(ops, s.extra(ops)), check.AllOrNothing(ops), check.Refunds(ops), check.Linearizable(ops, time.Minute),
	}
	degraded, perhaps := make(map[process]int), make(map[process]int)
	for i := range s.records {
		r := &s.records[i]
		r.Op = ops[i]
		switch {
		case r.Degraded():
			degraded[r.process]++
		case r.never(): // which needs no store, and does not say whether one was asked
			perhaps[r.process]++
		}
		if err := r.judge(s); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s", err, &r.Op))
		}
	}
	for p, n := range degraded {
		if s.told[p] < n || s.told[p] > n+perhaps[p] {
			errs = append(errs, fmt.Errorf("node %d, life %d: %d lists were decided without the store, %d were observed", p.node, p.life, n, s.told[p]))
		}
	}
	return errors.Join(errs...)
}

// extra returns what may pass above the bound because of what has happened: a
// capacity for each loss of states and each step forward, the shares of all
// processes that decided by theirs, and, once the clock has stepped back, what
// refunds gave back: a receipt from before it may name units taken since, whose
// stamps come again.
func (s *simulation) extra(ops []check.Op) check.Extra {
	var losses, resets, shares, refunds []*record
	back := slices.ContainsFunc(ops, func(o check.Op) bool { return o.By < 0 })
	for i := range ops {
		o := &ops[i]
		switch {
		case o.Verb == check.Lost, o.Verb == check.Stepped && o.By > 0:
			losses = append(losses, &record{Op: *o})
		case o.Verb == check.Refunded && back:
			refunds = append(refunds, &s.records[i])
		case o.Verb == check.Cleared:
			resets = append(resets, &s.records[i])
		case i < len(s.records) && s.records[i].says(weir.StoreLocal):
			shares = append(shares, &s.records[i])
		}
	}
	return func(limit weir.Limit, from, to time.Time) int64 {
		share := limit
		share.Max = max(1, limit.Max/int64(s.nodes))
		if limit.Burst > 0 {
			share.Burst = max(1, limit.Burst/int64(s.nodes))
		}
		n := int64(len(within(losses, from, to)))*limit.Capacity() + int64(len(within(resets, from, to)))*share.Capacity()
		for _, r := range within(refunds, from, to) {
			for _, receipt := range r.Receipts {
				n += receipt.Units
			}
		}
		local := make(map[process]bool)
		for _, r := range within(shares, from, to) {
			local[r.process] = true
		}
		return n + int64(len(local))*check.Bound(share, to.Sub(from)+time.Microsecond)
	}
}

// within returns the records that overlap a time.
func within(records []*record, from, to time.Time) (some []*record) {
	for _, r := range records {
		if !r.Call.After(to) && !r.Return.Before(from) {
			some = append(some, r)
		}
	}
	return some
}

func (r *record) says(reason weir.Reason) bool {
	return slices.ContainsFunc(r.Rows, func(d weir.Decision) bool { return d.Reason == reason })
}

// never reports whether a Taken was answered by what needs no store.
func (r *record) never() bool {
	return r.Verb == check.Taken && r.Err == nil && !slices.ContainsFunc(r.Rows, func(d weir.Decision) bool { return d.Reason != weir.Never })
}

// judge checks what is promised of one call.
func (r *record) judge(s *simulation) error {
	took := r.Return.Sub(r.Call)
	degraded := r.Degraded()
	var failed *weir.StoreError
	switch {
	case took > r.within:
		return fmt.Errorf("took %s, want at most %s", took, r.within)
	case s.calm && (degraded || r.Err != nil):
		return errors.New("nothing was wrong with the store")
	case degraded && r.Call.After(s.calmed.Add(recovery)):
		return fmt.Errorf("nothing has been wrong with the store for %s", r.Call.Sub(s.calmed))
	case r.Verb == check.Taken && r.Err != nil && !r.left:
		return errors.New("a caller who waits gets a decision")
	case errors.As(r.Err, &failed) && !failed.Unknown && !r.Absent:
		return errors.New("the error says that it was not done")
	case r.shared && (r.trip.sent || r.Err != nil && !r.left):
		return errors.New("a share needs no store to be given back to")
	case degraded:
		return r.follows(s.refused(r))
	}
	return nil
}

// refused reports whether the process was told of a mistake in the settings, by
// any call, before the end of this one.
func (s *simulation) refused(r *record) bool {
	return slices.ContainsFunc(s.records, func(o record) bool {
		return o.process == r.process && o.trip.refusedBy(r.Return)
	})
}

// follows checks that a degraded list was decided as its strictest rule says.
// After a mistake in the settings a share may decide instead of on_failure:
// allow, and of the call that was refused it has to.
func (r *record) follows(refused bool) error {
	how := strictest(r.Requests)
	if how == weir.OnFailureAllow && refused && (r.trip.refusedBy(r.Return) || !r.says(weir.StoreAllowed)) {
		how = weir.OnFailureLocal
	}
	for i, d := range r.Rows {
		ok := d.Reason == weir.Never && r.Requests[i].Cost > r.Requests[i].Limit.Capacity()
		switch how {
		case weir.OnFailureAllow:
			ok = ok || d.Allowed && d.Reason == weir.StoreAllowed
		case weir.OnFailureDeny:
			ok = ok || !d.Allowed && d.Reason == weir.StoreDenied && d.RetryAfter > 0
		default:
			ok = ok || d.Reason == weir.StoreLocal || !d.Allowed && d.Reason == weir.StoreDenied && d.RetryAfter > 0
		}
		if !ok {
			return fmt.Errorf("row %d was not decided by %s", i, how)
		}
	}
	return nil
}

// strictest returns the strictest rule of the Enforce rows, or of all if there
// are none.
func strictest(requests []weir.Request) weir.OnFailure {
	enforced := slices.DeleteFunc(slices.Clone(requests), func(r weir.Request) bool { return r.Mode != weir.Enforce })
	if len(enforced) > 0 {
		requests = enforced
	}
	for _, how := range []weir.OnFailure{weir.OnFailureDeny, weir.OnFailureLocal} {
		if slices.ContainsFunc(requests, func(r weir.Request) bool { return r.OnFailure == how }) {
			return how
		}
	}
	return weir.OnFailureAllow
}
