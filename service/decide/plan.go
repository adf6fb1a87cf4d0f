package decide

import (
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// plan is a query on its way: the rows of its answer, and the requests that
// fill in those that have a limit.
type plan struct {
	rows     []Row
	matched  []policy.Row // what each row is of; none if they are of checks
	requests []weir.Request
	of       []int // the row that each request is for
	denied   bool  // by a rule that denies and is no shadow
	shadow   bool  // everything is
	look     bool  // nothing will be charged

	// Of descriptors.
	asks    []ask
	changed []int          // the rows that overrides have changed
	quotas  int            // how many of them are of a quota
	refunds []weir.Receipt // to return first
	votes   votes
}

// fill turns a query into requests, in a plan that is empty. With record they
// are charged whatever the verdict.
func (p *plan) fill(r *rules, q *Query, record bool) error {
	switch {
	case q.Checks != nil && !r.inline:
		return ErrInline
	case q.Checks != nil:
		p.planChecks(q.Checks, record)
		return nil
	case q.Descriptors != nil:
		p.shadow = r.shadow
		return p.planDescriptors(r, q, record)
	}
	if err := validCost(q.Cost); err != nil {
		return err
	}
	var ok bool
	if p.matched, ok = r.match(p.matched, q.Domain, q.Attributes); !ok {
		return &UnknownDomainError{Domain: q.Domain, Known: r.domains()}
	}
	p.shadow = r.shadow
	p.planRules(q.Cost, record)
	return nil
}

// empty is a plan that uses the memory of p, but for what an answer holds.
func (p *plan) empty() plan {
	return plan{matched: p.matched[:0], requests: p.requests[:0], of: p.of[:0], asks: p.asks[:0], changed: p.changed[:0], votes: p.votes}
}

func (r *rules) domains() []string {
	var names []string
	for _, d := range r.policy.Domains() {
		names = append(names, d.Name)
	}
	return names
}

func (p *plan) planChecks(checks []weir.Request, record bool) {
	p.requests = append(p.requests, checks...)
	for i := range p.requests {
		request := &p.requests[i]
		if record && request.Mode != weir.Peek {
			request.Mode = weir.Record
		}
		p.rows = append(p.rows, Row{Key: request.Key, Window: request.Limit.Window})
		request.Key = ":" + request.Key // as no rule's key begins, so that they share no state
		p.of = append(p.of, i)
	}
}

func (p *plan) planRules(cost int64, record bool) {
	for i := range p.matched {
		p.denied = p.denied || p.matched[i].Deny && !p.shadowed(i)
	}
	for i := range p.matched {
		p.add(i, cost, p.mode(i, cost, record))
	}
}

// shadowed reports whether a row has no say.
func (p *plan) shadowed(i int) bool { return p.shadow || p.matched[i].Rule.Shadow }

// add adds a row, which is the next, and what to ask for it.
func (p *plan) add(i int, cost int64, mode weir.Mode) {
	m := &p.matched[i]
	row := Row{Name: m.Rule.Name, Key: m.Key, Window: m.Stated.Window, Shadow: p.shadowed(i)}
	if m.Deny {
		row.Reason = weir.Never
		p.rows = append(p.rows, row)
		return
	}
	p.rows = append(p.rows, row)
	request := weir.Request{Key: m.Key, Group: m.Group, Limit: m.Limit, Cost: cost, Mode: mode, OnFailure: m.Rule.OnFailure, Deadline: m.Rule.Deadline}
	if m.ChargeOnDeny && !p.look && mode != weir.Peek && mode != weir.Record {
		// A record tells how things stand after it; whether it fitted, a look
		// at how they were before.
		request.Mode = weir.Peek
		p.requests, p.of = append(p.requests, request), append(p.of, i)
		request.Mode = weir.Record
	}
	p.requests, p.of = append(p.requests, request), append(p.of, i)
}

// mode is how a rule is asked. Once another rule has denied, nothing is
// charged, but every rule still reports; except that what is to be recorded
// has happened already, whoever denies.
func (p *plan) mode(i int, cost int64, record bool) weir.Mode {
	switch {
	case cost == 0:
		return weir.Peek
	case record:
		return weir.Record
	case p.matched[i].ChargeOnDeny:
		return weir.Enforce
	case p.denied:
		return weir.Peek
	case p.shadowed(i):
		return weir.Shadow
	}
	return weir.Enforce
}

// learn fills in the rows from the list that was taken, and makes it the list
// whose verdict counts.
func (p *plan) learn(l *weir.List) {
	n := 0
	for i := range l.Rows {
		if i+1 < len(p.of) && p.of[i+1] == p.of[i] {
			continue // a look before a record
		}
		row := &p.rows[p.of[i]]
		row.Decision = l.Rows[i]
		if i > 0 && p.of[i-1] == p.of[i] {
			row.Decision = recorded(&l.Rows[i-1], &l.Rows[i])
		}
		l.Requests[n], l.Rows[n] = l.Requests[i], row.Decision
		// A record speaks for the list as if it were enforced, and a shadow
		// only if there is nobody else.
		if row.Shadow {
			l.Requests[n].Mode = weir.Shadow
		} else if l.Requests[n].Mode == weir.Record {
			l.Requests[n].Mode = weir.Enforce
		}
		n++
	}
	l.Requests, l.Rows = l.Requests[:n], l.Rows[:n]
}

// recorded is how things stand after a record, denied if before it there was
// not enough left.
func recorded(before, after *weir.Decision) weir.Decision {
	d := *after
	if d.Allowed = before.Allowed; !d.Allowed {
		d.Reason, d.RetryAfter = before.Reason, before.RetryAfter
	}
	return d
}

// sum makes the verdict of a list that was learned.
func (p *plan) sum(l *weir.List) weir.Decision {
	if p.denied {
		return weir.Decision{Reason: weir.Never}
	}
	d := l.Decide()
	if d.Reason == weir.NoRule && len(p.rows) > 0 {
		d.Reason = weir.OK // nothing but shadows that deny
	}
	return d
}
