package policy_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

func compile(t testing.TB, domains ...policy.Domain) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(domains)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// show writes rows as lines: key limit, or key deny.
func show(rows []policy.Row) string {
	var b strings.Builder
	for _, r := range rows {
		limit := r.Limit.String()
		if r.Deny {
			limit = "deny"
		}
		fmt.Fprintf(&b, "%s %s\n", r.Key, limit)
	}
	return b.String()
}

func slack() policy.Domain {
	return policy.Domain{Name: "slack", Rules: []policy.Rule{
		{Name: "global", Limit: weir.Per(100, 30*time.Minute)},
		{
			Name: "per-category", By: []string{"category"}, Limit: weir.Per(10, 30*time.Minute),
			Overrides: []policy.Override{
				{When: policy.When{"category": {"audit-*"}}, Limit: weir.Per(50, 30*time.Minute)},
				{When: policy.When{"category": {"audit-spam", "spam", "test"}}, Deny: true},
			},
		},
		{
			Name: "search", When: policy.When{"path": {"/search", "/find?"}, "method": {"GET"}},
			By: []string{"user", "ip"}, Optional: true, Limit: weir.PerMinute(5), Shadow: true,
		},
		{Name: "anonymous", When: policy.When{"user": {""}, "path": {"*"}}, Deny: true},
	}}
}

func TestMatch(t *testing.T) {
	p := compile(t, slack(), policy.Domain{Name: "empty"})
	tests := []struct {
		name       string
		domain     string
		attributes map[string]string
		want       string
	}{
		{"an exact value", "slack", map[string]string{"category": "errors", "user": "al"},
			"slack:global 100/30m\nslack:per-category:errors 10/30m\n"},
		{"a missing attribute is empty", "slack", map[string]string{},
			"slack:global 100/30m\nslack:per-category: 10/30m\nslack:anonymous deny\n"},
		{"an empty attribute is missing", "slack", map[string]string{"user": "", "category": ""},
			"slack:global 100/30m\nslack:per-category: 10/30m\nslack:anonymous deny\n"},
		{"the first override wins", "slack", map[string]string{"category": "audit-spam", "user": "al"},
			"slack:global 100/30m\nslack:per-category:audit-spam 50/30m\n"},
		{"an override from a list denies", "slack", map[string]string{"category": "test", "user": "al"},
			"slack:global 100/30m\nslack:per-category:test deny\n"},
		{"all of when must match", "slack", map[string]string{"path": "/search", "user": "al", "ip": "::1"},
			"slack:global 100/30m\nslack:per-category: 10/30m\n"},
		{"values are escaped", "slack", map[string]string{"path": "/find2", "method": "GET", "user": "50%", "ip": "::1"},
			"slack:global 100/30m\nslack:per-category: 10/30m\nslack:search:50%25:%3A%3A1 5/1m\n"},
		{"optional skips without all of by", "slack", map[string]string{"path": "/search", "method": "GET", "user": "al", "ip": ""},
			"slack:global 100/30m\nslack:per-category: 10/30m\n"},
		{"other attributes do not matter", "slack", map[string]string{"user": "al", "color": "red"},
			"slack:global 100/30m\nslack:per-category: 10/30m\n"},
		{"a domain without rules", "empty", map[string]string{"user": "al"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rows, ok := p.Match(nil, tt.domain, tt.attributes)
			if got := show(rows); !ok || got != tt.want {
				t.Errorf("ok=%t, got\n%swant\n%s", ok, got, tt.want)
			}
		})
	}
}

// TestMatchGroups has rules that share slots, in domains whose names are easily
// taken for more than a name.
func TestMatchGroups(t *testing.T) {
	limit := weir.PerMinute(5)
	rules := []policy.Rule{
		{Name: "global", Limit: limit, SlotDomain: true},
		{Name: "path", By: []string{"path"}, Limit: limit, SlotDomain: true},
		{Name: "user", By: []string{"user"}, Limit: limit, Slot: []string{"user"}},
		{Name: "user-path", By: []string{"path", "user"}, Limit: limit, Slot: []string{"user"}},
		{Name: "both", By: []string{"path", "user"}, Limit: limit, Slot: []string{"user", "path"}},
		{Name: "own", By: []string{"user"}, Limit: limit},
	}
	p := compile(t, policy.Domain{Name: "d", Rules: rules}, policy.Domain{Name: "d:a", Rules: rules[:3]})
	tests := []struct {
		domain, user, path string
		want               []string
	}{
		{"d", "al", "/", []string{"d", "d", "d:al", "d:al", "d:al:/", ""}},
		{"d", "a:b", "50%", []string{"d", "d", "d:a%3Ab", "d:a%3Ab", "d:a%3Ab:50%25", ""}},
		{"d", "", "", []string{"d", "d", "d:", "d:", "d::", ""}},
		{"d:a", "b", "", []string{"d%3Aa", "d%3Aa", "d%3Aa:b"}},
	}
	for _, tt := range tests {
		rows, _ := p.Match(nil, tt.domain, map[string]string{"user": tt.user, "path": tt.path})
		var got []string
		for _, r := range rows {
			got = append(got, r.Group)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("user %q and path %q in %s have the groups %q, want %q", tt.user, tt.path, tt.domain, got, tt.want)
		}
	}
}

func TestMatchRowRefersToRule(t *testing.T) {
	rows, _ := compile(t, slack()).Match(nil, "slack", map[string]string{"path": "/search", "method": "GET", "user": "al", "ip": "::1"})
	r := rows[len(rows)-1]
	if r.Rule.Name != "search" || !r.Rule.Shadow || r.Limit.Algorithm != weir.SlidingLog {
		t.Errorf("got rule %+v with limit %+v", r.Rule, r.Limit)
	}
}

func TestMatchAppends(t *testing.T) {
	p := compile(t, slack())
	first, _ := p.Match(nil, "slack", map[string]string{"user": "al", "category": "b"})
	both, _ := p.Match(first, "slack", map[string]string{"user": "al", "category": "a"})
	want := "slack:global 100/30m\nslack:per-category:b 10/30m\nslack:global 100/30m\nslack:per-category:a 10/30m\n"
	if got := show(both); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if rows, ok := p.Match(both, "slac", nil); ok || len(rows) != len(both) {
		t.Errorf("unknown domain: ok=%t and %d rows, want false and the %d given", ok, len(rows), len(both))
	}
}

func TestDomainsOfOneNameArePutTogether(t *testing.T) {
	p := compile(t,
		policy.Domain{Name: "a", Rules: []policy.Rule{{Name: "x", Limit: weir.PerHour(1)}}},
		policy.Domain{Name: "b", Rules: []policy.Rule{{Name: "x", Limit: weir.PerHour(2)}}},
		policy.Domain{Name: "a", Rules: []policy.Rule{{Name: "y", Limit: weir.PerHour(3)}}})
	rows, _ := p.Match(nil, "a", nil)
	if got := show(rows); got != "a:x 1/1h\na:y 3/1h\n" {
		t.Errorf("got\n%s", got)
	}
	var listed []string
	for _, d := range p.Domains() {
		for _, r := range d.Rules {
			listed = append(listed, d.Name+":"+r.Name+" "+r.Limit.Algorithm.String())
		}
	}
	if want := []string{"a:x sliding-log", "a:y sliding-log", "b:x sliding-log"}; !slices.Equal(listed, want) {
		t.Errorf("Domains lists %q, want %q", listed, want)
	}
}

func TestCompileCopies(t *testing.T) {
	d := slack()
	d.Rules[2].Slot = []string{"user"}
	p := compile(t, d)
	attributes := map[string]string{"category": "audit-x", "path": "/search", "method": "GET", "user": "al", "ip": "1"}
	before, _ := p.Match(nil, "slack", attributes)
	want := show(before)
	d.Rules[1].Overrides[0].When["category"][0] = "other"
	d.Rules[1].Overrides[0].Limit.Max = 1
	d.Rules[2].By[0], d.Rules[2].Slot[0] = "other", "other"
	d.Rules[2].When["path"] = []string{"other"}
	d.Rules[0] = policy.Rule{}
	after, _ := p.Match(nil, "slack", attributes)
	if got := show(after); got != want || after[2].Group != "slack:al" {
		t.Errorf("changing what was compiled changed the policy to\n%sin %q from\n%s", got, after[2].Group, want)
	}
}

func TestMatchConcurrently(t *testing.T) {
	p := compile(t, slack())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 200 {
				category := fmt.Sprintf("audit-%d-%d", i, j)
				rows, _ := p.Match(nil, "slack", map[string]string{"category": category, "user": "al"})
				if want := "slack:global 100/30m\nslack:per-category:" + category + " 50/30m\n"; show(rows) != want {
					t.Errorf("got\n%swant\n%s", show(rows), want)
				}
			}
		})
	}
	wg.Wait()
}

// TestMatchEqualsNaive compares Match with testing every rule in turn.
func TestMatchEqualsNaive(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := randomDomain(r)
		p := compile(t, d)
		for range 30 {
			attributes := make(map[string]string)
			for range r.IntN(4) {
				attributes[randomName(r)] = randomText(r, "ab")
			}
			rows, _ := p.Match(nil, d.Name, attributes)
			if got, want := summary(rows), naive(d, attributes); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, attributes %q of\n%+v\ngot  %q\nwant %q", seed, attributes, d, got, want)
			}
		}
	}
}

// summary names the rules and the Max, or 0, that was chosen for each.
func summary(rows []policy.Row) []string {
	got := []string{}
	for _, r := range rows {
		got = append(got, fmt.Sprint(r.Rule.Name, " ", r.Limit.Max, " ", r.Deny))
	}
	return got
}

func naive(d policy.Domain, attributes map[string]string) []string {
	want := []string{}
	for _, r := range d.Rules {
		skip := !naiveWhen(r.When, attributes)
		for _, name := range r.By {
			skip = skip || r.Optional && attributes[name] == ""
		}
		if skip {
			continue
		}
		limit, deny := r.Limit, r.Deny
		for _, o := range r.Overrides {
			if naiveWhen(o.When, attributes) {
				limit, deny = o.Limit, o.Deny
				break
			}
		}
		want = append(want, fmt.Sprint(r.Name, " ", limit.Max, " ", deny))
	}
	return want
}

func naiveWhen(w policy.When, attributes map[string]string) bool {
	for name, patterns := range w {
		if !slices.ContainsFunc(patterns, func(p string) bool { return naiveGlob(p, attributes[name]) }) {
			return false
		}
	}
	return true
}

// naiveGlob tries every split; it is for short ASCII texts.
func naiveGlob(glob, value string) bool {
	switch {
	case glob == "":
		return value == ""
	case glob[0] == '*':
		return naiveGlob(glob[1:], value) || value != "" && naiveGlob(glob, value[1:])
	}
	return value != "" && (glob[0] == '?' || glob[0] == value[0]) && naiveGlob(glob[1:], value[1:])
}

func randomDomain(r *rand.Rand) policy.Domain {
	d := policy.Domain{Name: "d"}
	for i := range 1 + r.IntN(30) {
		rule := policy.Rule{Name: fmt.Sprint("r", i), When: randomWhen(r), Optional: r.IntN(4) == 0}
		for _, name := range []string{"x", "y"} {
			if r.IntN(3) == 0 {
				rule.By = append(rule.By, name)
			}
		}
		rule.Limit, rule.Deny = randomLimit(r)
		for range r.IntN(6) {
			o := policy.Override{When: randomWhen(r)}
			for len(o.When) == 0 {
				o.When = randomWhen(r)
			}
			o.Limit, o.Deny = randomLimit(r)
			rule.Overrides = append(rule.Overrides, o)
		}
		d.Rules = append(d.Rules, rule)
	}
	return d
}

func randomLimit(r *rand.Rand) (l weir.Limit, deny bool) {
	if r.IntN(5) == 0 {
		return l, true
	}
	return weir.PerSecond(1 + r.Int64N(1000)), false
}

func randomWhen(r *rand.Rand) policy.When {
	w := make(policy.When)
	for range r.IntN(4) {
		alphabet := "ab"
		if r.IntN(2) == 0 {
			alphabet = "abb*?"
		}
		var patterns []string
		for range 1 + r.IntN(3) {
			patterns = append(patterns, randomText(r, alphabet))
		}
		w[randomName(r)] = patterns
	}
	return w
}

func randomName(r *rand.Rand) string { return string("xyz"[r.IntN(3)]) }

func randomText(r *rand.Rand, alphabet string) string {
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteByte(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}
