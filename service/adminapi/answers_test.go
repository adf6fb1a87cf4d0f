package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
)

// want checks that a request is answered by a status of success and a text that
// matches.
func (d *desk) want(t *testing.T, method, path, body, pattern string) string {
	t.Helper()
	w := d.ask(method, path, body, "")
	got := strings.TrimSpace(w.Body.String())
	if w.Code != http.StatusOK || !regexp.MustCompile("^(?:"+pattern+")$").MatchString(got) {
		t.Errorf("%s %s %s: status %d, %s\nwant %s", method, path, body, w.Code, got, pattern)
	}
	return got
}

const when = `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`

func TestState(t *testing.T) {
	open(t, nil).want(t, "GET", "/api/state", "", `{"version":"v1.2.3"}`)
}

func TestKeys(t *testing.T) {
	d := open(t, nil)
	for range 3 {
		if _, err := d.engine.Check(t.Context(), decide.Query{Domain: "slack", Attributes: map[string]string{"category": "errors"}, Cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	const errorsOnly = `{"domain":"slack","attributes":{"category":"errors"}}`
	d.want(t, "POST", "/api/inspect", errorsOnly, `{"keys":\[{"domain":"slack","rule":"global","key":.*},`+
		`{"domain":"slack","rule":"per-category","key":"[^"]*errors[^"]*","limit":"3/30m","algorithm":"sliding-log","window_ms":1800000,"capacity":3,"used":3,"remaining":0,`+
		`"next_free_ms":1(800000|79\d{4}),"reset_after_ms":1(800000|79\d{4}),"countable":true,"timeline":\[{"from_ms":0,"to_ms":18000,"units":3}.*\]}\]}`)
	d.want(t, "POST", "/api/inspect", `{"key":"search:alice","limit":"5/minute"}`,
		`{"keys":\[{"domain":"","rule":"","key":"search:alice","limit":"5/1m",.*"used":0,"remaining":5,"next_free_ms":0,"reset_after_ms":0,.*}\]}`)
	d.want(t, "POST", "/api/explain", errorsOnly, `{"allowed":false,"reason":"over_limit","rules":\[`+
		`{"rule":"global","matches":true,"why":"[^"]+","limit":"[^"]*","key":"[^"]*","group":"","override":"","decision":{"allowed":true,"limit":10,"remaining":7,"retry_after_ms":0,"reset_after_ms":1\d{6},"reason":"ok"}},`+
		`{"rule":"per-category".*"decision":{"allowed":false,.*"retry_after_ms":1\d{6},.*"reason":"over_limit"}}\]}`)
	d.want(t, "POST", "/api/reset", errorsOnly, `{"reset":2}`)
	d.want(t, "POST", "/v1/reset", errorsOnly, `{"reset":0}`)
	for _, path := range []string{"/api/inspect", "/api/explain", "/api/reset"} {
		wantProblem(t, d.ask("POST", path, `{"domain":"slakc"}`, ""), http.StatusNotFound, "domain", "want slack")
		wantProblem(t, d.ask("POST", path, `{}`, ""), http.StatusBadRequest, "", "want one of key")
		wantProblem(t, d.ask("POST", path, `{"domain":"slack","domain":"slack"}`, ""), http.StatusBadRequest, "domain", "twice")
	}
}

func TestNextFree(t *testing.T) {
	limit := weir.PerMinute(5)
	for name, test := range map[string]struct {
		state decide.KeyState
		want  time.Duration
	}{
		"unused":    {decide.KeyState{Limit: limit}, 0},
		"denied":    {decide.KeyState{Limit: limit, Decision: weir.Decision{RetryAfter: 7 * time.Second}, Timeline: []decide.Part{{To: time.Second, Units: 5}}}, 7 * time.Second},
		"in part":   {decide.KeyState{Limit: limit, Timeline: []decide.Part{{To: time.Second, Units: 1}, {From: 20 * time.Second, To: 21 * time.Second, Units: 1}, {From: 30 * time.Second, To: 31 * time.Second}}}, 39 * time.Second},
		"the edge":  {decide.KeyState{Limit: limit, Timeline: []decide.Part{{From: 59 * time.Second, To: 61 * time.Second, Units: 1}}}, 0},
		"no window": {decide.KeyState{Limit: limit, Used: 2}, 0},
	} {
		if got := nextFree(&test.state); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestOverrides(t *testing.T) {
	d := open(t, nil)
	ask := decide.Query{Domain: "slack", Attributes: map[string]string{"category": "alice"}, Cost: 1}
	wantAllowed := func(want bool) {
		t.Helper()
		if a, err := d.engine.Check(t.Context(), ask); err != nil || a.Allowed != want {
			t.Errorf("got %+v, %v, want allowed %v", a, err, want)
		}
	}
	d.want(t, "GET", "/api/overrides", "", `{"overrides":\[\]}`)
	first := d.want(t, "POST", "/api/overrides", change, `{"id":"[0-9a-f]{12}","domain":"slack","rule":"per-category","attributes":{"category":"alice"},`+
		`"limit":"1000/1m","deny":false,"until":`+when+`,"by":"local","why":"a migration","created":`+when+`}`)
	for range 5 {
		wantAllowed(true) // which is more than the rule allows
	}
	const block = `{"domain":"slack","attributes":{"category":"alice"},"deny":true,"for":"1h30m"}`
	second := d.want(t, "POST", "/api/overrides", block, `.*"rule":"",.*"limit":"","deny":true,.*"why":"",.*`)
	wantAllowed(false)
	d.want(t, "GET", "/api/overrides", "", `{"overrides":\[(`+regexp.QuoteMeta(second+","+first)+"|"+regexp.QuoteMeta(first+","+second)+`)\]}`)

	var made decide.Override
	if err := json.Unmarshal([]byte(second), &made); err != nil {
		t.Fatal(err)
	}
	if d := made.Until.Sub(made.Created); d != 90*time.Minute {
		t.Errorf("it holds for %v", d)
	}
	d.want(t, "DELETE", "/api/overrides/"+made.ID, "", `{"removed":true}`)
	d.want(t, "DELETE", "/api/overrides/"+made.ID, "", `{"removed":false}`)
	wantAllowed(true)
	if log := d.log.String(); !strings.Contains(log, made.ID) || !strings.Contains(log, `deny until`) {
		t.Errorf("the log does not tell which: %s", log)
	}

	for body, want := range map[string][2]string{
		`[]`: {"body", "an object"},
		`{"attributes":{"user":"a"},"deny":true,"for":"2h"}`:                                                 {"domain", "missing"},
		`{"domain":"slack","deny":true,"for":"2h"}`:                                                          {"attributes", "missing"},
		`{"domain":"slack","attributes":{"user":"a"},"deny":true}`:                                           {"for", "missing"},
		`{"domain":"slack","attributes":{"user":"a"},"for":"2h"}`:                                            {"limit", `"deny":true`},
		`{"domain":"slack","attributes":{"user":"a"},"for":"2h","deny":"yes"}`:                               {"deny", "true or false"},
		`{"domain":"slack","attributes":{"user":"a"},"for":"367d","deny":true}`:                              {"for", "366d"},
		`{"domain":"slack","attributes":{"user":"a"},"for":"soon","deny":true}`:                              {"for", "a duration"},
		`{"domain":"slack","rule":"global","attributes":{"user":"a"},"for":"2h","limit":"lots"}`:             {"limit", "100/30m"},
		`{"domain":"slack","rule":"global","attributes":{"user":"a"},"for":"2h","limit":"5/m","deny":true}`:  {"limit", "either a limit"},
		`{"domain":"slack","rule":"globe","attributes":{"user":"a"},"for":"2h","deny":true}`:                 {"rule", "global"},
		`{"domain":"slakc","attributes":{"user":"a"},"for":"2h","deny":true}`:                                {"domain", "slack"},
		`{"domain":"slack","attributes":{},"for":"2h","deny":true}`:                                          {"attributes", "at least one"},
		`{"domain":"slack","attributes":{"user":"a"},"for":"2h","limit":"5/m"}`:                              {"rule", "it can only deny"},
		`{"domain":"slack","attributes":{"user":"a"},"for":"2h","deny":true,"until":"2026-11-21T10:00:00Z"}`: {"until", "not known here"},
		`{"domain":"slack","attributes":{"user":"a"},"for":"2h","deny":true,"why":7}`:                        {"why", "in quotes"},
	} {
		wantProblem(t, d.ask("POST", "/api/overrides", body, ""), http.StatusBadRequest, want[0], want[1])
	}
	d.want(t, "GET", "/api/overrides", "", `{"overrides":\[`+regexp.QuoteMeta(first)+`\]}`)
}

// away keeps no overrides, since its store is away.
type away struct{ err error }

func (a away) List(context.Context) ([]decide.Override, error) { return nil, a.err }
func (a away) Put(context.Context, decide.Override) error      { return a.err }
func (a away) Remove(context.Context, string) (bool, error)    { return false, a.err }

func TestOverridesOfAStoreThatIsAway(t *testing.T) {
	err := &weir.StoreError{Server: "10.0.0.7:6379", Err: errors.New("dial 10.0.0.7: refused")}
	d := open(t, func(o *Options) { o.Overrides = away{err} })
	for request, body := range map[string]string{"GET /api/overrides": "", "POST /api/overrides": change, "DELETE /api/overrides/x": ""} {
		method, path, _ := strings.Cut(request, " ")
		w := d.ask(method, path, body, "")
		wantProblem(t, w, http.StatusServiceUnavailable, "", "the store is unavailable")
		if strings.Contains(w.Body.String(), "10.0.0.7") {
			t.Errorf("it tells where: %s", w.Body)
		}
	}
}

func TestConfigAndReload(t *testing.T) {
	d := open(t, nil)
	d.want(t, "GET", "/api/config", "", `{"rules":"domain: slack\\n","files":\["slack.yaml"\],"diff":\[\]}`)
	d.want(t, "POST", "/api/reload", "", `{"changes":\["slack/search changed: 5/1m -> 10/1m"\]}`)
	wrong := open(t, func(o *Options) {
		o.Config = nil
		o.Reload = func() ([]string, error) { return nil, errors.New("slack.yaml:4:5: it is wrong") }
	})
	wrong.want(t, "GET", "/api/config", "", `{"rules":"","files":\[\],"diff":\[\]}`)
	wantProblem(t, wrong.ask("POST", "/api/reload", "", ""), http.StatusUnprocessableEntity, "", "slack.yaml:4:5")
}

func TestLogLevel(t *testing.T) {
	d := open(t, nil)
	d.want(t, "GET", "/api/log-level", "", `{"level":"info"}`)
	d.want(t, "PUT", "/api/log-level", `{"level":"debug"}`, `{"level":"debug"}`)
	if d.level.Level() != slog.LevelDebug {
		t.Errorf("the level is %v", d.level.Level())
	}
	for _, body := range []string{`{}`, `{"level":"loud"}`, `{"level":"DEBUG"}`, `{"level":""}`} {
		wantProblem(t, d.ask("PUT", "/api/log-level", body, ""), http.StatusBadRequest, "level", "info, warn or error")
	}
	wantProblem(t, d.ask("PUT", "/api/log-level", `{"level":7}`, ""), http.StatusBadRequest, "level", "in quotes")
	d.want(t, "GET", "/api/log-level", "", `{"level":"debug"}`)
}

func TestProfiles(t *testing.T) {
	d := open(t, nil)
	d.want(t, "GET", "/debug/pprof/goroutine?debug=1", "", `(?s)goroutine profile: total .*`)
	if w := d.ask("GET", "/debug/pprof/heap", "", ""); w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "\x1f\x8b") {
		t.Errorf("status %d, %.20q", w.Code, w.Body)
	}
	for _, path := range []string{"profile", "trace", "heap"} {
		for _, seconds := range []string{"0", "-1", "61", "1e1", "x"} {
			wantProblem(t, d.ask("GET", "/debug/pprof/"+path+"?seconds="+seconds, "", ""), http.StatusBadRequest, "seconds", "1 to 60")
		}
	}
	wantProblem(t, d.ask("GET", "/debug/pprof/cmdline", "", ""), http.StatusNotFound, "", "may hold a token")
	if w := d.ask("GET", "/debug/pprof/nothing", "", ""); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

// watch reads events until ctx ends.
func (d *desk) watch(ctx context.Context) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/api/events", nil))
	return w
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		w := d.watch(ctx)
		if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind != "text/event-stream" || !w.Flushed {
			t.Errorf("status %d, %s, flushed %v", w.Code, kind, w.Flushed)
		}
		events := strings.SplitAfter(w.Body.String(), "\n\n")
		if len(events) != 6 || events[5] != "" {
			t.Fatalf("%d events in 4.5 s: %s", len(events), w.Body)
		}
		for _, event := range events[:5] {
			data, ok := strings.CutPrefix(event, "event: state\ndata: ")
			if !ok || data != `{"version":"v1.2.3"}`+"\n\n" {
				t.Errorf("got %q", event)
			}
		}
	})
}

func TestSoManyMayWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping := make(chan struct{})
		d := open(t, func(o *Options) { o.Stopping, o.Log = stopping, slog.New(slog.DiscardHandler) })
		ended := make(chan struct{}, mostWatchers)
		for range mostWatchers {
			go func() {
				d.watch(t.Context())
				ended <- struct{}{}
			}()
		}
		synctest.Wait()
		wantProblem(t, d.watch(t.Context()), http.StatusServiceUnavailable, "", "close one")
		close(stopping)
		for range mostWatchers {
			<-ended
		}
		if w := d.watch(t.Context()); w.Code != http.StatusOK || strings.Count(w.Body.String(), "event: state") != 1 {
			t.Errorf("while it stops: status %d, %s", w.Code, w.Body)
		}
	})
}

func TestParseTokens(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "there is no token: write lines NAME TOKEN",
		"# bob s3cret\n\n":         "there is no token",
		"bob\n":                    "line 1: there are 1 words: want NAME TOKEN [EXPIRY], such as alice",
		"# x\nbob s3cret a b\n":    "line 2: there are 4 words",
		"bob s3cret soon\n":        `line 1: the expiry of "bob"`,
		"bob 2027-01-31 s3cret\n":  `line 1: the expiry of "bob", its third word, is no time: want one such as 2027-01-31T00:00:00Z`,
		"a s3cret\n#\nb s3cret\n":  "line 3: the token is that of line 1",
		strings.Repeat("a b\n", 2): "line 2: the token is that of line 1",
	} {
		tokens, err := ParseTokens(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %d tokens, %v; want %s", text, len(tokens), err, want)
		}
	}
	var many strings.Builder
	for i := range mostTokens + 1 {
		many.WriteString("bob " + strings.Repeat("x", i+1) + "\r\n")
	}
	if _, err := ParseTokens(many.String()); err == nil || !strings.Contains(err.Error(), "line 1001: there are more than 1000") {
		t.Errorf("got %v", err)
	}
}
