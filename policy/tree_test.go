package policy_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

func perMinute(n int64) *policy.RateLimit {
	return &policy.RateLimit{Requests: n, Unit: policy.Minute}
}

// edge is a small tree of everything that a level can have.
func edge() policy.Domain {
	return policy.Domain{Name: "edge:1", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "path", Value: "/a", RateLimit: perMinute(1), Descriptors: []policy.Descriptor{
			{Key: "user", RateLimit: perMinute(2)},
		}},
		{Key: "path", Value: "/*", ShareThreshold: true, RateLimit: perMinute(3), Descriptors: []policy.Descriptor{
			{Key: "user", Value: "é", RateLimit: perMinute(4), Shadow: true},
			{Key: "user", Value: "*", RateLimit: &policy.RateLimit{Unlimited: true}},
		}},
		{Key: "path", RateLimit: perMinute(0)},
	}}}
}

func entries(keysAndValues ...string) []policy.Entry {
	var es []policy.Entry
	for i := 0; i < len(keysAndValues); i += 2 {
		es = append(es, policy.Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return es
}

func TestMatchEntries(t *testing.T) {
	p := compile(t, edge(), slack())
	for _, test := range []struct {
		domain  string
		entries []policy.Entry
		want    string
	}{
		{"edge:1", entries("path", "/a"), "edge%3A1::path:/a 1/1m epoch\n"},
		{"edge:1", entries("path", "/a", "user", "x:y"), "edge%3A1::path:/a:user:x%3Ay 2/1m epoch\n"},
		{"edge:1", entries("path", "/b"), "edge%3A1::path:%*/* 3/1m epoch\n"},
		{"edge:1", entries("path", "/*"), "edge%3A1::path:%*/* 3/1m epoch\n"},
		{"edge:1", entries("path", "/b", "user", "é"), "edge%3A1::path:%*/*:user:é 4/1m epoch\n"},
		{"edge:1", entries("path", "b"), "edge%3A1::path:b deny\n"},
		{"edge:1", entries("path", ""), "edge%3A1::path: deny\n"},
		{"edge:1", entries("path", "b", "user", "x"), ""},
		{"edge:1", entries("user", "x"), ""},
		{"edge:1", nil, ""},
		{"slack", entries("category", "errors"), "slack:global 100/30m\nslack:per-category:errors 10/30m\nslack:anonymous deny\n"},
		{"slack", entries("category", "a", "category", "b", "user", "al"), "slack:global 100/30m\nslack:per-category:b 10/30m\n"},
	} {
		rows, ok := p.MatchEntries(nil, test.domain, test.entries)
		if got := show(rows); !ok || got != test.want {
			t.Errorf("%v: ok=%t, got\n%swant\n%s", test.entries, ok, got, test.want)
		}
	}
	if rows, ok := p.MatchEntries(nil, "edge", entries("path", "/a")); ok || rows != nil {
		t.Errorf("an unknown domain gives %v, %t", rows, ok)
	}
	free, _ := p.MatchEntries(nil, "edge:1", entries("path", "/b", "user", "x"))
	if len(free) != 1 || !free[0].Unlimited || free[0].Rule.Name != "path_/*.user_*" {
		t.Errorf("what is unlimited gives %+v", free)
	}
}

func TestAttributesAreArranged(t *testing.T) {
	p := compile(t, edge())
	for want, attributes := range map[string]map[string]string{
		"edge%3A1::path:/a:user:al 2/1m epoch\n": {"user": "al", "path": "/a"},
		"edge%3A1::path:/a 1/1m epoch\n":         {"path": "/a"},
		"":                                       {"path": "/b", "user": "al"},
	} {
		if rows, ok := p.Match(nil, "edge:1", attributes); !ok || show(rows) != want {
			t.Errorf("%v: got %s, %t, want %s", attributes, show(rows), ok, want)
		}
	}
	for _, attributes := range []map[string]string{nil, {"user": "al"}, {"path": "/a", "user": "al", "x": ""}} {
		if rows, ok := p.Match(nil, "edge:1", attributes); !ok || len(rows) > 0 {
			t.Errorf("%v: got %s, %t", attributes, show(rows), ok)
		}
	}
}

func TestOverride(t *testing.T) {
	exact := edge()
	exact.Name, exact.Tree.Algorithm = "exact", weir.SlidingLog
	p := compile(t, edge(), exact, slack())
	for _, test := range []struct {
		domain string
		limit  weir.Limit
		want   string
		known  bool
	}{
		{"edge:1", weir.PerMinute(5), "edge%3A1::path:/b 5/1m epoch\n", true},
		{"edge:1", weir.PerMinute(0), "edge%3A1::path:/b deny\n", true},
		{"edge:1", weir.PerMinute(1 << 40), "edge%3A1::path:/b 2147483648/1m epoch\n", true},
		{"exact", weir.PerMinute(5), "exact::path:/b 5/1m\n", true},
		{"slack", weir.PerMinute(5), "slack::path:/b 5/1m\n", true},
		{"slack", weir.Limit{Max: 5, Window: time.Second, Epoch: true}, "slack::path:/b 5/1s epoch\n", true},
		{"ed:ge", weir.PerMinute(0), "ed%3Age::path:/b deny\n", false},
	} {
		row, known := p.Override(test.domain, entries("path", "/b"), test.limit)
		if got := show([]policy.Row{row}); got != test.want || known != test.known || row.Stated != test.limit || row.Rule == nil {
			t.Errorf("%s %v: got %s, known=%t, stated %v, want %s", test.domain, test.limit, got, known, row.Stated, test.want)
		}
	}
	if row, known := new(policy.Policy).Override("d", nil, weir.PerMinute(1)); known || row.Key != "d:" {
		t.Errorf("without a domain: %+v, %t", row, known)
	}
}

func TestDomainsListTheLimitsOfATree(t *testing.T) {
	d := edge()
	d.Tree.OnFailure, d.Tree.Deadline = weir.OnFailureAllow, time.Second
	var got []string
	for _, r := range compile(t, d).Domains()[0].Rules {
		got = append(got, fmt.Sprint(r.Name, " ", r.Limit.Max, " ", r.Deny, " ", r.Shadow, " ", r.OnFailure, " ", r.Deadline))
	}
	want := `path_/a 1 false false allow 1s
path_/a.user 2 false false allow 1s
path_/* 3 false false allow 1s
path_/*.user_\u00e9 4 false true allow 1s
path 0 true false allow 1s`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestCompileCopiesTrees(t *testing.T) {
	d := edge()
	d.Tree.Descriptors[0].RateLimit.Replaces = []string{"x"}
	p := compile(t, d)
	before, _ := p.MatchEntries(nil, "edge:1", entries("path", "/a"))
	want := fmt.Sprintf("%+v %+v", before[0].Descriptor.RateLimit, before[0].Descriptor.Descriptors)
	d.Tree.Descriptors[0].RateLimit.Replaces[0] = "y"
	d.Tree.Descriptors[0].RateLimit.Requests = 9
	d.Tree.Descriptors[0].Descriptors[0].Key = "z"
	d.Tree.Descriptors[0].Key = "z"
	after, _ := p.MatchEntries(nil, "edge:1", entries("path", "/a"))
	if got := fmt.Sprintf("%+v %+v", after[0].Descriptor.RateLimit, after[0].Descriptor.Descriptors); got != want {
		t.Errorf("changing what was compiled changed the policy from\n%s to\n%s", want, got)
	}
}

func TestUnits(t *testing.T) {
	for unit, want := range map[policy.Unit]string{
		policy.Second: "second 1s", policy.Minute: "minute 1m0s", policy.Hour: "hour 1h0m0s", policy.Day: "day 24h0m0s",
		policy.Week: "week 168h0m0s", policy.Month: "month 720h0m0s", policy.Year: "year 8760h0m0s", 0: " 0s", 99: " 0s",
	} {
		if got := fmt.Sprintf("%s %s", unit, unit.Window()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	var u policy.Unit
	if err := u.UnmarshalText([]byte("MonTH")); err != nil || u != policy.Month {
		t.Errorf("got %v, %v", u, err)
	}
	for _, wrong := range []string{"", "minutes", "m"} {
		if err := u.UnmarshalText([]byte(wrong)); err == nil || u != policy.Month {
			t.Errorf("%q is read as %v", wrong, u)
		}
	}
}

func TestCompileTreeErrors(t *testing.T) {
	level := func(ds ...policy.Descriptor) []policy.Domain {
		return []policy.Domain{{Name: "d", Tree: &policy.Tree{Descriptors: ds}}}
	}
	limit := func(r policy.RateLimit) []policy.Domain { return level(policy.Descriptor{Key: "k", RateLimit: &r}) }
	tree := func(t policy.Tree) []policy.Domain { return []policy.Domain{{Name: "d", Tree: &t}} }
	rule := []policy.Rule{{Name: "r", Limit: weir.PerMinute(5)}}
	for _, test := range []struct {
		want    string
		domains []policy.Domain
	}{
		{
			`domains[0].domain: a name is missing: write one such as edge`,
			[]policy.Domain{{Tree: &policy.Tree{}}},
		},
		{
			`domains[0].rules: this domain has both rules and descriptors: keep one of them`,
			[]policy.Domain{{Name: "d", Rules: rule, Tree: &policy.Tree{}}},
		},
		{
			`domains[1].domain: domain "d" is there already, and the descriptors of a domain are all in one place: put them together, or give this domain a name of its own (see domains[0].domain)`,
			[]policy.Domain{{Name: "d", Rules: rule}, {Name: "d", Tree: &policy.Tree{}}},
		},
		{
			`domains[2].domain: domain "d" is there already, and the descriptors of a domain are all in one place: put them together, or give this domain a name of its own (see domains[0].domain)`,
			[]policy.Domain{{Name: "d", Tree: &policy.Tree{}}, {Name: "e", Rules: rule}, {Name: "d", Rules: rule}},
		},
		{
			`domains[0].descriptors[0].key: this descriptor has no key: write one such as key: remote_address`,
			level(policy.Descriptor{Value: "v"}),
		},
		{
			`domains[0].descriptors[1].key: "k_v" is here twice, as key and value together: keep one of them (see domains[0].descriptors[0].key)`,
			level(policy.Descriptor{Key: "k", Value: "v"}, policy.Descriptor{Key: "k_v"}),
		},
		{
			`domains[0].descriptors[0].descriptors[1].key: "k" is here twice, as key and value together: keep one of them (see domains[0].descriptors[0].descriptors[0].key)`,
			level(policy.Descriptor{Key: "k", Descriptors: []policy.Descriptor{{Key: "k"}, {Key: "k"}}}),
		},
		{
			`domains[0].descriptors[0].share_threshold: there is nothing to share without a star in the value: write one such as value: /api/*, or leave this out`,
			level(policy.Descriptor{Key: "k*", Value: "v", ShareThreshold: true}),
		},
		{
			`domains[0].descriptors[0].rate_limit.unit: what is unlimited has no unit: leave out unit, or unlimited`,
			limit(policy.RateLimit{Unlimited: true, Unit: policy.Day}),
		},
		{
			`domains[0].descriptors[0].rate_limit.unit: this rate_limit has no unit: write one such as unit: minute, or unlimited: true`,
			limit(policy.RateLimit{Requests: 5, Unit: 8}),
		},
		{
			`domains[0].descriptors[0].rate_limit.requests_per_unit: 4294967296: want 0 to 4294967295 requests`,
			limit(policy.RateLimit{Requests: 1 << 32, Unit: policy.Day}),
		},
		{
			`domains[0].descriptors[0].rate_limit.requests_per_unit: -1: want 0 to 4294967295 requests`,
			limit(policy.RateLimit{Requests: -1, Unit: policy.Day}),
		},
		{
			"domains[0].descriptors[0].rate_limit.replaces[0].name: a name is missing: write that of the rate_limit to replace\ndomains[0].descriptors[0].rate_limit.replaces[1].name: \"n\" is this rate_limit itself, which cannot replace itself: name another, or leave this out",
			limit(policy.RateLimit{Requests: 5, Unit: policy.Day, Name: "n", Replaces: []string{"", "n"}}),
		},
		{
			`domains[0].algorithm: 9 is no algorithm: want one such as fixed-window or sliding-log`,
			tree(policy.Tree{Algorithm: 9, Descriptors: []policy.Descriptor{{Key: "k", RateLimit: perMinute(5)}}}),
		},
		{
			`domains[0].charge_on_deny: only fixed windows can charge what they deny, and the algorithm is token-bucket: leave out one of them`,
			tree(policy.Tree{Algorithm: weir.TokenBucket, ChargeOnDeny: true}),
		},
		{
			`domains[0].on_failure: 9 is not one of allow, deny and local`,
			tree(policy.Tree{OnFailure: 9}),
		},
		{
			`domains[0].deadline: -1s is negative: write how long the store may take, such as 20ms`,
			tree(policy.Tree{Deadline: -time.Second}),
		},
		{
			`domains[0].descriptors[0].rate_limit.requests_per_unit: max 100001: want at most 100000 with sliding-log; above that use sliding-buckets`,
			tree(policy.Tree{Algorithm: weir.SlidingLog, Descriptors: []policy.Descriptor{{Key: "k", RateLimit: perMinute(100_001)}}}),
		},
	} {
		p, err := policy.Compile(test.domains)
		if p != nil || err == nil || err.Error() != test.want {
			t.Errorf("got\n%v\nwant\n%s", err, test.want)
		}
	}
}

// TestMatchEntriesAllocates what the key needs.
func TestMatchEntriesAllocates(t *testing.T) {
	p := compile(t, edge())
	es := entries("path", "/b", "user", "é")
	rows := make([]policy.Row, 0, 1)
	if n := testing.AllocsPerRun(100, func() { rows, _ = p.MatchEntries(rows[:0], "edge:1", es) }); n != 1 {
		t.Errorf("%v allocations a match, want 1", n)
	}
}

// TestTreeEqualsNaive compares MatchEntries with a search that reads the
// descriptors as they are written.
func TestTreeEqualsNaive(t *testing.T) {
	found := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		ds := randomDescriptors(r, 0)
		p := compile(t, policy.Domain{Name: "d", Tree: &policy.Tree{Descriptors: ds}})
		for range 50 {
			var es []policy.Entry
			for range r.IntN(4) {
				es = append(es, policy.Entry{Key: randomName(r), Value: randomText(r, "ab")})
			}
			want := naiveLimit(ds, es)
			rows, _ := p.MatchEntries(nil, "d", es)
			var got *policy.RateLimit
			if len(rows) > 0 {
				got = rows[0].Descriptor.RateLimit
				found++
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, entries %q: got %+v, want %+v", seed, es, got, want)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d of the entries met a limit", found)
	}
}

func naiveLimit(ds []policy.Descriptor, es []policy.Entry) *policy.RateLimit {
	if len(es) == 0 {
		return nil
	}
	for _, fits := range []func(d policy.Descriptor) bool{
		func(d policy.Descriptor) bool { return d.Value != "" && d.Value == es[0].Value },
		func(d policy.Descriptor) bool {
			return strings.Contains(d.Value, "*") && naiveGlob(d.Value, es[0].Value)
		},
		func(d policy.Descriptor) bool { return d.Value == "" },
	} {
		for _, d := range ds {
			switch {
			case d.Key != es[0].Key || !fits(d):
			case len(es) == 1:
				return d.RateLimit
			default:
				return naiveLimit(d.Descriptors, es[1:])
			}
		}
	}
	return nil
}

func randomDescriptors(r *rand.Rand, depth int) []policy.Descriptor {
	var ds []policy.Descriptor
	taken := make(map[string]bool)
	for range r.IntN(9 - 2*depth) {
		d := policy.Descriptor{Key: randomName(r), Value: randomText(r, "abb*")}
		if id := d.Key + "_" + d.Value; taken[id] {
			continue
		}
		taken[d.Key+"_"+d.Value] = true
		d.ShareThreshold = strings.Contains(d.Value, "*") && r.IntN(2) == 0
		if r.IntN(3) > 0 {
			d.RateLimit = perMinute(r.Int64N(1 << 30))
		}
		if depth < 3 {
			d.Descriptors = randomDescriptors(r, depth+1)
		}
		ds = append(ds, d)
	}
	return ds
}
