package decide

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Explanation is what a query would get and why.
type Explanation struct {
	Answer Answer
	Rules  []Explained
}

// Explained is a rule that matches a query, or why it does not.
type Explained struct {
	Rule                             *policy.Rule
	Matches                          bool
	Why, Limit, Key, Group, Override string
	Decision                         *weir.Decision
}

// KeyState is the state of a key.
type KeyState struct {
	Domain, Rule, Key string
	Limit             weir.Limit
	Decision          weir.Decision
	Used              int64
	Countable         bool
	Timeline          []Part
}

// Part is a part of a window, by age.
type Part struct {
	From, To time.Duration
	Units    int64
}

// Explain is a stand-in.
func (e *Engine) Explain(ctx context.Context, q Query) (x Explanation, err error) {
	q.Cost = 0
	x.Answer, err = e.Check(ctx, q)
	for _, r := range x.Answer.Rows {
		x.Rules = append(x.Rules, Explained{Rule: &policy.Rule{Name: r.Name}, Matches: true, Why: "it matches", Key: r.Key, Decision: &r.Decision})
	}
	return x, err
}

// Inspect is a stand-in.
func (e *Engine) Inspect(ctx context.Context, q Query) (all []KeyState, err error) {
	var p plan
	q.Cost = 0
	for i := range q.Checks {
		q.Checks[i].Mode = weir.Peek
	}
	if err := p.fill(e.rules.Load(), &q, false); err != nil {
		return nil, err
	}
	a, err := e.Check(ctx, q)
	for i, r := range a.Rows {
		if r.Limit > 0 {
			all = append(all, KeyState{
				Domain: q.Domain, Rule: r.Name, Key: r.Key, Limit: p.requests[i].Limit, Decision: r.Decision, Used: r.Limit - r.Remaining,
				Countable: true, Timeline: []Part{{To: r.Window / 100, Units: r.Limit - r.Remaining}},
			})
		}
	}
	return all, err
}
