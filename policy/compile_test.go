package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

func TestCompileErrors(t *testing.T) {
	good := weir.PerMinute(5)
	rule := func(r policy.Rule) []policy.Domain {
		if r.Name == "" {
			r.Name = "r"
		}
		return []policy.Domain{{Name: "d", Rules: []policy.Rule{r}}}
	}
	override := func(o policy.Override) []policy.Domain {
		return rule(policy.Rule{Limit: good, Overrides: []policy.Override{o}})
	}
	when := policy.When{"path": {"/"}}
	tests := []struct {
		name    string
		domains []policy.Domain
		want    string
	}{
		{"no domain name", []policy.Domain{{}},
			`domains[0].domain: a name is missing: write one such as slack`},
		{"a domain in other letters", []policy.Domain{{Name: "größe"}},
			`domains[0].domain: "größe" is not printable ASCII, which names must be because they are sent in HTTP header fields: write one such as slack`},
		{"a rule name with a line break", rule(policy.Rule{Name: "a\nb", Limit: good}),
			`domains[0].rules[0].name: "a\nb" is not printable ASCII, which names must be because they are sent in HTTP header fields: write one such as per-user`},
		{"no rule name", []policy.Domain{{Name: "d", Rules: []policy.Rule{{Limit: good}, {Limit: good}}}},
			"domains[0].rules[0].name: a name is missing: write one such as per-user\n" +
				"domains[0].rules[1].name: a name is missing: write one such as per-user"},
		{"a rule name that repeats", []policy.Domain{
			{Name: "d", Rules: []policy.Rule{{Name: "x", Limit: good}}},
			{Name: "e", Rules: []policy.Rule{{Name: "x", Limit: good}}},
			{Name: "d", Rules: []policy.Rule{{Name: "y", Limit: good}, {Name: "x", Limit: good}}},
		}, `domains[2].rules[1].name: domain "d" already has a rule named "x": give each rule a name of its own (see domains[0].rules[0].name)`},
		{"neither limit nor deny", rule(policy.Rule{}),
			`domains[0].rules[0].limit: this rule has no limit: write one such as limit: 5/minute, or deny: true`},
		{"limit and deny", rule(policy.Rule{Limit: good, Deny: true}),
			`domains[0].rules[0].deny: this rule has both a limit and deny: keep one of them`},
		{"a limit of nothing", rule(policy.Rule{Limit: weir.PerMinute(0)}),
			`domains[0].rules[0].limit: max 0: want 1 to 2147483648 units, such as 5 in 5/minute; to deny everything use a rule's deny`},
		{"a window of nothing", rule(policy.Rule{Limit: weir.Per(5, 0)}),
			`domains[0].rules[0].limit: window 0s: want a whole number of microseconds from 1us to 366d, such as 30m`},
		{"no patterns", rule(policy.Rule{Limit: good, When: policy.When{"x.y": nil, "path": {}, "user": {""}}}),
			"domains[0].rules[0].when.path: there is no value to match: write one such as /search, or \"*\" for any\n" +
				"domains[0].rules[0].when[\"x.y\"]: there is no value to match: write one such as /search, or \"*\" for any"},
		{"attributes without a name", rule(policy.Rule{Limit: good, When: policy.When{"": {"a"}}, By: []string{"user", ""}}),
			"domains[0].rules[0].when[\"\"]: an attribute has no name: write one such as path\n" +
				"domains[0].rules[0].by[1]: an attribute has no name: write one such as user"},
		{"an attribute twice", rule(policy.Rule{Limit: good, By: []string{"ip", "user", "ip"}}),
			`domains[0].rules[0].by[2]: attribute "ip" is named twice: name it once`},
		{"a slot by an attribute that is not in by", rule(policy.Rule{Limit: good, By: []string{"user"}, Slot: []string{"user", "ip"}}),
			`domains[0].rules[0].slot[1]: attribute "ip" is not among by, so that each value would get the whole limit in a slot of its own: add it to by, or write slot: domain`},
		{"a slot by an attribute twice, and one without a name", rule(policy.Rule{Limit: good, By: []string{"user"}, Slot: []string{"user", "user", ""}}),
			"domains[0].rules[0].slot[1]: attribute \"user\" is named twice: name it once\n" +
				"domains[0].rules[0].slot[2]: an attribute has no name: write one such as user"},
		{"two slots", rule(policy.Rule{Limit: good, By: []string{"user"}, Slot: []string{"user"}, SlotDomain: true}),
			`domains[0].rules[0].slot: this rule has a slot for its domain and by attributes: keep one of them`},
		{"an override without when", override(policy.Override{Limit: good}),
			`domains[0].rules[0].overrides[0].when: this override has no when and would replace the rule's limit for everyone: write one such as when: {user: admin}`},
		{"an override without a limit", override(policy.Override{When: when}),
			`domains[0].rules[0].overrides[0].limit: this override has no limit: write one such as limit: 5/minute, or deny: true`},
		{"an override with both", override(policy.Override{When: when, Limit: good, Deny: true}),
			`domains[0].rules[0].overrides[0].deny: this override has both a limit and deny: keep one of them`},
		{"an override's limit", override(policy.Override{When: when, Limit: weir.Limit{Max: 5, Window: 1000, Burst: 3, Algorithm: weir.FixedWindow}}),
			`domains[0].rules[0].overrides[0].limit: burst 3: want no burst with fixed-window; only token-bucket has one, as in 10/s burst=20`},
		{"no such failure rule", rule(policy.Rule{Limit: good, OnFailure: 9}),
			`domains[0].rules[0].on_failure: 9 is not one of allow, deny and local`},
		{"a deadline that has passed", rule(policy.Rule{Limit: good, Deadline: -time.Second}),
			`domains[0].rules[0].deadline: -1s is negative: write how long the store may take, such as 20ms`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := policy.Compile(tt.domains)
			if p != nil || err == nil || err.Error() != tt.want {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

func TestCompileReportsEverything(t *testing.T) {
	_, err := policy.Compile([]policy.Domain{
		{Name: "", Rules: []policy.Rule{{Name: "\x00", OnFailure: 9, By: []string{""}}}},
		{Name: "d", Rules: []policy.Rule{{Name: "r", Limit: weir.Per(-1, 1)}}},
	})
	var es policy.Errors
	if !errors.As(err, &es) || len(es) != 6 {
		t.Fatalf("got %d errors, want 6:\n%v", len(es), err)
	}
	if n := strings.Count(err.Error(), "\n"); n != 5 {
		t.Errorf("%d line breaks in six errors:\n%v", n, err)
	}
	var one *policy.Error
	if !errors.As(err, &one) || one != es[0] {
		t.Errorf("errors.As finds %v, want the first error", one)
	}
}

// TestCompileBoundsTheLimitsOfEveryRequest has a domain in two parts with as
// many limits for every request as one request can be held to, and others that
// do not count.
func TestCompileBoundsTheLimitsOfEveryRequest(t *testing.T) {
	limit := weir.PerMinute(5)
	var rules []policy.Rule
	for i := range 1000 {
		rules = append(rules, policy.Rule{Name: fmt.Sprint("always", i), Limit: limit, Optional: i%2 == 0},
			policy.Rule{Name: fmt.Sprint("when", i), Limit: limit, When: policy.When{"path": {"/search"}}},
			policy.Rule{Name: fmt.Sprint("optional", i), Limit: limit, By: []string{"user"}, Optional: true},
			policy.Rule{Name: fmt.Sprint("deny", i), Deny: true})
	}
	more := policy.Domain{Name: "e", Rules: []policy.Rule{{Name: "x", Limit: limit}}}
	domains := []policy.Domain{{Name: "d", Rules: rules[:100]}, more, {Name: "d", Rules: rules[100:]}}
	compile(t, domains...)
	last := &domains[2]
	last.Rules = append(last.Rules, policy.Rule{Name: "one-more", Limit: limit, By: []string{"ip"}}, policy.Rule{Name: "two-more", Limit: limit})
	_, err := policy.Compile(domains)
	want := `domains[2].rules[3900]: domain "d" has more than 1000 limits for every request, which is the most that can decide one: ` +
		`give rules a when, such as when: {path: /search}, or split the domain`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestCompileAccepts(t *testing.T) {
	compile(t)
	compile(t, policy.Domain{Name: `any "printable" ASCII: \ ~`, Rules: []policy.Rule{
		{Name: "denied but for some", Deny: true, OnFailure: weir.OnFailureAllow, Overrides: []policy.Override{
			{When: policy.When{"user": {"root"}}, Limit: weir.PerDay(1)},
		}},
	}})
}
