// Package httpapi is the HTTP and JSON front end of the service: it parses
// requests into queries and writes their answers. What it accepts is strict,
// and whatever it refuses is answered as application/problem+json.
package httpapi

import (
	"context"
	"net/http"

	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

// maxRefund is the largest body of a refund, in bytes: its receipt holds the keys
// in base64.
const maxRefund = 2 << 20

// Options configures New.
type Options struct {
	// Engine answers; it is required.
	Engine *decide.Engine
	// Ready tells what /readyz answers. Nil means always ready.
	Ready func() wire.Readiness
	// Auth is how proxies are answered.
	Auth Auth
}

type api struct{ Options }

// New returns the handler for callers: /v1/check, /v1/batch, /v1/charge,
// /v1/refund, /v1/count, /v1/auth/{domain}, /healthz and /readyz.
func New(o Options) http.Handler {
	o.Auth.normalize()
	a := &api{o}
	mux := http.NewServeMux()
	mux.Handle("/", wire.ProblemHandler(http.StatusNotFound, "there is nothing at this path; to check a limit, POST to /v1/check"))
	mux.Handle("/healthz", wire.Healthz())
	mux.Handle("/readyz", wire.Readyz(o.Ready))
	mux.Handle("/v1/check", wire.Post(wire.MaxBody, a.check))
	mux.Handle("/v1/batch", wire.Post(wire.MaxBody, a.batch))
	mux.Handle("/v1/charge", wire.Post(wire.MaxBody, a.charge))
	mux.Handle("/v1/refund", wire.Post(maxRefund, a.refund))
	mux.Handle("/v1/count", wire.Post(wire.MaxBody, a.count))
	mux.HandleFunc(authPath, a.auth)
	return wire.SameOrigin(mux, authPath)
}

func (a *api) check(ctx context.Context, body []byte) (any, error) {
	q, err := wire.ReadQuery(body, "")
	if err != nil {
		return nil, err
	}
	answer, err := a.Engine.Check(ctx, q)
	return encode(&answer), err
}

func (a *api) charge(ctx context.Context, body []byte) (any, error) {
	q, err := wire.ReadQuery(body, "")
	if err != nil {
		return nil, err
	}
	answer, err := a.Engine.Charge(ctx, q)
	return encode(&answer), err
}

// failure stands in a batch for a request that could not be decided.
type failure struct {
	Error *wire.Problem `json:"error"`
}

// batch answers a bad entry in its place: the others are decided all the same.
func (a *api) batch(ctx context.Context, body []byte) (any, error) {
	entries, err := wire.ReadBatch(body)
	if err != nil {
		return nil, err
	}
	decisions := make([]any, len(entries))
	var queries []decide.Query
	var places []int
	for i, entry := range entries {
		q, err := wire.ReadQuery(entry, wire.Index("requests", i))
		if err != nil {
			decisions[i] = failure{wire.ProblemOf(err)}
			continue
		}
		queries, places = append(queries, q), append(places, i)
	}
	answers := a.Engine.CheckEach(ctx, queries)
	for j := range answers {
		i := places[j]
		if err := answers[j].Err; err != nil {
			decisions[i] = failure{wire.ProblemOf(err).In(wire.Index("requests", i))}
			continue
		}
		decisions[i] = encode(&answers[j])
	}
	return map[string]any{"decisions": decisions}, nil
}

func (a *api) refund(ctx context.Context, body []byte) (any, error) {
	receipts, q, err := wire.ReadRefund(body)
	if err != nil {
		return nil, err
	}
	var n int64
	if receipts != nil {
		n, err = a.Engine.Refund(ctx, receipts...)
	} else {
		n, err = a.Engine.RefundOldest(ctx, q)
	}
	return map[string]int64{"refunded": n}, err
}

func (a *api) count(ctx context.Context, body []byte) (any, error) {
	q, last, err := wire.ReadCount(body)
	if err != nil {
		return nil, err
	}
	n, err := a.Engine.Count(ctx, q, last)
	return map[string]int64{"count": n}, err
}
