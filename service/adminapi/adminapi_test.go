package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

var slack = policy.Domain{Name: "slack", Rules: []policy.Rule{
	{Name: "global", Limit: weir.Per(10, 30*time.Minute)},
	{Name: "per-category", By: []string{"category"}, Limit: weir.Per(3, 30*time.Minute)},
}}

// desk is the handler, and what it may use.
type desk struct {
	handler http.Handler
	engine  *decide.Engine
	log     bytes.Buffer
	level   slog.LevelVar
}

// inForce keeps overrides and tells the engine at once.
type inForce struct {
	decide.Overrides

	engine *decide.Engine
}

func (o inForce) Put(ctx context.Context, made decide.Override) error {
	return errors.Join(o.Overrides.Put(ctx, made), o.read(ctx))
}

func (o inForce) Remove(ctx context.Context, id string) (bool, error) {
	found, err := o.Overrides.Remove(ctx, id)
	return found, errors.Join(err, o.read(ctx))
}

func (o inForce) read(ctx context.Context) error {
	list, err := o.List(ctx)
	o.engine.SetOverrides(list)
	return err
}

// open returns a desk with everything, as with leaves it.
func open(t *testing.T, with func(*Options)) *desk {
	t.Helper()
	d := new(desk)
	d.engine = decide.New(decide.Options{Limiter: weir.New(weir.Options{})})
	p, err := policy.Compile([]policy.Domain{slack})
	if err != nil {
		t.Fatal(err)
	}
	d.engine.Load(p, true)
	o := Options{
		Engine: d.engine, Log: slog.New(slog.NewJSONHandler(&d.log, nil)), Level: &d.level,
		Overrides: inForce{decide.NewOverrides(), d.engine},
		State:     func() any { return map[string]string{"version": "v1.2.3"} },
		Config:    func() Config { return Config{Rules: "domain: slack\n", Files: []string{"slack.yaml"}} },
		Reload:    func() ([]string, error) { return []string{"slack/search changed: 5/1m -> 10/1m"}, nil },
		Metrics:   text("weir_up 1"), Dashboard: text("<html>"),
	}
	if with != nil {
		with(&o)
	}
	d.handler = New(o)
	return d
}

func text(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
}

// ask sends a request with a body of JSON, if it has one, and a token, if there
// is one.
func (d *desk) ask(method, path, body, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	ctx, cancel := context.WithCancel(r.Context())
	if path == "/api/events" {
		cancel() // after the first event
	}
	defer cancel()
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r.WithContext(ctx))
	return w
}

// wantProblem checks that w is a problem that says what to do.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, field, detail string) {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("status %d, not a problem: %s", w.Code, w.Body)
	}
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" || w.Code != status || p.Status != status || p.Field != field {
		t.Errorf("status %d, %s, %s; want %d about %q", w.Code, kind, w.Body, status, field)
	}
	if detail == "" || !strings.Contains(p.Detail, detail) || len(p.Detail) > 600 {
		t.Errorf("detail %q, want it to say %q", p.Detail, detail)
	}
}

const (
	alice  = `{"domain":"slack","attributes":{"category":"alice"}}`
	change = `{"domain":"slack","rule":"per-category","attributes":{"category":"alice"},"limit":"1000/minute","for":"2h","why":"a migration"}`
)

// requests has one for each route but those to nowhere.
var requests = map[string]string{
	"POST /v1/reset":             alice,
	"GET /readyz":                "",
	"GET /metrics":               "",
	"GET /api/state":             "",
	"GET /api/events":            "",
	"POST /api/inspect":          alice,
	"POST /api/explain":          alice,
	"POST /api/reset":            alice,
	"GET /api/overrides":         "",
	"POST /api/overrides":        change,
	"DELETE /api/overrides/{id}": "",
	"GET /api/config":            "",
	"POST /api/reload":           "",
	"GET /api/log-level":         "",
	"PUT /api/log-level":         `{"level":"warn"}`,
	"GET /debug/pprof/":          "",
}

// eachRoute calls test with a request for every method of every path.
func eachRoute(t *testing.T, test func(t *testing.T, method, path, body, action string)) {
	for path, methods := range new(api).routes() {
		for method, route := range methods {
			nowhere := method == "" && strings.HasSuffix(path, "/")
			if method == "" {
				method = "GET"
			}
			t.Run(method+" "+path, func(t *testing.T) {
				body, ok := requests[method+" "+path]
				if !ok && !nowhere {
					t.Fatal("there is no request for it to test")
				}
				test(t, method, strings.Replace(path, "{id}", "0123456789ab", 1), body, route.action)
			})
		}
	}
}

func tokens(t *testing.T) func() []Token {
	t.Helper()
	all, err := ParseTokens("bob   s3cret\n# a comment\n\ncarol an-old-one 2026-01-31T00:00:00Z\ndave a-new-one 2999-01-31T00:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	return func() []Token { return all }
}

func TestEveryRouteAsksForAToken(t *testing.T) {
	eachRoute(t, func(t *testing.T, method, path, body, _ string) {
		d := open(t, func(o *Options) { o.Tokens = tokens(t) })
		for token, detail := range map[string]string{
			"": "token is missing", "s3cre": "token is wrong", "s3cretly": "token is wrong", "an-old-one": "token has expired",
		} {
			w := d.ask(method, path, body, token)
			wantProblem(t, w, http.StatusUnauthorized, "", detail)
			if w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("token %q: the headers are %v", token, w.Header())
			}
		}
		if log := d.log.String(); strings.Contains(log, "s3cre") || strings.Contains(log, "old-one") {
			t.Errorf("a token is in the log: %s", log)
		}
		for _, token := range []string{"s3cret", "a-new-one"} {
			if w := d.ask(method, path, body, token); w.Code == http.StatusUnauthorized {
				t.Errorf("%s was answered by %d: %s", token, w.Code, w.Body)
			}
		}
	})
}

func TestSchemesAndWhatNeedsNoToken(t *testing.T) {
	d := open(t, func(o *Options) { o.Tokens = tokens(t) })
	for header, status := range map[string]int{"bearer s3cret": 200, "Bearer": 401, "Bearer ": 401, "Basic s3cret": 401, "s3cret": 401} {
		r := httptest.NewRequest("GET", "http://weir.example/readyz", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		if d.handler.ServeHTTP(w, r); w.Code != status {
			t.Errorf("%q: status %d, want %d", header, w.Code, status)
		}
	}
	for path, want := range map[string]string{"/healthz": `{"alive":true}`, "/": "<html>", "/app.js": "<html>"} {
		if w := d.ask("GET", path, "", ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: status %d, %s", path, w.Code, w.Body)
		}
	}
}

// line is one of the log.
type line struct {
	Message string `json:"msg"`
	Who     string `json:"who"`
	Action  string `json:"action"`
	Domain  string `json:"domain"`
	Rule    string `json:"rule"`
	Key     string `json:"key"`
	Outcome int    `json:"outcome"`
}

func (d *desk) lines(t *testing.T) (all []line) {
	t.Helper()
	for text := range strings.Lines(d.log.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// Who looks at the same again has a line a minute, and at something else another.
func TestLooksAreTold(t *testing.T) {
	d := open(t, nil)
	for range 3 {
		d.ask("GET", "/api/state", "", "")
		d.ask("POST", "/api/inspect", alice, "")
		d.ask("POST", "/api/inspect", strings.ReplaceAll(alice, "alice", "bob"), "")
	}
	if log := d.log.String(); strings.Count(log, "action") != 3 {
		t.Errorf("got %s", log)
	}
}

func TestEveryActionHasItsLine(t *testing.T) {
	quiet := "GET /readyz, GET /metrics, GET /api/log-level"
	eachRoute(t, func(t *testing.T, method, path, body, action string) {
		for _, redact := range []bool{false, true} {
			d := open(t, func(o *Options) { o.Tokens, o.RedactKeys = tokens(t), redact })
			w := d.ask(method, path, body, "s3cret")
			got := d.lines(t)
			if action == "" {
				if len(got) > 0 || w.Code != http.StatusNotFound && !strings.Contains(quiet, method+" "+path) {
					t.Errorf("status %d, lines %+v", w.Code, got)
				}
				continue
			}
			want := line{Message: "admin", Who: "bob", Action: action, Outcome: http.StatusOK}
			if strings.Contains(body, "alice") {
				want.Domain, want.Key = "slack", "category=alice"
				if redact {
					want.Key = "redacted"
				}
			}
			if action == "override" {
				want.Rule = "per-category"
			}
			if len(got) != 1 || got[0] != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if redact && strings.Contains(d.log.String(), "alice") {
				t.Errorf("redacted, and yet: %s", &d.log)
			}
		}
	})
}

func TestRefusalsHaveLinesButNotForEver(t *testing.T) {
	d := open(t, func(o *Options) { o.Tokens = tokens(t) })
	d.ask("POST", "/api/reset", alice, "an-old-one")
	if got, want := d.lines(t), (line{Message: "admin", Who: "carol", Action: "reset", Outcome: 401}); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for range 1000 {
		d.ask("POST", "/api/reset", alice, "wrong")
	}
	if got := len(d.lines(t)); got < 2 || got > 130 {
		t.Errorf("%d lines", got)
	}
	d.ask("POST", "/api/reset", `{}`, "s3cret")
	if got := d.lines(t); got[len(got)-1].Outcome != http.StatusBadRequest {
		t.Errorf("what was refused for another reason has the line %+v", got[len(got)-1])
	}
}

func TestWithoutATokenOperatorsAskThisHost(t *testing.T) {
	d := open(t, nil)
	for host, ok := range map[string]bool{
		"localhost": true, "LocalHost:6070": true, "127.0.0.1:6070": true, "127.9.9.9": true, "[::1]:6070": true, "[::1]": true,
		"evil.example": false, "evil.example:6070": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"10.0.0.1:6070": false, "0.0.0.0:6070": false, "": false,
	} {
		for _, path := range []string{"/v1/reset", "/api/state", "/api/overrides", "/", "/healthz"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			d.handler.ServeHTTP(w, r)
			if !ok {
				wantProblem(t, w, http.StatusForbidden, "", "localhost or 127.0.0.1")
			} else if w.Code == http.StatusForbidden {
				t.Errorf("host %q: status %d: %s", host, w.Code, w.Body)
			}
		}
	}
	d.ask("POST", "/api/reset", alice, "")
	if got := d.lines(t); got[len(got)-1].Who != "local" {
		t.Errorf("got %+v", got[len(got)-1])
	}
}

func TestPagesOfOtherOriginsMayNotAsk(t *testing.T) {
	d := open(t, nil)
	eachRoute(t, func(t *testing.T, method, path, body, _ string) {
		if method == "GET" { // which changes nothing, and whose answer the browser keeps from the page
			return
		}
		for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
			r.Header.Set(header, value)
			w := httptest.NewRecorder()
			d.handler.ServeHTTP(w, r)
			wantProblem(t, w, http.StatusForbidden, "", "another origin")
		}
	})
}

func TestBodiesAreJSON(t *testing.T) {
	d := open(t, nil)
	for request, body := range requests {
		method, path, _ := strings.Cut(request, " ")
		if body == "" || path == "/v1/reset" { // which takes what curl -d sends
			continue
		}
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset"} {
			r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			d.handler.ServeHTTP(w, r)
			wantProblem(t, w, http.StatusUnsupportedMediaType, "", "want application/json")
		}
		wantProblem(t, d.ask(method, path, `{"a":1}`, ""), http.StatusBadRequest, "a", "not known here")
		wantProblem(t, d.ask(method, path, body+`{}`, ""), http.StatusBadRequest, "", "nothing may follow")
	}
}

func TestMethodsAndPaths(t *testing.T) {
	d := open(t, nil)
	for request, allow := range map[string]string{
		"DELETE /api/state": "GET", "GET /api/reset": "POST", "PATCH /api/overrides": "GET, POST",
		"GET /api/overrides/x": "DELETE", "POST /api/log-level": "GET, PUT", "POST /readyz": "GET, HEAD", "GET /v1/reset": "POST",
	} {
		method, path, _ := strings.Cut(request, " ")
		w := d.ask(method, path, "", "")
		wantProblem(t, w, http.StatusMethodNotAllowed, "", "use "+allow)
		if got := w.Header().Get("Allow"); got != allow {
			t.Errorf("%s: Allow: %s, want %s", request, got, allow)
		}
	}
	for _, path := range []string{"/api", "/api/nothing", "/api/state/x", "/v1/check", "/debug/vars", "/debug/pprof/cmdline"} {
		if w := d.ask("GET", path, "", ""); path != "/api" {
			wantProblem(t, w, http.StatusNotFound, "", " ")
		}
	}
	bare := open(t, func(o *Options) { *o = Options{Engine: o.Engine} })
	for _, request := range []string{"GET /", "GET /metrics", "GET /api/log-level", "POST /api/overrides", "DELETE /api/overrides/x"} {
		method, path, _ := strings.Cut(request, " ")
		if w := bare.ask(method, path, map[bool]string{true: change}[method == "POST"], ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d, %s", request, w.Code, w.Body)
		}
	}
	wantProblem(t, bare.ask("POST", "/api/reload", "", ""), http.StatusConflict, "", "--config FILE")
}
