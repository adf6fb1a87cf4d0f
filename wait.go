package weir

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Wait takes one unit, waiting until the limit admits it. See WaitAll.
func (l *Limiter) Wait(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.WaitN(ctx, key, limit, 1)
}

// WaitN takes n units, at least 1, waiting until the limit admits them. See WaitAll.
func (l *Limiter) WaitN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	if err := positive(n); err != nil {
		return Decision{}, err
	}
	d, err := l.WaitAll(ctx, Request{Key: key, Limit: limit, Cost: n})
	if len(d.Rows) > 0 {
		d = d.Rows[0]
	}
	return d, err
}

// WaitAll takes a list all-or-nothing as AllowAll does, waiting until it is
// admitted. A request in mode Record is an *InvalidError, as each try would
// charge it.
//
// Waits of this Limiter that need a state in common (a key under a limit) are
// served in the order of their calls, except that one that has to wait longer
// for another state of its own lets those behind it pass: once for each of its
// states, so none starves. Each sleeps exactly the RetryAfter it was told.
//
// It returns at once with ErrNever if a cost is above what its limit can ever
// admit, and a Decision whose rows say which; and with ErrDeadline if the context's deadline is not farther than the
// wait. If the context ends while it waits, it gives its place up, takes
// nothing and returns the context's error.
func (l *Limiter) WaitAll(ctx context.Context, requests ...Request) (Decision, error) {
	requests = slices.Clone(requests)
	w, err := newWaiter(requests)
	if err != nil {
		return Decision{}, err
	}
	if d := w.never(requests); !d.Allowed {
		return d, ErrNever
	}
	defer l.waits.leave(w)
	if !l.waits.turn(w) {
		if err := l.nearer(ctx, w.places); err != nil {
			return Decision{}, err
		}
	}
	for {
		if err := l.waits.await(ctx, w); err != nil {
			return Decision{}, err
		}
		d, err := l.AllowAll(ctx, requests...)
		switch {
		case err != nil || d.Allowed:
			return d, err
		case d.Reason == Never:
			return d, ErrNever
		}
		l.waits.denied(w, &d)
		if err := sleep(ctx, cmp.Or(d.RetryAfter, time.Millisecond)); err != nil { // a degraded denial knows no wait
			return d, err
		}
	}
}

// never returns a denial if the list can never be admitted. No store is asked, so
// of the other rows it says nothing but Allowed.
func (w *waiter) never(requests []Request) Decision {
	l := List{Requests: requests, Rows: make([]Decision, len(requests))}
	for i := range requests {
		r := &requests[i]
		l.Rows[i] = Decision{Allowed: true, Limit: r.Limit.Capacity()}
		for _, p := range w.places {
			if r.Mode == Enforce && p.request.sameState(r) && p.request.Cost > r.Limit.Capacity() {
				l.Rows[i].Allowed, l.Rows[i].Reason = false, Never
			}
		}
	}
	d := l.Decide()
	d.Rows = l.Rows
	return d
}

// sleep returns ErrDeadline at once if the context would end it.
func sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return ErrDeadline
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nearer returns ErrDeadline if the context ends before the units ahead in each
// line and those of its place can have passed.
func (l *Limiter) nearer(ctx context.Context, places []*place) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	peeks := make([]Request, len(places))
	for i, p := range places {
		peeks[i] = p.request
		peeks[i].Mode, peeks[i].Cost = Peek, p.first()
	}
	d, err := l.AllowAll(ctx, peeks...)
	if err != nil {
		return err
	}
	wait := 0.0 // a float64, because it can be millennia
	for i, p := range places {
		wait = max(wait, float64(d.Rows[i].RetryAfter)+p.windows()*float64(p.request.Limit.Window))
	}
	if wait > 0 && float64(time.Until(deadline)) <= wait {
		return ErrDeadline
	}
	return nil
}

// waits holds a line for each state that somebody waits for, or tries to take
// from.
type waits struct {
	mu      sync.Mutex
	lines   map[stateID]*line
	tickets uint64 // given out
}

// line is the places of those who want a state, in the order of their tickets.
type line struct {
	places []*place
	units  int64 // that they want in all
}

// stateID names a state; see Request.sameState.
type stateID struct {
	key       string
	window    time.Duration
	algorithm Algorithm
	buckets   int
	epoch     bool
}

// waiter is a call that waits. Until its turn comes it stands in the lines where
// somebody with an earlier ticket does; while it tries, in all of its own; while
// it sleeps, in those of the states that have ever made it sleep.
type waiter struct {
	ticket uint64 // 0 until it first wants its turn
	places []*place
	wake   chan struct{} // told when it has become the first of a line
}

// place is what a waiter wants of one state.
type place struct {
	*waiter

	state   stateID
	request Request // with the cost of all the rows for the state
	row     int     // the first of them
	stands  bool    // in the state's line
	slept   bool    // for the state
	ahead   int64   // units in the line when it was last joined
}

// newWaiter returns the waiter for a list, whose defaults it fills in.
func newWaiter(requests []Request) (*waiter, error) {
	if err := normalize(requests); err != nil {
		return nil, err
	}
	w := &waiter{wake: make(chan struct{}, 1)}
	for i, r := range requests {
		switch r.Mode {
		case Record:
			return nil, at(invalid("mode", r.Mode.String(), "Enforce, Shadow or Peek; to record what has been used call Charge"), "requests", i, len(requests))
		case Enforce:
			w.want(i, r)
		}
	}
	return w, nil
}

func (w *waiter) want(row int, r Request) {
	for _, p := range w.places {
		if p.request.sameState(&r) {
			p.request.Cost += r.Cost
			return
		}
	}
	id := stateID{r.Key, r.Limit.Window, r.Limit.Algorithm, r.Limit.Buckets, r.Limit.Epoch}
	w.places = append(w.places, &place{waiter: w, state: id, request: r, row: row})
}

// first returns how many of the units ahead and its own pass together first,
// when they are taken as many at a time as can be.
func (p *place) first() int64 {
	units, most := p.ahead+p.request.Cost, p.request.Limit.Capacity()
	if p.request.Limit.Algorithm == TokenBucket {
		return min(units, most)
	}
	return (units-1)%most + 1
}

// windows returns how many windows the others take after those.
func (p *place) windows() float64 {
	limit := &p.request.Limit
	units := p.ahead + p.request.Cost - p.first()
	switch limit.Algorithm {
	case TokenBucket:
		return float64(units) / float64(limit.Max)
	case SlidingCounter, FixedWindow: // the edge of a window can be near
		return max(0, float64(units/limit.Max)-1)
	}
	return float64(units / limit.Max)
}

// await returns when it is the turn of w.
func (q *waits) await(ctx context.Context, w *waiter) error {
	for !q.turn(w) {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// turn reports whether nobody with an earlier ticket stands in a line of w.
func (q *waits) turn(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.ticket == 0 {
		q.tickets++
		w.ticket = q.tickets
	}
	free := !slices.ContainsFunc(w.places, q.behind)
	for _, p := range w.places {
		q.stand(p, free || q.behind(p))
	}
	return free
}

// behind reports whether somebody with an earlier ticket stands in the line.
func (q *waits) behind(p *place) bool {
	line := q.lines[p.state]
	return line != nil && line.places[0].ticket < p.ticket
}

// denied keeps w in the lines of the states that make it sleep.
func (q *waits) denied(w *waiter, d *Decision) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range w.places {
		row := &d.Rows[p.row]
		p.slept = p.slept || !row.Allowed && row.RetryAfter == d.RetryAfter
		q.stand(p, p.slept)
	}
}

// leave takes w out of its lines.
func (q *waits) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range w.places {
		q.stand(p, false)
	}
}

// stand puts p into its line or takes it out, and tells the new first one.
func (q *waits) stand(p *place, in bool) {
	if p.stands == in {
		return
	}
	p.stands = in
	if q.lines == nil {
		q.lines = make(map[stateID]*line)
	}
	l := q.lines[p.state]
	if l == nil {
		l = new(line)
		q.lines[p.state] = l
	}
	i, _ := slices.BinarySearchFunc(l.places, p.ticket, func(o *place, ticket uint64) int { return cmp.Compare(o.ticket, ticket) })
	if in {
		p.ahead = l.units
		l.places = slices.Insert(l.places, i, p)
		l.units += p.request.Cost
		return
	}
	l.places = slices.Delete(l.places, i, i+1)
	l.units -= p.request.Cost
	switch {
	case len(l.places) == 0:
		delete(q.lines, p.state)
	case i == 0:
		select {
		case l.places[0].wake <- struct{}{}:
		default: // it has been told and not looked yet
		}
	}
}
