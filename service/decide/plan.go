package decide

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// plan is a query on its way: the rows of its answer, and the requests that
// fill in those that have a limit.
type plan struct {
	rows     []Row
	requests []weir.Request
	of       []int // the row that each request is for
	denied   bool  // by a rule that denies and is no shadow
}

// plan turns a query into requests. With record they are charged whatever the
// verdict.
func (r *rules) plan(q *Query, record bool) (plan, error) {
	if q.Checks != nil {
		if !r.inline {
			return plan{}, ErrInline
		}
		return planChecks(q.Checks, record), nil
	}
	if err := validCost(q.Cost); err != nil {
		return plan{}, err
	}
	if r.policy == nil {
		return plan{}, &UnknownDomainError{Domain: q.Domain}
	}
	matched, ok := r.policy.Match(nil, q.Domain, q.Attributes)
	if !ok {
		return plan{}, &UnknownDomainError{Domain: q.Domain, Known: r.domains()}
	}
	return planRules(matched, q.Cost, record), nil
}

func (r *rules) domains() []string {
	var names []string
	for _, d := range r.policy.Domains() {
		names = append(names, d.Name)
	}
	return names
}

func planChecks(checks []weir.Request, record bool) plan {
	p := plan{requests: slices.Clone(checks)}
	for i := range p.requests {
		request := &p.requests[i]
		if record && request.Mode != weir.Peek {
			request.Mode = weir.Record
		}
		p.rows = append(p.rows, Row{Key: request.Key, Window: request.Limit.Window})
		request.Key = ":" + request.Key // as no rule's key begins, so that they share no state
		p.of = append(p.of, i)
	}
	return p
}

func planRules(matched []policy.Row, cost int64, record bool) plan {
	var p plan
	for i := range matched {
		p.denied = p.denied || matched[i].Deny && !matched[i].Rule.Shadow
	}
	for i := range matched {
		m := &matched[i]
		row := Row{Name: m.Rule.Name, Key: m.Key, Window: m.Limit.Window, Shadow: m.Rule.Shadow}
		if m.Deny {
			row.Reason = weir.Never
		} else {
			mode := p.mode(row.Shadow, cost, record)
			p.requests = append(p.requests, weir.Request{Key: m.Key, Group: m.Group, Limit: m.Limit, Cost: cost, Mode: mode, OnFailure: m.Rule.OnFailure, Deadline: m.Rule.Deadline})
			p.of = append(p.of, i)
		}
		p.rows = append(p.rows, row)
	}
	return p
}

// mode is how a rule is asked. Once another rule has denied, nothing is
// charged, but every rule still reports; except that what is to be recorded
// has happened already, whoever denies.
func (p *plan) mode(shadow bool, cost int64, record bool) weir.Mode {
	switch {
	case cost == 0:
		return weir.Peek
	case record:
		return weir.Record
	case p.denied:
		return weir.Peek
	case shadow:
		return weir.Shadow
	}
	return weir.Enforce
}

// sum fills in the rows from the list that was taken, and makes the verdict.
func (p *plan) sum(l *weir.List) weir.Decision {
	for i := range l.Rows {
		row := &p.rows[p.of[i]]
		row.Decision = l.Rows[i]
		// A record speaks for the list as if it were enforced, and a shadow
		// only if there is nobody else.
		if row.Shadow {
			l.Requests[i].Mode = weir.Shadow
		} else if l.Requests[i].Mode == weir.Record {
			l.Requests[i].Mode = weir.Enforce
		}
	}
	if p.denied {
		return weir.Decision{Reason: weir.Never}
	}
	d := l.Decide()
	if d.Reason == weir.NoRule && len(p.rows) > 0 {
		d.Reason = weir.OK // nothing but shadows that deny
	}
	return d
}
