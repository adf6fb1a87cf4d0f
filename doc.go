// Package weir is an exact, distributed rate limiter: it decides whether an
// event may happen now.
//
//	lim := weir.New(weir.Options{})
//	d, err := lim.Allow(ctx, "search:alice", weir.PerMinute(5))
//	if err == nil && !d.Allowed {
//		// try again after d.RetryAfter
//	}
//
// There are only a few types in weir:
//
//   - A [Limit] is a value: Max units per Window, kept by an [Algorithm].
//   - A [Request] asks for Cost units of a Key under a Limit. Its [Mode] says
//     what the answer does: Enforce, Shadow, Peek or Record.
//   - A [Decision] answers it: allowed or not, how much remains, how long to
//     wait, why ([Reason]), and a [Receipt] that gives the units back.
//   - A [Store] remembers what was taken and owns the clock; [Memory] is the
//     one for a single process. It decides a [List] of Requests all-or-nothing.
//   - A [Limiter] is what callers hold: thin doors over a Store.
//   - A [Reservation] holds units until it is known how many were used.
//
// The limit is an argument of the call, so plans, tenants and users need no
// registry, and another Max acts at once on what has been recorded.
//
// # Choosing
//
// Most callers should use [Limiter.Allow] with a limit from [Per] or
// [ParseLimit] and its default algorithm, [SlidingLog], which is exact. For
// large limits (bytes, tokens) the default becomes [SlidingBuckets]; to allow
// bursts over a steady rate set Burst, which makes a [TokenBucket].
//
// Several limits that must all admit go into one [Limiter.AllowAll]: it is one
// atomic step, and a denial consumes nothing anywhere. To limit one's own
// calls to somebody else, use [Limiter.Wait] or [Limiter.WaitAll].
//
// Where the cost is known only afterwards, [Limiter.Reserve] an estimate and
// settle it, or [Limiter.Charge] what it was. What was taken and not used goes
// back by [Limiter.Refund], exactly and once.
//
// # More than one process
//
// Module redisstore keeps limits on Redis or Valkey, with the answers that one
// process would give, and package layer decides while the server is away:
//
//	store, err := redisstore.Open(redisstore.Options{URL: "redis://10.0.0.7:6379"})
//	lim := weir.New(weir.Options{Store: layer.NewFallback(layer.FallbackOptions{Store: store, Replicas: 3})})
//
// Package httplimit limits HTTP servers and clients, module grpclimit those of
// gRPC. Package policy makes Requests of named rules, and sim tries rules on
// recorded traffic. What is not written in Go asks the service, command weir.
// The guide is in the folder docs.
//
// # Promises
//
// Time is in microseconds of the store's clock, and intervals are half-open: a
// unit taken at t stops counting at exactly t+Window. RetryAfter is the least
// wait after which the same request passes. Errors are for infrastructure and
// invalid arguments only; a denial is a Decision. Package storetest holds the
// whole contract as tests that any Store can run.
package weir
