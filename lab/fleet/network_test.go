package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// instants gives out microseconds of the simulation, none twice: events that do
// not tie happen in one order.
type instants struct {
	mu    sync.Mutex
	taken map[int64]bool
}

// from returns the first free instant from t on for which those of the timers
// that start with it are free as well.
func (n *instants) from(t time.Time, timers ...time.Duration) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := t.UnixMicro() + 1
	for !n.free(at, timers) {
		at++
	}
	n.taken[at] = true
	for _, d := range timers {
		n.taken[at+d.Microseconds()] = true
	}
	return time.UnixMicro(at)
}

func (n *instants) free(at int64, timers []time.Duration) bool {
	for _, d := range timers {
		if n.taken[at+d.Microseconds()] {
			return false
		}
	}
	return !n.taken[at]
}

// until waits for a time, or until the context ends.
func until(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// trip is a call on its way: what the network has in store for it, drawn before
// it sets out, and what the server did.
type trip struct {
	there, back, extra time.Duration
	luck               float64 // below 0.2 the request is lost, above 0.8 the answer, if the network is lossy
	stubborn           time.Duration
	connection         int
	sent               bool
	refused            time.Time   // when it was told of a mistake in the settings; its caller may have left
	done               []time.Time // when, for each list
}

// refusedBy reports whether the trip had been told of a mistake in the settings
// at a time.
func (t *trip) refusedBy(at time.Time) bool { return !t.refused.IsZero() && !t.refused.After(at) }

type tripKey struct{}

// network takes messages between nodes and the store. Each connection of a node
// keeps their order, and different ones overtake each other. A message may get
// lost with its connection, but never arrives twice: TCP delivers a byte once,
// and no client sends a command that writes again of its own.
type network struct {
	*instants

	plan   *plan
	server *server
	mu     sync.Mutex
	last   map[[3]int]time.Time // arrival on a node's connection, there or back
}

// link is the network as one node sees it: a Store.
type link struct {
	*network

	node int
}

// route is when a message arrives, and when its answer does; zero if never.
type route struct {
	arrives, answered time.Time
	err               error // instead of an answer
}

var (
	errReset    = errors.New("connection reset by peer")
	errRefused  = errors.New("connection refused")
	errPassword = errors.New("WRONGPASS invalid username-password pair or user is disabled")
)

// way returns when a message arrives that is sent at a time.
func (n *network) way(from time.Time, node, connection, direction int, delay, extra time.Duration) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e, ok := n.plan.during(from, node, slow); ok {
		delay += extra % e.amount
	}
	at := from.Add(delay)
	if e, ok := n.plan.during(at, -1, stopped); ok && direction == 0 {
		at = e.to.Add(delay)
	}
	line := [3]int{node, connection, direction}
	if last := n.last[line]; !at.After(last) {
		at = last
	}
	at = n.from(at)
	n.last[line] = at
	return at
}

// route plans the way of a call from now on.
func (l *link) route(t *trip) route {
	now, p := time.Now(), l.plan
	_, lossy := p.during(now, l.node, lossy)
	if _, ok := p.during(now, l.node, cut); ok || lossy && t.luck < 0.2 {
		return route{}
	}
	r := route{arrives: l.way(now, l.node, t.connection, 0, t.there, t.extra)}
	if _, ok := p.during(r.arrives, l.node, cut); ok {
		return route{}
	}
	r.answered = l.way(r.arrives, l.node, t.connection, 1, t.back, t.extra/3)
	arrived, dead := p.down(r.arrives)
	switch gone, died := p.down(r.answered); {
	case dead && arrived.fault != refusing, died && gone.fault != refusing:
		r.answered = time.Time{}
	case dead:
		r.err = &weir.StoreError{Err: errRefused, Unknown: now.Before(arrived.from)}
	case died:
		r.err = &weir.StoreError{Err: errReset, Unknown: true}
	}
	if dead {
		r.arrives = time.Time{}
		return r
	}
	if _, ok := p.during(r.arrives, l.node, password); ok {
		r.arrives, r.err = time.Time{}, &weir.StoreError{Err: errPassword, Settings: true}
	}
	if _, ok := p.during(now, l.node, deaf); ok || lossy && t.luck > 0.8 {
		r.answered = time.Time{}
	}
	return r
}

// call takes a call to the server and its answer back, or returns when the
// context ends. The server does it nonetheless then, if it arrives.
func (l *link) call(ctx context.Context, do func(*trip)) error {
	t := ctx.Value(tripKey{}).(*trip)
	t.sent = true
	r := l.route(t)
	answered := make(chan struct{})
	go func() {
		if !r.arrives.IsZero() {
			until(context.Background(), r.arrives)
			do(t)
		}
		if !r.answered.IsZero() {
			until(context.Background(), r.answered)
			close(answered)
		}
	}()
	select {
	case <-answered:
		if errors.Is(r.err, errPassword) {
			t.refused = r.answered
		}
		return r.err
	case <-ctx.Done():
	}
	if t.stubborn > 0 {
		until(context.Background(), l.from(time.Now().Add(t.stubborn)))
	}
	return &weir.StoreError{Err: ctx.Err(), Unknown: true}
}

// Take implements weir.Store.
func (l *link) Take(ctx context.Context, lists []weir.List) {
	own := make([]weir.List, len(lists))
	for i := range lists {
		own[i] = weir.List{Requests: append([]weir.Request(nil), lists[i].Requests...), Rows: make([]weir.Decision, len(lists[i].Rows))}
	}
	err := l.call(ctx, func(t *trip) {
		for i := range own {
			l.server.take(t, &own[i])
		}
	})
	for i := range lists {
		if lists[i].Err = err; err == nil {
			copy(lists[i].Rows, own[i].Rows)
			lists[i].Err = own[i].Err
		}
	}
}

// number is call for what is answered by a number.
func (l *link) number(ctx context.Context, do func(*trip) (int64, error)) (int64, error) {
	var n int64
	var failed error
	if err := l.call(ctx, func(t *trip) { n, failed = do(t) }); err != nil {
		return 0, err
	}
	return n, failed
}

// Refund implements weir.Store.
func (l *link) Refund(ctx context.Context, receipts []weir.Receipt) (int64, error) {
	return l.number(ctx, func(t *trip) (int64, error) { return l.server.refund(t, receipts) })
}

// Count implements weir.Store.
func (l *link) Count(ctx context.Context, r weir.Request, d time.Duration) (int64, error) {
	return l.number(ctx, func(t *trip) (int64, error) { return l.server.count(t, r, d) })
}

// Reset implements weir.Store.
func (l *link) Reset(ctx context.Context, requests []weir.Request) (int64, error) {
	return l.number(ctx, func(t *trip) (int64, error) { return l.server.reset(t, requests) })
}

// Close implements weir.Store.
func (l *link) Close() error { return nil }
