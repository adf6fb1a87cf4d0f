// Package frameworks runs what docs/go-middleware.md tells: httplimit.Middleware
// with routers that the library does not know.
package frameworks

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// middleware is what routers take.
type middleware = func(http.Handler) http.Handler

// recipes serve GET /users/{user}, and greet the user. Under each the path's
// user is known to the rules or not.
var recipes = map[string]struct {
	serve    func(t *testing.T, limited middleware) (url string)
	user     func(*http.Request) string
	settles  bool // by what a handler says
	byWriter bool // by bytes, too
}{
	"net/http":       {handler(netHTTP), pathValue, true, true},
	"chi":            {handler(chiRouter), pathValue, true, true},
	"gorilla/mux":    {handler(gorillaRouter), gorillaUser, true, true},
	"echo":           {handler(echoRouter), pathValue, true, true},
	"gin, all of it": {handler(ginEngine), nil, true, true},
	"gin, by route":  {handler(ginRoute), pathValue, true, false},
	"fiber":          {serveFiber, nil, false, false},
}

// handler serves a recipe that makes an http.Handler.
func handler(recipe func(middleware) http.Handler) func(*testing.T, middleware) string {
	return func(t *testing.T, limited middleware) string {
		s := httptest.NewServer(recipe(limited))
		t.Cleanup(s.Close)
		return s.URL
	}
}

func serveFiber(t *testing.T, limited middleware) string {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app, ended := fiberApp(limited), make(chan error, 1)
	go func() { ended <- app.Listener(listener, quiet) }()
	t.Cleanup(func() {
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

func pathValue(r *http.Request) string { return r.PathValue("user") }

// get returns the answer and its body.
func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestRecipesLimit(t *testing.T) {
	for name, recipe := range recipes {
		t.Run(name, func(t *testing.T) {
			url := recipe.serve(t, perClient()) + "/users/alice"
			for n := 59; n >= 0; n-- {
				res, body := get(t, url)
				if want := fmt.Sprintf(`"site";r=%d;t=60`, n); res.StatusCode != http.StatusOK || body != "hello alice" || res.Header.Get("Ratelimit") != want {
					t.Errorf("got %d %q, %v, want %s", res.StatusCode, body, res.Header, want)
				}
			}
			res, body := get(t, url)
			if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" || res.Header.Get("Content-Type") != "application/problem+json" ||
				!strings.HasSuffix(body, `"violated-policies":["site"]}`+"\n") {
				t.Errorf("got %d %q, %v", res.StatusCode, body, res.Header)
			}
		})
	}
}

// Where the route is matched before the middleware, its parameters are keys.
func TestRecipesKnowTheRoute(t *testing.T) {
	for name, recipe := range recipes {
		if recipe.user == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			url := recipe.serve(t, httplimit.Middleware(httplimit.Options{Rules: func(r *http.Request) []httplimit.Rule {
				return []httplimit.Rule{{Request: weir.Request{Key: recipe.user(r), Limit: weir.PerHour(1)}}}
			}}))
			for _, want := range []struct {
				user   string
				status int
			}{{"alice", 200}, {"bob", 200}, {"alice", 429}} {
				if res, _ := get(t, url+"/users/"+want.user); res.StatusCode != want.status {
					t.Errorf("%s got %d, want %d", want.user, res.StatusCode, want.status)
				}
			}
		})
	}
}

func TestRecipesSettle(t *testing.T) {
	for name, recipe := range recipes {
		t.Run(name, func(t *testing.T) {
			lim := weir.New(weir.Options{})
			const held, letters = 50, int64(len("alice"))
			want := map[httplimit.Settlement]int64{httplimit.ByHandler: held, httplimit.ByBytes: 0}
			if recipe.settles {
				want[httplimit.ByHandler] = letters
			}
			if recipe.byWriter {
				want[httplimit.ByBytes] = int64(len("hello alice"))
			}
			var rules []httplimit.Rule
			for settlement := range want {
				rules = append(rules, httplimit.Rule{
					Name:    "letters", // of the user, as the handlers say
					Request: weir.Request{Key: string(rune('0' + settlement)), Limit: weir.PerHour(100), Cost: held}, Settle: settlement,
				})
			}
			url := recipe.serve(t, httplimit.Middleware(httplimit.Options{Limiter: lim, Rules: func(*http.Request) []httplimit.Rule { return rules }}))
			if res, body := get(t, url+"/users/alice"); res.StatusCode != http.StatusOK {
				t.Errorf("got %d %s", res.StatusCode, body)
			}
			for i := range rules {
				d, err := lim.Peek(t.Context(), rules[i].Key, rules[i].Limit)
				if used := 100 - d.Remaining; err != nil || used != want[rules[i].Settle] {
					t.Errorf("%d were charged by %d, %v, want %d", used, rules[i].Settle, err, want[rules[i].Settle])
				}
			}
		})
	}
}

func TestRules(t *testing.T) {
	rules := perUser(func(string) weir.Limit { return weir.PerDay(5) })
	s := httptest.NewServer(httplimit.Middleware(httplimit.Options{Rules: rules})(http.NotFoundHandler()))
	t.Cleanup(s.Close)
	for user, want := range map[string]string{"alice:secret@": `"per-user";q=5;w=86400, "all";q=1000;w=60`, "": `"guests";q=10;w=60`} {
		if res, _ := get(t, strings.Replace(s.URL, "//", "//"+user, 1)); res.Header.Get("Ratelimit-Policy") != want {
			t.Errorf("%s: got %v, want %s", user, res.Header, want)
		}
	}
	handler := completion(func(*http.Request) (string, int64) { return "because", 1_250 })
	tokens := httptest.NewServer(httplimit.Middleware(httplimit.Options{
		Rules: func(*http.Request) []httplimit.Rule { return byTokens("alice") },
	})(handler))
	t.Cleanup(tokens.Close)
	for _, want := range []string{`"tokens";r=96000;t=86400`, `"tokens";r=94750;t=86400`} {
		if res, body := get(t, tokens.URL); body != "because" || res.Header.Get("Ratelimit") != want {
			t.Errorf("got %q, %v, want %s", body, res.Header, want)
		}
	}
}

var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// TestPage holds that each Go block of the page is code of this package.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/go-middleware.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("recipes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllStringSubmatch(string(page), -1)
	for _, b := range blocks {
		if b[1] != "go" || !strings.Contains(flat(string(source)), "\n"+flat(b[2])) {
			t.Errorf("no test runs this block:\n%s", b[0])
		}
	}
	if len(blocks) < 8 {
		t.Errorf("the page has %d blocks", len(blocks))
	}
}

// flat takes the indentation away.
func flat(code string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "") }
