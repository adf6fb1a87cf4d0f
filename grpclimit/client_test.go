package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/grpclimit"
	"github.com/weirlimit/weir/layer"
)

// Several clients keep to one limit together, and what waits gets through.
func TestClientsWait(t *testing.T) {
	const most, window, callers, each = 3, 40 * time.Millisecond, 4, 3
	l := limiter(t, nil)
	requests := always(named("them", weir.Per(most, window)), named("them at night", weir.PerHour(1000)))
	tests := map[string]struct {
		options grpclimit.Options
		call    func(client pb.TestServiceClient) error
	}{
		"calls": {grpclimit.Options{Limiter: l, Requests: requests}, func(client pb.TestServiceClient) error {
			for range each {
				if _, err := client.EmptyCall(within(t), new(pb.Empty)); err != nil {
					return err
				}
			}
			return nil
		}},
		"streams": {grpclimit.Options{Limiter: l, Requests: requests}, func(client pb.TestServiceClient) error {
			for range each {
				if n, err := output(client.StreamingOutputCall(within(t), new(pb.StreamingOutputCallRequest))); err != nil || n != 1 {
					return errors.Join(err, errors.New("want one message"))
				}
			}
			return nil
		}},
		"messages": {grpclimit.Options{Limiter: l, Messages: requests}, func(client pb.TestServiceClient) error {
			return input(within(t), client, each)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := new(service)
			addr := serve(t, s)
			start := time.Now()
			var wg sync.WaitGroup
			for range callers {
				client := dial(t, addr, clients(test.options)...)
				wg.Go(func() {
					if err := test.call(client); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if least := (callers*each/most - 1) * window; time.Since(start) < least {
				t.Errorf("%d units at %d every %v took %v, want at least %v", callers*each, most, window, time.Since(start), least)
			}
			if n := max(s.calls.Load(), s.messages.Load()); n != callers*each {
				t.Errorf("%d reached the server, want %d", n, callers*each)
			}
		})
	}
}

// A client that cannot wait is told at once, whether it calls, opens or sends.
func TestClientsRefuse(t *testing.T) {
	one := weir.PerHour(1)
	used := func() *weir.Limiter {
		l := stopped(t)
		if _, err := l.Allow(t.Context(), named("them", one).Key, one); err != nil {
			t.Fatal(err)
		}
		return l
	}
	onFailure := func(o weir.OnFailure) grpclimit.Request {
		r := named("them", one)
		r.OnFailure = o
		return r
	}
	away := failing{err: &weir.StoreError{Err: errors.New("refused")}}
	const unavailable = "Unavailable the limits of this call cannot be asked: try again later"
	tests := map[string]struct {
		limiter *weir.Limiter
		request grpclimit.Request
		is      error
		want    string
	}{
		"the deadline is nearer": {
			used(), named("them", one), weir.ErrDeadline,
			`DeadlineExceeded over the limit "them" for longer than the deadline allows: 1h0m0s; retry 1h0m0s; them 1 the limit is 1/1h`,
		},
		"never": {
			used(), costly(named("them", one), 2), weir.ErrNever,
			`ResourceExhausted over the limit "them", whenever it is tried; them 1 the limit is 1/1h`,
		},
		"not valid":        {used(), named("them", weir.Limit{}), nil, "Internal the limits of this call are not valid"},
		"deny":             {limiter(t, away), onFailure(weir.OnFailureDeny), away.err, unavailable},
		"local":            {limiter(t, away), onFailure(weir.OnFailureLocal), away.err, unavailable},
		"allow":            {limiter(t, away), onFailure(weir.OnFailureAllow), nil, "OK"},
		"until it is back": {limiter(t, backLater{}), onFailure(weir.OnFailureDeny), weir.ErrDeadline, unavailable + "; retry 1h0m0s"},
		"by a Fallback":    {limiter(t, layer.NewFallback(layer.FallbackOptions{Store: away})), onFailure(weir.OnFailureAllow), nil, "OK"},
	}
	doors := map[string]struct {
		messages bool
		call     func(client pb.TestServiceClient) error
	}{
		"call": {false, func(client pb.TestServiceClient) error {
			_, err := client.EmptyCall(within(t), new(pb.Empty))
			return err
		}},
		"opening": {false, func(client pb.TestServiceClient) error { return input(within(t), client, 1) }},
		"message": {true, func(client pb.TestServiceClient) error { return input(within(t), client, 1) }},
	}
	for name, test := range tests {
		for door, at := range doors {
			t.Run(name+"/"+door, func(t *testing.T) {
				s, o := new(service), grpclimit.Options{Limiter: test.limiter}
				if limits := always(test.request); at.messages {
					o.Messages = limits
				} else {
					o.Requests = limits
				}
				err := at.call(dial(t, serve(t, s), clients(o)...))
				if got := text(err); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
				if test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("%v is not %v", err, test.is)
				}
				if n := s.messages.Load(); err != nil && n > 0 {
					t.Errorf("%d messages reached the server", n)
				}
			})
		}
	}
}

// backLater is a store that denies, as it cannot be asked.
type backLater struct{ weir.Store }

func (backLater) Take(_ context.Context, lists []weir.List) {
	for i := range lists {
		for j := range lists[i].Rows {
			lists[i].Rows[j] = weir.Decision{Reason: weir.StoreDenied, RetryAfter: time.Hour}
		}
	}
}

func (backLater) Close() error { return nil }

// told is a store that says when it is asked.
type told struct {
	weir.Store

	asked chan<- struct{}
}

func (s told) Take(ctx context.Context, lists []weir.List) {
	s.Store.Take(ctx, lists)
	s.asked <- struct{}{}
}

// Who leaves while waiting is not kept, and nothing is sent for him.
func TestClientLeaves(t *testing.T) {
	one := named("them", weir.PerHour(1))
	for name, call := range map[string]func(context.Context, pb.TestServiceClient) error{
		"call": func(ctx context.Context, client pb.TestServiceClient) error {
			_, err := client.EmptyCall(ctx, new(pb.Empty))
			return err
		},
		"message": func(ctx context.Context, client pb.TestServiceClient) error {
			_, err := client.StreamingOutputCall(ctx, new(pb.StreamingOutputCallRequest))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 2)
			l := limiter(t, told{weir.NewMemory(weir.MemoryOptions{}), asked})
			if _, err := l.Allow(t.Context(), one.Key, one.Limit); err != nil {
				t.Fatal(err)
			}
			<-asked
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				<-asked
				cancel()
			}()
			s := new(service)
			o := grpclimit.Options{Limiter: l, Messages: always(one)}
			if name == "call" {
				o.Requests = o.Messages
			}
			if err := call(ctx, dial(t, serve(t, s), clients(o)...)); status.Code(err) != codes.Canceled {
				t.Errorf("got %v", err)
			}
			if n := s.messages.Load(); n != 0 {
				t.Errorf("%d messages reached the server", n)
			}
		})
	}
}

// A message that cannot be sent ends the stream on both sides.
func TestUnsentEndsStream(t *testing.T) {
	ended := make(chan error, 1)
	s := &service{before: func(ctx context.Context) error {
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}
	o := grpclimit.Options{Limiter: limiter(t, nil), Messages: always(costly(named("them", weir.PerHour(1)), 2))}
	stream, err := dial(t, serve(t, s), clients(o)...).FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(new(pb.StreamingOutputCallRequest)); !errors.Is(err, weir.ErrNever) {
		t.Errorf("Send: got %v", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("Recv: got %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the server: got %v", err)
	}
}

// A stream that ends lets go of a message that waits, as of any that is sent.
func TestEndedStreamDoesNotWait(t *testing.T) {
	asked := make(chan struct{}, 3)
	s := &service{before: func(context.Context) error {
		<-asked
		<-asked
		return status.Error(codes.Aborted, "enough")
	}}
	l := limiter(t, told{weir.NewMemory(weir.MemoryOptions{}), asked})
	o := grpclimit.Options{Limiter: l, Messages: always(named("them", weir.PerHour(1)))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(time.Minute, cancel).Stop() // a deadline would be nearer than the wait
	stream, err := dial(t, serve(t, s), clients(o)...).FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		received <- err
	}()
	if err := stream.Send(new(pb.StreamingOutputCallRequest)); err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(new(pb.StreamingOutputCallRequest)); !errors.Is(err, io.EOF) {
		t.Errorf("Send: got %v", err)
	}
	if err := <-received; status.Code(err) != codes.Aborted {
		t.Errorf("Recv: got %v", err)
	}
}

// The attempts of gRPC's own retries are one call.
func TestRetriesCountOnce(t *testing.T) {
	s := new(service)
	s.before = func(context.Context) error {
		if s.calls.Load() < 3 {
			return status.Error(codes.Unavailable, "busy")
		}
		return nil
	}
	o := grpclimit.Options{Limiter: limiter(t, nil), Requests: always(named("them", weir.PerHour(1)))}
	client := dial(t, serve(t, s), append(clients(o), retrying("0.001s", "UNAVAILABLE"))...)
	if _, err := client.EmptyCall(within(t), new(pb.Empty)); err != nil || s.calls.Load() != 3 {
		t.Errorf("got %v after %d attempts", err, s.calls.Load())
	}
}

// Options that limit nothing change nothing, and streams fail as they would.
func TestNothingLimited(t *testing.T) {
	limits := map[string]grpclimit.Options{
		"no functions": {},
		"no requests":  {Requests: always(), Messages: always()},
	}
	for name, o := range limits {
		t.Run(name, func(t *testing.T) {
			client := dial(t, serve(t, new(service), servers(o)...), clients(o)...)
			_, err := client.EmptyCall(within(t), new(pb.Empty))
			if err = errors.Join(err, input(within(t), client, 3)); err != nil {
				t.Error(err)
			}
			gone := dial(t, "passthrough:///127.0.0.1:0", clients(o)...)
			if err := input(within(t), gone, 1); status.Code(err) != codes.Unavailable {
				t.Errorf("without a server: got %v", err)
			}
		})
	}
}
