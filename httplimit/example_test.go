package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// wait is how long it takes until there is more.
var wait = regexp.MustCompile(";t=[0-9]+")

// show sends requests to a handler and prints what each client is told.
func show(h http.Handler, requests ...*http.Request) {
	for _, r := range requests {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(r.Method, r.URL, w.Code, wait.ReplaceAllString(w.Header().Get("Ratelimit"), ""))
	}
}

// Sixty requests a minute from each client. With http.ListenAndServe(":8080",
// limited(mux)) all that is served is limited so.
func ExampleMiddleware() {
	limited := httplimit.Middleware(httplimit.Options{
		Rules: httplimit.Clients{}.Limit("site", weir.PerMinute(60)),
	})
	site := limited(http.FileServer(http.Dir("testdata")))
	show(site, httptest.NewRequest("GET", "/missing", nil), httptest.NewRequest("GET", "/missing", nil))
	// Output:
	// GET /missing 404 "site";r=59
	// GET /missing 404 "site";r=58
}

// Each plan has a limit of its own, searching costs five, and there is one for
// all together. What has no user is not limited.
func ExampleOptions() {
	plans := map[string]weir.Limit{"alice": weir.PerMinute(100), "bob": weir.PerMinute(10)}
	limited := httplimit.Middleware(httplimit.Options{
		Limiter: weir.New(weir.Options{}),
		Rules: func(r *http.Request) []httplimit.Rule {
			user, _, ok := r.BasicAuth()
			if !ok {
				return nil
			}
			cost := int64(1)
			if r.URL.Path == "/search" {
				cost = 5
			}
			return []httplimit.Rule{
				{Name: "per-user", Request: weir.Request{Key: "user:" + user, Limit: plans[user], Cost: cost}},
				{Name: "all", Request: weir.Request{Key: "all", Limit: weir.PerMinute(1000), Cost: cost}},
			}
		},
	})
	by := func(user, path string) *http.Request {
		r := httptest.NewRequest("GET", path, nil)
		r.SetBasicAuth(user, "secret")
		return r
	}
	show(limited(http.NotFoundHandler()), by("alice", "/"), by("bob", "/search"), by("bob", "/search"), by("bob", "/"), httptest.NewRequest("GET", "/health", nil))
	// Output:
	// GET / 404 "per-user";r=99, "all";r=999
	// GET /search 404 "per-user";r=5, "all";r=994
	// GET /search 404 "per-user";r=0, "all";r=989
	// GET / 429 "per-user";r=0, "all";r=989
	// GET /health 404
}

// A stricter limit can be watched before it is enforced.
func ExampleRule() {
	limited := httplimit.Middleware(httplimit.Options{Rules: func(*http.Request) []httplimit.Rule {
		return []httplimit.Rule{
			{Name: "today", Request: weir.Request{Key: "today", Limit: weir.PerMinute(100)}},
			{Name: "planned", Request: weir.Request{Key: "planned", Limit: weir.PerMinute(1), Mode: weir.Shadow}},
		}
	}})
	show(limited(http.NotFoundHandler()), httptest.NewRequest("GET", "/", nil), httptest.NewRequest("GET", "/", nil))
	// Output:
	// GET / 404 "today";r=99
	// GET / 404 "today";r=98
}

// Downloads are limited by what is sent: a megabyte a minute. A kilobyte is held
// until it is known how much that was.
func ExampleSettlement() {
	limited := httplimit.Middleware(httplimit.Options{Rules: func(*http.Request) []httplimit.Rule {
		return []httplimit.Rule{{
			Name: "bytes", Request: weir.Request{Key: "downloads", Limit: weir.PerMinute(1_000_000), Cost: 1_000}, Settle: httplimit.ByBytes,
		}}
	}})
	download := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 250_000))
	}))
	show(download, httptest.NewRequest("GET", "/1", nil), httptest.NewRequest("GET", "/2", nil))
	// Output:
	// GET /1 200 "bytes";r=999000
	// GET /2 200 "bytes";r=749000
}

// A model's answer costs the tokens that it has had: 4000 are held meanwhile.
func ExampleSetUsed() {
	limited := httplimit.Middleware(httplimit.Options{Rules: func(*http.Request) []httplimit.Rule {
		return []httplimit.Rule{{
			Name: "tokens", Request: weir.Request{Key: "alice", Limit: weir.PerDay(100_000), Cost: 4_000}, Settle: httplimit.ByHandler,
		}}
	}})
	complete := limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		httplimit.SetUsed(r.Context(), "tokens", 1_250)
	}))
	show(complete, httptest.NewRequest("POST", "/complete", nil), httptest.NewRequest("POST", "/complete", nil))
	// Output:
	// POST /complete 200 "tokens";r=96000
	// POST /complete 200 "tokens";r=94750
}

// Of what a trusted proxy passes on, the last address is the one that it has
// seen itself; those before it anybody can make up.
func ExampleClients() {
	clients := httplimit.Clients{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", "192.0.2.1, 2001:db8::1234:5678")
	for _, peer := range []string{"10.0.0.1:443", "203.0.113.7:4711"} {
		r.RemoteAddr = peer
		fmt.Println(clients.Key(r))
	}
	// Output:
	// 2001:db8::/64
	// 203.0.113.7
}

// The fields can be written without Middleware, too.
func ExampleFields() {
	lim, limit := weir.New(weir.Options{}), weir.PerMinute(5)
	d, _ := lim.AllowN(context.Background(), "alice", limit, 2)
	for dialect := httplimit.Draft10; dialect <= httplimit.Delta; dialect++ {
		h := make(http.Header)
		httplimit.Fields{Dialect: dialect}.Write(h, &d, []httplimit.Row{{Decision: d, Name: "search", Window: time.Minute}})
		fmt.Println(dialect)
		for _, name := range slices.Sorted(maps.Keys(h)) {
			fmt.Println(" ", name+":", h.Get(name))
		}
	}
	// Output:
	// draft-10
	//   Ratelimit: "search";r=3;t=60
	//   Ratelimit-Policy: "search";q=5;w=60
	// draft-03
	//   X-Ratelimit-Limit: 5, 5;w=60;name="search"
	//   X-Ratelimit-Remaining: 3
	//   X-Ratelimit-Reset: 60
	// delta
	//   X-Ratelimit-Limit: 5
	//   X-Ratelimit-Remaining: 3
	//   X-Ratelimit-Reset: 60
}
