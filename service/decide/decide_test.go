package decide_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
)

// clock is a time that only the test moves.
type clock struct{ now time.Time }

func (c *clock) step(d time.Duration) { c.now = c.now.Add(d) }

// slack has a global limit, one per category, and categories of their own.
var slack = policy.Domain{Name: "slack", Rules: []policy.Rule{
	{Name: "global", Limit: weir.Per(10, 30*time.Minute)},
	{Name: "per-category", By: []string{"category"}, Limit: weir.Per(3, 30*time.Minute), Overrides: []policy.Override{
		{When: policy.When{"category": {"spam"}}, Deny: true},
	}},
	{Name: "trial", When: policy.When{"category": {"trial"}}, Limit: weir.Per(1, time.Minute), Shadow: true},
	{Name: "would-ban", When: policy.When{"category": {"banned"}}, Deny: true, Shadow: true},
}}

// shadows has nothing that enforces.
var shadows = policy.Domain{Name: "shadows", Rules: []policy.Rule{
	{Name: "one", When: policy.When{"kind": {"one"}}, Limit: weir.PerMinute(1), Shadow: true},
	{Name: "ban", When: policy.When{"kind": {"ban"}}, Deny: true, Shadow: true},
}}

func newEngine(t *testing.T, inline bool, domains ...policy.Domain) (*decide.Engine, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)}
	store := weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return c.now }})
	e := decide.New(decide.Options{Limiter: weir.New(weir.Options{Store: store})})
	if len(domains) > 0 {
		p, err := policy.Compile(domains)
		if err != nil {
			t.Fatal(err)
		}
		e.Load(p, inline)
	}
	return e, c
}

func ask(category string, cost int64) decide.Query {
	return decide.Query{Domain: "slack", Attributes: map[string]string{"category": category}, Cost: cost}
}

func check(key string, limit weir.Limit) decide.Query {
	return decide.Query{Checks: []weir.Request{{Key: key, Limit: limit, Cost: 1}}}
}

// text writes an answer on one line: the verdict, then its rows.
func text(a decide.Answer) string {
	s := verdict(a.Decision, a.Reason.String())
	for _, row := range a.Rows {
		name := row.Name
		if name == "" {
			name = row.Key
		}
		if row.Shadow {
			name = "shadow " + name
		}
		s += " | " + verdict(row.Decision, name)
	}
	return s
}

func verdict(d weir.Decision, what string) string {
	word := "deny"
	if d.Allowed {
		word = "ok"
	}
	s := fmt.Sprintf("%s %s %d/%d", word, what, d.Remaining, d.Limit)
	if d.RetryAfter > 0 {
		s += " retry " + d.RetryAfter.String()
	}
	return s
}

// step is one call and the answer to it.
type step struct {
	wait  time.Duration
	do    string // check or charge
	query decide.Query
	want  string
}

func TestAnswers(t *testing.T) {
	shadow := func(kind string, cost int64) decide.Query {
		return decide.Query{Domain: "shadows", Attributes: map[string]string{"kind": kind}, Cost: cost}
	}
	five := weir.PerMinute(5)
	tests := map[string][]step{
		"the narrower rule denies, and the wider keeps what it had": {
			{0, "check", ask("errors", 1), "ok ok 2/3 | ok global 9/10 | ok per-category 2/3"},
			{0, "check", ask("errors", 2), "ok ok 0/3 | ok global 7/10 | ok per-category 0/3"},
			{0, "check", ask("errors", 1), "deny over_limit 0/3 retry 30m0s | ok global 7/10 | deny per-category 0/3 retry 30m0s"},
			{30 * time.Minute, "check", ask("errors", 1), "ok ok 2/3 | ok global 9/10 | ok per-category 2/3"},
		},
		"cost 0 asks and takes nothing": {
			{0, "check", ask("errors", 0), "ok ok 3/3 | ok global 10/10 | ok per-category 3/3"},
			{0, "check", ask("errors", 3), "ok ok 0/3 | ok global 7/10 | ok per-category 0/3"},
			{0, "check", ask("errors", 0), "deny over_limit 0/3 retry 30m0s | ok global 7/10 | deny per-category 0/3 retry 30m0s"},
		},
		"a cost that can never pass": {
			{0, "check", ask("errors", 4), "deny never 3/3 | ok global 10/10 | deny per-category 3/3"},
		},
		"a rule that denies charges nobody, and the others still report": {
			{0, "check", ask("spam", 10), "deny never 0/0 | ok global 10/10 | deny per-category 0/0"},
			{0, "check", ask("spam", 11), "deny never 0/0 | deny global 10/10 | deny per-category 0/0"},
			{0, "check", ask("spam", 0), "deny never 0/0 | ok global 10/10 | deny per-category 0/0"},
			{0, "check", ask("errors", 1), "ok ok 2/3 | ok global 9/10 | ok per-category 2/3"},
		},
		"a shadow reports and never denies": {
			{0, "check", ask("trial", 1), "ok ok 2/3 | ok global 9/10 | ok per-category 2/3 | ok shadow trial 0/1"},
			{0, "check", ask("trial", 1), "ok ok 1/3 | ok global 8/10 | ok per-category 1/3 | deny shadow trial 0/1 retry 1m0s"},
			{0, "check", ask("trial", 0), "ok ok 1/3 | ok global 8/10 | ok per-category 1/3 | deny shadow trial 0/1 retry 1m0s"},
			{0, "check", ask("banned", 1), "ok ok 2/3 | ok global 7/10 | ok per-category 2/3 | deny shadow would-ban 0/0"},
		},
		"nothing but shadows": {
			{0, "check", shadow("one", 1), "ok ok 0/1 | ok shadow one 0/1"},
			{0, "check", shadow("one", 1), "ok ok 0/1 | deny shadow one 0/1 retry 1m0s"},
			{0, "check", shadow("one", 0), "ok ok 0/1 | deny shadow one 0/1 retry 1m0s"},
			{0, "check", shadow("ban", 1), "ok ok 0/0 | deny shadow ban 0/0"},
		},
		"no rule": {
			{0, "check", shadow("two", 1), "ok no_rule 0/0"},
			{0, "charge", shadow("two", 1), "ok no_rule 0/0"},
		},
		"a charge succeeds and delays what follows": {
			{0, "charge", ask("errors", 4), "ok ok 0/3 | ok global 6/10 | ok per-category 0/3"},
			{0, "check", ask("errors", 1), "deny over_limit 0/3 retry 30m0s | ok global 6/10 | deny per-category 0/3 retry 30m0s"},
			{0, "charge", ask("errors", 0), "deny over_limit 0/3 retry 30m0s | ok global 6/10 | deny per-category 0/3 retry 30m0s"},
		},
		"a charge is recorded whatever a rule says": {
			{0, "charge", ask("spam", 4), "deny never 0/0 | ok global 6/10 | deny per-category 0/0"},
			{0, "charge", ask("trial", 2), "ok ok 1/3 | ok global 4/10 | ok per-category 1/3 | ok shadow trial 0/1"},
		},
		"checks of the caller's own": {
			{0, "check", check("alice", five), "ok ok 4/5 | ok alice 4/5"},
			{0, "check", decide.Query{Checks: []weir.Request{
				{Key: "alice", Limit: five, Cost: 4}, {Key: "bob", Limit: weir.PerMinute(3), Cost: 4},
			}}, "deny never 3/3 | ok alice 4/5 | deny bob 3/3"},
			{0, "check", decide.Query{Checks: []weir.Request{
				{Key: "alice", Limit: five, Cost: 5, Mode: weir.Peek}, {Key: "bob", Limit: weir.PerMinute(3), Cost: 1},
			}}, "ok ok 2/3 | deny alice 4/5 retry 1m0s | ok bob 2/3"},
			{0, "charge", check("alice", five), "ok ok 3/5 | ok alice 3/5"},
			{0, "charge", decide.Query{Checks: []weir.Request{
				{Key: "alice", Limit: five, Cost: 1, Mode: weir.Peek}, {Key: "bob", Limit: weir.PerMinute(3), Cost: 9},
			}}, "ok ok 0/3 | ok alice 3/5 | ok bob 0/3"},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			e, c := newEngine(t, true, slack, shadows)
			for i, s := range steps {
				c.step(s.wait)
				call := e.Check
				if s.do == "charge" {
					call = e.Charge
				}
				a, err := call(t.Context(), s.query)
				if err != nil {
					t.Fatal(err)
				}
				if got := text(a); got != s.want {
					t.Errorf("step %d:\n got %s\nwant %s", i, got, s.want)
				}
			}
		})
	}
}

func TestRowsNameWhatWasLimited(t *testing.T) {
	e, _ := newEngine(t, false, slack)
	a, err := e.Check(t.Context(), ask("errors", 1))
	if err != nil {
		t.Fatal(err)
	}
	if row := a.Rows[1]; row.Key != "slack:per-category:errors" || row.Window != 30*time.Minute {
		t.Errorf("got key %q and window %v", row.Key, row.Window)
	}
}

// TestReceiptsNameTheSlot looks at the requests that were made of rules with a slot.
func TestReceiptsNameTheSlot(t *testing.T) {
	e, _ := newEngine(t, false, policy.Domain{Name: "d", Rules: []policy.Rule{
		{Name: "global", Limit: weir.PerMinute(5), SlotDomain: true},
		{Name: "user", By: []string{"user"}, Limit: weir.PerMinute(5), Slot: []string{"user"}},
		{Name: "own", Limit: weir.PerMinute(5)},
	}})
	a, err := e.Check(t.Context(), decide.Query{Domain: "d", Attributes: map[string]string{"user": "al"}, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range a.Receipts() {
		got = append(got, r.Request.Key+" in "+r.Request.Group)
	}
	if want := []string{"d:global in d", "d:user:al in d:al", "d:own in "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckEach(t *testing.T) {
	e, _ := newEngine(t, false, slack)
	answers := e.CheckEach(t.Context(), []decide.Query{
		ask("errors", 2), {Domain: "slakc"}, ask("errors", -1), check("alice", weir.PerMinute(5)), ask("errors", 2), ask("news", 1),
	})
	want := []string{
		"ok ok 1/3 | ok global 8/10 | ok per-category 1/3",
		`domain "slakc" is unknown: want slack`,
		`weir: cost "-1": want 0 to 2147483648 units, such as 1`,
		decide.ErrInline.Error(),
		"deny over_limit 1/3 retry 30m0s | ok global 8/10 | deny per-category 1/3 retry 30m0s",
		"ok ok 2/3 | ok global 7/10 | ok per-category 2/3",
	}
	for i, a := range answers {
		got := text(a)
		if a.Err != nil {
			got = a.Err.Error()
		}
		if got != want[i] {
			t.Errorf("answer %d:\n got %s\nwant %s", i, got, want[i])
		}
	}
}

func TestErrors(t *testing.T) {
	closed := weir.New(weir.Options{})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	bare, _ := newEngine(t, true)
	ruled, _ := newEngine(t, false, slack)
	both, _ := newEngine(t, true, slack)
	var unknown *decide.UnknownDomainError
	var invalid *weir.InvalidError
	tests := map[string]struct {
		ctx    context.Context
		engine *decide.Engine
		query  decide.Query
		is     func(error) bool
		text   string
	}{
		"no rules at all": {
			t.Context(), bare, ask("errors", 1), func(err error) bool { return errors.As(err, &unknown) }, "no config is loaded",
		},
		"another domain": {
			t.Context(), ruled, decide.Query{Domain: strings.Repeat("x", 1000)},
			func(err error) bool { return errors.As(err, &unknown) && len(err.Error()) < 200 }, "want slack",
		},
		"checks beside rules": {
			t.Context(), ruled, check("alice", weir.PerMinute(5)), func(err error) bool { return errors.Is(err, decide.ErrInline) }, "",
		},
		"cost": {
			t.Context(), ruled, ask("errors", weir.MaxUnits+1), func(err error) bool { return errors.As(err, &invalid) }, `cost "2147483649"`,
		},
		"checks that contradict each other": {
			t.Context(), both, decide.Query{Checks: []weir.Request{
				{Key: "a", Limit: weir.PerMinute(5)}, {Key: "a", Limit: weir.PerMinute(6)},
			}}, func(err error) bool { return errors.As(err, &invalid) }, `checks[1].limit "6/1m"`,
		},
		"a caller that has gone": {
			gone, ruled, ask("errors", 1), func(err error) bool { return errors.Is(err, context.Canceled) }, "",
		},
		"a closed store": {
			t.Context(), decide.New(decide.Options{Limiter: closed}), check("alice", weir.PerMinute(5)),
			func(err error) bool { return errors.Is(err, weir.ErrClosed) }, "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, checked := test.engine.Check(test.ctx, test.query)
			_, charged := test.engine.Charge(test.ctx, test.query)
			for _, err := range []error{checked, charged} {
				if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.text) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

func TestRefund(t *testing.T) {
	e, _ := newEngine(t, true, slack)
	ctx := t.Context()
	a, err := e.Check(ctx, ask("errors", 3))
	if err != nil {
		t.Fatal(err)
	}
	receipts := a.Receipts()
	if len(receipts) != 2 {
		t.Fatalf("got %d receipts, want one for each rule", len(receipts))
	}
	for i := range receipts {
		receipts[i] = receipts[i].Part(2)
	}
	wantUnits(t, 4)(e.Refund(ctx, receipts...))
	wantUnits(t, 2)(e.RefundOldest(ctx, ask("errors", 1)))
	wantUnits(t, 0)(e.RefundOldest(ctx, ask("errors", 0)))
	wantUnits(t, 0)(e.RefundOldest(ctx, ask("spam", 1)))
	a, err = e.Check(ctx, ask("errors", 0))
	if got, want := text(a), "ok ok 3/3 | ok global 10/10 | ok per-category 3/3"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := e.RefundOldest(ctx, decide.Query{Domain: "slakc", Cost: 1}); err == nil {
		t.Error("an unknown domain was refunded")
	}
}

func TestCount(t *testing.T) {
	e, c := newEngine(t, true, slack, shadows, policy.Domain{Name: "mixed", Rules: []policy.Rule{
		{Name: "short", Limit: weir.PerSecond(5)},
		{Name: "bucket", Limit: weir.Limit{Max: 5, Window: time.Minute, Burst: 5}},
		{Name: "shadow", Limit: weir.PerHour(1), Shadow: true},
	}})
	ctx := t.Context()
	for _, category := range []string{"errors", "news", "errors"} {
		if _, err := e.Check(ctx, ask(category, 1)); err != nil {
			t.Fatal(err)
		}
		c.step(10 * time.Second)
	}
	wantUnits(t, 2)(e.Count(ctx, ask("errors", 1), time.Minute))
	wantUnits(t, 1)(e.Count(ctx, ask("errors", 1), 25*time.Second))
	wantUnits(t, 0)(e.Count(ctx, check("alice", weir.PerMinute(5)), time.Second))
	wantUnits(t, 0)(e.Count(ctx, decide.Query{Domain: "shadows"}, time.Second))

	mixed := decide.Query{Domain: "mixed", Cost: 2}
	if _, err := e.Check(ctx, mixed); err != nil {
		t.Fatal(err)
	}
	wantUnits(t, 2)(e.Count(ctx, mixed, time.Second))
	if n, err := e.Count(ctx, mixed, time.Minute); err == nil {
		t.Errorf("no rule can count a minute, but one counted %d", n)
	}
}

func TestReset(t *testing.T) {
	e, _ := newEngine(t, true, slack)
	ctx := t.Context()
	for range 3 {
		if _, err := e.Check(ctx, ask("errors", 1)); err != nil {
			t.Fatal(err)
		}
	}
	wantUnits(t, 2)(e.Reset(ctx, ask("errors", 1)))
	wantUnits(t, 0)(e.Reset(ctx, ask("errors", 1)))
	a, err := e.Check(ctx, ask("errors", 1))
	if err != nil || !a.Allowed {
		t.Errorf("got %s, %v", text(a), err)
	}
}

func TestChecksShareNothingWithRules(t *testing.T) {
	e, _ := newEngine(t, true, slack)
	ctx := t.Context()
	charged, err := e.Check(ctx, ask("errors", 2))
	if err != nil {
		t.Fatal(err)
	}
	same := check("slack:per-category:errors", weir.Per(3, 30*time.Minute))
	a, err := e.Check(ctx, same)
	if got, want := text(a), "ok ok 2/3 | ok slack:per-category:errors 2/3"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	wantUnits(t, 1)(e.Count(ctx, same, time.Minute))
	wantUnits(t, 1)(e.RefundOldest(ctx, same))
	wantUnits(t, 0)(e.RefundOldest(ctx, same))
	if _, err := e.Charge(ctx, same); err != nil {
		t.Error(err)
	}
	wantUnits(t, 1)(e.Reset(ctx, same))
	wantUnits(t, 2)(e.Count(ctx, ask("errors", 1), time.Minute))
	wantUnits(t, 4)(e.Refund(ctx, charged.Receipts()...))
}

// wantUnits returns a check of what a call returned.
func wantUnits(t *testing.T, want int64) func(int64, error) {
	return func(got int64, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
}

// hung is a store that never answers.
type hung struct{ weir.Store }

func (hung) Take(ctx context.Context, lists []weir.List) {
	<-ctx.Done()
	for i := range lists {
		lists[i].Err = &weir.StoreError{Err: ctx.Err()}
	}
}

// Rules say how long the store may take and what happens then; the shortest of
// those that match holds, and the strictest.
func TestRulesSayWhatAFailureDoes(t *testing.T) {
	when := func(kinds ...string) policy.When { return policy.When{"kind": kinds} }
	domain := policy.Domain{Name: "web", Rules: []policy.Rule{
		{Name: "all", Limit: weir.PerMinute(6), When: when("local", "login", "denied")},
		{Name: "login", Limit: weir.PerMinute(4), When: when("login"), OnFailure: weir.OnFailureDeny, Deadline: 20 * time.Millisecond},
		{Name: "help", Limit: weir.PerMinute(4), When: when("help", "denied"), OnFailure: weir.OnFailureAllow, Deadline: 2 * time.Second},
		{Name: "ban", Deny: true, When: when("denied")},
		{Name: "trial", Limit: weir.PerMinute(1), When: when("help"), Shadow: true, OnFailure: weir.OnFailureDeny},
	}}
	for _, test := range []struct {
		kind, want string
		took       time.Duration
	}{
		{"local", "true store_unavailable_local 1/2", time.Second},
		{"login", "false store_unavailable_denied 0/6", 20 * time.Millisecond},
		{"help", "true store_unavailable_allowed 0/4", time.Second},
		{"denied", "false never 0/0", time.Second},
	} {
		t.Run(test.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := policy.Compile([]policy.Domain{domain})
				if err != nil {
					t.Fatal(err)
				}
				store := layer.NewFallback(layer.FallbackOptions{Store: hung{}, Deadline: time.Second, Replicas: 3})
				e := decide.New(decide.Options{Limiter: weir.New(weir.Options{Store: store})})
				e.Load(p, false)
				start := time.Now()
				a, err := e.Check(t.Context(), decide.Query{Domain: "web", Attributes: map[string]string{"kind": test.kind}, Cost: 1})
				got := fmt.Sprintf("%t %s %d/%d", a.Allowed, a.Reason, a.Remaining, a.Limit)
				if took := time.Since(start); err != nil || got != test.want || took != test.took {
					t.Errorf("%s after %v, %v, want %s after %v", got, took, err, test.want, test.took)
				}
				<-time.After(time.Second) // the call to the store has no more
			})
		})
	}
}

func TestLoadActsOnTheNextQuery(t *testing.T) {
	e, _ := newEngine(t, true)
	if _, err := e.Check(t.Context(), check("alice", weir.PerMinute(5))); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile([]policy.Domain{slack})
	if err != nil {
		t.Fatal(err)
	}
	e.Load(p, false)
	if _, err := e.Check(t.Context(), ask("errors", 1)); err != nil {
		t.Error(err)
	}
	if _, err := e.Check(t.Context(), check("alice", weir.PerMinute(5))); !errors.Is(err, decide.ErrInline) {
		t.Errorf("got %v, want ErrInline", err)
	}
}

func TestObserveSeesEveryAnswer(t *testing.T) {
	var seen []string
	e := decide.New(decide.Options{
		Limiter: weir.New(weir.Options{}),
		Observe: func(ev decide.Event) {
			said := ev.Answer.Reason.String()
			if ev.Answer.Err != nil {
				said = ev.Answer.Err.Error()
			}
			seen = append(seen, ev.Query.Checks[0].Key+" "+said)
		},
	})
	one := weir.PerMinute(1)
	e.CheckEach(t.Context(), []decide.Query{check("a", one), check("a", one), check("bad", weir.Limit{Max: 1})})
	if _, err := e.Charge(t.Context(), check("b", one)); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 4 {
		t.Fatalf("got %q, want four answers", seen)
	}
	for i, want := range []string{"a ok", "a over_limit", "bad weir: window ", "b ok"} {
		if !strings.HasPrefix(seen[i], want) {
			t.Errorf("answer %d: got %s, want %s", i, seen[i], want)
		}
	}
}
