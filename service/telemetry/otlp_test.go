package telemetry_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/telemetry"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector takes OTLP over HTTP.
type collector struct {
	mu       sync.Mutex
	resource []*common.KeyValue
	metrics  map[string]*metrics.Metric
	spans    map[string]*traces.Span
}

func newCollector(t *testing.T) (c *collector, url string) {
	c = &collector{metrics: make(map[string]*metrics.Metric), spans: make(map[string]*traces.Span)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /otlp/v1/metrics", c.handle(t, func(body []byte) error {
		var got collectormetrics.ExportMetricsServiceRequest
		err := proto.Unmarshal(body, &got)
		for _, of := range got.GetResourceMetrics() {
			c.resource = of.GetResource().GetAttributes()
			for _, scope := range of.GetScopeMetrics() {
				for _, m := range scope.GetMetrics() {
					c.metrics[m.GetName()] = m
				}
			}
		}
		return err
	}))
	mux.HandleFunc("POST /otlp/v1/traces", c.handle(t, func(body []byte) error {
		var got collectortrace.ExportTraceServiceRequest
		err := proto.Unmarshal(body, &got)
		for _, of := range got.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					c.spans[s.GetName()] = s
				}
			}
		}
		return err
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return c, server.URL + "/otlp/"
}

func (c *collector) handle(t *testing.T, take func([]byte) error) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Error(err)
			}
		}
		text, err := io.ReadAll(body)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := errors.Join(err, take(text)); err != nil {
			t.Error(err)
		}
	}
}

// attributes writes them as a=b,c=d.
func attributes(all []*common.KeyValue) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.GetKey()+"="+a.GetValue().GetStringValue())
	}
	return strings.Join(texts, ",")
}

func TestOTLPMetrics(t *testing.T) {
	c, url := newCollector(t)
	s := newService(t, telemetry.Options{Version: "1.2.3", OTLP: url}, slack)
	s.ask(t, 12, of("slack", "category", "errors"))
	s.Store(time.Millisecond, context.DeadlineExceeded, 2)
	s.Snapshot()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for name, m := range c.metrics {
		for _, p := range m.GetSum().GetDataPoints() {
			got[name+"{"+attributes(p.GetAttributes())+"}"] = p.GetAsInt()
		}
		for _, p := range m.GetHistogram().GetDataPoints() {
			got[name] = int64(p.GetCount())
		}
	}
	const prefix = "weir.rate_limiting."
	for name, want := range map[string]int64{
		prefix + "requests{weir.rate_limiting.domain=slack,weir.rate_limiting.reason=over_limit,weir.rate_limiting.result=denied}":                                                2,
		prefix + "policy.decisions{weir.rate_limiting.domain=slack,weir.rate_limiting.policy=per-category,weir.rate_limiting.reason=ok,weir.rate_limiting.result=allowed}":        10,
		prefix + "policy.decisions{weir.rate_limiting.domain=slack,weir.rate_limiting.policy=trial,weir.rate_limiting.reason=over_limit,weir.rate_limiting.result=shadow_denied}": 11,
		prefix + "store.errors{error.type=timeout}": 1,
		prefix + "degraded_requests{}":              2,
		prefix + "request.duration":                 12,
		prefix + "store.duration":                   1,
	} {
		if got[name] != want {
			t.Errorf("%s = %d, want %d; got %v", name, got[name], want, got)
		}
	}
	if who := attributes(c.resource); !strings.Contains(who, "service.name=weir") || !strings.Contains(who, "service.version=1.2.3") {
		t.Errorf("the resource is %s", who)
	}
}

func TestOTLPSpans(t *testing.T) {
	c, url := newCollector(t)
	s := newService(t, telemetry.Options{OTLP: url})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/{what}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(s.Trace(mux))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/check?secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	request.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	server.Close() // waits for the handler, and so for the span's end
	failure := errors.New("the call failed")
	if err := s.Span(t.Context(), "a/Method", func(string) string { return "" }, func(context.Context) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("a call returns %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	span := c.spans["POST /v1/{what}"]
	if hex.EncodeToString(span.GetTraceId()) != trace || hex.EncodeToString(span.GetParentSpanId()) != parent || span.GetKind() != traces.Span_SPAN_KIND_SERVER || span.GetStatus().GetCode() != traces.Status_STATUS_CODE_ERROR {
		t.Errorf("got %v of %v", span, c.spans)
	}
	if got := attributes(span.GetAttributes()); got != "http.route=/v1/{what},http.request.method=POST,http.response.status_code=" {
		t.Errorf("the span has %s", got)
	}
	if got := c.spans["a/Method"].GetStatus().GetMessage(); got != "the call failed" {
		t.Errorf("a call that failed says %q", got)
	}
}

func TestOTLPIsOffByDefault(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	s := newService(t, telemetry.Options{}, slack)
	s.ask(t, 1, of("slack"))
	handler := http.NewServeMux()
	if s.Trace(handler) != http.Handler(handler) {
		t.Error("a handler is traced")
	}
	called := false
	err := s.Span(t.Context(), "a", func(string) string { t.Error("the header was read"); return "" }, func(ctx context.Context) error {
		called = ctx == t.Context()
		return nil
	})
	if !called || err != nil {
		t.Errorf("the call was made as it is: %v, %v", called, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOTLPFailures(t *testing.T) {
	for _, bad := range []string{"localhost:4318", "grpc://u:secret@host:4317", "http://", "http://u:secret@host:99999999/%zz"} {
		_, err := telemetry.New(telemetry.Options{OTLP: bad})
		if e, ok := errors.AsType[*weir.InvalidError](err); !ok || e.Field != "otlp" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var mu sync.Mutex
	var failed []error
	s := newService(t, telemetry.Options{OTLP: server.URL, OTLPFailed: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, err)
	}}, slack)
	if err := s.Span(t.Context(), "a", func(string) string { return "" }, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	err := s.Close(t.Context())
	mu.Lock()
	defer mu.Unlock()
	if all := errors.Join(append(failed, err)...); all == nil || !strings.Contains(all.Error(), "404") {
		t.Errorf("the collector answers 404, and it is told: %v", all)
	}
}
