package httplimit_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// searchDenied is a verdict of five a minute, with 41.2 seconds to wait.
var searchDenied = weir.Decision{Reason: weir.OverLimit, Limit: 5, RetryAfter: 41200 * time.Millisecond, ResetAfter: 41200 * time.Millisecond}

func ExampleFields_Write() {
	h := make(http.Header)
	httplimit.Fields{}.Write(h, &searchDenied, []httplimit.Row{{Decision: searchDenied, Name: "search", Window: time.Minute}})
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Println(name+":", h.Get(name))
	}
	// Output:
	// Ratelimit: "search";r=0;t=42
	// Ratelimit-Policy: "search";q=5;w=60
	// Retry-After: 42
}

func ExampleDialect() {
	var d httplimit.Dialect
	if err := d.UnmarshalText([]byte("delta")); err != nil {
		fmt.Println(err)
	}
	h := make(http.Header)
	httplimit.Fields{Dialect: d}.Write(h, &searchDenied, []httplimit.Row{{Decision: searchDenied, Name: "search", Window: time.Minute}})
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Println(name+":", h.Get(name))
	}
	// Output:
	// Retry-After: 42
	// X-Ratelimit-Limit: 5
	// X-Ratelimit-Remaining: 0
	// X-Ratelimit-Reset: 42
}

// Of several limits each has a row.
func ExampleRow() {
	allowed := weir.Decision{Allowed: true, Limit: 100, Remaining: 7, ResetAfter: 20 * time.Minute}
	h := make(http.Header)
	httplimit.Fields{}.Write(h, &searchDenied, []httplimit.Row{
		{Decision: allowed, Name: "global", Window: 30 * time.Minute},
		{Decision: searchDenied, Name: "search", Window: time.Minute},
	})
	fmt.Println(h.Get("Ratelimit"))
	fmt.Println(h.Get("Ratelimit-Policy"))
	// Output:
	// "global";r=7, "search";r=0;t=42
	// "global";q=100;w=1800, "search";q=5;w=60
}
