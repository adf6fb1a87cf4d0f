package grpclimit

import (
	"context"
	"net/netip"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/httplimit"
)

// UnaryServer returns an interceptor that refuses the calls that are over their
// limits. The package's comment tells with which status.
func UnaryServer(o Options) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if o.Requests == nil {
			return handler(ctx, message)
		}
		v, err := decide(ctx, o.Limiter.AllowAll, o.Requests(ctx, info.FullMethod, message))
		// It fails where the call came by no connection, so that nobody is to be told.
		_ = grpc.SetTrailer(ctx, v.trailer(o.Fields))
		if err != nil {
			return nil, err
		}
		return handler(ctx, message)
	}
}

// StreamServer returns an interceptor that refuses streams that are over their
// limits when they are opened, and ends those that receive a message that is.
// The handler sees the end as the error of RecvMsg; whatever it returns then,
// the client is sent the status of the denial.
func StreamServer(o Options) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		s := &serverStream{ServerStream: stream, options: &o, method: info.FullMethod}
		err := s.ask(o.Requests, nil)
		if err == nil {
			err = handler(srv, s)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		stream.SetTrailer(s.last.trailer(o.Fields))
		if s.refused != nil {
			return s.refused
		}
		return err
	}
}

// serverStream limits the messages that are received.
type serverStream struct {
	grpc.ServerStream

	options *Options
	method  string

	mu      sync.Mutex // a handler may return while another goroutine receives
	last    verdict
	refused error
}

// RecvMsg receives a message and returns why it was refused, if it was; then
// also whenever it is called again.
func (s *serverStream) RecvMsg(message any) error {
	if err := s.refusal(); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return s.ask(s.options.Messages, message)
}

func (s *serverStream) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// ask decides the limits of the stream or of a message of it.
func (s *serverStream) ask(limits func(context.Context, string, any) []Request, message any) error {
	if limits == nil {
		return nil
	}
	requests := limits(s.Context(), s.method, message)
	if len(requests) == 0 {
		return nil
	}
	v, err := decide(s.Context(), s.options.Limiter.AllowAll, requests)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.refused = v, err
	return err
}

// Peer returns who is taken for one caller on a server: the address of the
// connection that ctx came by, of IPv6 the network of 64 bits, such as
// "2001:db8:0:1::/64". Callers by a connection without such an address, such as
// a Unix socket, are one. Behind a proxy the peer is the proxy: give
// httplimit.ClientIP what it adds to the metadata. "" is no connection.
func Peer(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	at, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return p.Addr.Network()
	}
	return httplimit.Network(httplimit.ClientIP(at.Addr(), nil, nil), 64)
}
