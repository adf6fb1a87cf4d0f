package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// reasons writes reasons as lines: yes or no, the rule, why.
func reasons(rs []policy.Reason) string {
	var b strings.Builder
	for _, r := range rs {
		name, matches := "-", "no"
		if r.Rule != nil {
			name = r.Rule.Name
		}
		if r.Row != nil {
			matches = "yes"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", matches, name, r.Why)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	odd := policy.Domain{Name: "odd", Rules: []policy.Rule{
		{Name: "many", When: policy.When{"user agent": {"a", "b", "c", "d", "e", "f", "g"}}, Limit: weir.PerMinute(1)},
		{Name: "some", When: policy.When{"n": {"", "?*"}, "x": {"*"}}, Limit: weir.PerMinute(1)},
		{Name: "present", When: policy.When{"n": {"?*"}}, Limit: weir.PerMinute(1)},
	}}
	p := compile(t, edge(), slack(), odd)
	for _, test := range []struct {
		domain     string
		attributes map[string]string
		want       string
	}{
		{"slack", nil, `
yes global: it has no conditions
yes per-category: it has no conditions
no search: method is missing: want "GET"
yes anonymous: path is missing, which is anything and user is missing`},
		{"slack", map[string]string{"category": "audit-spam", "method": "GET", "path": "/x", "user": "al"}, `
yes global: it has no conditions
yes per-category: it has no conditions; of its overrides number 1 holds: category is "audit-spam", which is like "audit-*"
no search: path is "/x": want "/search" or like "/find?"
no anonymous: user is "al": want none`},
		{"slack", map[string]string{"category": "spam", "method": "GET", "path": "/finds", "user": "al", "ip": ""}, `
yes global: it has no conditions
yes per-category: it has no conditions; of its overrides number 2 holds: category is "spam"
no search: ip is empty, and the rule is optional
no anonymous: user is "al": want none`},
		{"slack", map[string]string{"method": "GET", "path": "/finds", "user": "al", "ip": "::1"}, `
yes global: it has no conditions
yes per-category: it has no conditions
yes search: method is "GET" and path is "/finds", which is like "/find?"
no anonymous: user is "al": want none`},
		{"odd", map[string]string{"user agent": strings.Repeat("x", 100)}, `
no many: "user agent" is "` + strings.Repeat("x", 60) + `"...: want "a" or "b" or "c" or "d" or "e" or 2 others
yes some: n is missing and x is missing, which is anything
no present: n is missing: want any but the empty value`},
		{"edge:1", map[string]string{"user": "x", "path": "/a"}, `
yes path_/a.user: at path "/a", then user "x": there is the limit "path_/a.user"`},
		{"edge:1", map[string]string{"user": "x", "path": "/b"}, `
yes path_/*.user_*: at path "/b", then user "x": it is unlimited`},
		{"edge:1", map[string]string{"user": "x", "path": "b"}, `
no -: at path "b": there is nothing for user, since the tree ends here`},
		{"edge:1", map[string]string{"user": "x"}, `
no -: there is nothing for user: want path`},
		{"edge:1", nil, `
no -: there is nothing to look up`},
		{"edge:1", map[string]string{"path": "/b", "user": "x", "a": "1", "b": "2"}, `
no -: at path "/b", then user "x": there is nothing for a or b, since the tree ends here`},
	} {
		rs, ok := p.Explain(test.domain, test.attributes)
		if got := "\n" + reasons(rs); !ok || got != test.want+"\n" {
			t.Errorf("%s %q: %t, got%swant%s", test.domain, test.attributes, ok, got, test.want)
		}
	}
	if rs, ok := p.Explain("other", nil); ok || rs != nil {
		t.Errorf("an unknown domain: got %t, %v", ok, rs)
	}
}

func TestExplainEntries(t *testing.T) {
	free := policy.Domain{Name: "free", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "plan", Value: "free", Descriptors: []policy.Descriptor{
			{Key: "user", Value: "al", RateLimit: perMinute(1)}, {Key: "user", Value: "b*b", RateLimit: perMinute(1)}, {Key: "team"},
		}},
	}}}
	p := compile(t, free, slack())
	for _, test := range []struct {
		domain  string
		entries []policy.Entry
		want    string
	}{
		{"free", entries("plan", "free", "user", "bob"), `yes plan_free.user_b*b: at plan "free", then user "bob": there is the limit "plan_free.user_b*b"`},
		{"free", entries("plan", "free", "user", "eve"), `no -: at plan "free": user is "eve": want "al" or like "b*b"`},
		{"free", entries("plan", "free", "path", "/"), `no -: at plan "free": there is nothing for path: want user or team`},
		{"free", entries("plan", "free", "team", "a"), `no -: at plan "free", then team "a": there is no limit`},
		{"free", entries("plan", "free"), `no -: at plan "free": there is no limit`},
		{"free", entries("user", "al"), `no -: there is nothing for user: want plan`},
		{"free", entries("plan", "gold"), `no -: plan is "gold": want "free"`},
		{"free", nil, `no -: there is nothing to look up`},
		{"slack", entries("category", "errors", "category", "spam"), `yes per-category: it has no conditions; of its overrides number 2 holds: category is "spam"`},
	} {
		rs, ok := p.ExplainEntries(test.domain, test.entries)
		if got := reasons(rs); !ok || !strings.Contains(got, test.want+"\n") {
			t.Errorf("%s %q: %t, got\n%swant\n%s", test.domain, test.entries, ok, got, test.want)
		}
	}
}

// What Explain says to match is what Match returns, also of trees, of which it
// leaves out what is unlimited.
func TestExplainEqualsMatch(t *testing.T) {
	found := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		tree := policy.Domain{Name: "tree", Tree: &policy.Tree{Descriptors: randomDescriptors(r, 0)}}
		for i := range tree.Tree.Descriptors {
			if l := tree.Tree.Descriptors[i].RateLimit; l != nil && r.IntN(3) == 0 {
				*l = policy.RateLimit{Unlimited: true}
			}
		}
		p := compile(t, randomDomain(r), tree)
		for range 30 {
			attributes, es := make(map[string]string), []policy.Entry(nil)
			for range r.IntN(4) {
				e := policy.Entry{Key: randomName(r), Value: randomText(r, "ab")}
				attributes[e.Key], es = e.Value, append(es, e)
			}
			for _, name := range []string{"d", "tree"} {
				rows, _ := p.Match(nil, name, attributes)
				why, _ := p.Explain(name, attributes)
				compareRows(t, rows, slices.DeleteFunc(why, func(r policy.Reason) bool { return r.Row != nil && r.Row.Unlimited }))
				rows, _ = p.MatchEntries(nil, name, es)
				why, _ = p.ExplainEntries(name, es)
				compareRows(t, rows, why)
				found += len(rows)
			}
		}
	}
	if found < 500 {
		t.Errorf("only %d rows were compared", found)
	}
}

func compareRows(t *testing.T, rows []policy.Row, why []policy.Reason) {
	t.Helper()
	var got []policy.Row
	for _, r := range why {
		if r.Why == "" {
			t.Error("a reason is empty")
		}
		if r.Row != nil {
			got = append(got, *r.Row)
		}
	}
	what := func(rows []policy.Row) (all []string) {
		for _, r := range rows {
			all = append(all, fmt.Sprintf("%p %s %s %s %s %t %t", r.Rule, r.Key, r.Group, r.Limit, r.Stated, r.Deny, r.Unlimited))
		}
		return all
	}
	if !slices.Equal(what(got), what(rows)) {
		t.Fatalf("got %q, want %q", what(got), what(rows))
	}
}

func TestNames(t *testing.T) {
	p := compile(t, edge(), slack())
	for domain, want := range map[string]string{
		"edge:1": `path_/a path_/a.user path_/* path_/*.user_\u00e9 path_/*.user_* path`,
		"slack":  "global per-category search anonymous", "other": "",
	} {
		if got := strings.Join(p.Names(domain), " "); got != want {
			t.Errorf("%s: got %s, want %s", domain, got, want)
		}
	}
}
