package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/grpclimit"
)

// output receives all of a stream and returns how many messages it had.
func output(stream grpc.ServerStreamingClient[pb.StreamingOutputCallResponse], err error) (n int, _ error) {
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			n++
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// input sends n messages, or fewer if the stream ends, and returns what it ends with.
func input(ctx context.Context, client pb.TestServiceClient, n int, options ...grpc.CallOption) error {
	stream, err := client.StreamingInputCall(ctx, options...)
	if err != nil {
		return err
	}
	for range n {
		if err := stream.Send(new(pb.StreamingInputCallRequest)); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	_, err = stream.CloseAndRecv()
	return err
}

const overHour = `ResourceExhausted over the limit "user": try again in 1h0m0s; retry 1h0m0s; user 2 the limit is 2/1h`

func TestStreamOpenings(t *testing.T) {
	s := new(service)
	client := dial(t, serve(t, s, servers(grpclimit.Options{Limiter: stopped(t), Requests: always(named("user", weir.PerHour(2)))})...))
	for i, want := range []string{"OK", "OK", overHour} {
		if got := text(input(within(t), client, 10)); got != want {
			t.Errorf("stream %d: got %s, want %s", i, got, want)
		}
	}
	if s.calls.Load() != 2 || s.messages.Load() != 20 {
		t.Errorf("%d calls with %d messages reached the handler, want 2 with 20", s.calls.Load(), s.messages.Load())
	}
}

// The client sees the denial whatever a handler makes of the error, and the
// trailer is that of the last message.
func TestStreamMessages(t *testing.T) {
	const (
		used  = `ratelimit: "user";r=0;t=3600` + "\n" + `ratelimit-policy: "user";q=2;w=3600`
		tells = "grpc-retry-pushback-ms: 3600000\n" + used + "\nretry-after: 3600"
	)
	tests := map[string]struct {
		send          func(client pb.TestServiceClient, option grpc.CallOption) error
		want, trailer string
	}{
		"as many as may": {func(client pb.TestServiceClient, option grpc.CallOption) error {
			return input(within(t), client, 2, option)
		}, "OK", used},
		"a handler that wraps the error": {func(client pb.TestServiceClient, option grpc.CallOption) error {
			return input(within(t), client, 3, option)
		}, overHour, tells},
		"a handler that receives on": {func(client pb.TestServiceClient, option grpc.CallOption) error {
			stream, err := client.FullDuplexCall(within(t), option)
			for err == nil {
				if err = stream.Send(new(pb.StreamingOutputCallRequest)); err == nil || errors.Is(err, io.EOF) {
					_, err = stream.Recv()
				}
			}
			return err
		}, overHour, tells},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := new(service)
			client := dial(t, serve(t, s, servers(grpclimit.Options{Limiter: stopped(t), Messages: always(named("user", weir.PerHour(2)))})...))
			var trailer metadata.MD
			if got := text(test.send(client, grpc.Trailer(&trailer))); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if got := fields(trailer); got != test.trailer {
				t.Errorf("trailer: got\n%s\nwant\n%s", got, test.trailer)
			}
			if n := s.messages.Load(); n != 2 {
				t.Errorf("%d messages reached the handler, want 2", n)
			}
		})
	}
}

// A message can cost what it asks for, and only some need be limited.
func TestStreamCosts(t *testing.T) {
	s := new(service)
	client := dial(t, serve(t, s, servers(grpclimit.Options{
		Limiter:  stopped(t),
		Requests: always(named("streams", weir.PerHour(10))),
		Messages: func(_ context.Context, method string, message any) []grpclimit.Request {
			r, ok := message.(*pb.StreamingOutputCallRequest)
			if !ok || method != "/grpc.testing.TestService/StreamingOutputCall" {
				return nil
			}
			return []grpclimit.Request{costly(named("answers", weir.PerHour(5)), int64(len(r.GetResponseParameters())))}
		},
	})...))
	for _, step := range []struct {
		answers int
		want    codes.Code
		trailer string
	}{
		{3, codes.OK, `"answers";r=2;t=3600`},
		{3, codes.ResourceExhausted, `"answers";r=2;t=3600`},
		{2, codes.OK, `"answers";r=0;t=3600`},
		{6, codes.ResourceExhausted, `"answers";r=0`},
	} {
		var trailer metadata.MD
		ask := &pb.StreamingOutputCallRequest{ResponseParameters: make([]*pb.ResponseParameters, step.answers)}
		for i := range ask.GetResponseParameters() {
			ask.ResponseParameters[i] = new(pb.ResponseParameters)
		}
		_, err := output(client.StreamingOutputCall(within(t), ask, grpc.Trailer(&trailer)))
		if got := strings.Join(trailer["ratelimit"], " and "); status.Code(err) != step.want || got != step.trailer {
			t.Errorf("%d answers: got %v, %s, want %v, %s", step.answers, err, got, step.want, step.trailer)
		}
	}
	var trailer metadata.MD
	if err := input(within(t), client, 10, grpc.Trailer(&trailer)); err != nil || strings.Join(trailer["ratelimit"], "") != `"streams";r=5;t=3600` {
		t.Errorf("messages that are not limited: got %v, %v", err, trailer)
	}
}

// A stream whose store fails between two messages does not end as if over its limit.
func TestStreamStoreFails(t *testing.T) {
	l := weir.New(weir.Options{})
	s := new(service)
	client := dial(t, serve(t, s, servers(grpclimit.Options{Limiter: l, Messages: always(named("user", weir.PerHour(10)))})...))
	stream, err := client.FullDuplexCall(within(t))
	for range 2 {
		if err == nil {
			err = stream.Send(new(pb.StreamingOutputCallRequest))
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		if closed := l.Close(); closed != nil {
			t.Fatal(closed)
		}
	}
	if status.Code(err) != codes.Unavailable || s.messages.Load() != 1 {
		t.Errorf("got %v after %d messages", err, s.messages.Load())
	}
}
