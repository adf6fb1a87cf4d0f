package rlsapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/rlsapi"
)

const ratelimitService = "envoy.service.ratelimit.v3.RateLimitService"

func TestHealth(t *testing.T) {
	for _, ready := range []bool{true, false} {
		o := options(t, decide.Options{})
		o.Ready = func() bool { return ready }
		_, conn := serve(t, o)
		want := health.HealthCheckResponse_NOT_SERVING
		if ready {
			want = health.HealthCheckResponse_SERVING
		}
		for _, service := range []string{"", "ratelimit", ratelimitService} {
			if got, err := health.NewHealthClient(conn).Check(t.Context(), &health.HealthCheckRequest{Service: service}); err != nil || got.GetStatus() != want {
				t.Errorf("%q: got %v, %v, want %v", service, got, err, want)
			}
		}
		if got, err := health.NewHealthClient(conn).Check(t.Context(), &health.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
			t.Errorf("got %v, %v, want NotFound", got, err)
		}
	}
}

// Those who watch are told that the service stops, and do not hold it up; nor
// is a call that was accepted cut off.
func TestGracefulStop(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	slow := func(context.Context) error {
		close(entered)
		<-release
		return &weir.StoreError{Err: io.ErrUnexpectedEOF}
	}
	s, conn := serve(t, options(t, decide.Options{Limiter: weir.New(weir.Options{Store: broken{fails: slow}})}))
	stream, err := health.NewHealthClient(conn).Watch(t.Context(), &health.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetStatus() != health.HealthCheckResponse_SERVING {
		t.Fatalf("got %v, %v", got, err)
	}
	called := make(chan error, 1)
	go func() {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parse(t, alice("user", ""), &rls.RateLimitRequest{}))
		called <- err
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	if got, err := stream.Recv(); err != nil || got.GetStatus() != health.HealthCheckResponse_NOT_SERVING {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, %v, want Unavailable", got, err)
	}
	close(release)
	if err := <-called; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the store is unavailable") {
		t.Errorf("the call got %v, want its answer", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A call that takes too long is cut off.
func TestHardStop(t *testing.T) {
	entered := make(chan struct{})
	hang := func(ctx context.Context) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}
	s, conn := serve(t, options(t, decide.Options{Limiter: weir.New(weir.Options{Store: broken{fails: hang}})}))
	called := make(chan error, 1)
	go func() {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parse(t, alice("user", ""), &rls.RateLimitRequest{}))
		called <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("nothing was cut off")
	}
	if err := <-called; status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

func TestReflection(t *testing.T) {
	_, conn := serve(t, options(t, decide.Options{}))
	stream, err := reflection.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	got, err := stream.Recv()
	var names []string
	for _, s := range got.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if err != nil || !slices.Contains(names, ratelimitService) || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("got %v, %v", names, err)
	}
}

func TestMessageCap(t *testing.T) {
	_, conn := serve(t, options(t, decide.Options{}))
	for size, want := range map[int]codes.Code{1<<20 - 100: codes.OK, 1 << 20: codes.ResourceExhausted} {
		request := parse(t, `domain: "none" descriptors {entries {key: "k" value: "`+strings.Repeat("v", size)+`"}}`, &rls.RateLimitRequest{})
		if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request); status.Code(err) != want {
			t.Errorf("%d bytes: got %v, want %v", size, err, want)
		}
	}
}

func TestJSON(t *testing.T) {
	failing := func(context.Context) error { return &weir.StoreError{Err: io.ErrUnexpectedEOF} }
	down := rlsapi.Handler(options(t, decide.Options{Limiter: weir.New(weir.Options{Store: broken{fails: failing}})}))
	up := rlsapi.Handler(options(t, decide.Options{}))
	const user = `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`
	for _, test := range []struct {
		handler            http.Handler
		method, body, want string
		status             int
	}{
		{up, "POST", `{"domain":"edge","hitsAddend":2,"descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`, `overall_code: OK ` + perUser("OK", "1"), 200},
		{up, "POST", `{"domain":"edge","hits_addend":2,"descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`, `overall_code: OVER_LIMIT ` + perUser("OVER_LIMIT", "1") + ` response_headers_to_add {key: "Retry-After" value: "43"}`, 429},
		{up, "POST", user, `overall_code: OK ` + perUser("OK", "0"), 200},
		{up, "POST", `{"domain":"elsewhere","descriptors":[{}]}`, `overall_code: OK statuses {code: OK}`, 200},
		{up, "POST", `{"domain":"edge"}`, "descriptors are empty", 400},
		{up, "POST", `{"domain":"edge","descriptor":[]}`, `unknown field \"descriptor\"`, 400},
		{up, "POST", `{`, "the body is no RateLimitRequest", 400},
		{up, "POST", ``, "the body is no RateLimitRequest", 400},
		{up, "POST", `{}`, "domain is empty", 400},
		{up, "POST", `{"domain":"` + strings.Repeat("x", 1<<20) + `"}`, "larger than 1 MiB", 413},
		{up, "GET", ``, "use POST", 405},
		{down, "POST", user, "the store is unavailable", 500},
	} {
		w := httptest.NewRecorder()
		test.handler.ServeHTTP(w, httptest.NewRequest(test.method, "/json", strings.NewReader(test.body)))
		if w.Code != test.status {
			t.Errorf("%s %.100s: got %d, want %d: %s", test.method, test.body, w.Code, test.status, w.Body)
		}
		if test.status != 200 && test.status != 429 {
			if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("%s %.100s: got %s %s, want %s", test.method, test.body, kind, w.Body, test.want)
			}
			continue
		}
		var got rls.RateLimitResponse
		if err := protojson.Unmarshal(w.Body.Bytes(), &got); err != nil || !proto.Equal(&got, parse(t, test.want, &rls.RateLimitResponse{})) {
			t.Errorf("%s: got %s, %v\nwant %s", test.body, w.Body, err, test.want)
		}
		if !strings.HasPrefix(w.Body.String(), `{"overallCode":"`) || !strings.HasSuffix(w.Body.String(), "}\n") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %v %s", test.body, w.Header(), w.Body)
		}
	}
}

// A page of another site may not ask in the name of a browser that shows it.
func TestCrossOrigin(t *testing.T) {
	r := httptest.NewRequest("POST", "http://localhost/json", strings.NewReader(`{}`))
	r.Header.Set("Origin", "http://example.com")
	w := httptest.NewRecorder()
	rlsapi.Handler(options(t, decide.Options{})).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("got %d", w.Code)
	}
}

func TestHealthcheck(t *testing.T) {
	for _, test := range []struct {
		method string
		ready  bool
		status int
		want   string
	}{{"GET", true, 200, "OK"}, {"HEAD", true, 200, "OK"}, {"GET", false, 500, "not ready"}, {"POST", true, 405, "use GET"}} {
		o := options(t, decide.Options{})
		o.Ready = func() bool { return test.ready }
		w := httptest.NewRecorder()
		rlsapi.Handler(o).ServeHTTP(w, httptest.NewRequest(test.method, "/healthcheck", nil))
		body, _ := io.ReadAll(w.Body)
		if w.Code != test.status || !strings.Contains(string(body), test.want) {
			t.Errorf("%+v: got %d %s", test, w.Code, body)
		}
	}
}
