package grpclimit

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// Request is a weir.Request and what callers are told of it.
type Request struct {
	weir.Request

	// Name is the limit's in the answer to a caller, who is not told the Key.
	// Metadata have it in printable ASCII, other bytes as "?". If it is empty,
	// "default" stands for it.
	Name string
}

// Options says what is limited. Its functions are called with the context of
// the call and its method, such as "/grpc.health.v1.Health/Check", from several
// goroutines at a time. What one returns is decided all-or-nothing, at most
// 1000 requests; where it is empty, nothing is limited.
type Options struct {
	// Limiter decides; it is required. Several interceptors may share one.
	Limiter *weir.Limiter
	// Requests returns the limits of a call: of a unary one with its request
	// message, of a stream, when it is opened, with nil. If it is nil no call
	// is limited.
	Requests func(ctx context.Context, method string, message any) []Request
	// Messages returns the limits of a message of a stream that a server has
	// received or a client is about to send. If it is nil no message is limited.
	Messages func(ctx context.Context, method string, message any) []Request
	// Fields writes a server's trailer; the zero value in the words of
	// draft-ietf-httpapi-ratelimit-headers-10. Its Jitter is in retry-after alone.
	Fields httplimit.Fields
}

// decider is a Limiter's way to decide a list: at once, or when it passes.
type decider func(ctx context.Context, requests ...weir.Request) (weir.Decision, error)

// verdict is the answer to requests, of which there may be none.
type verdict struct {
	weir.Decision

	requests []Request
}

// decide returns the verdict and, unless the call may go on, a *refusal.
func decide(ctx context.Context, by decider, requests []Request) (verdict, error) {
	v := verdict{requests: requests}
	if len(requests) == 0 {
		return v, nil
	}
	rows := make([]weir.Request, len(requests))
	for i := range requests {
		rows[i] = requests[i].Request
	}
	var err error
	v.Decision, err = by(ctx, rows...)
	if err == nil && v.Allowed {
		return v, nil
	}
	var invalid *weir.InvalidError
	switch {
	case err != nil && ctx.Err() != nil:
		return v, &refusal{status.FromContextError(ctx.Err()), err}
	case err == nil, errors.Is(err, weir.ErrNever), v.Reason == weir.StoreDenied:
		return v, &refusal{v.denial(), err}
	case errors.Is(err, weir.ErrDeadline):
		return v, &refusal{v.status(codes.DeadlineExceeded, v.over()+" for longer than the deadline allows: "+v.RetryAfter.String()), err}
	case errors.As(err, &invalid):
		return v, &refusal{status.New(codes.Internal, "the limits of this call are not valid"), err}
	}
	// Nobody knows how the limits stand, so no row is told.
	d := httplimit.Undecided(rows, err)
	v.Decision = weir.Decision{Allowed: d.Allowed, Reason: d.Reason}
	if v.Allowed {
		return v, nil
	}
	return v, &refusal{v.denial(), err}
}

// trailer tells a client of the verdict.
func (v *verdict) trailer(fields httplimit.Fields) metadata.MD {
	if len(v.requests) == 0 {
		return nil
	}
	var rows []httplimit.Row
	for i := range v.Rows {
		if r := &v.requests[i]; r.Mode != weir.Shadow {
			rows = append(rows, httplimit.Row{Decision: v.Rows[i], Name: r.Name, Window: r.Limit.Window})
		}
	}
	h := make(http.Header)
	fields.Write(h, &v.Decision, rows)
	md := make(metadata.MD, len(h)+1)
	for name, values := range h {
		md.Append(name, values...)
	}
	switch {
	case v.Allowed:
	case v.RetryAfter > 0:
		md.Set(pushback, strconv.FormatInt(int64((v.RetryAfter+time.Millisecond-1)/time.Millisecond), 10))
	case v.Reason == weir.Never:
		md.Set(pushback, "-1")
	}
	return md
}

// pushback tells gRPC's own retries in how many milliseconds to try again; a
// negative number tells them not to.
const pushback = "grpc-retry-pushback-ms"
