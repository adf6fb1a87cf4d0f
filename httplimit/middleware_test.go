package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// frozen returns a Limiter for which no time passes.
func frozen(t *testing.T) *weir.Limiter {
	t.Helper()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return noon }})})
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// start serves h on a free port until the test ends.
func start(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// always holds every request to the same rules.
func always(rules ...httplimit.Rule) func(*http.Request) []httplimit.Rule {
	return func(*http.Request) []httplimit.Rule { return rules }
}

func rule(name string, limit weir.Limit) httplimit.Rule {
	return httplimit.Rule{Name: name, Request: weir.Request{Key: name, Limit: limit}}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// limits are the header fields that tell of limits, a line each.
func (a answer) limits() string {
	told := make(http.Header)
	for name, values := range a.header {
		if strings.Contains(name, "Ratelimit") || slices.Contains([]string{"Retry-After", "Weir-Reason"}, name) {
			told[name] = values
		}
	}
	return text(told)
}

func send(t *testing.T, method, url string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func TestMiddleware(t *testing.T) {
	s := start(t, httplimit.Middleware(httplimit.Options{
		Limiter: frozen(t),
		Rules:   always(rule("burst", weir.PerMinute(2)), rule("", weir.PerHour(100))),
	})(http.HandlerFunc(hello)))
	for _, want := range []string{`"burst";r=1;t=60, "default";r=99;t=3600`, `"burst";r=0;t=60, "default";r=98;t=3600`} {
		a := send(t, "GET", s.URL)
		if a.status != http.StatusOK || a.body != "hello" || a.limits() != "Ratelimit-Policy: \"burst\";q=2;w=60, \"default\";q=100;w=3600\nRatelimit: "+want {
			t.Errorf("got %d %q, headers\n%s\nwant %s", a.status, a.body, a.limits(), want)
		}
	}
	// A denial takes nothing of the other limit, however often it is told.
	for range 3 {
		a := send(t, "POST", s.URL)
		if want := "Ratelimit-Policy: \"burst\";q=2;w=60, \"default\";q=100;w=3600\nRatelimit: \"burst\";r=0;t=60, \"default\";r=98\nRetry-After: 60"; a.limits() != want {
			t.Errorf("got headers\n%s\nwant\n%s", a.limits(), want)
		}
		const body = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
			`"detail":"more was asked for than a limit admits: wait as long as the header Retry-After says","violated-policies":["burst"]}` + "\n"
		if a.status != http.StatusTooManyRequests || a.body != body || a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %d, %v\n%swant\n%s", a.status, a.header, a.body, body)
		}
	}
}

func TestConcurrentClientsAreAdmittedExactlyMax(t *testing.T) {
	const clients, each, most = 64, 4, 100
	s := start(t, httplimit.Middleware(httplimit.Options{
		Limiter: frozen(t), Rules: httplimit.Clients{}.Limit("site", weir.PerMinute(most)),
	})(http.HandlerFunc(hello)))
	var all sync.WaitGroup
	var admitted, denied atomic.Int64
	for range clients {
		all.Go(func() {
			for range each {
				res, err := http.Get(s.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
				switch res.StatusCode {
				case http.StatusOK:
					admitted.Add(1)
				case http.StatusTooManyRequests:
					denied.Add(1)
				}
			}
		})
	}
	all.Wait()
	if admitted.Load() != most || denied.Load() != clients*each-most {
		t.Errorf("%d were admitted and %d denied, want %d of %d", admitted.Load(), denied.Load(), most, clients*each)
	}
}

// Who is limited, by how much and at what cost is drawn from the request, which
// net/http's patterns have been matched with.
func TestRulesAreOfTheRequest(t *testing.T) {
	plans := map[string]weir.Limit{"free": weir.PerMinute(2), "paid": weir.PerMinute(10)}
	limited := httplimit.Middleware(httplimit.Options{Limiter: frozen(t), Rules: func(r *http.Request) []httplimit.Rule {
		limit, ok := plans[r.Header.Get("Plan")]
		if !ok {
			return nil
		}
		cost := int64(1)
		if r.Method == "POST" {
			cost = 2
		}
		return []httplimit.Rule{{Name: r.Pattern, Request: weir.Request{Key: r.PathValue("user"), Limit: limit, Cost: cost}}}
	}})
	mux := http.NewServeMux()
	mux.Handle("GET /users/{user}", limited(http.HandlerFunc(hello)))
	mux.Handle("POST /users/{user}", limited(http.HandlerFunc(hello)))
	s := start(t, mux)
	for i, test := range []struct {
		method, user, plan string
		status             int
		want               string
	}{
		{"POST", "alice", "free", 200, `"POST /users/{user}";r=0;t=60`},
		{"GET", "alice", "free", 429, `"GET /users/{user}";r=0;t=60`},
		{"GET", "alice", "paid", 200, `"GET /users/{user}";r=7;t=60`},
		{"GET", "bob", "free", 200, `"GET /users/{user}";r=1;t=60`},
		{"GET", "alice", "none", 200, ""},
	} {
		a := send(t, test.method, s.URL+"/users/"+test.user, "Plan: "+test.plan)
		if got := a.header.Get("Ratelimit"); a.status != test.status || got != test.want {
			t.Errorf("request %d: got %d, %s, want %d, %s", i, a.status, got, test.status, test.want)
		}
	}
}

// A shadow rule is charged and not told of; one that never passes asks nobody to wait.
func TestModes(t *testing.T) {
	lim := frozen(t)
	watched, large := rule("watched", weir.PerMinute(2)), rule("large", weir.PerMinute(2))
	watched.Mode, large.Cost = weir.Shadow, 3
	shadow := start(t, httplimit.Middleware(httplimit.Options{Limiter: lim, Rules: always(watched)})(http.HandlerFunc(hello)))
	for range 3 {
		if a := send(t, "GET", shadow.URL); a.status != http.StatusOK || a.limits() != "" {
			t.Errorf("got %d, %s", a.status, a.limits())
		}
	}
	if d, _ := lim.Peek(t.Context(), "watched", watched.Limit); d.Allowed {
		t.Error("a shadow rule was not charged")
	}
	never := start(t, httplimit.Middleware(httplimit.Options{Limiter: lim, Rules: always(large)})(http.HandlerFunc(hello)))
	if a := send(t, "GET", never.URL); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "" || !strings.Contains(a.body, "now or later") {
		t.Errorf("got %d, %s, %s", a.status, a.limits(), a.body)
	}
}

// What is admitted under rules without settlement reaches the handler as it came.
func TestAdmittedRequestsAreUnchanged(t *testing.T) {
	for name, rules := range map[string][]httplimit.Rule{"none": nil, "reserved": {rule("site", weir.PerMinute(5))}} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		httplimit.Middleware(httplimit.Options{Rules: always(rules...)})(http.HandlerFunc(func(gotW http.ResponseWriter, gotR *http.Request) {
			if gotW != w || gotR != r {
				t.Errorf("%s: the handler got %T, %p, not what the server gave", name, gotW, gotR)
			}
			w.WriteHeader(http.StatusTeapot)
		})).ServeHTTP(w, r)
		if w.Code != http.StatusTeapot || (w.Header().Get("Ratelimit") != "") != (rules != nil) {
			t.Errorf("%s: got %d, %v", name, w.Code, w.Header())
		}
	}
}

func TestDenyAndFields(t *testing.T) {
	s := start(t, httplimit.Middleware(httplimit.Options{
		Limiter: frozen(t), Rules: always(rule("site", weir.PerMinute(1))),
		Fields: httplimit.Fields{Dialect: httplimit.Delta},
		Deny: func(w http.ResponseWriter, r *http.Request, verdict *weir.Decision, rows []httplimit.Row) {
			http.Error(w, r.Method+" "+rows[0].Name+" "+verdict.Reason.String(), http.StatusTeapot)
		},
	})(http.HandlerFunc(hello)))
	send(t, "GET", s.URL)
	a := send(t, "GET", s.URL)
	if want := "X-Ratelimit-Limit: 1\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 60"; a.limits() != "Retry-After: 60\n"+want {
		t.Errorf("got %s", a.limits())
	}
	if a.status != http.StatusTeapot || a.body != "GET site over_limit\n" {
		t.Errorf("got %d %q", a.status, a.body)
	}
}

// failing is a Store that can take nothing.
type failing struct {
	weir.Store

	err error
}

func (f failing) Take(_ context.Context, lists []weir.List) {
	for i := range lists {
		lists[i].Err = f.err
	}
}

func TestWhenTheStoreFails(t *testing.T) {
	away, mistaken := &weir.StoreError{Err: errors.New("connection refused")}, &weir.StoreError{Err: errors.New("wrong password"), Settings: true}
	open, watched := rule("open", weir.PerMinute(5)), rule("watched", weir.PerMinute(5))
	open.OnFailure, watched.Mode = weir.OnFailureAllow, weir.Shadow
	const policy = "Ratelimit-Policy: \"open\";q=5;w=60\n"
	for name, test := range map[string]struct {
		err    error
		rules  []httplimit.Rule
		status int
		want   string
	}{
		"open":                     {away, []httplimit.Rule{open}, 200, policy + "Weir-Reason: store_unavailable_allowed"},
		"watched":                  {away, []httplimit.Rule{watched}, 200, "Weir-Reason: store_unavailable_allowed"},
		"open and watched":         {away, []httplimit.Rule{open, watched}, 200, policy + "Weir-Reason: store_unavailable_allowed"},
		"open, and closed":         {weir.ErrClosed, []httplimit.Rule{open}, 503, policy + "Ratelimit: \"open\";r=0;t=1\nRetry-After: 1\nWeir-Reason: store_unavailable_denied"},
		"open, by a wrong setting": {mistaken, []httplimit.Rule{open}, 503, policy + "Ratelimit: \"open\";r=0;t=1\nRetry-After: 1\nWeir-Reason: store_unavailable_denied"},
		"by default, with one open": {away, []httplimit.Rule{open, rule("site", weir.PerHour(9))}, 503, "Ratelimit-Policy: \"open\";q=5;w=60, \"site\";q=9;w=3600\n" +
			"Ratelimit: \"open\";r=0;t=1, \"site\";r=0;t=1\nRetry-After: 1\nWeir-Reason: store_unavailable_denied"},
	} {
		t.Run(name, func(t *testing.T) {
			var told error
			test.rules[0].Settle = httplimit.ByBytes // nothing is held, so there is nothing to settle
			s := start(t, httplimit.Middleware(httplimit.Options{
				Limiter: weir.New(weir.Options{Store: failing{err: test.err}}), Rules: always(test.rules...),
				Errors: func(_ *http.Request, err error) { told = err },
			})(http.HandlerFunc(hello)))
			a := send(t, "GET", s.URL)
			if a.status != test.status || a.limits() != test.want || !errors.Is(told, test.err) {
				t.Errorf("got %d, told %v, headers\n%s\nwant %d\n%s", a.status, told, a.limits(), test.status, test.want)
			}
			if a.status != http.StatusOK && (!strings.Contains(a.body, `"title":"Service Unavailable"`) || strings.Contains(a.body, "violated") || strings.Contains(a.body, "password")) {
				t.Errorf("got %s", a.body)
			}
		})
	}
}

// What is wrong with the program is answered by 500 and told in the server's log.
func TestWrongRules(t *testing.T) {
	for name, test := range map[string]struct {
		rules func(*http.Request) []httplimit.Rule
		want  string
	}{
		"none":      {nil, `httplimit: weir: httplimit.Options.Rules "nil": want a function such as httplimit.Clients{}.Limit("site", weir.PerMinute(60))`},
		"no window": {always(rule("a", weir.PerMinute(1)), rule("b", weir.Per(1, 0))), `httplimit: weir: requests[1].window "0s": want`},
	} {
		var logged bytes.Buffer
		s := httptest.NewUnstartedServer(httplimit.Middleware(httplimit.Options{Rules: test.rules})(http.HandlerFunc(hello)))
		s.Config.ErrorLog = log.New(&logged, "", 0)
		s.Start()
		a := send(t, "GET", s.URL)
		s.Close()
		if a.status != http.StatusInternalServerError || a.header.Get("Content-Type") != "application/problem+json" || a.limits() != "" {
			t.Errorf("%s: got %d, %v %s", name, a.status, a.header, a.body)
		}
		if !strings.HasPrefix(logged.String(), test.want) {
			t.Errorf("%s: logged %s, want %s", name, &logged, test.want)
		}
	}
}

// A client that has left before the decision is neither charged nor served, and
// that is nobody's error.
func TestClientsWhoLeave(t *testing.T) {
	lim, limit := frozen(t), weir.PerMinute(5)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	limited := httplimit.Middleware(httplimit.Options{
		Limiter: lim,
		Rules: func(r *http.Request) []httplimit.Rule {
			leave()
			<-r.Context().Done()
			return []httplimit.Rule{rule("site", limit)}
		},
		Errors: func(_ *http.Request, err error) { t.Errorf("told %v", err) },
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was served") }))
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		limited.ServeHTTP(w, r)
	}))
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(r); err == nil {
		_ = res.Body.Close()
		t.Errorf("got %d", res.StatusCode)
	}
	<-done
	if d, _ := lim.Peek(t.Context(), "site", limit); d.Remaining != 5 {
		t.Errorf("%d are left, want 5", d.Remaining)
	}
}
