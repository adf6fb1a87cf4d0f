package decide

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Explanation is what Check would answer, and why.
type Explanation struct {
	// Answer is that of Check, except that nothing is charged: what remains of a
	// limit remains before the query.
	Answer Answer
	// Rules has one for each rule of the domain, in their order, or for each
	// check; for each Descriptor in turn. Behind them is what the rules do not
	// know of: that the request is blocked, or brings a limit.
	Rules []Explained
}

// Explained is what a rule or check has to do with a query.
type Explained struct {
	// Rule must not be changed. It is nil of a check, and where nothing in a
	// Tree was arrived at.
	Rule *policy.Rule
	// Descriptor is the number of the one that was looked up, from 0.
	Descriptor int
	// Matches says that the rule holds for the query, and Why says in words why
	// it does or does not.
	Matches bool
	Why     string
	// Limit is what the query is held to, as text, or deny, or unlimited.
	Limit string
	// Key is that of the Row, and Group picks the slot on a Cluster; it may be
	// empty.
	Key, Group string
	// Override says which Override holds, until when, by whom and why; empty if
	// none does.
	Override string
	// Decision is that of the Row; nil if there is none.
	Decision *weir.Decision
}

// Explain answers what Check would, and why, without charging anything. Nobody
// observes it. The errors are those of Check.
func (e *Engine) Explain(ctx context.Context, q Query) (Explanation, error) {
	var x Explanation
	r := e.rules.Load()
	p, l, err := e.peek(ctx, r, &q, false)
	if err != nil {
		return x, err
	}
	p.conclude(ctx, e.limiter, &x.Answer, l, false)
	switch {
	case q.Checks != nil:
		for i := range p.rows {
			row, request := &p.rows[i], &l.Requests[i]
			x.Rules = append(x.Rules, Explained{Matches: true, Why: broughtLimit, Limit: request.Limit.String(), Key: row.Key, Group: request.Group, Decision: &row.Decision})
		}
	case q.Descriptors != nil:
		for i := range q.Descriptors {
			x.Rules = append(x.Rules, p.explainDescriptor(r, &q, i)...)
		}
	default:
		reasons, _ := r.policy.Explain(q.Domain, q.Attributes)
		x.Rules = p.explain(reasons, r.overrides.matching(q.Domain, q.Attributes), 0, len(p.rows))
	}
	return x, nil
}

const broughtLimit = "the request brings this limit"

// peek plans a query and asks, without charging anything, how its rows would be
// decided; or, with each, whether one unit would pass each of them alone.
//
// Rows of one state and mode count as one. So those of each mode are asked in a
// list of their own, as if it were the mode of all.
func (e *Engine) peek(ctx context.Context, r *rules, q *Query, each bool) (*plan, *weir.List, error) {
	p := &plan{look: true}
	if err := p.fill(r, q, false); err != nil {
		return nil, nil, err
	}
	all := &weir.List{Requests: p.requests, Rows: make([]weir.Decision, len(p.requests))}
	n := len(p.requests) + int(weir.Record) + 1
	lists, of := make([]weir.List, n), make([][]int, n)
	for i, request := range p.requests {
		to := int(request.Mode)
		if each {
			to, request.Cost = i, 1
		}
		request.Mode = weir.Peek
		lists[to].Requests, of[to] = append(lists[to].Requests, request), append(of[to], i)
	}
	e.limiter.Take(ctx, lists)
	for to := range lists {
		if err := lists[to].Err; err != nil {
			rows := make([]int, len(of[to]))
			for j, i := range of[to] {
				rows[j] = p.of[i]
			}
			return nil, nil, (&plan{asks: p.asks, of: rows}).named(err)
		}
		for j, i := range of[to] {
			all.Requests[i].Limit, all.Rows[i] = lists[to].Requests[j].Limit, lists[to].Rows[j]
		}
	}
	return p, all, nil
}

func (p *plan) explainDescriptor(r *rules, q *Query, i int) []Explained {
	d, a := &q.Descriptors[i], &p.asks[i]
	var reasons []policy.Reason
	if d.Limit == (weir.Limit{}) {
		reasons, _ = r.policy.ExplainEntries(q.Domain, d.Entries)
	}
	all := p.explain(reasons, r.overrides.matching(q.Domain, attributesOf(d.Entries)), a.first, a.end)
	for j := range all {
		all[j].Descriptor = i
	}
	return all
}

// explain joins reasons, in their order, with the rows from first to end.
func (p *plan) explain(reasons []policy.Reason, matching []*Override, first, end int) []Explained {
	all := make([]Explained, 0, len(reasons))
	for _, reason := range reasons {
		x := Explained{Rule: reason.Rule, Matches: reason.Row != nil, Why: reason.Why}
		switch {
		case first < end && p.matched[first].Rule == reason.Rule:
			p.tell(&x, first, matching)
			first++
		case reason.Row != nil && reason.Row.Unlimited:
			x.Limit = "unlimited"
		case reason.Row != nil:
			x.Matches = false
			x.Why += ", which another descriptor's replaces"
		}
		all = append(all, x)
	}
	for ; first < end; first++ {
		x := Explained{Rule: p.matched[first].Rule, Matches: true, Why: broughtLimit}
		if o := chosen(matching, ""); x.Rule == &blocked && o != nil {
			x.Why = o.why()
		}
		p.tell(&x, first, matching)
		all = append(all, x)
	}
	return all
}

// tell fills in what a row says.
func (p *plan) tell(x *Explained, i int, matching []*Override) {
	m := &p.matched[i]
	x.Limit, x.Key, x.Group, x.Decision = m.Limit.String(), m.Key, m.Group, &p.rows[i].Decision
	if m.Deny {
		x.Limit = "deny"
	}
	name := m.Rule.Name
	if m.Rule == &blocked {
		name = ""
	} else if name == "" {
		return
	}
	if o := chosen(matching, name); o != nil {
		x.Override = o.String()
	}
}

// why says which attributes an override is for.
func (o *Override) why() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(o.Attributes)) {
		words = append(words, name+" is "+strconv.Quote(clip(o.Attributes[name])))
	}
	return "it is blocked: " + strings.Join(words, " and ")
}
