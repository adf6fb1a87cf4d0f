package policy_test

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

func TestSplitKey(t *testing.T) {
	odd := []string{"a", "", ":", "%", "a:b", "%3A", "%25", "%%3A:", "%*", "*", "::", "a\x00é\xff"}
	for _, one := range odd {
		for _, two := range odd {
			p, err := policy.Compile([]policy.Domain{{Name: "a:b%", Rules: []policy.Rule{{Name: "%3A:x", By: []string{"user", "path"}, Limit: weir.PerHour(1)}}}})
			if err != nil {
				t.Fatal(err)
			}
			rows, _ := p.Match(nil, "a:b%", map[string]string{"user": one, "path": two})
			if domain, rule, values := policy.SplitKey(rows[0].Key); domain != "a:b%" || rule != "%3A:x" || !slices.Equal(values, []string{one, two}) {
				t.Errorf("%q splits into %q, %q, %q", rows[0].Key, domain, rule, values)
			}
			row, _ := p.Override("a:b%", []policy.Entry{{Key: one, Value: two}}, weir.PerHour(1))
			if domain, rule, values := policy.SplitKey(row.Key); domain != "a:b%" || rule != "" || !slices.Equal(values, []string{one, two}) {
				t.Errorf("%q splits into %q, %q, %q", row.Key, domain, rule, values)
			}
		}
	}
}

func TestSplitKeyOfATree(t *testing.T) {
	limit := &policy.RateLimit{Requests: 1, Unit: policy.Hour}
	p, err := policy.Compile([]policy.Domain{{Name: "tree", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "path", Value: "/a%:*", ShareThreshold: true, Descriptors: []policy.Descriptor{{Key: "user", RateLimit: limit}}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := p.MatchEntries(nil, "tree", []policy.Entry{{Key: "path", Value: "/a%:b"}, {Key: "user", Value: "x:y"}})
	if domain, rule, values := policy.SplitKey(rows[0].Key); domain != "tree" || rule != "" || !slices.Equal(values, []string{"path", "/a%:*", "user", "x:y"}) {
		t.Errorf("%q splits into %q, %q, %q", rows[0].Key, domain, rule, values)
	}
	if domain, rule, values := policy.SplitKey("plain%"); domain != "plain%" || rule != "" || values != nil {
		t.Errorf("what is no key splits into %q, %q, %q", domain, rule, values)
	}
}
