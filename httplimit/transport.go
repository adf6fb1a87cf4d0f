package httplimit

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Transport is an http.RoundTripper that keeps our calls to somebody's API
// within limits: those of all processes together, if they share a store. The
// fields must not change once it is used; it is safe for concurrent use.
//
// A call waits until all of its Requests are admitted in one step, as
// [weir.Limiter.WaitAll] does, no longer than its context lets it. It fails with
// weir.ErrDeadline, at once, if the context's deadline is nearer than the wait;
// with weir.ErrNever if a limit can never admit it; with a *weir.StoreError if
// the store cannot be asked, for which layer.Fallback has other answers.
//
// The response is handed on as it is, a 429 too. Who calls again, a redirect
// included, makes a call that costs again; a request that Base itself repeats,
// because its connection was lost, is one call. A call that Base failed before
// it had a connection gets its units back, if Base tells by package httptrace as
// http.Transport does.
//
// What is limited is when calls are sent. If one takes up to J longer to arrive
// than another, the server sees in a window W what was sent in W+J: for no more
// than Max to arrive in any W, give the limit a Window of W+J.
type Transport struct {
	// Base sends the calls; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Limiter decides; required.
	Limiter *weir.Limiter
	// Requests returns what a call costs: of a limit for its host, or its key, or
	// several, such as a budget for all and a share of it. None, as with a nil
	// function, means that only the server limits it. It must not read the body;
	// a request in mode Record is a *weir.InvalidError.
	Requests func(*http.Request) []weir.Request
	// LearnKey names what the server's answer to a call holds for: calls of the
	// same name pause together. nil means the URL's host; "" that nothing is
	// learned and the call never pauses. On a Cluster a call is decided in one
	// step if this is the Group of its Requests.
	LearnKey func(*http.Request) string
	// MaxPause bounds how long one answer makes calls pause, whatever it says; 0
	// means an hour. It is at most a day.
	MaxPause time.Duration
	// Learned, if not nil, is called before RoundTrip returns an answer that
	// asks to pause, with the name, for how long, and the error of the store that
	// could not be told; then nothing was learned.
	Learned func(key string, pause time.Duration, err error)
}

// giveBack is how long a failed call waits at most for the store to take its
// units back.
const giveBack = time.Second

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := t.learnKey(r)
	taken, err := t.take(r, key)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the call has failed already
		}
		return nil, err
	}
	var line wire
	ctx := httptrace.WithClientTrace(r.Context(), line.trace())
	response, err := t.base().RoundTrip(r.WithContext(ctx))
	if err != nil {
		if line.unused() {
			t.refund(r.Context(), taken)
		}
		return response, err
	}
	response.Request = r
	t.learn(r.Context(), key, response)
	return response, nil
}

// CloseIdleConnections does what http.Client.CloseIdleConnections would with Base.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// take waits until the call may be made.
func (t *Transport) take(r *http.Request, key string) (weir.Decision, error) {
	if t.Limiter == nil {
		return weir.Decision{}, &weir.InvalidError{Field: "limiter", Value: "nil", Want: "a *weir.Limiter in Transport, such as weir.New(weir.Options{})"}
	}
	var requests []weir.Request
	if t.Requests != nil {
		requests = append(requests, t.Requests(r)...)
	}
	if key != "" {
		requests = append(requests, unpaused(key))
	}
	return t.Limiter.WaitAll(r.Context(), requests...)
}

// refund gives back what a call took, even though its context may have ended. A
// store that does not take it back leaves it taken, which no limit minds.
func (t *Transport) refund(ctx context.Context, taken weir.Decision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer cancel()
	_, _ = t.Limiter.Refund(ctx, taken.Receipts()...)
}

// wire is what is known of a call's way to the server.
type wire struct{ wanted, had atomic.Bool }

func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { w.wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { w.had.Store(true) },
	}
}

// unused reports whether the call has certainly not been sent: who never says
// that it wants a connection might not say that it has one either.
func (w *wire) unused() bool { return w.wanted.Load() && !w.had.Load() }
