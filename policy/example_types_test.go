package policy_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// compiled is a policy that is known to be right.
func compiled(domains ...policy.Domain) *policy.Policy {
	p, err := policy.Compile(domains)
	if err != nil {
		panic(err)
	}
	return p
}

// A domain may be given in parts: its rules are put together.
func ExampleDomain() {
	p := compiled(
		policy.Domain{Name: "api", Rules: []policy.Rule{{Name: "global", Limit: weir.PerMinute(100)}}},
		policy.Domain{Name: "api", Rules: []policy.Rule{{Name: "per-user", By: []string{"user"}, Limit: weir.PerMinute(5)}}})
	for _, rule := range p.Domains()[0].Rules {
		fmt.Println(rule.Name, rule.Limit)
	}
	// Output:
	// global 100/1m
	// per-user 5/1m
}

func ExampleRule() {
	p := compiled(policy.Domain{Name: "shop", Rules: []policy.Rule{{
		Name:      "search",
		When:      policy.When{"path": {"/search", "/find"}},
		By:        []string{"user"},
		Limit:     weir.PerMinute(5),
		OnFailure: weir.OnFailureAllow,
	}}})
	for _, path := range []string{"/search", "/help"} {
		rows, _ := p.Match(nil, "shop", map[string]string{"path": path, "user": "alice"})
		fmt.Println(path, len(rows))
	}
	// Output:
	// /search 1
	// /help 0
}

// "" is for what is missing, and "?*" for what is not.
func ExampleWhen() {
	for _, when := range []policy.When{{"user": {""}}, {"user": {"?*"}}, {"user": {"partner-*", "alice"}}} {
		p := compiled(policy.Domain{Name: "api", Rules: []policy.Rule{{Name: "some", When: when, Limit: weir.PerMinute(5)}}})
		for _, user := range []string{"", "alice", "bob"} {
			rows, _ := p.Match(nil, "api", map[string]string{"user": user})
			fmt.Printf("%q %t\n", user, len(rows) > 0)
		}
	}
	// Output:
	// "" true
	// "alice" false
	// "bob" false
	// "" false
	// "alice" true
	// "bob" true
	// "" false
	// "alice" true
	// "bob" false
}

func ExampleOverride() {
	p := compiled(policy.Domain{Name: "api", Rules: []policy.Rule{{
		Name: "per-user", By: []string{"user"}, Limit: weir.PerMinute(5),
		Overrides: []policy.Override{
			{When: policy.When{"user": {"mallory"}}, Deny: true},
			{When: policy.When{"plan": {"pro"}}, Limit: weir.PerMinute(500)},
		},
	}}})
	for _, user := range []string{"alice", "mallory"} {
		rows, _ := p.Match(nil, "api", map[string]string{"user": user, "plan": "pro"})
		fmt.Println(rows[0].Key, rows[0].Limit.Max, rows[0].Deny)
	}
	// Output:
	// api:per-user:alice 500 false
	// api:per-user:mallory 0 true
}

// A policy never changes: to load another, swap the pointer.
func ExamplePolicy() {
	p := compiled(policy.Domain{Name: "api", Rules: []policy.Rule{{Name: "global", Limit: weir.PerMinute(100)}}})
	for _, domain := range []string{"api", "ipa"} {
		rows, known := p.Match(nil, domain, nil)
		fmt.Println(domain, len(rows), known)
	}
	// Output:
	// api 1 true
	// ipa 0 false
}

// A row has what it takes to ask a Limiter.
func ExampleRow() {
	p := compiled(policy.Domain{Name: "api", Rules: []policy.Rule{
		{Name: "global", Limit: weir.PerMinute(100)},
		{Name: "per-user", By: []string{"user"}, Limit: weir.PerMinute(5), Slot: []string{"user"}},
	}})
	rows, _ := p.Match(nil, "api", map[string]string{"user": "alice"})
	for _, row := range rows {
		fmt.Printf("%+v\n", []any{row.Key, row.Limit.String(), row.Group, row.Rule.Name})
	}
	// Output:
	// [api:global 100/1m  global]
	// [api:per-user:alice 5/1m api:alice per-user]
}

// All that is wrong is said at once.
func ExampleErrors() {
	_, err := policy.Compile([]policy.Domain{{Name: "api", Rules: []policy.Rule{
		{Name: "global", Limit: weir.Per(0, time.Minute)},
		{Name: "global", Limit: weir.PerMinute(5)},
	}}})
	var all policy.Errors
	fmt.Println(errors.As(err, &all), len(all))
	// Output: true 2
}

func ExampleError() {
	_, err := policy.Compile([]policy.Domain{{Name: "api", Rules: []policy.Rule{{Name: "global", Limit: weir.Per(0, time.Minute)}}}})
	var first *policy.Error
	if errors.As(err, &first) {
		fmt.Println(first.Path)
	}
	// Output: domains[0].rules[0].limit
}

func ExamplePath() {
	p := policy.Path{"domains", 0}.At("rules", 2)
	fmt.Println(p, p.At("when", "x-api.key"))
	// Output: domains[0].rules[2] domains[0].rules[2].when["x-api.key"]
}

// The descriptors of envoyproxy/ratelimit are a tree: each address, and each
// address fewer logins.
func ExampleTree() {
	p := compiled(policy.Domain{Name: "edge", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "remote_address", RateLimit: &policy.RateLimit{Requests: 100, Unit: policy.Minute}},
		{Key: "path", Value: "/login", Descriptors: []policy.Descriptor{
			{Key: "remote_address", RateLimit: &policy.RateLimit{Requests: 5, Unit: policy.Minute}},
		}},
	}}})
	for _, entries := range [][]policy.Entry{
		{{Key: "remote_address", Value: "192.0.2.1"}},
		{{Key: "path", Value: "/login"}, {Key: "remote_address", Value: "192.0.2.1"}},
		{{Key: "path", Value: "/login"}},
	} {
		rows, _ := p.MatchEntries(nil, "edge", entries)
		for _, row := range rows {
			fmt.Println(len(entries), row.Limit)
		}
	}
	// Output:
	// 1 100/1m epoch
	// 2 5/1m epoch
}

// A star in a value stands for anything; the values are counted together only
// if it says so.
func ExampleDescriptor() {
	for _, together := range []bool{false, true} {
		p := compiled(policy.Domain{Name: "edge", Tree: &policy.Tree{Descriptors: []policy.Descriptor{{
			Key: "path", Value: "/api/*", ShareThreshold: together,
			RateLimit: &policy.RateLimit{Requests: 5, Unit: policy.Second},
		}}}})
		a, _ := p.MatchEntries(nil, "edge", []policy.Entry{{Key: "path", Value: "/api/a"}})
		b, _ := p.MatchEntries(nil, "edge", []policy.Entry{{Key: "path", Value: "/api/b"}})
		fmt.Println(a[0].Key == b[0].Key)
	}
	// Output:
	// false
	// true
}

// No requests deny, and unlimited lifts any limit.
func ExampleRateLimit() {
	p := compiled(policy.Domain{Name: "edge", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "path", Value: "/admin", RateLimit: &policy.RateLimit{Requests: 0, Unit: policy.Second}},
		{Key: "path", Value: "/health", RateLimit: &policy.RateLimit{Unlimited: true}},
	}}})
	for _, path := range []string{"/admin", "/health"} {
		rows, _ := p.MatchEntries(nil, "edge", []policy.Entry{{Key: "path", Value: path}})
		fmt.Println(path, rows[0].Deny, rows[0].Unlimited)
	}
	// Output:
	// /admin true false
	// /health false true
}

func ExampleUnit() {
	var u policy.Unit
	if err := u.UnmarshalText([]byte("MONTH")); err != nil {
		fmt.Println(err)
	}
	fmt.Println(u, u.Window())
	// Output: month 720h0m0s
}

// Without a tree entries are attributes, and the last of a key counts.
func ExampleEntry() {
	p := compiled(policy.Domain{Name: "api", Rules: []policy.Rule{{Name: "per-user", By: []string{"user"}, Limit: weir.PerMinute(5)}}})
	rows, _ := p.MatchEntries(nil, "api", []policy.Entry{{Key: "user", Value: "alice"}, {Key: "user", Value: "bob"}})
	fmt.Println(rows[0].Key)
	// Output: api:per-user:bob
}
