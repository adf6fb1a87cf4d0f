package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/adminapi"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/httpapi"
	"github.com/weirlimit/weir/service/wire"
)

// problem is what every error is.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
}

// wantProblem checks that w is a problem, of a field, that says what to do.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, field, detail string) {
	t.Helper()
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("status %d, not a problem: %s", w.Code, w.Body)
	}
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
		t.Errorf("Content-Type %q", kind)
	}
	if w.Code != status || p.Status != status || p.Title != http.StatusText(status) || p.Type == "" {
		t.Errorf("status %d, body %s; want %d", w.Code, w.Body, status)
	}
	if p.Field != field {
		t.Errorf("field %q, want %q", p.Field, field)
	}
	if detail == "" || !strings.Contains(p.Detail, detail) || len(p.Detail) > 600 {
		t.Errorf("detail %q, want it to say %q", p.Detail, detail)
	}
}

func TestBadBodies(t *testing.T) {
	long := strings.Repeat("x", 5000)
	tests := []struct {
		name, path, body string
		field, detail    string
	}{
		{"empty", "/v1/check", ``, "", "ends too early"},
		{"cut short", "/v1/check", `{"key":"a","limit":"5/s"`, "", "ends too early"},
		{"cut in a name", "/v1/check", `{"ke`, "", "ends too early"},
		{"no JSON", "/v1/check", `key=a`, "", "not valid JSON"},
		{"a comma too many", "/v1/check", `{"key":"a","limit":"5/s",}`, "", "not valid JSON"},
		{"a comma too few", "/v1/check", `{"key":"a" "limit":"5/s"}`, "", "not valid JSON"},
		{"a mark of byte order", "/v1/check", "\ufeff" + `{"key":"a","limit":"5/s"}`, "", "not valid JSON"},
		{"a list", "/v1/check", `[]`, "body", `{"key":"search:alice","limit":"5/minute"}`},
		{"null", "/v1/check", `null`, "body", `"null": want an object`},
		{"something after it", "/v1/check", `{"key":"a","limit":"5/s"} {}`, "", "nothing may follow"},
		{"garbage after it", "/v1/check", `{"key":"a","limit":"5/s"}]`, "", "nothing may follow"},
		{"invalid UTF-8", "/v1/check", "{\"key\":\"\xff\",\"limit\":\"5/s\"}", "", "key_base64"},
		{"half a surrogate pair", "/v1/check", `{"key":"\ud800","limit":"5/s"}`, "", "key_base64"},
		{"two first halves", "/v1/check", `{"key":"\ud800\ud800","limit":"5/s"}`, "", "key_base64"},
		{"a second half", "/v1/check", `{"key":"\\\udc00","limit":"5/s"}`, "", "key_base64"},

		{"no form", "/v1/check", `{}`, "", "want one of key, key_base64, domain, checks"},
		{"no limit", "/v1/check", `{"key":"a"}`, "limit", `limit is missing`},
		{"an unknown member", "/v1/check", `{"key":"a","limt":"5/s"}`, "limt", "key, key_base64, limit"},
		{"a member in capitals", "/v1/check", `{"KEY":"a","limit":"5/s"}`, "KEY", "not known here"},
		{"a long unknown member", "/v1/check", `{"` + long + `":1}`, long[:100] + "...", "not known here"},
		{"a duplicate", "/v1/check", `{"key":"a","limit":"5/s","key":"b"}`, "key", "twice"},
		{"a duplicate by escapes", "/v1/check", `{"key":"a","limit":"5/s","\u006bey":"b"}`, "key", "twice"},
		{"a duplicate attribute", "/v1/check", `{"domain":"d","attributes":{"a":"1","a":"1"}}`, "attributes.a", "twice"},
		{"a member of another call", "/v1/check", `{"key":"a","limit":"5/s","last":"1s"}`, "last", "not known here"},
		{"two forms", "/v1/check", `{"key":"a","limit":"5/s","domain":"d"}`, "domain", "beside key"},
		{"a limit beside a domain", "/v1/check", `{"domain":"d","limit":"5/s"}`, "limit", "beside domain"},
		{"two keys", "/v1/check", `{"key":"a","key_base64":"YQ==","limit":"5/s"}`, "key_base64", "beside key"},

		{"a key that is a number", "/v1/check", `{"key":7,"limit":"5/s"}`, "key", `in quotes, such as "search:alice"`},
		{"a key that is null", "/v1/check", `{"key":null,"limit":"5/s"}`, "key", `in quotes`},
		{"a key of bad base64", "/v1/check", `{"key_base64":"YQ","limit":"5/s"}`, "key_base64", "YWxpY2U="},
		{"a key of loose base64", "/v1/check", `{"key_base64":"YR==","limit":"5/s"}`, "key_base64", "YWxpY2U="},
		{"a limit that is a number", "/v1/check", `{"key":"a","limit":5}`, "limit", `"5/minute"`},
		{"a limit of no form", "/v1/check", `{"key":"a","limit":"5 per minute"}`, "limit", "5/minute"},
		{"an algorithm without a name", "/v1/check", `{"key":"a","limit":"5/s","algorithm":""}`, "algorithm", "or leave the member out"},
		{"a limit of zero", "/v1/check", `{"key":"a","limit":"0/s"}`, "limit", "1 to 2147483648"},
		{"a long limit", "/v1/check", `{"key":"a","limit":"` + long + `"}`, "limit", "5/minute"},
		{"an unknown algorithm", "/v1/check", `{"key":"a","limit":"5/s","algorithm":"gcra"}`, "algorithm", "token-bucket"},
		{"an algorithm without bursts", "/v1/check", `{"key":"a","limit":"5/s burst=9","algorithm":"fixed-window"}`, "algorithm", "no burst"},
		{"two algorithms", "/v1/check", `{"key":"a","limit":"5/s fixed-window","algorithm":"sliding-log"}`, "algorithm", "fixed-window, as the limit says"},
		{"a negative cost", "/v1/check", `{"key":"a","limit":"5/s","cost":-1}`, "cost", "such as 1"},
		{"a cost out of range", "/v1/check", `{"domain":"d","cost":2147483649}`, "cost", "2147483648"},
		{"a cost beyond 64 bits", "/v1/check", `{"domain":"d","cost":99999999999999999999}`, "cost", "such as 1"},
		{"a cost with a fraction", "/v1/check", `{"domain":"d","cost":1.0}`, "cost", "whole number"},
		{"a cost with an exponent", "/v1/check", `{"domain":"d","cost":1e2}`, "cost", "whole number"},
		{"a cost in quotes", "/v1/check", `{"domain":"d","cost":"1"}`, "cost", "whole number"},
		{"a cost that is true", "/v1/check", `{"domain":"d","cost":true}`, "cost", "whole number"},

		{"an attribute that is a number", "/v1/check", `{"domain":"d","attributes":{"user":42}}`, "attributes.user", "in quotes"},
		{"attributes in a list", "/v1/check", `{"domain":"d","attributes":[]}`, "attributes", `{"category":"errors"}`},
		{"no checks", "/v1/check", `{"checks":[]}`, "checks", "at least one"},
		{"checks that are none", "/v1/check", `{"checks":{}}`, "checks", "a list"},
		{"a check that is none", "/v1/check", `{"checks":["a"]}`, "checks[0]", "an object"},
		{"a check without a key", "/v1/check", `{"checks":[{"key":"a","limit":"5/s"},{"limit":"5/s"}]}`, "checks[1]", "key, key_base64"},
		{"a check of a domain", "/v1/check", `{"checks":[{"domain":"d"}]}`, "checks[0].domain", "not known here"},
		{"a check without a limit", "/v1/check", `{"checks":[{"key":"a"}]}`, "checks[0].limit", "checks[0].limit is missing"},
		{"a check with a bad limit", "/v1/check", `{"checks":[{"key":"a","limit":"5"}]}`, "checks[0].limit", "5/minute"},
		{
			"checks that disagree", "/v1/check", `{"checks":[{"key":"a","limit":"5/s"},{"key":"a","limit":"6/s"}]}`,
			"checks[1].limit", "the limit of the other request",
		},
		{"too many checks", "/v1/check", `{"checks":[` + strings.Repeat(`{"key":"a","limit":"5/s"},`, 1000) + `1]}`, "checks", "at most 1000"},

		{"a batch without requests", "/v1/batch", `{}`, "requests", "missing"},
		{"a batch that is a request", "/v1/batch", `{"key":"a","limit":"5/s"}`, "key", "requests"},
		{"a batch of one object", "/v1/batch", `{"requests":{}}`, "requests", "a list"},
		{"a batch twice", "/v1/batch", `{"requests":[],"requests":[]}`, "requests", "twice"},
		{"a batch with a comma too many", "/v1/batch", `{"requests":[{},]}`, "", "not valid JSON"},
		{"a batch that goes on", "/v1/batch", `{"requests":[]}1`, "", "nothing may follow"},
		{"a batch too large", "/v1/batch", `{"requests":[` + strings.Repeat("{},", 1000) + `{}]}`, "requests", "at most 1000"},

		{"a charge of no form", "/v1/charge", `{"cost":1}`, "", "want one of key"},
		{"a reset of no form", "/v1/reset", `{"cost":1}`, "", "want one of key"},
		{"a refund of nothing", "/v1/refund", `{"cost":1}`, "", "receipt"},
		{"a refund of a false receipt", "/v1/refund", `{"receipt":"AQ."}`, "receipt", "the receipt of a decision"},
		{"a refund of two kinds", "/v1/refund", `{"key":"a","limit":"5/s","receipt":"AQ"}`, "receipt", "the receipt of a decision"},
		{"a count of no time", "/v1/count", `{"key":"a","limit":"5/s"}`, "last", `"last":"20s"`},
		{"a count of a number", "/v1/count", `{"key":"a","limit":"5/s","last":20}`, "last", `"20s"`},
		{"a count of no duration", "/v1/count", `{"key":"a","limit":"5/s","last":"1s burst=1"}`, "last", `a duration from`},
		{"a count beyond the window", "/v1/count", `{"key":"a","limit":"5/s","last":"2s"}`, "last", "the limit's window"},
		{"a count that is not kept", "/v1/count", `{"key":"a","limit":"5/s","algorithm":"fixed-window","last":"1s"}`, "algorithm", "sliding-log"},
	}
	d := open(t, true, slack)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantProblem(t, d.post(test.path, test.body), http.StatusBadRequest, test.field, test.detail)
		})
	}
}

func TestRefusals(t *testing.T) {
	const inline = `{"key":"a","limit":"5/s"}`
	tests := []struct {
		name   string
		door   *door
		path   string
		body   string
		status int
		field  string
		detail string
	}{
		{"a domain without a config", open(t, true), "/v1/check", `{"domain":"d"}`, 404, "domain", "no config is loaded"},
		{"an unknown domain", open(t, false, slack), "/v1/count", `{"domain":"d","last":"1s"}`, 404, "domain", "want slack"},
		{"a limit beside a config", open(t, false, slack), "/v1/check", inline, 403, "", "server: {inline: true}"},
		{"a charge beside a config", open(t, false, slack), "/v1/charge", inline, 403, "", "server: {inline: true}"},
		{"a refund beside a config", open(t, false, slack), "/v1/refund", inline, 403, "", "server: {inline: true}"},
		{"a body of more than 1 MiB", open(t, true), "/v1/check", strings.Repeat(" ", 1<<20) + inline, 413, "", "1 MiB"},
		{"a refund of more than 2 MiB", open(t, true), "/v1/refund", strings.Repeat(" ", 2<<20) + inline, 413, "", "2 MiB"},
		{"an unknown path", open(t, true), "/v2/check", inline, 404, "", "/v1/check"},
		{"reset for callers", open(t, true), "/v1/reset/", inline, 404, "", "nothing at this path"},
		{"a post to healthz", open(t, true), "/healthz", ``, 405, "", "GET, HEAD"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantProblem(t, test.door.post(test.path, test.body), test.status, test.field, test.detail)
		})
	}
}

func TestTheLargestBodyIsRead(t *testing.T) {
	const inline = `{"key":"a","limit":"5/s"}`
	body := strings.Repeat(" ", 1<<20-len(inline)) + inline
	if w := open(t, true).post("/v1/check", body); w.Code != http.StatusOK {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestEscapedPairsAreCharacters(t *testing.T) {
	w := open(t, true).post("/v1/check", `{"key":"\ud83d\ude00\\ud800","limit":"5/s"}`)
	if !strings.Contains(w.Body.String(), `"key":"😀\\ud800"`) {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestMethodsAndTypes(t *testing.T) {
	d := open(t, true)
	tests := []struct {
		method, path, kind string
		header             [2]string // what the answer must carry
		status             int
	}{
		{"GET", "/v1/check", "", [2]string{"Allow", "POST"}, 405},
		{"PUT", "/v1/batch", "application/json", [2]string{"Allow", "POST"}, 405},
		{"DELETE", "/readyz", "", [2]string{"Allow", "GET, HEAD"}, 405},
		{"POST", "/v1/check", "text/plain", [2]string{"Accept", "application/json"}, 415},
		{"POST", "/v1/check", "application/jsonx", [2]string{"Accept", "application/json"}, 415},
		{"POST", "/v1/check", ";", [2]string{"Accept", "application/json"}, 415},
		{"POST", "/v1/check", "", [2]string{"Cache-Control", "no-store"}, 200},
		{"POST", "/v1/check", "application/json; charset=utf-8", [2]string{"Cache-Control", "no-store"}, 200},
		{"POST", "/v1/check", "Application/JSON", [2]string{"Cache-Control", "no-store"}, 200},
		{"POST", "/v1/check", "application/x-www-form-urlencoded", [2]string{"Cache-Control", "no-store"}, 200},
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.path+" "+test.kind, func(t *testing.T) {
			r := httptest.NewRequest(test.method, test.path, strings.NewReader(`{"key":"a","limit":"50/s"}`))
			if test.kind != "" {
				r.Header.Set("Content-Type", test.kind)
			}
			w := httptest.NewRecorder()
			d.callers.ServeHTTP(w, r)
			if got := w.Header().Get(test.header[0]); got != test.header[1] {
				t.Errorf("%s: %q, want %q", test.header[0], got, test.header[1])
			}
			if test.status == http.StatusOK && w.Code == test.status {
				return
			}
			wantProblem(t, w, test.status, "", map[int]string{405: test.header[1], 415: "application/json"}[test.status])
		})
	}
}

func TestPagesOfOtherOriginsMayNotAsk(t *testing.T) {
	d := open(t, true)
	for _, handler := range []http.Handler{d.callers, d.admin} {
		r := httptest.NewRequest("POST", "/v1/reset", strings.NewReader(`{}`))
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		wantProblem(t, w, http.StatusForbidden, "", "another origin")
	}
}

func TestABodyThatBreaksOff(t *testing.T) {
	r := httptest.NewRequest("POST", "/v1/check", io.MultiReader(strings.NewReader(`{"key":`), iotest.ErrReader(errors.New("reset by peer"))))
	w := httptest.NewRecorder()
	open(t, true).callers.ServeHTTP(w, r)
	wantProblem(t, w, http.StatusBadRequest, "", "ended early")
}

// broken is a store that fails.
type broken struct{ err error }

func (b broken) Take(_ context.Context, lists []weir.List) {
	for i := range lists {
		if len(lists[i].Requests) > 0 {
			lists[i].Err = b.err
		}
	}
}
func (b broken) Refund(context.Context, []weir.Receipt) (int64, error) { return 0, b.err }
func (b broken) Count(context.Context, weir.Request, time.Duration) (int64, error) {
	return 0, b.err
}
func (b broken) Reset(context.Context, []weir.Request) (int64, error) { return 0, b.err }
func (b broken) Close() error                                         { return b.err }

// A caller learns whether the store may have done what was asked, and nothing
// about where it is.
func TestABrokenStoreIsUnavailable(t *testing.T) {
	away := &weir.StoreError{Server: "10.0.0.7:6379", Hint: "is 10.0.0.7 up?", Err: errors.New("dial 10.0.0.7: refused")}
	silent := &weir.StoreError{Server: "10.0.0.7:6379", Unknown: true, Err: errors.New("read 10.0.0.7: reset")}
	for detail, err := range map[string]error{
		"is unavailable: ask again": away, "what it charged or gave back is unknown": silent,
		"is stopping": weir.ErrClosed, "did not answer": context.DeadlineExceeded,
	} {
		engine := decide.New(decide.Options{Limiter: weir.New(weir.Options{Store: broken{err}})})
		d := door{callers: httpapi.New(httpapi.Options{Engine: engine}), admin: adminapi.New(adminapi.Options{Engine: engine})}
		const request = `{"key":"a","limit":"5/s"}`
		for path, body := range map[string]string{
			"/v1/check": request, "/v1/charge": request, "/v1/refund": request, "/v1/reset": request,
			"/v1/count": `{"key":"a","limit":"5/s","last":"1s"}`,
		} {
			w := d.post(path, body)
			wantProblem(t, w, http.StatusServiceUnavailable, "", detail)
			if w.Header().Get("Retry-After") != "1" || strings.Contains(w.Body.String(), "10.0.0.7") {
				t.Errorf("%s: %v %s", path, w.Header(), w.Body)
			}
		}
		w := d.post("/v1/batch", `{"requests":[`+request+`,{"key":"a"},`+request+`]}`)
		if got := strings.Count(w.Body.String(), detail); w.Code != http.StatusOK || got != 2 || !strings.Contains(w.Body.String(), `"status":400`) {
			t.Errorf("/v1/batch: status %d, %s", w.Code, w.Body)
		}
	}
}

func TestHealthAndReadiness(t *testing.T) {
	engine := decide.New(decide.Options{Limiter: weir.New(weir.Options{})})
	var state wire.Readiness
	ready := func() wire.Readiness { return state }
	get := func(handler http.Handler, path, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
		if got := http.StatusText(w.Code) + " " + strings.TrimSpace(w.Body.String()); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	for _, handler := range []http.Handler{httpapi.New(httpapi.Options{Engine: engine, Ready: ready}), adminapi.New(adminapi.Options{Engine: engine, Ready: ready})} {
		state = wire.Readiness{Detail: "starting", Store: "ok"}
		get(handler, "/healthz", `OK {"alive":true}`)
		get(handler, "/readyz", `Service Unavailable {"ready":false,"detail":"starting","store":"ok","degraded_decisions":0}`)
		state = wire.Readiness{Ready: true, Detail: "serving; store unavailable", Store: "unavailable", Degraded: 1234}
		get(handler, "/readyz", `OK {"ready":true,"detail":"serving; store unavailable","store":"unavailable","degraded_decisions":1234}`)
	}
	get(httpapi.New(httpapi.Options{Engine: engine}), "/readyz", `OK {"ready":true,"detail":"serving","store":"ok","degraded_decisions":0}`)
}
