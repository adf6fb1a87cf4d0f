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
