package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/adminapi"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/httpapi"
)

// door is the handler for callers, and that for operators, over one engine whose clock the test moves.
type door struct {
	callers, admin http.Handler
	now            time.Time
}

func (d *door) step(t time.Duration) { d.now = d.now.Add(t) }

// open returns a door that serves limits sent with the request if inline, and
// the domains.
func open(t testing.TB, inline bool, domains ...policy.Domain) *door {
	t.Helper()
	d := &door{now: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)}
	store := weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return d.now }})
	engine := decide.New(decide.Options{Limiter: weir.New(weir.Options{Store: store})})
	if len(domains) > 0 {
		p, err := policy.Compile(domains)
		if err != nil {
			t.Fatal(err)
		}
		engine.Load(p, inline)
	}
	d.callers = httpapi.New(httpapi.Options{Engine: engine})
	d.admin = adminapi.New(adminapi.Options{Engine: engine})
	return d
}

// slack is the configuration that the issue asks for.
var slack = policy.Domain{Name: "slack", Rules: []policy.Rule{
	{Name: "global", Limit: weir.Per(10, 30*time.Minute)},
	{Name: "per-category", By: []string{"category"}, Limit: weir.Per(3, 30*time.Minute), Overrides: []policy.Override{
		{When: policy.When{"category": {"spam"}}, Deny: true},
	}},
	{Name: "trial", When: policy.When{"category": {"trial"}}, Limit: weir.Per(1, time.Minute), Shadow: true},
}}

// post sends a body and returns the answer.
func (d *door) post(path, body string) *httptest.ResponseRecorder {
	handler := d.callers
	if path == "/v1/reset" {
		handler = d.admin
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body)))
	return w
}

// answer is a decision as a client reads it.
type answer struct {
	Allowed    bool   `json:"allowed"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"`
	Reason     string `json:"reason"`
	Rules      []struct {
		Name      string `json:"name"`
		Allowed   bool   `json:"allowed"`
		Remaining int64  `json:"remaining"`
	} `json:"rules"`
	Receipt string `json:"receipt"`
}

func (d *door) check(t *testing.T, body string) (a answer) {
	t.Helper()
	w := d.post("/v1/check", body)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestFiveAMinute(t *testing.T) {
	d := open(t, true)
	const body = `{"key":"search:alice","limit":"5/minute"}`
	for remaining := int64(4); remaining >= 0; remaining-- {
		if a := d.check(t, body); !a.Allowed || a.Remaining != remaining || a.Reason != "ok" {
			t.Errorf("got %+v, want %d remaining", a, remaining)
		}
	}
	for retry := int64(60_000); retry > 49_000; retry -= 1000 {
		if a := d.check(t, body); a.Allowed || a.RetryAfter != retry || a.Reason != "over_limit" {
			t.Errorf("got %+v, want a denial and to wait %d ms", a, retry)
		}
		d.step(time.Second)
	}
	d.step(49 * time.Second)
	if a := d.check(t, body); !a.Allowed {
		t.Errorf("got %+v, want what the first denial said to wait for", a)
	}
}

func TestTheNarrowerRuleDenies(t *testing.T) {
	d := open(t, false, slack)
	const body = `{"domain":"slack","attributes":{"category":"errors"}}`
	for range 3 {
		if a := d.check(t, body); !a.Allowed {
			t.Fatalf("got %+v", a)
		}
	}
	a := d.check(t, body)
	if a.Allowed || a.Limit != 3 || len(a.Rules) != 2 {
		t.Fatalf("got %+v", a)
	}
	if global := a.Rules[0]; global.Name != "global" || !global.Allowed || global.Remaining != 7 {
		t.Errorf("got %+v, want 7 remaining", global)
	}
	if narrow := a.Rules[1]; narrow.Name != "per-category" || narrow.Allowed {
		t.Errorf("got %+v, want a denial", narrow)
	}
}

func TestConcurrentClientsGetMax(t *testing.T) {
	server := httptest.NewServer(open(t, true).callers)
	defer server.Close()
	const clients, calls, most = 16, 20, 100
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range calls {
				var a answer
				r, err := http.Post(server.URL+"/v1/check", "application/json", strings.NewReader(`{"key":"hot","limit":"100/minute"}`))
				if err != nil {
					t.Error(err)
					return
				}
				if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
					t.Error(err)
				}
				if err := r.Body.Close(); err != nil {
					t.Error(err)
				}
				if a.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if allowed.Load() != most {
		t.Errorf("%d of %d were allowed, want %d", allowed.Load(), clients*calls, most)
	}
}

// receipt hides what differs from run to run.
var receipt = regexp.MustCompile(`"receipt":"[^"]+"`)

func TestWire(t *testing.T) {
	type exchange struct{ path, body, want string }
	const errors = `{"domain":"slack","attributes":{"category":"errors"}`
	tests := map[string][]exchange{
		"a key": {
			{
				"/v1/check", `{"key":"search:alice","limit":"5/minute","algorithm":"sliding-log","cost":5}`,
				`{"allowed":true,"limit":5,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"reason":"ok",` +
					`"rules":[{"key":"search:alice","allowed":true,"limit":5,"window_ms":60000,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000}],` +
					`"receipt":"..."}`,
			},
			{
				"/v1/check", `{"key":"search:alice","limit":"5/minute"}`,
				`{"allowed":false,"limit":5,"remaining":0,"retry_after_ms":60000,"reset_after_ms":60000,"reason":"over_limit",` +
					`"rules":[{"key":"search:alice","allowed":false,"limit":5,"window_ms":60000,"remaining":0,"retry_after_ms":60000,"reset_after_ms":60000}]}`,
			},
			{
				"/v1/check", `{"key":"<é>","limit":"1/s","cost":9}`,
				`{"allowed":false,"limit":1,"remaining":1,"retry_after_ms":0,"reset_after_ms":0,"reason":"never",` +
					`"rules":[{"key":"<é>","allowed":false,"limit":1,"window_ms":1000,"remaining":1,"retry_after_ms":0,"reset_after_ms":0}]}`,
			},
		},
		"windows below a millisecond, and waits rounded up": {
			{
				"/v1/check", `{"key":"k","limit":"1/500us"}`,
				`{"allowed":true,"limit":1,"remaining":0,"retry_after_ms":0,"reset_after_ms":1,"reason":"ok",` +
					`"rules":[{"key":"k","allowed":true,"limit":1,"window_ms":0.5,"remaining":0,"retry_after_ms":0,"reset_after_ms":1}],"receipt":"..."}`,
			},
			{
				"/v1/check", `{"key":"k","limit":"1/1500us","cost":0}`,
				`{"allowed":true,"limit":1,"remaining":1,"retry_after_ms":0,"reset_after_ms":0,"reason":"ok",` +
					`"rules":[{"key":"k","allowed":true,"limit":1,"window_ms":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":0}]}`,
			},
		},
		"a token bucket tells its burst": {
			{
				"/v1/check", `{"key":"","limit":"10/s burst 20"}`,
				`{"allowed":true,"limit":20,"remaining":19,"retry_after_ms":0,"reset_after_ms":100,"reason":"ok",` +
					`"rules":[{"key":"","allowed":true,"limit":20,"window_ms":1000,"remaining":19,"retry_after_ms":0,"reset_after_ms":100}],"receipt":"..."}`,
			},
		},
		"a key of any bytes": {
			{
				"/v1/check", `{"key_base64":"/w==","limit":"1/s"}`,
				`{"allowed":true,"limit":1,"remaining":0,"retry_after_ms":0,"reset_after_ms":1000,"reason":"ok",` +
					`"rules":[{"key_base64":"/w==","allowed":true,"limit":1,"window_ms":1000,"remaining":0,"retry_after_ms":0,"reset_after_ms":1000}],"receipt":"..."}`,
			},
			{"/v1/count", `{"key_base64":"/w==","limit":"1/s","last":"1s"}`, `{"count":1}`},
			{"/v1/count", `{"key":"/w==","limit":"1/s","last":"1s"}`, `{"count":0}`},
		},
		"a domain": {
			{
				"/v1/check", `{"domain":"slack","attributes":{"category":"trial"},"cost":2}`,
				`{"allowed":true,"limit":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":1800000,"reason":"ok","rules":[` +
					`{"name":"global","allowed":true,"limit":10,"window_ms":1800000,"remaining":8,"retry_after_ms":0,"reset_after_ms":1800000},` +
					`{"name":"per-category","allowed":true,"limit":3,"window_ms":1800000,"remaining":1,"retry_after_ms":0,"reset_after_ms":1800000},` +
					`{"name":"trial","allowed":false,"limit":1,"window_ms":60000,"remaining":1,"retry_after_ms":0,"reset_after_ms":0,"shadow":true}],` +
					`"receipt":"..."}`,
			},
			{
				"/v1/check", `{"domain":"slack","attributes":{"category":"spam"}}`,
				`{"allowed":false,"limit":0,"remaining":0,"retry_after_ms":0,"reset_after_ms":0,"reason":"never","rules":[` +
					`{"name":"global","allowed":true,"limit":10,"window_ms":1800000,"remaining":8,"retry_after_ms":0,"reset_after_ms":1800000},` +
					`{"name":"per-category","allowed":false,"limit":0,"window_ms":0,"remaining":0,"retry_after_ms":0,"reset_after_ms":0}]}`,
			},
			{
				"/v1/check", `{"domain":"quiet"}`,
				`{"allowed":true,"limit":0,"remaining":0,"retry_after_ms":0,"reset_after_ms":0,"reason":"no_rule","rules":[]}`,
			},
		},
		"several checks": {
			{
				"/v1/check", `{"checks":[{"key":"a","limit":"10/s"},{"key":"b","limit":"9/s","algorithm":"token-bucket","cost":1},{"key":"c","limit":"1/s","cost":0}],"cost":4}`,
				`{"allowed":true,"limit":10,"remaining":6,"retry_after_ms":0,"reset_after_ms":1000,"reason":"ok","rules":[` +
					`{"key":"a","allowed":true,"limit":10,"window_ms":1000,"remaining":6,"retry_after_ms":0,"reset_after_ms":1000},` +
					`{"key":"b","allowed":true,"limit":9,"window_ms":1000,"remaining":8,"retry_after_ms":0,"reset_after_ms":112},` +
					`{"key":"c","allowed":true,"limit":1,"window_ms":1000,"remaining":1,"retry_after_ms":0,"reset_after_ms":0}],"receipt":"..."}`,
			},
		},
		"a charge goes above the limit": {
			{
				"/v1/charge", `{"key":"k","limit":"5/m","cost":7}`,
				`{"allowed":true,"limit":5,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"reason":"ok",` +
					`"rules":[{"key":"k","allowed":true,"limit":5,"window_ms":60000,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000}],"receipt":"..."}`,
			},
			{"/v1/count", `{"key":"k","limit":"5/m","last":"minute"}`, `{"count":7}`},
		},
		"a batch": {
			{
				"/v1/batch", `{"requests":[{"key":"k","limit":"1/s"},{"key":"k","limit":"1/s","cost":"2"},7,{"domain":"slakc"},{"key":"k","limit":"1/s"},` +
					`{"checks":[{"key":"k","limit":"1/s"},{"key":"k","limit":"2/s"}]}]}`,
				`{"decisions":[{"allowed":true,"limit":1,"remaining":0,"retry_after_ms":0,"reset_after_ms":1000,"reason":"ok",` +
					`"rules":[{"key":"k","allowed":true,"limit":1,"window_ms":1000,"remaining":0,"retry_after_ms":0,"reset_after_ms":1000}],"receipt":"..."},` +
					`{"error":{"type":"about:blank","title":"Bad Request","status":400,` +
					`"detail":"requests[1].cost \"2\": want a whole number of units from 0 to 2147483648, such as 1","field":"requests[1].cost"}},` +
					`{"error":{"type":"about:blank","title":"Bad Request","status":400,` +
					`"detail":"requests[2] \"7\": want an object such as {\"key\":\"search:alice\",\"limit\":\"5/minute\"} or {\"domain\":\"slack\",\"attributes\":{\"category\":\"errors\"}}","field":"requests[2]"}},` +
					`{"error":{"type":"about:blank","title":"Not Found","status":404,` +
					`"detail":"requests[3].domain \"slakc\" is unknown: want slack or quiet","field":"requests[3].domain"}},` +
					`{"allowed":false,"limit":1,"remaining":0,"retry_after_ms":1000,"reset_after_ms":1000,"reason":"over_limit",` +
					`"rules":[{"key":"k","allowed":false,"limit":1,"window_ms":1000,"remaining":0,"retry_after_ms":1000,"reset_after_ms":1000}]},` +
					`{"error":{"type":"about:blank","title":"Bad Request","status":400,` +
					`"detail":"requests[5].checks[1].limit \"2/1s\": want the limit of the other request for the same key and window, 1/1s","field":"requests[5].checks[1].limit"}}]}`,
			},
			{"/v1/batch", `{"requests":[]}`, `{"decisions":[]}`},
		},
		"count, refund and reset of rules": {
			{"/v1/count", errors + `,"last":"30m"}`, `{"count":0}`},
			{"/v1/refund", errors + `}`, `{"refunded":0}`},
			{"/v1/refund", errors + `,"cost":0}`, `{"refunded":0}`},
			{"/v1/reset", errors + `}`, `{"reset":0}`},
		},
	}
	for name, exchanges := range tests {
		t.Run(name, func(t *testing.T) {
			d := open(t, true, slack, policy.Domain{Name: "quiet", Rules: []policy.Rule{
				{Name: "none", When: policy.When{"never": {"set"}}, Deny: true},
			}})
			for _, x := range exchanges {
				w := d.post(x.path, x.body)
				got := receipt.ReplaceAllString(strings.TrimSpace(w.Body.String()), `"receipt":"..."`)
				if w.Code != http.StatusOK || got != x.want {
					t.Errorf("POST %s %s: status %d\n got %s\nwant %s", x.path, x.body, w.Code, got, x.want)
				}
				if kind := w.Header().Get("Content-Type"); kind != "application/json" {
					t.Errorf("Content-Type %q", kind)
				}
			}
		})
	}
}

func TestRefundByReceipt(t *testing.T) {
	const errors = `{"domain":"slack","attributes":{"category":"errors"}`
	tests := []struct {
		name, cost string
		refunded   string
		remaining  []int64
	}{
		{"all of it", ``, `{"refunded":6}`, []int64{10, 3}},
		{"a part of each rule's", `,"cost":1`, `{"refunded":2}`, []int64{8, 1}},
		{"no more than was charged", `,"cost":100`, `{"refunded":6}`, []int64{10, 3}},
		{"nothing", `,"cost":0`, `{"refunded":0}`, []int64{7, 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := open(t, false, slack)
			a := d.check(t, errors+`,"cost":3}`)
			body := `{"receipt":"` + a.Receipt + `"` + test.cost + `}`
			if w := d.post("/v1/refund", body); strings.TrimSpace(w.Body.String()) != test.refunded {
				t.Errorf("got %s, want %s", w.Body, test.refunded)
			}
			for i, row := range d.check(t, errors+`,"cost":0}`).Rules {
				if row.Remaining != test.remaining[i] {
					t.Errorf("%s has %d remaining, want %d", row.Name, row.Remaining, test.remaining[i])
				}
			}
		})
	}
	d := open(t, false, slack)
	body := `{"receipt":"` + d.check(t, errors+`}`).Receipt + `"}`
	d.post("/v1/refund", body)
	if w := d.post("/v1/refund", body); strings.TrimSpace(w.Body.String()) != `{"refunded":0}` {
		t.Errorf("a receipt was returned twice: %s", w.Body)
	}
	wantProblem(t, d.post("/v1/refund", strings.Replace(body, "{", `{"limit":"5/s",`, 1)), http.StatusBadRequest, "limit", "beside receipt")
}

func TestTheReceiptOfTheLongestKeyComesBack(t *testing.T) {
	d := open(t, true)
	a := d.check(t, `{"key":"`+strings.Repeat("k", 1_000_000)+`","limit":"5/minute"}`)
	if w := d.post("/v1/refund", `{"receipt":"`+a.Receipt+`"}`); strings.TrimSpace(w.Body.String()) != `{"refunded":1}` {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestReceiptsOfNoChargeAreRefused(t *testing.T) {
	d := open(t, false, slack)
	const errors = `{"domain":"slack","attributes":{"category":"errors"}`
	var made weir.Receipt
	if err := made.UnmarshalText([]byte(strings.Split(d.check(t, errors+`}`).Receipt, ".")[1])); err != nil {
		t.Fatal(err)
	}
	made.ID = 0
	text, err := made.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, receipt := range []string{string(text), ""} {
		wantProblem(t, d.post("/v1/refund", `{"receipt":"`+receipt+`"}`), http.StatusBadRequest, "receipt", "as it was")
	}
	if a := d.check(t, errors+`,"cost":0}`); a.Remaining != 2 {
		t.Errorf("got %+v, want 2 remaining", a)
	}
}

func TestRefundWithoutReceiptAndReset(t *testing.T) {
	d := open(t, true)
	const alice = `{"key":"alice","limit":"5/minute","cost":3}`
	for _, x := range []struct {
		path, want string
		remaining  int64
	}{
		{"/v1/refund", `{"refunded":3}`, 2},
		{"/v1/reset", `{"reset":1}`, 2},
	} {
		if a := d.check(t, alice); a.Remaining != x.remaining {
			t.Errorf("got %+v, want %d remaining", a, x.remaining)
		}
		if w := d.post(x.path, alice); strings.TrimSpace(w.Body.String()) != x.want {
			t.Errorf("%s: got %s, want %s", x.path, w.Body, x.want)
		}
	}
	if a := d.check(t, alice); a.Remaining != 2 {
		t.Errorf("got %+v, want 2 remaining", a)
	}
}
