package decide

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Entry is a key and a value of a Descriptor.
type Entry = policy.Entry

// Descriptor is what Envoy asks for: entries, in order, and what they cost.
type Descriptor struct {
	Entries []Entry
	// Cost is from 0 to weir.MaxUnits units; 0 takes nothing and asks whether
	// one unit would pass now.
	Cost int64
	// Refund gives Cost back, the oldest units, before anything is taken and
	// whatever the verdict.
	Refund bool
	// Limit, unless zero, holds in place of the rules': Max, from 0, which
	// denies, and Window, and what else it says where the domain does not keep
	// all its limits in one way. Of a domain that is unknown it is served only
	// where checks are.
	Limit weir.Limit
}

// Unlimited is the limit of what has none, and how much of it remains.
const Unlimited = math.MaxUint32

// Status is what the limits of one Descriptor say: those of the row, if several
// matched, that decides.
type Status struct {
	// Row says in Allowed what to answer: a rule's own shadow is allowed. Its
	// Receipt is not used.
	Row
	// Matched says that there is a limit. Otherwise the Reason is NoRule.
	Matched bool
	// Unlimited says that a rule lifts any limit.
	Unlimited bool
	// Stated is the limit as it is written, or as the Descriptor brought it: Max
	// may be 0 or above weir.MaxUnits, and Window is 0 if a rule denies.
	Stated weir.Limit
	// LimitName is what the limit is called in the config; it may be empty.
	LimitName string
	// Metadata is that of the rule, see policy.Descriptor. It may not be changed.
	Metadata map[string]any
	// Quota says that it denies only together with all others that do.
	Quota bool
}

// ask is a Descriptor on its way.
type ask struct {
	first, end int  // its rows in the plan
	quota      bool // it has a say only together with the others
	refund     bool
	unlimited  *policy.Row
}

// planDescriptors turns descriptors into requests, which are one list.
func (p *plan) planDescriptors(r *rules, q *Query, record bool) error {
	p.asks = append(p.asks, make([]ask, len(q.Descriptors))...)
	known := false
	for i := range p.asks {
		ok, err := p.match(r, q, i)
		if err != nil {
			return err
		}
		known = known || ok
	}
	if !known {
		return &UnknownDomainError{Domain: q.Domain, Known: r.domains()}
	}
	p.agree()
	p.leaveOut()
	p.decideDenials()
	for i := range p.asks {
		p.askFor(&p.asks[i], q.Descriptors[i].Cost, record)
	}
	return nil
}

// match finds the rows of descriptor i, and reports whether there is a limit
// for the domain at all.
func (p *plan) match(r *rules, q *Query, i int) (known bool, err error) {
	d, a := &q.Descriptors[i], &p.asks[i]
	if err := d.validate(i); err != nil {
		return false, err
	}
	a.first, a.refund = len(p.matched), d.Refund
	if d.Limit == (weir.Limit{}) {
		p.matched, known = r.policy.MatchEntries(p.matched, q.Domain, d.Entries)
	} else {
		var own policy.Row
		if own, known = r.policy.Override(q.Domain, d.Entries, d.Limit); known || r.inline {
			p.matched, known = append(p.matched, own), true
		}
	}
	if known && !r.overrides.none(q.Domain) {
		matching := r.overrides.matching(q.Domain, attributesOf(d.Entries))
		var changed []int
		p.matched, changed = r.override(p.matched, a.first, matching, q.Domain, d.Entries)
		p.changed = append(p.changed, changed...)
	}
	a.end = len(p.matched)
	return known, nil
}

// attributesOf returns entries as attributes.
func attributesOf(entries []Entry) map[string]string {
	attributes := make(map[string]string, len(entries))
	for _, e := range entries {
		attributes[e.Key] = e.Value
	}
	return attributes
}

// agree holds what shares a state with a row that was overridden to the same
// limit, as one list must: another descriptor may not be overridden, or bring a
// limit of its own.
func (p *plan) agree() {
	for _, i := range p.changed {
		a := &p.matched[i]
		for j := range p.matched {
			b := &p.matched[j]
			same := a.Limit
			same.Max, same.Burst = b.Limit.Max, b.Limit.Burst
			if a.Key == b.Key && same == b.Limit && !b.Deny {
				b.Limit, b.Stated = a.Limit, a.Stated
			}
		}
	}
}

// validate refuses what the Limiter would refuse of each limit.
func (d *Descriptor) validate(i int) error {
	field := func(name string) string { return "descriptors[" + strconv.Itoa(i) + "]." + name }
	if d.Cost < 0 || d.Cost > weir.MaxUnits {
		return &weir.InvalidError{Field: field("cost"), Value: strconv.FormatInt(d.Cost, 10), Want: wantCost}
	}
	if d.Limit == (weir.Limit{}) {
		return nil
	}
	l := d.Limit
	l.Max = max(1, min(l.Max, weir.MaxUnits))
	if d.Limit.Max < 0 || l.Validate() != nil {
		return &weir.InvalidError{Field: field("limit"), Value: fmt.Sprintf("%d/%s", d.Limit.Max, d.Limit.Window), Want: "0 or more requests per 1us to 366d, such as 5/minute"}
	}
	return nil
}

// leaveOut leaves out the rows that others replace and those that lift any
// limit, and sees which are of a quota.
func (p *plan) leaveOut() {
	replaced := p.replaced()
	kept := p.matched[:0]
	for i := range p.asks {
		a := &p.asks[i]
		rows := p.matched[a.first:a.end]
		if len(rows) == 1 && rows[0].Descriptor != nil {
			switch d := rows[0].Descriptor; {
			case rows[0].Unlimited:
				row := rows[0] // whose place another takes
				a.unlimited, rows = &row, nil
			case d.RateLimit.Name != "" && slices.Contains(replaced, d.RateLimit.Name):
				rows = nil
			case d.Quota:
				a.quota = true
				p.quotas++
			}
		}
		a.first = len(kept)
		kept = append(kept, rows...)
		a.end = len(kept)
	}
	p.matched = kept
}

// replaced are the names of the limits that others replace.
func (p *plan) replaced() []string {
	var names []string
	for i := range p.matched {
		if d := p.matched[i].Descriptor; d != nil {
			names = append(names, d.RateLimit.Replaces...)
		}
	}
	return names
}

// decideDenials sees whether a rule denies, whatever the store says.
func (p *plan) decideDenials() {
	for i := range p.asks {
		a := &p.asks[i]
		if a.refund || a.quota && p.quotas > 1 {
			continue
		}
		for j := a.first; j < a.end; j++ {
			p.denied = p.denied || p.matched[j].Deny && !p.shadowed(j)
		}
	}
}

// askFor adds the requests of one descriptor.
func (p *plan) askFor(a *ask, cost int64, record bool) {
	if a.refund {
		for j := a.first; j < a.end; j++ {
			if m := &p.matched[j]; cost > 0 && !m.Deny {
				p.refunds = append(p.refunds, weir.Receipt{Request: weir.Request{Key: m.Key, Group: m.Group, Limit: m.Limit, Cost: cost}, Units: cost})
			}
		}
		cost = 0
	}
	for j := a.first; j < a.end; j++ {
		mode := p.mode(j, cost, record)
		if mode == weir.Enforce && a.quota && p.quotas > 1 {
			mode = weir.Shadow
		}
		p.add(j, cost, mode)
	}
}

// answer sums up the descriptors, and gives back what was charged if the
// verdict turns out to be a denial that the list did not know of.
func (p *plan) answer(ctx context.Context, limiter *weir.Limiter, record bool) (statuses []Status, verdict weir.Decision) {
	statuses = make([]Status, len(p.asks))
	for i := range p.asks {
		statuses[i] = p.status(&p.asks[i])
	}
	verdict = p.verdict(statuses)
	if verdict.Allowed || record || !p.giveBack(ctx, limiter) {
		return statuses, verdict
	}
	for i := range p.asks {
		statuses[i] = p.status(&p.asks[i])
	}
	return statuses, p.verdict(statuses)
}

// giveBack undoes what a denied request was charged, and reports whether that
// was anything. Should the store fail now, too little is left, never too much.
func (p *plan) giveBack(ctx context.Context, limiter *weir.Limiter) bool {
	var charged []*Row
	var receipts []weir.Receipt
	for i := range p.rows {
		if row := &p.rows[i]; !row.Receipt.IsZero() && !p.matched[i].ChargeOnDeny {
			charged, receipts = append(charged, row), append(receipts, row.Receipt)
		}
	}
	if len(charged) == 0 {
		return false
	}
	_, err := limiter.Refund(context.WithoutCancel(ctx), receipts...)
	for _, row := range charged {
		row.Receipt = weir.Receipt{}
		for _, r := range receipts {
			if err == nil && row.Key == r.Request.Key && row.Window == r.Request.Limit.Window {
				row.Remaining = min(row.Limit, row.Remaining+r.Units)
			}
		}
	}
	return true
}

// status says what the rows of a descriptor come to.
func (p *plan) status(a *ask) Status {
	if a.unlimited != nil {
		s := Status{Matched: true, Unlimited: true, LimitName: a.unlimited.Descriptor.RateLimit.Name, Metadata: a.unlimited.Descriptor.Metadata}
		s.Name, s.Decision = a.unlimited.Rule.Name, weir.Decision{Allowed: true, Limit: Unlimited, Remaining: Unlimited}
		return s
	}
	for j := a.first; j < a.end; j++ {
		p.votes.cast(j, &p.rows[j].Decision, p.matched[j].Rule.Shadow)
	}
	best, decision := p.votes.count()
	if best < 0 {
		return Status{Row: Row{Decision: decision}}
	}
	m := &p.matched[best]
	s := Status{Row: p.rows[best], Matched: true, Stated: m.Stated, LimitName: m.Rule.Name, Quota: a.quota}
	decision.ResetAfter = s.ResetAfter
	s.Decision = decision
	if m.Descriptor != nil {
		s.LimitName, s.Metadata = m.Descriptor.RateLimit.Name, m.Descriptor.Metadata
	}
	if a.refund && !s.Allowed {
		s.Allowed, s.Reason, s.RetryAfter = true, weir.OK, 0
	}
	return s
}

// verdict combines statuses: one that is denied denies, but those of a quota
// only if all of them do.
func (p *plan) verdict(statuses []Status) weir.Decision {
	failed := 0
	for i := range statuses {
		if statuses[i].Quota && !statuses[i].Allowed {
			failed++
		}
	}
	for i := range statuses {
		if s := &statuses[i]; s.Matched {
			p.votes.cast(i, &s.Decision, s.Shadow || s.Quota && !s.Allowed && failed < p.quotas)
		}
	}
	best, d := p.votes.count()
	if best >= 0 {
		d.ResetAfter = statuses[best].ResetAfter
	}
	return d
}

// votes are combined as weir.List.Decide does. They are a part of the plan, as
// on the stack they would make each call's grow.
type votes weir.List

// cast adds what i says, whether as Enforce or as Shadow.
func (v *votes) cast(i int, d *weir.Decision, shadow bool) {
	mode := weir.Enforce
	if shadow {
		mode = weir.Shadow
	}
	v.Requests, v.Rows = append(v.Requests, weir.Request{Mode: mode}), append(v.Rows, *d)
	v.Rows[len(v.Rows)-1].ResetAfter = time.Duration(i) // which Decide passes on without looking at it
}

// count returns who decides and what, but for its ResetAfter, and begins anew;
// nobody, -1, if there was no vote.
func (v *votes) count() (int, weir.Decision) {
	d := (*weir.List)(v).Decide()
	best := int(d.ResetAfter)
	if len(v.Rows) == 0 {
		best = -1
	}
	v.Requests, v.Rows = v.Requests[:0], v.Rows[:0]
	return best, d
}
