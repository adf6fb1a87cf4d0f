// Package decide is the one use case of the service: a Query in, an Answer out.
// Front ends parse bytes into Queries and write Answers; they decide nothing.
package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Query asks the rules of a Domain by Attributes or by Descriptors, or, if it has
// Checks, those and no rules.
type Query struct {
	// Domain names the rules to ask.
	Domain string
	// Attributes are what the rules look at. A missing one counts as empty.
	Attributes map[string]string
	// Cost is what each rule is asked for, from 0 to weir.MaxUnits units; 0
	// takes nothing and asks whether one unit would pass now.
	Cost int64
	// Descriptors are looked up in place of Attributes if they are not nil,
	// each with its Cost. All that match are decided all-or-nothing.
	Descriptors []Descriptor
	// Checks are limits of the caller's own, each with its Cost, in Mode
	// Enforce or Peek. They are decided all-or-nothing, as rules are.
	Checks []weir.Request
}

// Answer is the verdict on a Query and what it is made of.
type Answer struct {
	// Decision is the verdict. Its Rows and Receipt are not used.
	weir.Decision
	// Rows has one for each rule that matched, in the order of the rules, or
	// for each check.
	Rows []Row
	// Statuses has one for each of the Descriptors, in order.
	Statuses []Status
	// Err is set instead of the rest if the query could not be decided: an
	// *UnknownDomainError, ErrInline, a *weir.InvalidError, or an error of the
	// store or the context.
	Err error
}

// Row is what one rule or check says.
type Row struct {
	// Decision says in Allowed whether the row alone would pass.
	weir.Decision
	// Name is that of the rule; empty for a check.
	Name string
	// Key is what was limited: of a check, the key that it was given.
	Key string
	// Window is that of the limit; 0 if a rule denies without one.
	Window time.Duration
	// Shadow says that the row has no say in the verdict.
	Shadow bool
}

// Receipts returns what was charged, for Engine.Refund.
func (a *Answer) Receipts() []weir.Receipt {
	var receipts []weir.Receipt
	for i := range a.Rows {
		if r := a.Rows[i].Receipt; !r.IsZero() {
			receipts = append(receipts, r)
		}
	}
	return receipts
}

// Event tells an observer of an answer. Nothing in it may be changed.
type Event struct {
	Query  *Query
	Answer *Answer
	// Took is how long the whole trip took that the answer came with; 0 if it
	// was not timed.
	Took time.Duration
}

// ErrInline refuses checks where rules are loaded and Load was not told to
// serve checks beside them, lest callers choose their own limits.
var ErrInline = errors.New("limits sent with a request are not served beside a config")

// UnknownDomainError says that no rules are loaded for a domain.
type UnknownDomainError struct {
	Domain string   // what was asked for
	Known  []string // the domains there are
}

// Error names the domain and those that exist.
func (e *UnknownDomainError) Error() string {
	text := fmt.Sprintf("domain %q is unknown: ", clip(e.Domain))
	if len(e.Known) == 0 {
		return text + "no config is loaded"
	}
	return text + "want " + clip(strings.Join(e.Known, " or "))
}

// Options configures an Engine.
type Options struct {
	// Limiter decides; it is required.
	Limiter *weir.Limiter
	// Observe, if not nil, is called with each answer before it is returned,
	// also with those that are an Err. It must be quick and safe for concurrent
	// use.
	Observe func(Event)
	// Timed, if not nil, says before a trip whether to time it: clocks are dear.
	// Otherwise all are that Observe is told of.
	Timed func() bool
	// Shadow makes every rule a shadow: all is decided and counted, and nothing
	// is denied. Statuses still say what they would.
	Shadow bool
}

// Engine answers queries. It is safe for concurrent use.
type Engine struct {
	limiter *weir.Limiter
	observe func(Event)
	timed   func() bool
	shadow  bool
	loading sync.Mutex // held while rules are replaced
	rules   atomic.Pointer[rules]
}

// rules is what Load was given.
type rules struct {
	policy    *policy.Policy
	inline    bool
	shadow    bool
	overrides *overrides // nil if there are none
}

// New returns an Engine without rules, which serves checks only; see Load.
func New(o Options) *Engine {
	e := &Engine{limiter: o.Limiter, observe: o.Observe, timed: o.Timed, shadow: o.Shadow}
	e.Load(new(policy.Policy), true)
	return e
}

// Load makes p decide from the next query on. Checks, and the Limit of a
// Descriptor of an unknown domain, are served beside it only if inline is true.
func (e *Engine) Load(p *policy.Policy, inline bool) {
	e.loading.Lock()
	defer e.loading.Unlock()
	next := &rules{policy: p, inline: inline, shadow: e.shadow}
	if last := e.rules.Load(); last != nil {
		next.overrides = last.overrides
	}
	e.rules.Store(next)
}

// Policy returns the rules in force. It must not be changed.
func (e *Engine) Policy() *policy.Policy { return e.rules.Load().policy }

// Check answers one query. The error is that of the Answer.
func (e *Engine) Check(ctx context.Context, q Query) (Answer, error) {
	a := e.take(ctx, []Query{q}, false)[0]
	return a, a.Err
}

// CheckEach answers independent queries, in order, in one trip to the store.
func (e *Engine) CheckEach(ctx context.Context, queries []Query) []Answer {
	return e.take(ctx, queries, false)
}

// Charge records use that has already happened, even above the limits, and
// answers how things stand after it. A rule that denies still answers so.
func (e *Engine) Charge(ctx context.Context, q Query) (Answer, error) {
	a := e.take(ctx, []Query{q}, true)[0]
	return a, a.Err
}

// Refund gives back what receipts prove to have been charged, and returns how
// many units that were, summed over the receipts. See weir.Limiter.Refund.
func (e *Engine) Refund(ctx context.Context, receipts ...weir.Receipt) (int64, error) {
	return e.limiter.Refund(ctx, receipts...)
}

// RefundOldest gives back the query's cost without a receipt, for each rule or
// check the oldest live units, and returns how many that were in all.
func (e *Engine) RefundOldest(ctx context.Context, q Query) (int64, error) {
	var p plan
	err := p.fill(e.rules.Load(), &q, true)
	var total int64
	for i := range p.requests {
		if err != nil || p.requests[i].Mode == weir.Peek {
			continue
		}
		var n int64
		n, err = e.limiter.RefundOldest(ctx, p.requests[i])
		total += n
	}
	return total, p.named(err)
}

// Count tells how many units were taken in the last d by requests such as the
// query: of its rules or checks, the least that one has counted. Those that
// cannot count that interval are left out, unless none can; so are shadow
// rules, which miss what they did not admit. Without any it is 0.
func (e *Engine) Count(ctx context.Context, q Query, d time.Duration) (int64, error) {
	var p plan
	err := p.fill(e.rules.Load(), &q, true)
	least := int64(-1)
	for i := range p.requests {
		if p.rows[p.of[i]].Shadow {
			continue
		}
		n, failed := e.limiter.CountRequest(ctx, p.requests[i], d)
		if failed != nil {
			err = failed
		} else if least < 0 || n < least {
			least = n
		}
	}
	if least >= 0 {
		return least, nil
	}
	return 0, err
}

// Reset forgets the states of the query's rules or checks and returns how many
// there were.
func (e *Engine) Reset(ctx context.Context, q Query) (int64, error) {
	var p plan
	err := p.fill(e.rules.Load(), &q, true)
	if err != nil {
		return 0, err
	}
	n, err := e.limiter.ResetAll(ctx, p.requests...)
	return n, p.named(err)
}

// trip is the scratch of take, pooled because what is handed to a Store escapes.
type trip struct {
	plans []plan
	lists []weir.List
}

var trips = sync.Pool{New: func() any { return new(trip) }}

func newTrip(n int) *trip {
	t := trips.Get().(*trip)
	if cap(t.plans) < n {
		t.plans, t.lists = make([]plan, n), make([]weir.List, n)
	}
	t.plans, t.lists = t.plans[:n], t.lists[:n]
	for i := range t.plans {
		t.plans[i], t.lists[i] = t.plans[i].empty(), weir.List{Rows: t.lists[i].Rows[:0]}
	}
	return t
}

// start returns when a trip starts, or the zero time if that is not asked.
func (e *Engine) start() (now time.Time) {
	if e.observe != nil && (e.timed == nil || e.timed()) {
		now = time.Now()
	}
	return now
}

// took is at least 1 ns, but 0 for a trip that was not timed.
func took(start time.Time) time.Duration {
	if start.IsZero() {
		return 0
	}
	return max(1, time.Since(start))
}

// take plans every query, makes one trip, and sums up.
func (e *Engine) take(ctx context.Context, queries []Query, record bool) []Answer {
	start := e.start()
	rules := e.rules.Load()
	answers := make([]Answer, len(queries))
	t := newTrip(len(queries))
	defer trips.Put(t)
	for i := range queries {
		p := &t.plans[i]
		answers[i].Err = p.fill(rules, &queries[i], record)
		if len(p.refunds) > 0 {
			_, answers[i].Err = e.limiter.Refund(ctx, p.refunds...)
		}
		if answers[i].Err == nil {
			t.lists[i].Requests = p.requests
		}
	}
	e.limiter.Take(ctx, t.lists)
	for i := range answers {
		a, p, l := &answers[i], &t.plans[i], &t.lists[i]
		if a.Err == nil {
			a.Err = p.named(l.Err)
		}
		if a.Err == nil {
			p.conclude(ctx, e.limiter, a, l, record)
		}
		if e.observe != nil {
			e.observe(Event{Query: &queries[i], Answer: a, Took: took(start)})
		}
	}
	return answers
}

// conclude makes an answer of the list that was taken.
func (p *plan) conclude(ctx context.Context, limiter *weir.Limiter, a *Answer, l *weir.List, record bool) {
	p.learn(l)
	if len(p.asks) > 0 {
		a.Statuses, a.Decision = p.answer(ctx, limiter, record)
	} else {
		a.Decision = p.sum(l)
	}
	a.Rows = p.rows
}

// named gives the Limiter's name for an argument the Query's.
func (p *plan) named(err error) error {
	invalid, ok := errors.AsType[*weir.InvalidError](err)
	if !ok {
		return err
	}
	rest, ok := strings.CutPrefix(invalid.Field, "requests[")
	number, rest, _ := strings.Cut(rest, "]")
	i, _ := strconv.Atoi(number)
	if !ok || i >= len(p.of) {
		return err
	}
	name, of := "checks", p.of[i]
	if len(p.asks) > 0 {
		name = "descriptors"
		of = slices.IndexFunc(p.asks, func(a ask) bool { return p.of[i] < a.end })
	}
	return &weir.InvalidError{Field: fmt.Sprintf("%s[%d]%s", name, of, rest), Value: invalid.Value, Want: invalid.Want}
}

// validCost refuses what the Limiter would refuse of each rule.
func validCost(cost int64) error {
	if cost < 0 || cost > weir.MaxUnits {
		return &weir.InvalidError{Field: "cost", Value: strconv.FormatInt(cost, 10), Want: wantCost}
	}
	return nil
}

const wantCost = "0 to 2147483648 units, such as 1"

// clip keeps a message short however long a name is.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}
