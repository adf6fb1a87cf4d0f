package policy_test

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

func Example() {
	p, err := policy.Compile([]policy.Domain{{
		Name: "slack",
		Rules: []policy.Rule{
			{Name: "global", Limit: weir.Per(100, 30*time.Minute)},
			{Name: "per-category", By: []string{"category"}, Limit: weir.Per(10, 30*time.Minute)},
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	rows, _ := p.Match(nil, "slack", map[string]string{"category": "errors"})
	for _, row := range rows {
		fmt.Println(row.Key, row.Limit)
	}
	// Output:
	// slack:global 100/30m
	// slack:per-category:errors 10/30m
}

// Explain says why each rule holds for a request or does not.
func ExampleReason() {
	p, err := policy.Compile([]policy.Domain{{
		Name: "web",
		Rules: []policy.Rule{
			{Name: "search", When: policy.When{"path": {"/search"}}, Limit: weir.PerMinute(5)},
			{Name: "global", Limit: weir.PerMinute(100)},
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	reasons, _ := p.Explain("web", map[string]string{"path": "/help"})
	for _, r := range reasons {
		fmt.Println(r.Rule.Name, r.Row != nil, r.Why)
	}
	// Output:
	// search false path is "/help": want "/search"
	// global true it has no conditions
}
