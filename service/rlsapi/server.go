package rlsapi

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	headers "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

// Bounds on what a slow or hostile client can hold on to.
const (
	maxMessage     = 1 << 20 // bytes
	maxHeaderBytes = 16 << 10
	maxStreams     = 1000 // of a connection
	handshakeTime  = 5 * time.Second
	minPingTime    = 5 * time.Second // between pings of a client
	pingTime       = time.Minute     // of silence, until the client is pinged
	pongTime       = 10 * time.Second
)

// Server serves envoy.service.ratelimit.v3.RateLimitService, grpc.health.v1 of
// the services "" and "ratelimit", and reflection.
type Server struct {
	grpc     *grpc.Server
	stop     sync.Once
	stopping chan struct{}
}

// New returns a Server that serves nothing before Serve.
func New(o Options) *Server {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingTime, Timeout: pongTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingTime, PermitWithoutStream: true}),
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	if o.Span != nil {
		options = append(options, grpc.UnaryInterceptor(o.spanned))
	}
	s := &Server{grpc: grpc.NewServer(options...), stopping: make(chan struct{})}
	a := newAPI(o)
	rls.RegisterRateLimitServiceServer(s.grpc, a)
	grpc_health_v1.RegisterHealthServer(s.grpc, &health{ready: a.Ready, stopping: s.stopping})
	reflection.Register(s.grpc)
	return s
}

// spanned is an interceptor.
func (o Options) spanned(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	sent, _ := headers.FromIncomingContext(ctx)
	header := func(name string) string { return strings.Join(sent.Get(name), ",") }
	err = o.Span(ctx, info.FullMethod, header, func(ctx context.Context) (err error) {
		reply, err = handler(ctx, message)
		return err
	})
	return reply, err
}

// Serve answers until Shutdown or Close, of which the first makes it return.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Shutdown tells those who watch that the service is not healthy, finishes the
// calls that were accepted, and closes. If ctx ends first it cuts them off and
// returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() { close(s.stopping) })
	cutOff := context.AfterFunc(ctx, s.grpc.Stop)
	s.grpc.GracefulStop()
	if !cutOff() {
		return ctx.Err()
	}
	return nil
}

// Close cuts all calls off.
func (s *Server) Close() error {
	s.stop.Do(func() { close(s.stopping) })
	s.grpc.Stop()
	return nil
}

// health says that all services are healthy when the server is ready, until it
// stops, which ends the streams of those who watch: they would hold it up.
type health struct {
	grpc_health_v1.UnimplementedHealthServer

	ready    func() bool
	stopping chan struct{}
}

func (h *health) status(service string) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if service != "" && service != "ratelimit" && service != rls.RateLimitService_ServiceDesc.ServiceName {
		return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
	}
	select {
	case <-h.stopping:
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING
	default:
	}
	if !h.ready() {
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_SERVING
}

// Check answers NotFound of a service that there is not.
func (h *health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s := h.status(r.GetService())
	if s == grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Error(codes.NotFound, `the service is unknown: want "", ratelimit or `+rls.RateLimitService_ServiceDesc.ServiceName)
	}
	return &grpc_health_v1.HealthCheckResponse{Status: s}, nil
}

// Watch sends how the service is, and once more when it stops.
func (h *health) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: h.status(r.GetService())}); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	case <-h.stopping:
	}
	if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: h.status(r.GetService())}); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "the service is stopping: watch it elsewhere")
}
