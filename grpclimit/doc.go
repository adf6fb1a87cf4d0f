// Package grpclimit limits gRPC calls: those that a server receives, and those
// that a client makes to somebody else.
//
//	options := grpclimit.Options{
//		Limiter: weir.New(weir.Options{}),
//		Requests: func(ctx context.Context, method string, _ any) []grpclimit.Request {
//			return []grpclimit.Request{
//				{Name: "all", Request: weir.Request{Key: "method:" + method, Limit: weir.PerSecond(1000)}},
//				{Name: "caller", Request: weir.Request{Key: "caller:" + grpclimit.Peer(ctx), Limit: weir.PerSecond(10)}},
//			}
//		},
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(options)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServer(options)))
//
// The limits of a call are one decision, all-or-nothing: a call that is denied
// takes nothing from any of them. To limit users by name, chain the interceptor
// after the one that authenticates them.
//
// # What a server answers
//
// A call that is over a limit ends with RESOURCE_EXHAUSTED. The details of the
// status are a QuotaFailure, which names the limits that denied and tells no
// Key, and, where waiting helps, a RetryInfo with the wait to the microsecond.
//
// What cannot be decided is never RESOURCE_EXHAUSTED:
//
//   - UNAVAILABLE: the store could not be asked, and a denial is what then
//     follows, here or in a layer.Fallback around the store.
//   - INTERNAL: what Requests or Messages returned is not valid.
//   - CANCELLED and DEADLINE_EXCEEDED: the caller left before the decision.
//
// The error that an interceptor returns to those around it unwraps to its cause,
// such as a [weir.StoreError]; callers are sent the status alone.
//
// # When the store fails
//
// Wrap the store in a layer.Fallback, which bounds how long a call waits and
// decides by the OnFailure of its requests. Without it a failure of the store
// admits a call if all of the requests that it enforces say OnFailureAllow, and
// the failure is not a mistake in the settings. It denies all others: for
// OnFailureLocal it takes a Fallback to know this process' share.
//
// # Metadata
//
// The trailer of a limited call has ratelimit-policy, ratelimit and retry-after,
// or what Options.Fields makes of them, of streams as of the last decision;
// weir-reason if the answer is a degraded one; and, in a denial,
// grpc-retry-pushback-ms. All are in the trailer, as gRPC's own retries end with
// the first header.
//
// A client whose retry policy names RESOURCE_EXHAUSTED hence tries again when
// there is room, as far as its deadline allows, and not at all where no wait
// helps. It needs no code for that:
//
//	"retryPolicy": {"maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "60s",
//	  "backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}
//
// # Streams
//
// Requests limits that a stream is opened. Messages, if it is set, limits also
// each message that a server receives of it, or a client sends. On a server the
// message that is over a limit ends the stream with the status above.
//
// # Clients
//
// [UnaryClient] and [StreamClient] wait until the limits admit a call, so that a
// fleet that shares a store keeps to one quota:
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(grpclimit.UnaryClient(options)),
//		grpc.WithChainStreamInterceptor(grpclimit.StreamClient(options)))
//
// They wait no longer than the call's context. If its deadline is nearer than
// the wait they return DEADLINE_EXCEEDED at once, which is [weir.ErrDeadline]
// for errors.Is, and RESOURCE_EXHAUSTED, [weir.ErrNever], for what no wait lets
// pass. The other statuses are those of a server. Nothing is learned from what
// servers answer: what they deny they tell the caller, or a retry policy, whose
// attempts are not limited again.
package grpclimit
