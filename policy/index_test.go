package policy

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
)

// shapes are ways to write n rules of which a request matches one.
var shapes = []struct {
	name  string
	when  func(i int) When
	match map[string]string
}{
	{"exact", func(i int) When { return When{"path": {fmt.Sprintf("/p%d", i)}} },
		map[string]string{"path": "/p7"}},
	{"exact beside a common value", func(i int) When {
		return When{"method": {"GET"}, "path": {fmt.Sprintf("/p%d", i)}, "zone": {"eu"}}
	}, map[string]string{"method": "GET", "path": "/p7", "zone": "eu"}},
	{"list", func(i int) When { return When{"user": {fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)}} },
		map[string]string{"user": "b7"}},
	{"prefix", func(i int) When { return When{"method": {"GET"}, "path": {fmt.Sprintf("/p%05d/*", i)}} },
		map[string]string{"method": "GET", "path": "/p00007/x"}},
	{"any but the empty value", func(i int) When { return When{fmt.Sprintf("x%d", i): {"?*"}} },
		map[string]string{"x7": "on", "x8": "", "path": "/p7"}},
	{"suffix", func(i int) When { return When{"host": {fmt.Sprintf("*.h%05d.org", i)}} },
		map[string]string{"host": "www.h00007.org"}},
	{"common prefix", func(i int) When { return When{"path": {fmt.Sprintf("/api/*/%05d", i)}} },
		map[string]string{"path": "/api/v1/00007"}},
	{"an attribute each", func(i int) When { return When{fmt.Sprintf("x%d", i): {"on"}} },
		map[string]string{"x7": "on"}},
	{"the empty value", func(i int) When { return When{"user": {""}, "path": {fmt.Sprintf("/p%d", i)}} },
		map[string]string{"path": "/p7"}},
}

func shaped(tb testing.TB, n int, when func(i int) When) *Policy {
	tb.Helper()
	d := Domain{Name: "d"}
	for i := range n {
		d.Rules = append(d.Rules, Rule{Name: fmt.Sprint(i), When: when(i), Limit: weir.PerMinute(5)})
	}
	return mustCompile(tb, d)
}

// optional are n rules of which a request with attribute x7 matches one.
func optional(tb testing.TB, n int) *Policy {
	tb.Helper()
	d := Domain{Name: "d"}
	for i := range n {
		d.Rules = append(d.Rules, Rule{Name: fmt.Sprint(i), By: []string{"user", fmt.Sprintf("x%d", i)}, Optional: true, Limit: weir.PerMinute(5)})
	}
	return mustCompile(tb, d)
}

var withX7 = map[string]string{"user": "al", "x7": "on", "x8": ""}

// overridden is one rule with n overrides, of which a request matches one.
func overridden(tb testing.TB, n int, when func(i int) When) *Policy {
	tb.Helper()
	r := Rule{Name: "r", Limit: weir.PerMinute(5)}
	for i := range n {
		r.Overrides = append(r.Overrides, Override{When: when(i), Limit: weir.PerMinute(int64(100 + i))})
	}
	return mustCompile(tb, Domain{Name: "d", Rules: []Rule{r}})
}

func mustCompile(tb testing.TB, d Domain) *Policy {
	tb.Helper()
	p, err := Compile([]Domain{d})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestWorkDoesNotGrow counts the rules and overrides that are tested for a
// request: it must be the one that matches, however many there are.
func TestWorkDoesNotGrow(t *testing.T) {
	for _, s := range shapes {
		for _, n := range []int{10, 1000, 10_000} {
			d := shaped(t, n, s.when).byName["d"]
			if got := tested(&d.index, s.match); got != 1 {
				t.Errorf("%s: %d of %d rules are tested, want 1", s.name, got, n)
			}
			r := &overridden(t, n, s.when).byName["d"].rules[0]
			if got := tested(&r.index, s.match); got != 1 {
				t.Errorf("%s: %d of %d overrides are tested, want 1", s.name, got, n)
			}
			if got := r.override(s.match); got != 7 {
				t.Errorf("%s: override %d of %d is chosen, want 7", s.name, got, n)
			}
		}
	}
}

func TestWorkDoesNotGrowWithOptionalRules(t *testing.T) {
	for _, n := range []int{10, 1000, 10_000} {
		if got := tested(&optional(t, n).byName["d"].index, withX7); got != 1 {
			t.Errorf("%d of %d rules are tested, want 1", got, n)
		}
	}
}

func tested(x *index, attributes map[string]string) int {
	n := 0
	x.candidates(attributes, func(int32) { n++ })
	return n
}

func TestMatchAllocates(t *testing.T) {
	limit := weir.PerMinute(5)
	d := Domain{Name: "d", Rules: []Rule{
		{Name: "global", Limit: limit},
		{Name: "by", By: []string{"user", "path"}, Limit: limit},
		{Name: "glob", When: When{"path": {"/a*", "/ab*"}}, By: []string{"user"}, Limit: limit, Overrides: []Override{
			{When: When{"user": {"o*"}}, Limit: limit},
			{When: When{"user": {"al"}}, Deny: true},
		}},
		{Name: "other", When: When{"path": {"/other"}}, By: []string{"user"}, Limit: limit},
	}}
	p := mustCompile(t, d)
	attributes := map[string]string{"user": "al", "path": "/ab:c"}
	rows := make([]Row, 0, 8)
	allocs := testing.AllocsPerRun(100, func() { rows, _ = p.Match(rows[:0], "d", attributes) })
	if len(rows) != 3 || allocs != 2 {
		t.Errorf("%v allocations for %d rows, want 2 (the keys of by and glob) for 3", allocs, len(rows))
	}
}

// BenchmarkMatch is flat in the number of rules.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("optional/rules=%d", n), func(b *testing.B) { benchmark(b, optional(b, n), withX7) })
	}
	for _, s := range shapes[1:5] {
		for _, n := range []int{10, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/rules=%d", s.name, n), func(b *testing.B) {
				benchmark(b, shaped(b, n, s.when), s.match)
			})
			b.Run(fmt.Sprintf("%s/overrides=%d", s.name, n), func(b *testing.B) {
				benchmark(b, overridden(b, n, s.when), s.match)
			})
		}
	}
}

func benchmark(b *testing.B, p *Policy, attributes map[string]string) {
	b.ReportAllocs()
	rows := make([]Row, 0, 8)
	for b.Loop() {
		rows, _ = p.Match(rows[:0], "d", attributes)
	}
	if len(rows) != 1 {
		b.Fatalf("%d rows, want 1", len(rows))
	}
}
