package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/grpclimit"
)

// run serves grpc.health.v1 on a free port and returns a client of it.
func run(server *grpc.Server, options ...grpc.DialOption) (grpc_health_v1.HealthClient, func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	return grpc_health_v1.NewHealthClient(conn), func() {
		server.Stop()
		if err := errors.Join(conn.Close(), <-ended); err != nil {
			panic(err)
		}
	}
}

// A server limits each caller, and tells those it denies how long to wait.
func Example() {
	options := grpclimit.Options{
		Limiter: weir.New(weir.Options{}),
		Requests: func(ctx context.Context, _ string, _ any) []grpclimit.Request {
			return []grpclimit.Request{{Name: "caller", Request: weir.Request{Key: grpclimit.Peer(ctx), Limit: weir.PerMinute(2)}}}
		},
	}
	client, stop := run(grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(options)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServer(options))))
	defer stop()

	for range 3 {
		_, err := client.Check(context.Background(), new(grpc_health_v1.HealthCheckRequest))
		fmt.Println(status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			switch d := detail.(type) {
			case *errdetails.RetryInfo:
				fmt.Println("try again in", d.GetRetryDelay().AsDuration().Round(time.Minute))
			case *errdetails.QuotaFailure:
				fmt.Println("over", d.GetViolations()[0].GetQuotaId())
			}
		}
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
	// try again in 1m0s
	// over caller
}

// What is limited can depend on the method and on who calls. All limits of a
// call are one decision.
func ExampleOptions() {
	plans := map[string]weir.Limit{"free": weir.PerHour(1), "paid": weir.PerHour(1000)}
	options := grpclimit.Options{
		Limiter: weir.New(weir.Options{}),
		Requests: func(ctx context.Context, method string, _ any) []grpclimit.Request {
			if method == "/grpc.health.v1.Health/List" {
				return nil // not limited
			}
			md, _ := metadata.FromIncomingContext(ctx) // as the authentication before has left it
			user, plan := md["user"][0], md["plan"][0]
			return []grpclimit.Request{
				{Name: "everybody", Request: weir.Request{Key: "everybody", Limit: weir.PerSecond(10_000)}},
				{Name: plan, Request: weir.Request{Key: "user:" + user, Limit: plans[plan]}},
			}
		},
	}
	client, stop := run(grpc.NewServer(grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(options))))
	defer stop()

	for _, plan := range []string{"free", "free", "paid"} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "user", "alice", "plan", plan)
		var trailer metadata.MD
		_, err := client.Check(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.Trailer(&trailer))
		fmt.Println(plan, status.Code(err), trailer["ratelimit-policy"])
	}
	// Output:
	// free OK ["everybody";q=10000;w=1, "free";q=1;w=3600]
	// free ResourceExhausted ["everybody";q=10000;w=1, "free";q=1;w=3600]
	// paid OK ["everybody";q=10000;w=1, "paid";q=1000;w=3600]
}

// A denial names the limit and not the key, which may name somebody.
func ExampleRequest() {
	options := grpclimit.Options{
		Limiter: weir.New(weir.Options{}),
		Requests: func(context.Context, string, any) []grpclimit.Request {
			return []grpclimit.Request{{Name: "per-user", Request: weir.Request{Key: "user:alice", Limit: weir.PerDay(10), Cost: 11}}}
		},
	}
	client, stop := run(grpc.NewServer(grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(options))))
	defer stop()

	_, err := client.Check(context.Background(), new(grpc_health_v1.HealthCheckRequest))
	fmt.Println(err)
	// Output: rpc error: code = ResourceExhausted desc = over the limit "per-user", whenever it is tried
}

// A message can cost what it asks for.
func ExampleStreamServer() {
	options := grpclimit.Options{
		Limiter: weir.New(weir.Options{}),
		Messages: func(ctx context.Context, _ string, message any) []grpclimit.Request {
			name := message.(*grpc_health_v1.HealthCheckRequest).GetService()
			return []grpclimit.Request{{Name: "letters", Request: weir.Request{Key: grpclimit.Peer(ctx), Limit: weir.PerHour(6), Cost: int64(len(name))}}}
		},
	}
	client, stop := run(grpc.NewServer(grpc.ChainStreamInterceptor(grpclimit.StreamServer(options))))
	defer stop()

	for range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "mail"})
		if err == nil {
			_, err = stream.Recv()
		}
		fmt.Println(status.Code(err))
		cancel()
	}
	// Output:
	// OK
	// ResourceExhausted
}

// A client keeps to somebody else's limit: it waits, or says at once that it
// would be too late.
func ExampleUnaryClient() {
	options := grpclimit.Options{
		Limiter: weir.New(weir.Options{}),
		Requests: func(context.Context, string, any) []grpclimit.Request {
			return []grpclimit.Request{
				{Name: "their burst", Request: weir.Request{Key: "them", Limit: weir.Per(2, 20*time.Millisecond)}},
				{Name: "their quota", Request: weir.Request{Key: "them", Limit: weir.PerDay(5)}},
			}
		},
	}
	client, stop := run(grpc.NewServer(), grpc.WithChainUnaryInterceptor(grpclimit.UnaryClient(options)))
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := time.Now()
	for range 5 {
		if _, err := client.Check(ctx, new(grpc_health_v1.HealthCheckRequest)); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("5 calls, 2 every 20ms, took at least 40ms:", time.Since(start) >= 40*time.Millisecond)
	_, err := client.Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	fmt.Println(status.Code(err), errors.Is(err, weir.ErrDeadline))
	// Output:
	// 5 calls, 2 every 20ms, took at least 40ms: true
	// DeadlineExceeded true
}

// A client's messages wait one by one.
func ExampleStreamClient() {
	options := grpclimit.Options{
		Limiter: weir.New(weir.Options{}),
		Messages: func(context.Context, string, any) []grpclimit.Request {
			return []grpclimit.Request{{Request: weir.Request{Key: "them", Limit: weir.Per(1, 20*time.Millisecond)}}}
		},
	}
	client, stop := run(grpc.NewServer(), grpc.WithChainStreamInterceptor(grpclimit.StreamClient(options)))
	defer stop()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := time.Now()
	for range 3 {
		if _, err := client.Watch(ctx, new(grpc_health_v1.HealthCheckRequest)); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("3 messages, 1 every 20ms, took at least 40ms:", time.Since(start) >= 40*time.Millisecond)
	// Output: 3 messages, 1 every 20ms, took at least 40ms: true
}

// Callers of one network of IPv6 are one caller.
func ExamplePeer() {
	options := grpclimit.Options{
		Limiter: weir.New(weir.Options{}),
		Requests: func(ctx context.Context, _ string, _ any) []grpclimit.Request {
			fmt.Println("a call from", grpclimit.Peer(ctx))
			return nil
		},
	}
	client, stop := run(grpc.NewServer(grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(options))))
	defer stop()

	if _, err := client.Check(context.Background(), new(grpc_health_v1.HealthCheckRequest)); err != nil {
		fmt.Println(err)
	}
	// Output: a call from 127.0.0.1
}
