package weir

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Wait takes one unit, waiting until the limit admits it. See WaitN.
func (l *Limiter) Wait(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.WaitN(ctx, key, limit, 1)
}

// WaitN takes n units, at least 1, waiting until the limit admits them. Waits
// of this Limiter on one key and limit are served in the order of their calls,
// so none starves; each sleeps exactly the RetryAfter it was told.
//
// It returns at once with ErrNever if n is above what the limit can ever
// admit, and with ErrDeadline if the context's deadline is not farther than the
// wait. If the context ends while it waits, it gives its place up, takes
// nothing and returns the context's error.
func (l *Limiter) WaitN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	if err := positive(n); err != nil {
		return Decision{}, err
	}
	r := Request{Key: key, Limit: limit, Cost: n}
	if err := r.normalize(); err != nil {
		return Decision{}, err
	}
	if n > r.Limit.Capacity() {
		return Decision{Limit: r.Limit.Capacity(), Reason: Never}, ErrNever
	}
	id := waitID{key, r.Limit.Window, r.Limit.Algorithm, r.Limit.Buckets, r.Limit.Epoch}
	w, ahead := l.waits.join(id, n)
	defer l.waits.leave(id, w)
	if ahead > 0 {
		if err := l.nearer(ctx, r, ahead); err != nil {
			return Decision{}, err
		}
		select {
		case <-w.turn:
		case <-ctx.Done():
			return Decision{}, ctx.Err()
		}
	}
	return l.retry(ctx, r)
}

// retry takes r as soon as it passes.
func (l *Limiter) retry(ctx context.Context, r Request) (Decision, error) {
	for {
		d, err := l.one(ctx, r)
		switch {
		case err != nil || d.Allowed:
			return d, err
		case d.Reason == Never:
			return d, ErrNever
		case d.RetryAfter == 0: // a degraded denial knows no wait
			d.RetryAfter = time.Millisecond
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d.RetryAfter {
			return d, ErrDeadline
		}
		timer := time.NewTimer(d.RetryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return d, ctx.Err()
		}
	}
}

// nearer returns ErrDeadline if the context ends before the units ahead in the
// queue and those of r can have passed.
func (l *Limiter) nearer(ctx context.Context, r Request, ahead int64) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	most := r.Limit.Capacity()
	units := ahead + r.Cost
	first := (units-1)%most + 1 // of them, when they are taken most at a time
	if r.Limit.Algorithm == TokenBucket {
		first = min(units, most)
	}
	r.Mode, r.Cost = Peek, first
	d, err := l.one(ctx, r)
	if err != nil {
		return err
	}
	// Then come the other units, in windows; the sum is in float64 because it
	// can be millennia.
	windows := float64((units - first) / most)
	switch r.Limit.Algorithm {
	case TokenBucket:
		windows = float64(units-first) / float64(r.Limit.Max)
	case SlidingCounter, FixedWindow: // the edge of a window can be near
		windows = max(0, windows-1)
	}
	wait := float64(d.RetryAfter) + windows*float64(r.Limit.Window)
	if wait > 0 && float64(time.Until(deadline)) <= wait {
		return ErrDeadline
	}
	return nil
}

// waits holds a queue for each state that somebody waits for.
type waits struct {
	mu     sync.Mutex
	queues map[waitID]*queue
}

// queue is who waits, in order, and for how many units in all.
type queue struct {
	waiters []*waiter
	units   int64
}

// waitID names a state; see Request.sameState.
type waitID struct {
	key       string
	window    time.Duration
	algorithm Algorithm
	buckets   int
	epoch     bool
}

type waiter struct {
	cost int64
	turn chan struct{} // closed when the waiter is first in its queue
}

// join appends a waiter and returns it with the units waited for before it.
func (q *waits) join(id waitID, cost int64) (w *waiter, ahead int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queues == nil {
		q.queues = make(map[waitID]*queue)
	}
	line := q.queues[id]
	if line == nil {
		line = new(queue)
		q.queues[id] = line
	}
	w = &waiter{cost: cost, turn: make(chan struct{})}
	ahead = line.units
	line.waiters = append(line.waiters, w)
	line.units += cost
	return w, ahead
}

// leave takes a waiter out, wherever it stands, and tells the new first one.
func (q *waits) leave(id waitID, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.queues[id]
	i := slices.Index(line.waiters, w)
	line.waiters = slices.Delete(line.waiters, i, i+1)
	line.units -= w.cost
	switch {
	case len(line.waiters) == 0:
		delete(q.queues, id)
	case i == 0:
		close(line.waiters[0].turn)
	}
}
