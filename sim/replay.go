package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Options says what to replay a trace against.
type Options struct {
	// Policy holds the rules, and Domain names those that apply.
	Policy *policy.Policy
	Domain string
	// Open opens the store to decide on, under the clock given; closing it is
	// the caller's business. Nil means a weir.Memory with room for every key.
	Open func(now func() time.Time) weir.Store
}

// Replay decides the events of a trace one after the other, each at its own
// time and as the service would: all rules that match it are one list, decided
// all-or-nothing.
type Replay struct {
	options Options
	clock   Clock
	store   weir.Store
	limiter *weir.Limiter
	report  Report
	tallies []*tally
	byName  map[string]*tally
	rows    []policy.Row
	lists   [1]weir.List
}

// NewReplay prepares a replay that has seen no event yet. The error says that
// the policy has no such domain.
func NewReplay(o Options) (*Replay, error) {
	if o.Open == nil {
		o.Open = openMemory
	}
	r := &Replay{options: o, report: Report{Domain: o.Domain}, byName: make(map[string]*tally)}
	domains := o.Policy.Domains()
	i := slices.IndexFunc(domains, func(d policy.Domain) bool { return d.Name == o.Domain })
	if i < 0 {
		return nil, fmt.Errorf("sim: no domain %q in the policy, only %s", o.Domain, names(domains))
	}
	for _, rule := range domains[i].Rules {
		t := newTally(rule)
		r.tallies = append(r.tallies, t)
		r.byName[rule.Name] = t
	}
	r.store = o.Open(r.clock.Now)
	r.limiter = weir.New(weir.Options{Store: r.store})
	return r, nil
}

func openMemory(now func() time.Time) weir.Store {
	return weir.NewMemory(weir.MemoryOptions{Now: now, MaxKeys: math.MaxInt})
}

func names(domains []policy.Domain) string {
	quoted := make([]string, len(domains))
	for i, d := range domains {
		quoted[i] = fmt.Sprintf("%q", d.Name)
	}
	return strings.Join(quoted, ", ")
}

// Add decides one event. One earlier than its predecessor counts as of its
// predecessor's time, since the clock never goes back; Report tells how many
// were. The error is that of the store.
func (r *Replay) Add(ctx context.Context, e Event) error {
	r.advance(e.Time)
	r.rows, _ = r.options.Policy.Match(r.rows[:0], r.options.Domain, e.Attributes)
	list := &r.lists[0]
	denied := r.fill(list)
	if len(list.Requests) > 0 {
		r.limiter.Take(ctx, r.lists[:])
		if list.Err != nil {
			return list.Err
		}
	}
	r.count(list, denied)
	return nil
}

func (r *Replay) advance(t time.Time) {
	switch now := r.clock.Now(); {
	case r.report.Requests == 0:
		r.clock.Set(t)
		r.report.First = r.clock.Now()
	case t.Before(now):
		r.report.Clamped++
	default:
		r.clock.Set(t)
	}
	r.report.Last = r.clock.Now()
	r.report.Requests++
}

// fill makes the list of the rows that have a limit, and reports whether a
// rule denies the event without one; the limits then only look.
func (r *Replay) fill(list *weir.List) (denied bool) {
	for _, row := range r.rows {
		denied = denied || row.Deny && !row.Rule.Shadow
	}
	list.Requests, list.Rows = list.Requests[:0], list.Rows[:0]
	for _, row := range r.rows {
		mode := weir.Enforce
		switch {
		case row.Deny:
			continue
		case denied:
			mode = weir.Peek
		case row.Rule.Shadow:
			mode = weir.Shadow
		}
		list.Requests = append(list.Requests, weir.Request{Key: row.Key, Limit: row.Limit, Group: row.Group, Mode: mode})
	}
	return denied
}

func (r *Replay) count(list *weir.List, denied bool) {
	i := 0
	now := r.clock.Now().UnixMicro()
	for _, row := range r.rows {
		t := r.byName[row.Rule.Name]
		if row.Deny {
			t.count(row.Key, false)
			continue
		}
		t.count(row.Key, list.Rows[i].Allowed)
		t.contest.run(row.Key, row.Limit, now)
		i++
	}
	if len(r.rows) == 0 {
		r.report.Unmatched++
	}
	if denied || !list.Admitted() {
		r.report.Denied++
	} else {
		r.report.Admitted++
	}
}

// Report sums up what has been added until now.
func (r *Replay) Report() Report {
	report := r.report
	report.Rules = make([]RuleReport, len(r.tallies))
	for i, t := range r.tallies {
		report.Rules[i] = t.report()
	}
	if m, ok := r.store.(*weir.Memory); ok {
		report.Evicted = m.Stats().Evicted
	}
	return report
}
