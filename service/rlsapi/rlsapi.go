// Package rlsapi is the front end for Envoy: its rate limit service over gRPC,
// and what envoyproxy/ratelimit serves over HTTP beside it.
package rlsapi

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/service/decide"
)

// maxDescriptors is how many descriptors a request may have.
const maxDescriptors = 1000

// Options configures New and Handler.
type Options struct {
	// Engine answers; it is required.
	Engine *decide.Engine
	// Ready tells whether the service is healthy. Nil means always.
	Ready func() bool
	// Fields writes the header fields that Envoy is told to add to responses.
	Fields httplimit.Fields
	// Span, if not nil, calls do, which answers a call of that name over gRPC, and
	// returns its error. The header tells what the caller has sent, "" for nothing.
	Span func(ctx context.Context, name string, header func(name string) string, do func(context.Context) error) error
	// TLS, if not nil, is what New serves with. Handler does not look at it.
	TLS *tls.Config
}

type api struct {
	rls.UnimplementedRateLimitServiceServer
	Options
}

func newAPI(o Options) *api {
	if o.Ready == nil {
		o.Ready = func() bool { return true }
	}
	return &api{Options: o}
}

// ShouldRateLimit answers whether what the descriptors tell of may happen. The
// error is a gRPC status: InvalidArgument, Canceled, DeadlineExceeded, or
// Unavailable if the store cannot be asked and no on_failure says what then.
func (a *api) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	q, err := query(r)
	if err != nil {
		return nil, err
	}
	answer, err := a.Engine.Check(ctx, q)
	if err != nil {
		if _, ok := errors.AsType[*decide.UnknownDomainError](err); !ok {
			return nil, statusOf(err)
		}
		answer = unlimited(len(q.Descriptors))
	}
	return a.encode(r, &answer)
}

// unlimited is the answer of a domain without limits.
func unlimited(descriptors int) decide.Answer {
	none := weir.Decision{Allowed: true, Reason: weir.NoRule}
	a := decide.Answer{Decision: none, Statuses: make([]decide.Status, descriptors)}
	for i := range a.Statuses {
		a.Statuses[i].Decision = none
	}
	return a
}

func query(r *rls.RateLimitRequest) (decide.Query, error) {
	q := decide.Query{Domain: r.GetDomain(), Descriptors: make([]decide.Descriptor, len(r.GetDescriptors()))}
	switch {
	case q.Domain == "":
		return q, bad(`domain is empty: want the name of a config's domain, such as "edge"`)
	case len(q.Descriptors) == 0:
		return q, bad(`descriptors are empty: want one or more, such as {"entries": [{"key": "remote_address", "value": "192.0.2.1"}]}`)
	case len(q.Descriptors) > maxDescriptors:
		return q, bad("there are " + strconv.Itoa(len(q.Descriptors)) + " descriptors: want 1 to " + strconv.Itoa(maxDescriptors))
	}
	for i, d := range r.GetDescriptors() {
		var err error
		if q.Descriptors[i], err = descriptor(d, r.GetHitsAddend()); err != nil {
			return q, bad("descriptors[" + strconv.Itoa(i) + "]." + err.Error())
		}
	}
	return q, nil
}

func descriptor(d *ratelimit.RateLimitDescriptor, hits uint32) (decide.Descriptor, error) {
	out := decide.Descriptor{
		Entries: make([]decide.Entry, len(d.GetEntries())),
		Cost:    max(1, int64(hits)),
		Refund:  d.GetIsNegativeHits(),
	}
	for i, e := range d.GetEntries() {
		out.Entries[i] = decide.Entry{Key: e.GetKey(), Value: e.GetValue()}
	}
	if own := d.GetHitsAddend(); own != nil {
		out.Cost = int64(min(own.GetValue(), math.MaxInt64))
	}
	var err error
	out.Limit, err = override(d.GetLimit())
	return out, err
}

// maxWindow is the longest that a limit may have.
const maxWindow = 366 * 24 * time.Hour

// override is the limit that a descriptor brings; zero if it brings none.
func override(l *ratelimit.RateLimitDescriptor_RateLimitOverride) (weir.Limit, error) {
	if l == nil {
		return weir.Limit{}, nil
	}
	unit, multiplier := length(rls.RateLimitResponse_RateLimit_Unit(l.GetUnit())), int64(1)
	if m := l.GetUnitMultiplier(); m != nil {
		multiplier = int64(m.GetValue())
	}
	switch {
	case unit == 0:
		return weir.Limit{}, errors.New("limit.unit " + l.GetUnit().String() + ": want SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
	case multiplier == 0, multiplier > int64(maxWindow/unit):
		return weir.Limit{}, errors.New("limit.unit_multiplier " + strconv.FormatInt(multiplier, 10) + ": want 1 or more, and 366 days at most, such as 10")
	}
	return weir.Limit{Max: int64(l.GetRequestsPerUnit()), Window: time.Duration(multiplier) * unit}, nil
}

func bad(text string) error { return status.Error(codes.InvalidArgument, text) }

// statusOf says what a caller is to know of err: everything if it is the
// caller's, and of the store only that it failed.
func statusOf(err error) error {
	invalid, ok := errors.AsType[*weir.InvalidError](err)
	switch {
	case ok:
		named := *invalid
		if field, ok := strings.CutSuffix(named.Field, ".cost"); ok {
			named.Field = field + ".hits_addend"
		}
		return bad(strings.TrimPrefix(named.Error(), "weir: "))
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the deadline of the call has passed")
	case errors.Is(err, weir.ErrClosed):
		return status.Error(codes.Unavailable, "the service is stopping: ask again elsewhere")
	}
	return status.Error(codes.Unavailable, "the store is unavailable: ask again later; the log of the service says why")
}
