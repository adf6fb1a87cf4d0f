//go:build long

package proxies

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// send sends a request whose target, which may begin with the scheme, goes out as
// it is; each header is a "Name: value".
func (r *rig) send(t *testing.T, method, target, body string, headers ...string) answer {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, r.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.URL.RawPath, q.URL.RawQuery, _ = strings.Cut(target, "?")
	if q.URL.Path, err = url.PathUnescape(q.URL.RawPath); err != nil {
		t.Fatal(err)
	}
	if rest, absolute := strings.CutPrefix(target, "http:"); absolute {
		q.URL.Opaque = rest
	}
	q.Header.Set("Content-Type", "text/plain")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		q.Header.Add(name, value)
	}
	began := time.Now()
	response, err := r.client.Do(q)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return answer{response.StatusCode, response.Header, string(text), time.Since(began)}
}

// passes checks that the app has answered.
func (r *rig) passes(t *testing.T, method, target, body string, headers ...string) answer {
	t.Helper()
	a := r.send(t, method, target, body, headers...)
	if want := method + " " + target + " " + body; a.status != http.StatusOK || a.body != want {
		t.Fatalf("status %d, %q, want the app to answer %q", a.status, a.body, want)
	}
	return a
}

// stops checks that the app was not asked.
func (r *rig) stops(t *testing.T, method, target, body string, headers ...string) answer {
	t.Helper()
	before := r.app.Load()
	a := r.send(t, method, target, body, headers...)
	if after := r.app.Load(); after != before || a.status < 400 {
		t.Fatalf("%s %s %q: status %d, the app got %d requests", method, target, headers, a.status, after-before)
	}
	return a
}

func TestLongProxies(t *testing.T) {
	weir := build(t)
	for _, p := range proxies {
		for _, open := range []bool{false, true} {
			name := p.name + " fails closed"
			if open {
				name = p.name + " fails open"
			}
			t.Run(name, func(t *testing.T) {
				t.Run("limits", func(t *testing.T) { limits(t, p, open, serve(t, weir, p)) })
				t.Run("weir refuses", func(t *testing.T) {
					// It says that the proxy is not set up as it should be, so nothing passes.
					set(t, patient(p), open, serve(t, weir, p, "WEIR_AUTH_SECRET=another")).stops(t, "GET", "/", "")
				})
				t.Run("weir is down", func(t *testing.T) { fails(t, p, open, unused(t)) })
				t.Run("weir hangs", func(t *testing.T) { fails(t, p, open, hung(t)) })
			})
		}
	}
}

// limits goes through what the rules of each page allow and deny: 100 requests a
// minute, of which 5 may be POST /login.
func limits(t *testing.T, p proxy, open bool, weir string) {
	r := set(t, patient(p), open, weir)
	a := r.passes(t, "GET", "/hello//%41?x=%42", "")
	wantHeader(t, a, "RateLimit-Policy", `"per-client";q=100;w=60`)
	wantHeader(t, a, "RateLimit", `"per-client";r=99;t=60`)
	wantHeader(t, a, "Retry-After", ``)
	for left := 4; left >= 0; left-- {
		a = r.passes(t, "POST", "/login", strings.Repeat("user=alice ", 1000))
		wantHeader(t, a, "RateLimit-Policy", `"per-client";q=100;w=60, "login";q=5;w=60`)
		wantHeader(t, a, "RateLimit", fmt.Sprintf(`"per-client";r=%d;t=60, "login";r=%d;t=60`, 94+left, left))
	}
	wantDenied(t, r.stops(t, "POST", "/login", "user=alice"))

	// Another spelling of the path, or of who asks for what, is no way around.
	for _, target := range []string{"/login?x", "//login", "/./login", "/a/../login", "/%6Cogin", "/%2e/login", "/a/%2E%2e/login", r.url + "/login"} {
		wantDenied(t, r.stops(t, "POST", target, ""))
	}
	for _, headers := range [][]string{
		{"X-Forwarded-For: 198.51.100.1"}, {"X-Forwarded-For: 198.51.100.1, 198.51.100.2"}, {"X-Forwarded-For: nobody"},
		{"X-Forwarded-Uri: /"}, {"X-Original-URI: /"}, {"X-Forwarded-Method: GET"}, {"X-Original-Method: GET"},
		{"X-Forwarded-Uri: /", "X-Original-URI: /"}, {"X-Forwarded-Method: GET", "X-Original-Method: GET"}, {"X-HTTP-Method-Override: GET"},
		{"Connection: X-Forwarded-For, X-Forwarded-Uri, X-Forwarded-Method"}, {"Forwarded: for=198.51.100.1"}, {"X-Real-IP: 198.51.100.1"},
		{"Sec-Fetch-Site: cross-site", "Origin: https://elsewhere.example"},
	} {
		wantDenied(t, r.stops(t, "POST", "/login", "", headers...))
	}
	if n := count(t, weir, alice); n != 6 {
		t.Errorf("%d were counted for the client, want 6", n)
	}
	if n := count(t, weir, "198.51.100.1"); n != 0 {
		t.Errorf("%d were counted for somebody else", n)
	}
	r.passes(t, "GET", "/login", "", "X-Forwarded-Method: POST", "X-Original-Method: POST")
	r.passes(t, "POST", "/", "x", "X-Forwarded-Uri: /login", "X-Original-URI: /login")

	// What the app has failed at it gets no second time.
	before := r.app.Load()
	if a := r.send(t, "POST", "/broken", "x"); a.status != http.StatusBadGateway || r.app.Load() != before+1 {
		t.Errorf("status %d, the app got %d requests, want 1", a.status, r.app.Load()-before)
	}
	r.client = client(bob)
	r.passes(t, "POST", "/login", "user=bob")
}

// wantHeader checks a header of limits, in which the newest of them may be
// seconds old.
func wantHeader(t *testing.T, a answer, name, want string) {
	t.Helper()
	if got := strings.Join(a.header.Values(name), " and "); aged.ReplaceAllString(got, "t=60") != want {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

var aged = regexp.MustCompile(`t=(5\d|[1-4]\d|\d)\b`)

// wantDenied checks a denial by the limit of /login.
func wantDenied(t *testing.T, a answer) {
	t.Helper()
	var body struct {
		Type, Title string
		Status      int
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatalf("status %d, %v: %s", a.status, err, a.body)
	}
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != http.StatusTooManyRequests || err != nil || wait < 1 || wait > 60 || len(a.header.Values("Retry-After")) != 1 {
		t.Errorf("status %d, Retry-After %q", a.status, a.header.Values("Retry-After"))
	}
	if kind := a.header.Get("Content-Type"); kind != "application/problem+json" || body.Status != a.status || !strings.HasSuffix(body.Type, "#quota-exceeded") || body.Title != "Quota Exceeded" {
		t.Errorf("%s: %s", kind, a.body)
	}
	wantHeader(t, a, "RateLimit-Policy", `"per-client";q=100;w=60, "login";q=5;w=60`)
	wantHeader(t, a, "RateLimit", `"per-client";r=94, "login";r=0;t=60`)
}

// count asks weir how many requests of an address it has admitted.
func count(t *testing.T, weir, ip string) (n int) {
	t.Helper()
	response, err := http.Post("http://"+weir+"/v1/count", "application/json", strings.NewReader(`{"domain":"web","attributes":{"ip":"`+ip+`"},"last":"1m"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var body struct{ Count int }
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", response.StatusCode, err)
	}
	return body.Count
}

// fails checks what happens without weir: what the page says, and soon, unless
// this machine is too busy each time.
func fails(t *testing.T, p proxy, open bool, weir string) {
	r := set(t, p, open, weir)
	soonest := time.Hour
	for range 3 {
		var a answer
		if open {
			a = r.passes(t, "POST", "/hello?x=1", "what the app needs")
		} else if a = r.stops(t, "POST", "/hello?x=1", ""); a.status < 500 {
			t.Errorf("status %d", a.status)
		}
		soonest = min(soonest, a.took)
	}
	if soonest > time.Second {
		t.Errorf("the client had to wait %v", soonest)
	}
}

// TestLongLint holds that weir has nothing to say about its file on any page.
func TestLongLint(t *testing.T) {
	weir := build(t)
	for _, name := range []string{"nginx", "caddy", "haproxy", "traefik", "envoy"} {
		config := filepath.Join(t.TempDir(), "weir.yaml")
		if err := os.WriteFile(config, []byte(read(t, name).files["weir.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(weir, "lint", config).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
