package decide_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
)

// explained writes an explanation as lines: the verdict, then for each rule
// whether it matches and why, what it limits to, and what overrides it.
func explained(x decide.Explanation) string {
	lines := []string{verdict(x.Answer.Decision, x.Answer.Reason.String())}
	for _, r := range x.Rules {
		line := "no  "
		if r.Matches {
			line = "yes "
		}
		line += fmt.Sprint(r.Descriptor, " ")
		if r.Rule != nil {
			line += r.Rule.Name
		}
		line += ": " + r.Why + " | " + r.Limit
		if r.Decision != nil {
			line += " | " + r.Key + " | " + verdict(*r.Decision, r.Decision.Reason.String())
		}
		if r.Override != "" {
			_, by, _ := strings.Cut(r.Override, "until ")
			what, _, _ := strings.Cut(r.Override, " until")
			line += " | " + what + by[len("2026-01-02T15:04:05Z"):]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestExplain(t *testing.T) {
	for name, test := range map[string]struct {
		file      string
		overrides []string
		query     decide.Query
		want      string
	}{
		"rules": {native, nil, decide.Query{Attributes: map[string]string{"path": "/x"}, Cost: 1}, `
ok ok 10/10
yes 0 global: it has no conditions | 10/1h | edge:global | ok ok 10/10
no  0 per-user: user is missing, and the rule is optional | 
no  0 trial: path is "/x": want "/trial" | 
no  0 closed: path is "/x": want "/closed" | `},
		"a cost that does not fit": {native, nil, decide.Query{Attributes: map[string]string{"user": "al"}, Cost: 4}, `
deny never 3/3
yes 0 global: it has no conditions | 10/1h | edge:global | ok ok 10/10
yes 0 per-user: it has no conditions | 3/1m | edge:per-user:al | deny never 3/3
no  0 trial: path is missing: want "/trial" | 
no  0 closed: path is missing: want "/closed" | `},
		"overridden": {native, []string{"edge/per-user user=al 5/m", "edge user=al path=/trial deny", "edge/trial path=/trial deny"}, decide.Query{Attributes: map[string]string{"user": "al", "path": "/trial"}, Cost: 1}, `
deny never 0/0
yes 0 global: it has no conditions | 10/1h | edge:global | ok ok 10/10
yes 0 per-user: it has no conditions | 5/1m | edge:per-user:al | ok ok 5/5 | 5/1m, by "ops"
yes 0 trial: path is "/trial" | deny | edge:trial | deny never 0/0 | deny, by "ops"
no  0 closed: path is "/trial": want "/closed" | 
yes 0 blocked: it is blocked: path is "/trial" and user is "al" | deny |  | deny never 0/0 | deny, by "ops"`},
		"a tree by attributes": {edge, nil, decide.Query{Attributes: map[string]string{"user": "al", "path": "/b"}, Cost: 1}, `
ok ok 2/2
yes 0 user.path: at user "al", then path "/b": there is the limit "user.path" | 2/1m epoch | edge::user:al:path:/b | ok ok 2/2`},
		"unlimited by attributes": {edge, nil, decide.Query{Attributes: map[string]string{"vip": "1"}, Cost: 1}, `
ok no_rule 0/0
yes 0 vip: at vip "1": it is unlimited | unlimited`},
		"unlimited until overridden": {edge, []string{"edge/vip vip=1 5/m"}, decide.Query{Attributes: map[string]string{"vip": "1"}, Cost: 1}, `
ok ok 5/5
yes 0 vip: at vip "1": it is unlimited | 5/1m epoch | edge::vip:1 | ok ok 5/5 | 5/1m, by "ops"`},
		"nothing in a tree": {edge, nil, decide.Query{Attributes: map[string]string{"user": "free"}, Cost: 1}, `
ok no_rule 0/0
no  0 : at user "free": there is no limit | `},
		"descriptors": {edge, nil, decide.Query{Descriptors: described(t, "vip=1; special=1; user=al; x=1; user=al limit=9/minute")}, `
ok ok 5/5
yes 0 vip: at vip "1": it is unlimited | unlimited
yes 1 special: at special "1": there is the limit special | 5/1m epoch | edge::special:1 | ok ok 5/5
no  2 user: at user "al": there is the limit user, which another descriptor's replaces | 
no  3 : there is nothing for x: want user or files or apart or banned or ban-trial or 9 others | 
yes 4 : the request brings this limit | 9/1m epoch | edge::user:al | ok ok 9/9`},
		"checks": {native, nil, decide.Query{Checks: []weir.Request{{Key: "k", Group: "g", Limit: weir.PerMinute(3), Cost: 2}}}, `
ok ok 3/3
yes 0 : the request brings this limit | 3/1m | k | ok ok 3/3`},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := engineOf(t, test.file, false, true)
			override(t, e, test.overrides...)
			test.query.Domain = "edge"
			for range 2 { // it charges nothing
				x, err := e.Explain(t.Context(), test.query)
				if got := "\n" + explained(x); err != nil || got != test.want {
					t.Errorf("got%s (%v)\nwant%s", got, err, test.want)
				}
			}
		})
	}
}

// A charge that is recorded where denied is no charge of Explain.
func TestExplainChargesNoDenials(t *testing.T) {
	e, _ := engineOf(t, charged, false, false)
	q := decide.Query{Domain: "edge", Descriptors: described(t, "user=al cost=4")}
	for range 2 {
		x, err := e.Explain(t.Context(), q)
		if got := verdict(*x.Rules[0].Decision, "user"); err != nil || got != "deny user 3/3" || x.Answer.Allowed {
			t.Errorf("got %s (%v)", got, err)
		}
	}
}

func TestExplainFails(t *testing.T) {
	e, _ := engineOf(t, native, false, false)
	inline, _ := newEngine(t, true)
	for name, call := range map[string]func(e *decide.Engine, q decide.Query) error{
		"explain": func(e *decide.Engine, q decide.Query) error { _, err := e.Explain(t.Context(), q); return err },
		"inspect": func(e *decide.Engine, q decide.Query) error { _, err := e.Inspect(t.Context(), q); return err },
	} {
		if err := call(e, check("k", weir.PerMinute(1))); !errors.Is(err, decide.ErrInline) {
			t.Errorf("%s, checks beside rules: got %v", name, err)
		}
		if _, ok := errors.AsType[*decide.UnknownDomainError](call(e, decide.Query{Domain: "x"})); !ok {
			t.Errorf("%s, an unknown domain: got %v", name, call(e, decide.Query{Domain: "x"}))
		}
		bad := decide.Query{Checks: []weir.Request{
			{Key: "a", Limit: weir.PerMinute(1), Mode: weir.Peek},
			{Key: "b", Limit: weir.PerMinute(1)}, {Key: "c", Limit: weir.PerMinute(0)},
		}}
		if err := call(inline, bad); err == nil || name == "explain" && !strings.Contains(err.Error(), `checks[2].max "0"`) {
			t.Errorf("%s, a bad limit: got %v", name, err)
		}
	}
}

// parts writes a timeline, leaving out the parts without units.
func parts(s decide.KeyState) string {
	var all []string
	for _, p := range s.Timeline {
		if p.Units > 0 {
			all = append(all, fmt.Sprintf("%s-%s:%d", p.From, p.To, p.Units))
		}
	}
	return strings.Join(all, " ")
}

func TestInspect(t *testing.T) {
	e, c := newEngine(t, true, policy.Domain{Name: "d", Rules: []policy.Rule{
		{Name: "log", By: []string{"user"}, Limit: weir.PerMinute(5)},
		{Name: "buckets", Limit: weir.Limit{Max: 100, Window: time.Hour, Buckets: 60}, Shadow: true},
		{Name: "fixed", Limit: weir.Limit{Max: 9, Window: time.Minute, Algorithm: weir.FixedWindow}},
		{Name: "ban", When: policy.When{"user": {"eve"}}, Deny: true},
	}})
	al := decide.Query{Domain: "d", Attributes: map[string]string{"user": "al"}, Cost: 1}
	take := func(wait time.Duration, n int64) {
		t.Helper()
		c.step(wait)
		q := al
		q.Cost = n
		if a, err := e.Charge(t.Context(), q); err != nil || !a.Allowed {
			t.Fatalf("got %s (%v)", text(a), err)
		}
	}
	take(0, 2)
	take(10*time.Second, 1)
	take(0, 3)
	c.step(5 * time.Second)
	for range 2 { // it takes nothing
		states, err := e.Inspect(t.Context(), al)
		if err != nil || len(states) != 3 {
			t.Fatalf("got %+v (%v)", states, err)
		}
		var got []string
		for _, s := range states {
			got = append(got, fmt.Sprintf("%s %s %s | %s | %d %t %d | %s", s.Domain, s.Key, s.Limit, verdict(s.Decision, s.Rule), s.Used, s.Countable, len(s.Timeline), parts(s)))
		}
		want := []string{
			"d d:log:al 5/1m | deny log 0/5 retry 45s | 6 true 100 | 4.8s-5.4s:4 15s-15.6s:2",
			"d d:buckets 100/1h buckets=60 | ok buckets 94/100 | 6 true 100 | 0s-36s:6",
			"d d:fixed 9/1m fixed-window | ok fixed 3/9 | 6 false 0 | ",
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// A store that hangs takes no more than a second of it.
func TestInspectTakesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := decide.New(decide.Options{Limiter: weir.New(weir.Options{Store: hung{}})})
		start := time.Now()
		_, err := e.Inspect(t.Context(), check("k", weir.PerMinute(5)))
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("got %v after %s", err, took)
		}
	})
}

// What is decided without the store has no timeline.
func TestInspectWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := layer.NewFallback(layer.FallbackOptions{Store: hung{}, Deadline: time.Millisecond, Replicas: 1})
		e := decide.New(decide.Options{Limiter: weir.New(weir.Options{Store: store})})
		states, err := e.Inspect(t.Context(), check("k", weir.PerMinute(5)))
		if err != nil || len(states) != 1 || states[0].Countable || states[0].Timeline != nil || states[0].Decision.Reason != weir.StoreLocal {
			t.Errorf("got %+v (%v)", states, err)
		}
	})
}

// A timeline covers its window without gaps, also where that is short or odd.
func TestTimelineCoversTheWindow(t *testing.T) {
	e, _ := newEngine(t, true)
	for _, window := range []time.Duration{time.Microsecond, 99 * time.Microsecond, 150 * time.Microsecond, time.Millisecond, 7 * time.Second, weir.MaxWindow} {
		q := check(window.String(), weir.Per(5, window))
		if _, err := e.Check(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		states, err := e.Inspect(t.Context(), q)
		if err != nil || len(states) != 1 || states[0].Used != 1 || states[0].Domain != "" || states[0].Key != window.String() {
			t.Fatalf("%s: got %+v (%v)", window, states, err)
		}
		last, units := time.Duration(0), int64(0)
		for _, p := range states[0].Timeline {
			if p.From != last || p.To <= p.From {
				t.Errorf("%s: a part from %s to %s follows one to %s", window, p.From, p.To, last)
			}
			last, units = p.To, units+p.Units
		}
		if last != window || units != 1 || len(states[0].Timeline) != int(min(100, window/time.Microsecond)) {
			t.Errorf("%s: %d units in %d parts to %s", window, units, len(states[0].Timeline), last)
		}
	}
}
