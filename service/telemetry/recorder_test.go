package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/telemetry"
)

var slack = policy.Domain{Name: "slack", Rules: []policy.Rule{
	{Name: "global", Limit: weir.Per(100, time.Hour)},
	{Name: "per-category", By: []string{"category"}, Limit: weir.Per(10, time.Hour)},
	{Name: "trial", By: []string{"category"}, Limit: weir.Per(1, time.Hour), Shadow: true},
}}

// service is an engine with a recorder.
type service struct {
	*telemetry.Recorder

	engine *decide.Engine
}

func newService(t *testing.T, o telemetry.Options, domains ...policy.Domain) *service {
	t.Helper()
	r, err := telemetry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{r, decide.New(decide.Options{Limiter: weir.New(weir.Options{}), Observe: r.Decided, Timed: r.Timed})}
	s.load(t, domains...)
	return s
}

func (s *service) load(t *testing.T, domains ...policy.Domain) {
	t.Helper()
	p, err := policy.Compile(domains)
	if err != nil {
		t.Fatal(err)
	}
	s.engine.Load(p, true)
	s.Loaded(p, time.Now(), nil)
}

func (s *service) ask(t *testing.T, n int, q decide.Query) {
	t.Helper()
	for range n {
		if _, err := s.engine.Check(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

func of(domain string, attributes ...string) decide.Query {
	q := decide.Query{Domain: domain, Attributes: make(map[string]string), Cost: 1}
	for i := 0; i < len(attributes); i += 2 {
		q.Attributes[attributes[i]] = attributes[i+1]
	}
	return q
}

func described(domain string, entries ...policy.Entry) decide.Query {
	return decide.Query{Domain: domain, Descriptors: []decide.Descriptor{{Entries: entries, Cost: 1}}}
}

// scrape gets the metrics of a real answer, in a format.
func (s *service) scrape(t *testing.T, accept string) map[string]*dto.MetricFamily {
	t.Helper()
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	families := make(map[string]*dto.MetricFamily)
	decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header))
	for {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); err != nil {
			if len(families) == 0 {
				t.Fatal(err)
			}
			return families
		}
		families[f.GetName()] = &f
	}
}

const (
	text     = "text/plain; version=0.0.4"
	protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)

// series are the samples of counters and gauges, by name and values of labels.
func (s *service) series(t *testing.T) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for name, f := range s.scrape(t, text) {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			all[name+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

func (s *service) want(t *testing.T, want map[string]float64) {
	t.Helper()
	got := s.series(t)
	for name, n := range want {
		if is, ok := got[name]; !ok || is != n {
			t.Errorf("%s = %v, %v; want %v", name, is, ok, n)
		}
	}
}

func TestMetrics(t *testing.T) {
	s := newService(t, telemetry.Options{Version: "1.2.3", InFlight: func() int { return 7 }, BreakerOpen: func() bool { return true }}, slack)
	s.ask(t, 12, of("slack", "category", "errors"))
	s.ask(t, 2, decide.Query{Domain: "slack", Checks: []weir.Request{{Key: "k", Limit: weir.Per(1, time.Hour), Cost: 1}}})
	s.ask(t, 1, described("slack", policy.Entry{Key: "category", Value: "news"}))
	for _, q := range []decide.Query{of("nobody"), {Domain: "slack", Cost: -1}} {
		if _, err := s.engine.Check(t.Context(), q); err == nil {
			t.Errorf("%+v was decided", q)
		}
	}
	s.Store(time.Millisecond, nil, 0)
	s.Store(time.Millisecond, &weir.StoreError{Err: context.DeadlineExceeded}, 3)
	s.Store(0, errors.New("the breaker is open"), 1)
	s.Store(time.Millisecond, &weir.StoreError{Settings: true, Err: errors.New("WRONGPASS")}, 1)
	s.want(t, map[string]float64{
		"weir_requests_total{domain=slack,reason=ok,result=allowed}":                           11,
		"weir_requests_total{domain=slack,reason=over_limit,result=denied}":                    2,
		"weir_requests_total{domain=slack,reason=invalid,result=error}":                        1,
		"weir_requests_total{domain=,reason=unknown_domain,result=error}":                      1,
		"weir_requests_total{domain=,reason=ok,result=allowed}":                                1,
		"weir_decisions_total{domain=,reason=over_limit,result=denied,rule=}":                  1,
		"weir_decisions_total{domain=slack,reason=ok,result=allowed,rule=global}":              13,
		"weir_decisions_total{domain=slack,reason=over_limit,result=denied,rule=global}":       0,
		"weir_decisions_total{domain=slack,reason=over_limit,result=denied,rule=per-category}": 2,
		"weir_decisions_total{domain=slack,reason=over_limit,result=shadow_denied,rule=trial}": 11,
		"weir_decisions_total{domain=slack,reason=ok,result=shadow_allowed,rule=trial}":        2,
		"weir_store_errors_total{class=timeout}":                                               1,
		"weir_store_errors_total{class=not_asked}":                                             1,
		"weir_store_errors_total{class=settings}":                                              1,
		"weir_store_errors_total{class=connection}":                                            0,
		"weir_degraded_decisions_total{}":                                                      5,
		"weir_config_reload_success{}":                                                         1,
		"weir_in_flight{}":                                                                     7,
		"weir_breaker_open{}":                                                                  1,
		"weir_hotkeys_dropped_total{}":                                                         0,
		"weir_build_info{go=" + runtime.Version() + ",version=1.2.3}":                          1,
	})
	if got := s.series(t)["weir_config_last_reload_timestamp_seconds{}"]; time.Since(time.UnixMilli(int64(got*1000))) > time.Minute {
		t.Errorf("the config was loaded at %v", got)
	}
}

func TestHistogramsAreClassicAndNative(t *testing.T) {
	s := newService(t, telemetry.Options{}, slack)
	s.ask(t, 50, of("slack", "category", "errors"))
	s.Store(3*time.Millisecond, nil, 0)
	s.Snapshot()
	for name, want := range map[string]uint64{"weir_decision_duration_seconds": 50, "weir_store_duration_seconds": 1} {
		for _, format := range []string{text, protobuf} {
			h := s.scrape(t, format)[name].GetMetric()[0].GetHistogram()
			if h.GetSampleCount() != want || len(h.GetBucket()) < 10 || h.GetSampleSum() <= 0 {
				t.Errorf("%s as %s: %v", name, format, h)
			}
			if native := len(h.GetPositiveSpan()) > 0 && h.GetSchema() == 3; native != (format == protobuf) {
				t.Errorf("%s as %s: native %v: %v", name, format, native, h)
			}
		}
	}
	if all := s.scrape(t, text); all["go_goroutines"] == nil || all["process_open_fds"] == nil {
		t.Error("the collectors of Go and of the process are missing")
	}
}

// What requests bring never becomes a label, whatever they bring.
func TestLabelsComeFromTheConfig(t *testing.T) {
	s := newService(t, telemetry.Options{}, slack, policy.Domain{Name: "tree", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "user", RateLimit: &policy.RateLimit{Requests: 5, Unit: policy.Hour}},
	}}})
	hostile := func(i int) {
		evil := fmt.Sprintf("evil%d\"}\n# {\xff", i)
		for _, q := range []decide.Query{
			of(evil), of("slack", "category", evil), of("slack", evil, evil), of("tree", "user", evil),
			described(evil, policy.Entry{Key: evil, Value: evil}),
			described("tree", policy.Entry{Key: "user", Value: evil}), described("tree", policy.Entry{Key: evil, Value: evil}),
			{Domain: evil, Checks: []weir.Request{{Key: evil, Limit: weir.Per(1, time.Hour), Cost: 1}}},
			{Domain: "slack", Descriptors: []decide.Descriptor{{Entries: []policy.Entry{{Key: evil, Value: evil}}, Cost: 1, Limit: weir.Per(1, time.Hour)}}},
			{Domain: "slack", Attributes: map[string]string{"category": evil}, Cost: -1},
		} {
			_, _ = s.engine.Check(t.Context(), q) // most are errors
		}
	}
	names := func() []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(s.series(t))), func(name string) bool { return !strings.HasPrefix(name, "weir_") })
	}
	for range 2 * 101 { // every outcome there is, over every limit
		hostile(0)
	}
	for i := range 20 {
		hostile(i)
	}
	before := names()
	for i := range 300 {
		hostile(i)
	}
	if after := names(); !slices.Equal(before, after) {
		t.Errorf("series were %q, and are %q", before, after)
	}
	for _, name := range names() {
		if strings.Contains(name, "evil") {
			t.Errorf("a request has made %s", name)
		}
	}
}

func TestValuesWhereTheConfigAsks(t *testing.T) {
	limit := &policy.RateLimit{Requests: 2, Unit: policy.Hour}
	s := newService(t, telemetry.Options{}, policy.Domain{Name: "tree", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "user", RateLimit: limit, DetailedMetric: true},
		{Key: "path", RateLimit: limit, Descriptors: []policy.Descriptor{
			{Key: "team", RateLimit: limit, ValueToMetric: true, Descriptors: []policy.Descriptor{{Key: "user", RateLimit: limit}}},
		}},
	}}})
	entry := func(key, value string) policy.Entry { return policy.Entry{Key: key, Value: value} }
	s.ask(t, 3, described("tree", entry("user", "a:b%")))
	s.ask(t, 1, described("tree", entry("path", "/secret")))
	s.ask(t, 1, described("tree", entry("path", "/secret"), entry("team", "red")))
	s.ask(t, 1, described("tree", entry("path", "/secret"), entry("team", "red"), entry("user", "bob")))
	s.want(t, map[string]float64{
		"weir_decisions_by_value_total{domain=tree,result=allowed,rule=user,value=user=a:b%}":                    2,
		"weir_decisions_by_value_total{domain=tree,result=denied,rule=user,value=user=a:b%}":                     1,
		"weir_decisions_by_value_total{domain=tree,result=allowed,rule=path.team,value=path,team=red}":           1,
		"weir_decisions_by_value_total{domain=tree,result=allowed,rule=path.team.user,value=path,team=red,user}": 1,
		"weir_decisions_total{domain=tree,reason=ok,result=allowed,rule=path}":                                   1,
	})
	for name := range s.series(t) {
		if strings.Contains(name, "secret") || strings.Contains(name, "bob") {
			t.Errorf("the config does not ask for %s", name)
		}
	}
	for i := range 3000 {
		s.ask(t, 1, described("tree", entry("user", fmt.Sprintf("%d%s", i, strings.Repeat("é", 500)))))
	}
	n := 0
	for name := range s.series(t) {
		if strings.HasPrefix(name, "weir_decisions_by_value_total") && strings.Contains(name, "rule=user,") {
			n++
		}
		if len(name) > 300 {
			t.Errorf("a label is as long as in %s", name)
		}
	}
	if n != 1002 { // one user has been denied, and there are the others
		t.Errorf("%d series, want 1002", n)
	}
	s.want(t, map[string]float64{"weir_decisions_by_value_total{domain=tree,result=allowed,rule=user,value=other}": 2001})
}

func TestCountsAreExact(t *testing.T) {
	s := newService(t, telemetry.Options{}, slack)
	ctx, cancel := context.WithCancel(t.Context())
	var running, asking sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	const goroutines, each = 16, 500
	var verdicts [goroutines]map[bool]int
	for g := range goroutines {
		verdicts[g] = make(map[bool]int)
		asking.Go(func() {
			for i := range each {
				a, err := s.engine.Check(t.Context(), of("slack", "category", fmt.Sprint(i%20)))
				if err != nil {
					t.Error(err)
				}
				verdicts[g][a.Allowed]++
				if i%100 == 0 {
					s.Snapshot()
				}
			}
		})
	}
	asking.Wait()
	cancel()
	running.Wait()
	var allowed, denied int
	for _, v := range verdicts {
		allowed, denied = allowed+v[true], denied+v[false]
	}
	got := s.Snapshot()
	if got.Totals.Allowed != uint64(allowed) || got.Totals.Denied != uint64(denied) || allowed != 100 {
		t.Errorf("%d and %d were counted of %d and %d", got.Totals.Allowed, got.Totals.Denied, allowed, denied)
	}
	for _, r := range got.Rules {
		if r.Allowed+r.Denied != goroutines*each {
			t.Errorf("%s: %d and %d, want %d in all", r.Rule, r.Allowed, r.Denied, goroutines*each)
		}
	}
}

func TestDecidedDoesNotAllocate(t *testing.T) {
	s := newService(t, telemetry.Options{}, slack)
	e := told("a", true, time.Microsecond)
	// The first thousands find room, and the others do not.
	if n := testing.AllocsPerRun(10_000, func() { s.Decided(e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWithoutRules(t *testing.T) {
	s := newService(t, telemetry.Options{Shadow: true}, policy.Domain{Name: "slack", Rules: []policy.Rule{{Name: "never", When: policy.When{"path": {"/x"}}, Deny: true}}})
	s.ask(t, 5, of("slack"))
	got := s.Snapshot()
	if got.Totals.Allowed != 5 || got.Latency.P50 <= 0 || len(got.Hot) != 0 {
		t.Errorf("got %+v", got)
	}
	if n := s.scrape(t, text)["weir_decision_duration_seconds"].GetMetric()[0].GetHistogram().GetSampleCount(); n != 5 {
		t.Errorf("%d decisions were timed, want 5", n)
	}
	if r := got.Rules[0]; !r.Shadow || r.Limit != "deny" {
		t.Errorf("got %+v", r)
	}
}

func TestReloadKeepsCounts(t *testing.T) {
	other := policy.Domain{Name: "other", Rules: []policy.Rule{{Name: "all", Limit: weir.PerHour(5)}}}
	s := newService(t, telemetry.Options{}, slack, other)
	s.ask(t, 3, of("slack", "category", "errors"))
	s.ask(t, 2, of("other"))
	own := described("slack", policy.Entry{Key: "category", Value: "a"})
	own.Descriptors[0].Limit = weir.PerHour(9)
	s.ask(t, 5, own)
	changed := policy.Domain{Name: "slack", Rules: []policy.Rule{slack.Rules[1], {Name: "new", Limit: weir.PerHour(7)}}}
	s.load(t, changed)
	s.ask(t, 1, of("slack", "category", "errors"))
	s.Loaded(nil, time.Now(), errors.New("slack.yaml:3:1: no such key"))
	s.want(t, map[string]float64{
		"weir_decisions_total{domain=slack,reason=ok,result=allowed,rule=per-category}": 4,
		"weir_decisions_total{domain=slack,reason=ok,result=allowed,rule=new}":          1,
		"weir_decisions_total{domain=slack,reason=ok,result=allowed,rule=}":             5,
		"weir_config_reload_success{}":                                                  0,
	})
	for name := range s.series(t) {
		if strings.Contains(name, "rule=global") || strings.Contains(name, "domain=other") {
			t.Errorf("%s is of a rule that is no more", name)
		}
	}
	got := s.Snapshot()
	if got.Totals.Allowed != 11 || len(got.Rules) != 3 || got.Rules[0].Limit != "10/1h" || got.Config.Domains != 1 || got.Config.Rules != 2 || got.Config.Refused != "slack.yaml:3:1: no such key" {
		t.Errorf("got %+v", got)
	}
}

// The state has all members, in the words of the admin API.
func TestStateAsJSON(t *testing.T) {
	s := newService(t, telemetry.Options{Version: "1.2.3"}, policy.Domain{Name: "slack", Rules: slack.Rules[1:2]})
	s.ask(t, 11, of("slack", "category", "errors"))
	text, err := json.Marshal(s.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"version":"1.2.3","started":"20`, `Z","now":"20`, `"ready":{"ready":false,"detail":"","store":"","degraded_decisions":0}`,
		`"store":{"kind":"","status":"","detail":"","latency_ms":null,"in_flight":0,"errors":0}`,
		`"config":{"files":[],"loaded":"20`, `Z","refused":"","domains":1,"rules":1}`,
		`"totals":{"allowed":10,"denied":1,"degraded":0,"errors":0,"allowed_per_s":10,"denied_per_s":1}`,
		`"latency_ms":{"p50":0.`,
		`"rules":[{"domain":"slack","rule":"per-category","limit":"10/1h","shadow":false,"allowed":10,"denied":1,"allowed_per_s":10,"denied_per_s":1}]`,
		`"hot":[{"domain":"slack","rule":"per-category","key":"category=errors","redacted":false,"allowed":10,"denied":1,"allowed_error":0,"denied_error":0,"attributes":{"category":"errors"}}]`,
		`"hot_error":"counts are`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
}
