package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/grpclimit"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/layer"
)

func costly(r grpclimit.Request, cost int64) grpclimit.Request {
	r.Cost = cost
	return r
}

func inMode(r grpclimit.Request, mode weir.Mode) grpclimit.Request {
	r.Mode = mode
	return r
}

// What a client of a server sees of the last of some calls.
func TestUnaryServer(t *testing.T) {
	one, ten := weir.PerHour(1), weir.PerMinute(10)
	tests := map[string]struct {
		requests []grpclimit.Request
		calls    int
		want     string
		trailer  []string
	}{
		"not limited": {nil, 3, "OK", nil},
		"admitted": {
			[]grpclimit.Request{named("user", ten)}, 2, "OK",
			[]string{`ratelimit: "user";r=8;t=60`, `ratelimit-policy: "user";q=10;w=60`},
		},
		"one of two denies": {
			[]grpclimit.Request{named("all", ten), named("user", one)}, 2,
			`ResourceExhausted over the limit "user": try again in 1h0m0s; retry 1h0m0s; user 1 the limit is 1/1h`,
			[]string{"grpc-retry-pushback-ms: 3600000", `ratelimit: "all";r=9, "user";r=0;t=3600`, `ratelimit-policy: "all";q=10;w=60, "user";q=1;w=3600`, "retry-after: 3600"},
		},
		"both deny": {
			[]grpclimit.Request{named("user", one), named("all", weir.PerMinute(1))}, 2,
			`ResourceExhausted over the limit "user", "all": try again in 1h0m0s; retry 1h0m0s; user 1 the limit is 1/1h; all 1 the limit is 1/1m`,
			[]string{"grpc-retry-pushback-ms: 3600000", `ratelimit: "user";r=0;t=3600, "all";r=0;t=60`, `ratelimit-policy: "user";q=1;w=3600, "all";q=1;w=60`, "retry-after: 3600"},
		},
		"the wait to the microsecond": {
			[]grpclimit.Request{named("tick", weir.Per(1, 1_000_001*time.Microsecond))}, 2,
			`ResourceExhausted over the limit "tick": try again in 1.000001s; retry 1.000001s; tick 1 the limit is 1/1000001us`,
			[]string{"grpc-retry-pushback-ms: 1001", `ratelimit: "tick";r=0;t=2`, `ratelimit-policy: "tick";q=1;w=2`, "retry-after: 2"},
		},
		"never": {
			[]grpclimit.Request{costly(named("user", ten), 11)}, 1,
			`ResourceExhausted over the limit "user", whenever it is tried; user 10 the limit is 10/1m`,
			[]string{"grpc-retry-pushback-ms: -1", `ratelimit: "user";r=10`, `ratelimit-policy: "user";q=10;w=60`},
		},
		"a shadow is not told": {
			[]grpclimit.Request{inMode(named("trial", one), weir.Shadow), named("all", ten)}, 3, "OK",
			[]string{`ratelimit: "all";r=7;t=60`, `ratelimit-policy: "all";q=10;w=60`},
		},
		"a peek does not deny": {
			[]grpclimit.Request{inMode(named("user", one), weir.Record), inMode(named("user", one), weir.Peek), named("all", weir.PerMinute(1))}, 2,
			`ResourceExhausted over the limit "all": try again in 1m0s; retry 1m0s; all 1 the limit is 1/1m`,
			[]string{
				"grpc-retry-pushback-ms: 60000", `ratelimit: "user";r=0, "user";r=0, "all";r=0;t=60`,
				`ratelimit-policy: "user";q=1;w=3600, "user";q=1;w=3600, "all";q=1;w=60`, "retry-after: 60",
			},
		},
		"names that need care": {
			[]grpclimit.Request{named("", one), named("a\"b\xff\n", one)}, 2,
			`ResourceExhausted over the limit "default", "a\"b?\n": try again in 1h0m0s; retry 1h0m0s; default 1 the limit is 1/1h; a"b?` + "\n" + ` 1 the limit is 1/1h`,
			[]string{"grpc-retry-pushback-ms: 3600000", `ratelimit: "default";r=0;t=3600, "a\"b??";r=0;t=3600`, `ratelimit-policy: "default";q=1;w=3600, "a\"b??";q=1;w=3600`, "retry-after: 3600"},
		},
		"what is not valid is not sent": {
			[]grpclimit.Request{named("user", weir.Limit{})}, 1, "Internal the limits of this call are not valid", nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := new(service)
			client := dial(t, serve(t, s, servers(grpclimit.Options{Limiter: stopped(t), Requests: always(test.requests...)})...))
			var header, trailer metadata.MD
			var err error
			for range test.calls {
				trailer = nil
				_, err = client.EmptyCall(within(t), new(pb.Empty), grpc.Header(&header), grpc.Trailer(&trailer))
			}
			if got := text(err); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if got, want := fields(trailer), strings.Join(test.trailer, "\n"); got != want {
				t.Errorf("trailer: got\n%s\nwant\n%s", got, want)
			}
			if got := fields(header); got != "" {
				t.Errorf("header, which ends gRPC's retries: %s", got)
			}
			if told := text(err) + fmt.Sprint(trailer); strings.Contains(told, "secret") {
				t.Errorf("a key is told: %s", told)
			}
			if want := int64(test.calls) - map[bool]int64{true: 1}[err != nil]; s.calls.Load() != want {
				t.Errorf("the handler was called %d times, want %d", s.calls.Load(), want)
			}
		})
	}
}

func TestDialect(t *testing.T) {
	for dialect, want := range map[httplimit.Dialect]string{
		httplimit.Delta: "x-ratelimit-limit: 5\nx-ratelimit-remaining: 4\nx-ratelimit-reset: 60",
		httplimit.None:  "",
	} {
		o := grpclimit.Options{Limiter: stopped(t), Requests: always(named("user", weir.PerMinute(5))), Fields: httplimit.Fields{Dialect: dialect}}
		var trailer metadata.MD
		_, err := dial(t, serve(t, new(service), servers(o)...)).EmptyCall(within(t), new(pb.Empty), grpc.Trailer(&trailer))
		if got := fields(trailer); got != want || err != nil {
			t.Errorf("%v: got %s, %v, want %s", dialect, got, err, want)
		}
	}
}

// The limits of a call are chosen by whoever calls what with which message.
func TestChosen(t *testing.T) {
	o := grpclimit.Options{Limiter: stopped(t), Requests: func(ctx context.Context, method string, message any) []grpclimit.Request {
		md, _ := metadata.FromIncomingContext(ctx)
		r, ok := message.(*pb.StreamingOutputCallRequest)
		if ok || message == nil && method != "/grpc.testing.TestService/StreamingOutputCall" {
			t.Errorf("%s: got message %v", method, r)
		}
		return []grpclimit.Request{{Request: weir.Request{Key: method + grpclimit.Peer(ctx) + strings.Join(md["user"], ""), Limit: weir.PerHour(1)}}}
	}}
	client := dial(t, serve(t, new(service), servers(o)...))
	for _, step := range []struct {
		user   string
		stream bool
		want   codes.Code
	}{
		{"alice", false, codes.OK},
		{"alice", false, codes.ResourceExhausted},
		{"bob", false, codes.OK},
		{"alice", true, codes.OK},
		{"alice", true, codes.ResourceExhausted},
	} {
		ctx := metadata.AppendToOutgoingContext(within(t), "user", step.user)
		_, err := client.EmptyCall(ctx, new(pb.Empty))
		if step.stream {
			_, err = output(client.StreamingOutputCall(ctx, new(pb.StreamingOutputCallRequest)))
		}
		if got := status.Code(err); got != step.want {
			t.Errorf("%+v: got %v", step, err)
		}
	}
}

func TestExactlyMax(t *testing.T) {
	const most, callers, each = 100, 64, 5
	s := new(service)
	addr := serve(t, s, servers(grpclimit.Options{Limiter: limiter(t, nil), Requests: always(named("user", weir.PerHour(most)))})...)
	shared := []pb.TestServiceClient{dial(t, addr), dial(t, addr), dial(t, addr), dial(t, addr)}
	var admitted, denied atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				_, err := shared[i%len(shared)].EmptyCall(within(t), new(pb.Empty))
				switch status.Code(err) {
				case codes.OK:
					admitted.Add(1)
				case codes.ResourceExhausted:
					denied.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != most || denied.Load() != callers*each-most || s.calls.Load() != most {
		t.Errorf("admitted %d, denied %d, handled %d of %d, want %d admitted", admitted.Load(), denied.Load(), s.calls.Load(), callers*each, most)
	}
}

// failing is a store that is out of order.
type failing struct {
	weir.Store

	err error
}

func (f failing) Take(_ context.Context, lists []weir.List) {
	for i := range lists {
		lists[i].Err = f.err
	}
}

func (failing) Close() error { return nil }

func TestStoreFails(t *testing.T) {
	onFailure := func(modes ...weir.OnFailure) (requests []grpclimit.Request) {
		for i, m := range modes {
			r := named(string(rune('a'+i)), weir.PerHour(2))
			r.OnFailure = m
			requests = append(requests, r)
		}
		return requests
	}
	away := &weir.StoreError{Server: "10.0.0.7:6379", Err: errors.New("refused")}
	wrong := &weir.StoreError{Server: "10.0.0.7:6379", Settings: true, Err: errors.New("wrong password")}
	const unavailable = "Unavailable the limits of this call cannot be asked: try again later"
	tests := map[string]struct {
		store    weir.Store
		requests []grpclimit.Request
		want     string
		trailer  []string
	}{
		"allow":              {failing{err: away}, onFailure(weir.OnFailureAllow), "OK", []string{"weir-reason: store_unavailable_allowed"}},
		"deny":               {failing{err: away}, onFailure(weir.OnFailureDeny), unavailable, []string{"weir-reason: store_unavailable_denied"}},
		"local":              {failing{err: away}, onFailure(weir.OnFailureLocal), unavailable, []string{"weir-reason: store_unavailable_denied"}},
		"the strictest":      {failing{err: away}, onFailure(weir.OnFailureAllow, weir.OnFailureDeny), unavailable, []string{"weir-reason: store_unavailable_denied"}},
		"of those enforced":  {failing{err: away}, append(onFailure(weir.OnFailureAllow), inMode(named("trial", weir.PerHour(1)), weir.Shadow)), "OK", []string{"weir-reason: store_unavailable_allowed"}},
		"a mistake":          {failing{err: wrong}, onFailure(weir.OnFailureAllow), unavailable, []string{"weir-reason: store_unavailable_denied"}},
		"closed":             {failing{err: weir.ErrClosed}, onFailure(weir.OnFailureAllow), unavailable, []string{"weir-reason: store_unavailable_denied"}},
		"an error like any":  {failing{err: errors.New("broken")}, onFailure(weir.OnFailureDeny), unavailable, []string{"weir-reason: store_unavailable_denied"}},
		"behind a Fallback":  {layer.NewFallback(layer.FallbackOptions{Store: failing{err: away}}), onFailure(weir.OnFailureLocal), "OK", []string{`ratelimit: "a";r=1;t=3600`, `ratelimit-policy: "a";q=2;w=3600`, "weir-reason: store_unavailable_local"}},
		"denied by Fallback": {layer.NewFallback(layer.FallbackOptions{Store: failing{err: away}}), onFailure(weir.OnFailureDeny), unavailable + "; retry 1s", []string{"grpc-retry-pushback-ms: 1000", `ratelimit: "a";r=0;t=1`, `ratelimit-policy: "a";q=2;w=3600`, "retry-after: 1", "weir-reason: store_unavailable_denied"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var seen error
			see := func(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				reply, err := handler(ctx, message)
				seen = err
				return reply, err
			}
			o := grpclimit.Options{Limiter: limiter(t, test.store), Requests: always(test.requests...)}
			client := dial(t, serve(t, new(service), grpc.ChainUnaryInterceptor(see, grpclimit.UnaryServer(o))))
			var trailer metadata.MD
			_, err := client.EmptyCall(within(t), new(pb.Empty), grpc.Trailer(&trailer))
			if got := text(err); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if got, want := fields(trailer), strings.Join(test.trailer, "\n"); got != want {
				t.Errorf("trailer: got\n%s\nwant\n%s", got, want)
			}
			if f, ok := test.store.(failing); ok && err != nil && (!errors.Is(seen, f.err) || !strings.HasSuffix(seen.Error(), ": "+f.err.Error())) {
				t.Errorf("the interceptor outside saw %v, want the cause: %v", seen, f.err)
			}
		})
	}
}

// silent is a store that answers nobody, and says when it is asked.
type silent struct {
	weir.Store

	asked chan struct{}
}

func (s silent) Take(ctx context.Context, lists []weir.List) {
	s.asked <- struct{}{}
	<-ctx.Done()
	for i := range lists {
		lists[i].Err = &weir.StoreError{Unknown: true, Err: ctx.Err()}
	}
}

func (silent) Close() error { return nil }

// A caller who has left is told nothing of the store, which has not failed.
func TestLeft(t *testing.T) {
	store := silent{asked: make(chan struct{}, 1)}
	seen := make(chan error, 1)
	see := func(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		reply, err := handler(ctx, message)
		seen <- err
		return reply, err
	}
	r := named("user", weir.PerHour(1))
	r.OnFailure = weir.OnFailureAllow
	o := grpclimit.Options{Limiter: limiter(t, store), Requests: always(r)}
	s := new(service)
	client := dial(t, serve(t, s, grpc.ChainUnaryInterceptor(see, grpclimit.UnaryServer(o))))
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		<-store.asked
		cancel()
	}()
	if _, err := client.EmptyCall(ctx, new(pb.Empty)); status.Code(err) != codes.Canceled {
		t.Errorf("the client got %v", err)
	}
	if err := <-seen; status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("the server got %v", err)
	}
	if n := s.calls.Load(); n != 0 {
		t.Errorf("the handler was called %d times", n)
	}
}

// retrying is a client whose own backoff is longer than the test, so that only
// what the server tells makes it try again, or shorter than what it is told.
func retrying(backoff, code string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "` + backoff +
		`", "maxBackoff": "` + backoff + `", "backoffMultiplier": 1, "retryableStatusCodes": ["` + code + `"]}}]}`)
}

func TestRetryPolicy(t *testing.T) {
	count := func(attempts *atomic.Int64, r grpclimit.Request) func(context.Context, string, any) []grpclimit.Request {
		return func(context.Context, string, any) []grpclimit.Request {
			attempts.Add(1)
			return []grpclimit.Request{r}
		}
	}
	t.Run("when there is room", func(t *testing.T) {
		var attempts atomic.Int64
		o := grpclimit.Options{Limiter: limiter(t, nil), Requests: count(&attempts, named("user", weir.Per(1, 100*time.Millisecond)))}
		client := dial(t, serve(t, new(service), servers(o)...), retrying("600s", "RESOURCE_EXHAUSTED"))
		for range 3 {
			if _, err := client.EmptyCall(within(t), new(pb.Empty)); err != nil {
				t.Fatal(err)
			}
		}
		// Of the second and the third call each was denied once at most: never too early.
		if n := attempts.Load(); n < 3 || n > 5 {
			t.Errorf("%d attempts for 3 calls, want one retry of the second and the third at most", n)
		}
	})
	t.Run("not where no wait helps", func(t *testing.T) {
		var attempts atomic.Int64
		o := grpclimit.Options{Limiter: limiter(t, nil), Requests: count(&attempts, costly(named("user", weir.PerHour(1)), 2))}
		client := dial(t, serve(t, new(service), servers(o)...), retrying("0.001s", "RESOURCE_EXHAUSTED"))
		if _, err := client.EmptyCall(within(t), new(pb.Empty)); status.Code(err) != codes.ResourceExhausted || attempts.Load() != 1 {
			t.Errorf("got %v after %d attempts", err, attempts.Load())
		}
	})
	t.Run("other retries go on", func(t *testing.T) {
		s := new(service)
		s.before = func(context.Context) error {
			if s.calls.Load() < 3 {
				return status.Error(codes.Unavailable, "busy")
			}
			return nil
		}
		o := grpclimit.Options{Limiter: limiter(t, nil), Requests: always(named("user", weir.PerHour(10)))}
		client := dial(t, serve(t, s, servers(o)...), retrying("0.001s", "UNAVAILABLE"))
		var trailer metadata.MD
		_, err := client.EmptyCall(within(t), new(pb.Empty), grpc.Trailer(&trailer))
		if got := strings.Join(trailer["ratelimit"], " and "); err != nil || !strings.HasPrefix(got, `"user";r=7;`) {
			t.Errorf("got %v, %s", err, got)
		}
	})
}

func TestPeer(t *testing.T) {
	for _, test := range []struct {
		addr net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.ParseIP("203.0.113.7"), Port: 4711}, "203.0.113.7"},
		{&net.TCPAddr{IP: net.ParseIP("203.0.113.7").To4(), Port: 4711}, "203.0.113.7"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:0:1:2:3:4:5"), Port: 4711}, "2001:db8:0:1::/64"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 4711}, "fe80::/64"},
		{&net.TCPAddr{IP: net.ParseIP("64:ff9b::cb00:7107"), Port: 4711}, "203.0.113.7"},
		{&net.UnixAddr{Name: "@", Net: "unix"}, "unix"},
		{nil, ""},
	} {
		p := new(peer.Peer)
		if test.addr != nil {
			p.Addr = test.addr
		}
		if got := grpclimit.Peer(peer.NewContext(t.Context(), p)); got != test.want {
			t.Errorf("%v: got %q, want %q", test.addr, got, test.want)
		}
	}
	if got := grpclimit.Peer(t.Context()); got != "" {
		t.Errorf("without a connection: got %q", got)
	}
	got := make(chan string, 1)
	s := &service{before: func(ctx context.Context) error {
		got <- grpclimit.Peer(ctx)
		return nil
	}}
	if _, err := dial(t, serve(t, s)).EmptyCall(within(t), new(pb.Empty)); err != nil {
		t.Fatal(err)
	}
	if addr := <-got; addr != "127.0.0.1" {
		t.Errorf("over the loopback: got %q", addr)
	}
}
