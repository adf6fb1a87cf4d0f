package layer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

const (
	defaultDeadline = 50 * time.Millisecond
	defaultInFlight = 1024
)

// FallbackOptions configures a Fallback; Store is required.
type FallbackOptions struct {
	// Store is asked as long as it answers.
	Store weir.Store
	// Deadline is how long it may take to answer a call; 0 means 50 ms. The
	// shortest Deadline of the requests in a call wins.
	Deadline time.Duration
	// Replicas is the number of processes that share the store. Without it each
	// decides by a share of max(1, Max/Replicas); 0 means 1, the whole limit.
	Replicas int
	// MaxInFlight bounds the calls that wait for the store at a time, those
	// included whose caller has been answered already; 0 means 1024.
	MaxInFlight int
	// Memory is of the store that keeps the shares.
	Memory weir.MemoryOptions
	// Observe, if not nil, is called after each call, before it returns. It
	// must be quick and safe for concurrent use.
	Observe func(Event)
}

// Event is what a Fallback saw of one call.
type Event struct {
	// Took is how long the store was waited for; 0 if it was not asked.
	Took time.Duration
	// Err is why it was not asked or did not answer. It is nil for errors of
	// the caller.
	Err error
	// Lists is how many lists the call had, 0 if it was no Take, and Degraded
	// how many of them were decided without the store.
	Lists, Degraded int
}

// Fallback is a Store that asks another, and decides without it when that
// fails or takes too long. A call takes little longer than its Deadline,
// whatever the store does, and its answer says what it is:
//
//   - OnFailureLocal decides by this process' share of the limit, in memory:
//     reason store_unavailable_local. A cost above the share is denied by
//     store_unavailable_denied.
//   - OnFailureAllow admits: store_unavailable_allowed. If the store refuses
//     because of a mistake in the settings, the share decides instead.
//   - OnFailureDeny denies: store_unavailable_denied.
//
// The strictest of a list's Enforce rows holds for all of it: deny, then local,
// then allow. A cost above the limit's capacity is a denial by never in any case.
//
// When 16 of the last 20 calls have failed, the store is no longer asked, except
// that one call tries it after a moment: 50 to 100 ms at first, drawn at random,
// then twice as long each time, up to half a second to a second. As tries
// succeed more are let through, until all are.
//
// What the shares admitted is not told to the store when it is back, nor are
// they reset: any Window sees at most what the store admits and what
// the shares do, together Max + Replicas*share. What a call that took too long
// has charged in the store stays charged.
//
// Receipts of shares give back to them, in this process. All other calls fail
// while the store does, with a *weir.StoreError.
type Fallback struct {
	options FallbackOptions
	shares  *weir.Memory
	breaker breaker
	slots   chan struct{} // a place for each call in flight
}

// NewFallback returns a Fallback. It starts no goroutine that outlives a call
// to the store.
func NewFallback(o FallbackOptions) *Fallback {
	o.Deadline = cmp.Or(o.Deadline, defaultDeadline)
	o.Replicas = max(1, o.Replicas)
	return &Fallback{
		options: o,
		shares:  weir.NewMemory(o.Memory),
		slots:   make(chan struct{}, cmp.Or(o.MaxInFlight, defaultInFlight)),
	}
}

// Failing returns why the store is not asked at the moment, or nil if it is.
func (f *Fallback) Failing() error { return f.breaker.failing() }

// InFlight returns how many calls wait for the store at the moment; see
// FallbackOptions.MaxInFlight.
func (f *Fallback) InFlight() int { return len(f.slots) }

// Take implements weir.Store.
func (f *Fallback) Take(ctx context.Context, lists []weir.List) {
	if len(lists) == 0 {
		return
	}
	event := Event{Lists: len(lists)}
	var answers []weir.List
	p, err := f.breaker.enter()
	if err == nil {
		answers = clone(lists)
		event.Took, err = f.wait(ctx, f.deadline(lists), p, func(ctx context.Context) error {
			f.options.Store.Take(ctx, answers)
			return commonFailure(answers)
		})
	}
	for i := range lists {
		l := &lists[i]
		l.Err = err
		if err == nil {
			copy(l.Rows, answers[i].Rows)
			l.Err = answers[i].Err
		}
		if cause := l.Err; cause != nil && failure(cause) && ctx.Err() == nil {
			event.Err = cause
			event.Degraded++
			f.decide(ctx, l, cause)
		}
	}
	f.observe(event)
}

// deadline returns the shortest of those of the requests and of the options.
func (f *Fallback) deadline(lists []weir.List) time.Duration {
	d := f.options.Deadline
	for i := range lists {
		for j := range lists[i].Requests {
			if own := lists[i].Requests[j].Deadline; own > 0 {
				d = min(d, own)
			}
		}
	}
	return d
}

// clone returns lists for a call that may outlive that of the caller, who may
// use his own again by then.
func clone(lists []weir.List) []weir.List {
	n := 0
	for i := range lists {
		n += len(lists[i].Requests)
	}
	requests, rows, copies := make([]weir.Request, 0, n), make([]weir.Decision, n), make([]weir.List, len(lists))
	for i := range lists {
		n := len(lists[i].Requests)
		at := len(requests)
		requests = append(requests, lists[i].Requests...)
		copies[i] = weir.List{Requests: requests[at:len(requests):len(requests)], Rows: rows[:n:n]}
		rows = rows[n:]
	}
	return copies
}

// commonFailure returns how lists have failed if half of them have or more. So
// one server of a Cluster, of which only some lists know, does not speak for all.
func commonFailure(lists []weir.List) (err error) {
	failed := 0
	for i := range lists {
		if e := lists[i].Err; e != nil && failure(e) {
			failed++
			err = e
		}
	}
	if 2*failed < len(lists) {
		return nil
	}
	return err
}

// failure reports whether an error is the store's and not the caller's.
func failure(err error) bool {
	var invalid *weir.InvalidError
	return !errors.As(err, &invalid) && !errors.Is(err, weir.ErrClosed)
}

// errBusy is what calls meet that find no place among those in flight.
var errBusy = errors.New("the calls before this one have not ended")

// wait has do call the store, and waits until that returns or within has
// passed: do goes on in a goroutine of its own, as not every store returns when
// its context ends. The breaker learns what came of it. The error, a
// *weir.StoreError, says why do has not ended.
func (f *Fallback) wait(ctx context.Context, within time.Duration, p *pass, do func(context.Context) error) (time.Duration, error) {
	start := time.Now()
	// A caller who leaves, or has little time, does not show how the store is:
	// the call goes on for as long as it may.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.options.Deadline)
	var soon <-chan time.Time
	if within < f.options.Deadline {
		timer := time.NewTimer(within)
		defer timer.Stop()
		soon = timer.C
	}
	ended := make(chan struct{})
	call := func() {
		defer cancel()
		p.leave(do(limited))
		<-f.slots
		close(ended)
	}
	left := func(err error, sent bool) (time.Duration, error) {
		return time.Since(start), &weir.StoreError{Unknown: sent, Err: err}
	}
	unasked := func(err error) (time.Duration, error) {
		cancel()
		p.leave(errBusy)
		return left(err, false)
	}
	var why error
	select {
	case f.slots <- struct{}{}:
		go call()
	case <-limited.Done():
		return unasked(errBusy)
	case <-soon:
		return unasked(errBusy)
	case <-ctx.Done():
		return unasked(ctx.Err())
	}
	select {
	case <-ended:
		return time.Since(start), nil
	case <-limited.Done():
		if why = tooLate(within); p.leave(why) {
			return left(why, true)
		}
		<-ended // it was a moment before
		return time.Since(start), nil
	case <-soon:
		why = tooLate(within)
	case <-ctx.Done():
		why = ctx.Err()
	}
	context.AfterFunc(limited, func() { p.leave(tooLate(f.options.Deadline)) })
	return left(why, true)
}

func tooLate(within time.Duration) error {
	return fmt.Errorf("no answer within %s: %w", within, context.DeadlineExceeded)
}

// call is wait for what is no Take.
func (f *Fallback) call(ctx context.Context, do func(context.Context) (int64, error)) (int64, error) {
	type result struct {
		n   int64
		err error
	}
	p, err := f.breaker.enter()
	if err != nil {
		f.observe(Event{Err: err})
		return 0, err
	}
	results := make(chan result, 1)
	took, err := f.wait(ctx, f.options.Deadline, p, func(ctx context.Context) error {
		n, err := do(ctx)
		results <- result{n, err}
		return err
	})
	var r result
	if err == nil {
		r = <-results
		err = r.err
	}
	event := Event{Took: took}
	if err != nil && failure(err) && ctx.Err() == nil {
		event.Err = err
	}
	f.observe(event)
	return r.n, err
}

func (f *Fallback) observe(e Event) {
	if f.options.Observe != nil {
		f.options.Observe(e)
	}
}

// Refund implements weir.Store: a receipt gives back to where it was charged.
func (f *Fallback) Refund(ctx context.Context, receipts []weir.Receipt) (int64, error) {
	var shares, others []weir.Receipt
	for _, r := range receipts {
		if r.ID&ofShare != 0 {
			r.ID &^= ofShare
			shares = append(shares, r)
		} else {
			others = append(others, r)
		}
	}
	total, err := f.shares.Refund(ctx, shares)
	if len(others) == 0 {
		return total, err
	}
	n, failed := f.call(ctx, func(ctx context.Context) (int64, error) { return f.options.Store.Refund(ctx, others) })
	return total + n, cmp.Or(failed, err)
}

// Count implements weir.Store. What the shares admitted is not counted.
func (f *Fallback) Count(ctx context.Context, r weir.Request, d time.Duration) (int64, error) {
	return f.call(ctx, func(ctx context.Context) (int64, error) { return f.options.Store.Count(ctx, r, d) })
}

// Reset implements weir.Store. The shares of this process are reset in any case.
func (f *Fallback) Reset(ctx context.Context, requests []weir.Request) (int64, error) {
	if _, err := f.shares.Reset(ctx, requests); err != nil {
		return 0, err
	}
	requests = slices.Clone(requests)
	return f.call(ctx, func(ctx context.Context) (int64, error) { return f.options.Store.Reset(ctx, requests) })
}

// Close implements weir.Store. It does not wait for calls in flight.
func (f *Fallback) Close() error {
	return errors.Join(f.shares.Close(), f.options.Store.Close())
}
