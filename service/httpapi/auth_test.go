package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/httpapi"
)

// web is what the proxies of these tests ask.
var web = policy.Domain{Name: "web", Rules: []policy.Rule{
	{Name: "per-ip", By: []string{"ip"}, Limit: weir.PerMinute(2)},
	{Name: "all", Limit: weir.PerHour(100)},
	{Name: "banned", When: policy.When{"path": {"/wp-login.php"}}, Deny: true},
	{Name: "watched", When: policy.When{"method": {"PUT"}}, Limit: weir.PerDay(1), Shadow: true},
}}

// ask sends a request as a proxy does; each header is a "Name: value".
func ask(t *testing.T, auth httpapi.Auth, peer, method string, engine *decide.Engine, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, "http://weir/v1/auth/web", strings.NewReader("what is not read"))
	r.RemoteAddr = peer
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	httpapi.New(httpapi.Options{Engine: engine, Auth: auth}).ServeHTTP(w, r)
	return w
}

const here = "127.0.0.1:4711"

// engine answers for the domain web, and tells the last query.
func engine(t *testing.T, last *decide.Query) *decide.Engine {
	t.Helper()
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	e := decide.New(decide.Options{
		Limiter: weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return now }})}),
		Observe: func(e decide.Event) {
			if last != nil {
				*last = *e.Query
			}
		},
	})
	p, err := policy.Compile([]policy.Domain{web})
	if err != nil {
		t.Fatal(err)
	}
	e.Load(p, false)
	return e
}

// headers of an answer that tell of limits, on a line each.
func limits(w *httptest.ResponseRecorder) string {
	var lines []string
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Weir-Reason"} {
		if v := w.Header().Get(name); v != "" {
			lines = append(lines, name+": "+v)
		}
	}
	return strings.Join(lines, "\n")
}

func TestAuth(t *testing.T) {
	e := engine(t, nil)
	const policies = `RateLimit-Policy: "per-ip";q=2;w=60, "all";q=100;w=3600`
	for i, want := range []string{
		policies + "\n" + `RateLimit: "per-ip";r=1;t=60, "all";r=99;t=3600`,
		policies + "\n" + `RateLimit: "per-ip";r=0;t=60, "all";r=98;t=3600`,
	} {
		w := ask(t, httpapi.Auth{}, here, "GET", e, "X-Forwarded-For: 203.0.113.7", "X-Forwarded-Method: PUT")
		if w.Code != http.StatusOK || w.Body.Len() != 0 || limits(w) != want || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("request %d: status %d, %q, headers\n%s\nwant\n%s", i, w.Code, w.Body, limits(w), want)
		}
	}
	w := ask(t, httpapi.Auth{}, here, "POST", e, "X-Forwarded-For: 203.0.113.7", "Origin: https://elsewhere.example")
	if want := policies + "\n" + `RateLimit: "per-ip";r=0;t=60, "all";r=98` + "\nRetry-After: 60"; w.Code != http.StatusTooManyRequests || limits(w) != want {
		t.Errorf("status %d, headers\n%s\nwant\n%s", w.Code, limits(w), want)
	}
	wantDenial(t, w, http.StatusTooManyRequests, "per-ip")

	w = ask(t, httpapi.Auth{}, here, "GET", e, "X-Forwarded-For: 203.0.113.8", "X-Forwarded-Uri: /wp-login.php")
	wantDenial(t, w, http.StatusTooManyRequests, "banned")
	if w.Header().Get("Retry-After") != "" {
		t.Error("a denial for good asks to come again")
	}
	w = ask(t, httpapi.Auth{DenyStatus: 403, Fields: httplimit.Fields{Dialect: httplimit.Delta}}, here, "GET", e, "X-Forwarded-For: 203.0.113.7")
	wantDenial(t, w, http.StatusForbidden, "per-ip")
	if want := "Retry-After: 60\nX-RateLimit-Limit: 2\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60"; limits(w) != want {
		t.Errorf("headers\n%s\nwant\n%s", limits(w), want)
	}
}

func wantDenial(t *testing.T, w *httptest.ResponseRecorder, status int, violated ...string) {
	t.Helper()
	var body struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"` //nolint:tagliatelle // the draft's name
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" || body.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" {
		t.Errorf("Content-Type %q, body %s", kind, w.Body)
	}
	if w.Code != status || body.Status != status || body.Title != "Quota Exceeded" || body.Detail == "" || !slices.Equal(body.Violated, violated) {
		t.Errorf("status %d, body %s; want %d, %q", w.Code, w.Body, status, violated)
	}
}

func TestAuthAttributes(t *testing.T) {
	internal := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	plans := map[string][]string{"plan": {"X-Plan"}, "path": {"X-Path"}}
	tests := map[string]struct {
		auth    httpapi.Auth
		headers []string
		want    map[string]string
	}{
		"nothing but the peer": {
			httpapi.Auth{}, nil, map[string]string{"ip": "127.0.0.1"},
		},
		"all by default": {
			httpapi.Auth{}, []string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Host: API.Example.com.:443", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /a//b/../%63?q=1", "X-Plan: gold"},
			map[string]string{"ip": "203.0.113.7", "host": "api.example.com", "method": "GET", "path": "/a/c"},
		},
		"the other spelling": {
			httpapi.Auth{}, []string{"X-Original-Method: GET", "X-Original-URI: /a"}, map[string]string{"ip": "127.0.0.1", "method": "GET", "path": "/a"},
		},
		"both, which agree": {
			httpapi.Auth{}, []string{"X-Original-URI: /%61?x", "X-Forwarded-Uri: /a"}, map[string]string{"ip": "127.0.0.1", "path": "/a"},
		},
		"what the client made up stands further left": {
			httpapi.Auth{}, []string{"X-Forwarded-For: 198.51.100.1, 10.0.0.1", "X-Forwarded-For: 203.0.113.7"}, map[string]string{"ip": "203.0.113.7"},
		},
		"proxies before the proxy": {
			httpapi.Auth{Proxies: internal}, []string{"X-Forwarded-For: 198.51.100.1, 203.0.113.7, fd00::1", "X-Forwarded-For: 10.0.0.1"}, map[string]string{"ip": "203.0.113.7"},
		},
		"a network of IPv6": {
			httpapi.Auth{}, []string{"X-Forwarded-For: 2001:db8:1:2:3:4:5:6"}, map[string]string{"ip": "2001:db8:1:2::/64"},
		},
		"a larger one": {
			httpapi.Auth{IPv6Bits: 48}, []string{"X-Forwarded-For: 2001:db8:1:2:3:4:5:6"}, map[string]string{"ip": "2001:db8:1::/48"},
		},
		"headers of one's own": {
			httpapi.Auth{Attributes: plans}, []string{"X-Plan: gold", "X-Path: /a/./b", "X-Forwarded-Uri: /c"}, map[string]string{"ip": "127.0.0.1", "plan": "gold", "path": "/a/b"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var last decide.Query
			w := ask(t, test.auth, here, "GET", engine(t, &last), test.headers...)
			if w.Code != http.StatusOK || last.Domain != "web" || last.Cost != 1 || !equal(last.Attributes, test.want) {
				t.Errorf("status %d, asked %+v, want %v", w.Code, last, test.want)
			}
		})
	}
}

func equal(a, b map[string]string) bool {
	for name := range a {
		if a[name] != b[name] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestAuthRefuses(t *testing.T) {
	office := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	closed := weir.New(weir.Options{})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	broken := decide.New(decide.Options{Limiter: closed})
	p, err := policy.Compile([]policy.Domain{web})
	if err != nil {
		t.Fatal(err)
	}
	broken.Load(p, false)
	tests := map[string]struct {
		auth    httpapi.Auth
		peer    string
		engine  *decide.Engine
		headers []string
		status  int
		field   string
		detail  string
	}{
		"from elsewhere":                          {httpapi.Auth{}, "192.0.2.1:1", nil, nil, 403, "", "auth_peers"},
		"from elsewhere, in the words of IPv6":    {httpapi.Auth{}, "[::ffff:192.0.2.1]:1", nil, nil, 403, "", "auth_peers"},
		"from here, which is not among the peers": {httpapi.Auth{Peers: office}, here, nil, nil, 403, "", "auth_peers"},
		"no peer at all":                          {httpapi.Auth{Peers: []netip.Prefix{}}, here, nil, nil, 403, "", "auth_peers"},
		"without the secret":                      {httpapi.Auth{Secret: "s3cret"}, here, nil, nil, 403, "", "Weir-Secret"},
		"with another":                            {httpapi.Auth{Secret: "s3cret"}, here, nil, []string{"Weir-Secret: s3cre"}, 403, "", "Weir-Secret"},
		"with the secret, from elsewhere":         {httpapi.Auth{Secret: "s3cret", Peers: office}, here, nil, []string{"Weir-Secret: s3cret"}, 403, "", "auth_peers"},
		"two methods":                             {httpapi.Auth{}, here, nil, []string{"X-Forwarded-Method: GET", "X-Original-Method: POST"}, 400, "method", "remove what clients send"},
		"two paths":                               {httpapi.Auth{}, here, nil, []string{"X-Forwarded-Uri: /a", "X-Forwarded-Uri: /b"}, 400, "path", "X-Forwarded-Uri or X-Original-URI"},
		"a closed store":                          {httpapi.Auth{}, here, broken, nil, 503, "", "stopping"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := test.engine
			if e == nil {
				e = engine(t, nil)
			}
			w := ask(t, test.auth, test.peer, "GET", e, test.headers...)
			wantProblem(t, w, test.status, test.field, test.detail)
			if strings.Contains(w.Body.String(), "s3cre") {
				t.Errorf("the secret is in %s", w.Body)
			}
		})
	}
	for name, test := range map[string]struct {
		auth    httpapi.Auth
		peer    string
		headers []string
	}{
		"this machine":             {httpapi.Auth{}, "[::1]:1", nil},
		"a peer":                   {httpapi.Auth{Peers: office}, "[::ffff:192.0.2.1]:1", nil},
		"the secret from anywhere": {httpapi.Auth{Secret: "s3cret"}, "192.0.2.1:1", []string{"Weir-Secret: s3cret"}},
		"both":                     {httpapi.Auth{Secret: "s3cret", Peers: office}, "192.0.2.1:1", []string{"Weir-Secret: s3cret"}},
	} {
		if w := ask(t, test.auth, test.peer, "GET", engine(t, nil), test.headers...); w.Code != http.StatusOK {
			t.Errorf("%s: status %d: %s", name, w.Code, w.Body)
		}
	}
}

func TestAuthKnowsItsDomains(t *testing.T) {
	r := httptest.NewRequest("GET", "http://weir/v1/auth/wbe", nil)
	r.RemoteAddr = here
	w := httptest.NewRecorder()
	httpapi.New(httpapi.Options{Engine: engine(t, nil)}).ServeHTTP(w, r)
	wantProblem(t, w, http.StatusNotFound, "domain", "want web")
}
