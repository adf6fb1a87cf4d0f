package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/grpclimit"
)

// service answers everything with as little as possible, once before has let it.
type service struct {
	pb.UnimplementedTestServiceServer

	calls, messages atomic.Int64
	before          func(ctx context.Context) error
}

func (s *service) begin(ctx context.Context) error {
	s.calls.Add(1)
	if s.before == nil {
		return nil
	}
	return s.before(ctx)
}

func (s *service) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	return new(pb.Empty), s.begin(ctx)
}

func (s *service) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	s.messages.Add(1)
	if err := s.begin(stream.Context()); err != nil {
		return err
	}
	return stream.Send(new(pb.StreamingOutputCallResponse))
}

func (s *service) StreamingInputCall(stream grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
	if err := s.begin(stream.Context()); err != nil {
		return err
	}
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return stream.SendAndClose(new(pb.StreamingInputCallResponse))
		} else if err != nil {
			return fmt.Errorf("the handler has words of its own: %w", err)
		}
		s.messages.Add(1)
	}
}

// FullDuplexCall answers each message, and receives on after an error.
func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	if err := s.begin(stream.Context()); err != nil {
		return err
	}
	for failed := false; ; s.messages.Add(1) {
		if _, err := stream.Recv(); err != nil && failed {
			return nil
		} else if err != nil {
			failed = true
			s.messages.Add(-1)
		} else if err = stream.Send(new(pb.StreamingOutputCallResponse)); err != nil {
			return err
		}
	}
}

// serve returns the address of a server on the loopback.
func serve(t *testing.T, s *service, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func dial(t *testing.T, addr string, options ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return pb.NewTestServiceClient(conn)
}

// servers are the interceptors of a server.
func servers(o grpclimit.Options) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(o)), grpc.ChainStreamInterceptor(grpclimit.StreamServer(o))}
}

// clients are the interceptors of a client.
func clients(o grpclimit.Options) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(grpclimit.UnaryClient(o)), grpc.WithChainStreamInterceptor(grpclimit.StreamClient(o))}
}

// stopped returns a limiter whose clock stands still.
func stopped(t *testing.T) *weir.Limiter {
	t.Helper()
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	return limiter(t, weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return now }}))
}

func limiter(t *testing.T, store weir.Store) *weir.Limiter {
	t.Helper()
	l := weir.New(weir.Options{Store: store})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// named is a request for one unit under a limit's name.
func named(name string, limit weir.Limit) grpclimit.Request {
	return grpclimit.Request{Name: name, Request: weir.Request{Key: "secret of " + name, Limit: limit}}
}

// always returns the same requests for whatever is asked.
func always(requests ...grpclimit.Request) func(context.Context, string, any) []grpclimit.Request {
	return func(context.Context, string, any) []grpclimit.Request { return slices.Clone(requests) }
}

// text writes a status as a client sees it on a line, its details after it.
func text(err error) string {
	s := status.Convert(err)
	lines := []string{strings.TrimSpace(s.Code().String() + " " + s.Message())}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			lines = append(lines, "retry "+d.GetRetryDelay().AsDuration().String())
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %s %s", v.GetQuotaId(), v.GetQuotaValue(), v.GetDescription(), v.GetSubject())))
			}
		default:
			lines = append(lines, fmt.Sprintf("%v", d))
		}
	}
	return strings.Join(lines, "; ")
}

// fields writes what the interceptors have put into metadata.
func fields(md metadata.MD) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(md)) {
		if name != "content-type" && name != "grpc-status-details-bin" {
			lines = append(lines, name+": "+strings.Join(md[name], " and "))
		}
	}
	return strings.Join(lines, "\n")
}

// within is a context that ends long after what is tested, so that nothing hangs.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
