package weir

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"
)

// Limiter is what callers hold. It validates, calls its Store once, and sums
// up; it keeps no limits and no keys of its own. It is safe for concurrent use.
type Limiter struct {
	store    Store
	returned returned
	waits    waits
}

// Options configures a Limiter; the zero value is a Limiter in memory.
type Options struct {
	// Store remembers what was taken; nil means NewMemory(MemoryOptions{}).
	Store Store
}

// New returns a Limiter.
func New(o Options) *Limiter {
	if o.Store == nil {
		o.Store = NewMemory(MemoryOptions{})
	}
	return &Limiter{store: o.Store}
}

// Close closes the Store.
func (l *Limiter) Close() error { return l.store.Close() }

// maxList is the largest number of Requests in a list.
const maxList = 1000

// Take is the engine under every other method: it decides each list by itself
// in one trip to the store, and sets its Rows or its Err. It fills in the
// defaults of the Requests in place and reuses Rows that are large enough.
// List.Decide sums a list up.
func (l *Limiter) Take(ctx context.Context, lists []List) {
	bad := 0
	for i := range lists {
		list := &lists[i]
		if cap(list.Rows) < len(list.Requests) {
			list.Rows = make([]Decision, len(list.Requests))
		}
		list.Rows = list.Rows[:len(list.Requests)]
		if list.Err = ctx.Err(); list.Err == nil {
			list.Err = normalize(list.Requests)
		}
		if list.Err != nil {
			bad++
		}
	}
	if bad == 0 {
		l.store.Take(ctx, lists)
		return
	}
	good := make([]List, 0, len(lists)-bad)
	for i := range lists {
		if lists[i].Err == nil {
			good = append(good, lists[i])
		}
	}
	l.store.Take(ctx, good)
	for i := range lists {
		if lists[i].Err == nil {
			lists[i], good = good[0], good[1:]
		}
	}
}

// normalize fills in the defaults of a list's requests or says what is wrong.
func normalize(requests []Request) error {
	if len(requests) > maxList {
		return invalid("requests", strconv.Itoa(len(requests)), "a list of at most 1000 requests")
	}
	for i := range requests {
		if err := requests[i].normalize(); err != nil {
			return at(err, "requests", i, len(requests))
		}
	}
	return agree(requests)
}

func (r *Request) normalize() error {
	if r.Cost == 0 {
		r.Cost = 1
	}
	if r.Cost < 0 || r.Cost > MaxUnits {
		return invalid("cost", strconv.FormatInt(r.Cost, 10), "0 to 2147483648 units, 0 meaning 1")
	}
	if r.Mode > Record {
		return invalid("mode", strconv.Itoa(int(r.Mode)), "Enforce, Shadow, Peek or Record")
	}
	if r.OnFailure > OnFailureDeny {
		return invalid("on failure", strconv.Itoa(int(r.OnFailure)), "OnFailureLocal, OnFailureAllow or OnFailureDeny")
	}
	if r.Deadline < 0 {
		return invalid("deadline", r.Deadline.String(), "0, which means the store's usual one, or more")
	}
	return r.Limit.normalize()
}

// agree checks that rows of one state agree on Max and Burst.
func agree(requests []Request) error {
	for i := 1; i < len(requests); i++ {
		for j := range i {
			a, b := &requests[j], &requests[i]
			if a.Limit != b.Limit && a.sameState(b) {
				return at(invalid("limit", b.Limit.String(), "the limit of the other request for the same key and window, "+a.Limit.String()), "requests", i, len(requests))
			}
		}
	}
	return nil
}

// sameState reports whether two normal requests share one state.
func (r *Request) sameState(o *Request) bool {
	a, b := r.Limit, o.Limit
	return a.Window == b.Window && a.Algorithm == b.Algorithm && a.Buckets == b.Buckets && a.Epoch == b.Epoch && r.Key == o.Key
}

// at says which request of a list an error is about.
func at(err error, list string, i, n int) error {
	var e *InvalidError
	if n > 1 && errors.As(err, &e) {
		return invalid(list+"["+strconv.Itoa(i)+"]."+e.Field, e.Value, e.Want)
	}
	return err
}

// call is the scratch of one trip, pooled because what is handed to a Store escapes.
type call struct {
	lists    []List
	requests []Request
	rows     []Decision
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall(n int) *call {
	c := calls.Get().(*call)
	if cap(c.requests) < n {
		c.requests, c.rows, c.lists = make([]Request, n), make([]Decision, n), make([]List, n)
	}
	c.requests, c.rows, c.lists = c.requests[:n], c.rows[:n], c.lists[:n]
	return c
}

// one decides a single request.
func (l *Limiter) one(ctx context.Context, r Request) (d Decision, err error) {
	c := newCall(1)
	c.requests[0] = r
	c.lists[0] = List{Requests: c.requests, Rows: c.rows}
	l.Take(ctx, c.lists)
	if err = c.lists[0].Err; err == nil {
		d = c.rows[0]
	}
	calls.Put(c)
	return d, err
}

// Allow takes one unit if the limit admits it now. Most callers want this.
func (l *Limiter) Allow(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.one(ctx, Request{Key: key, Limit: limit})
}

// AllowN takes n units, at least 1, or none.
func (l *Limiter) AllowN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	if err := positive(n); err != nil {
		return Decision{}, err
	}
	return l.one(ctx, Request{Key: key, Limit: limit, Cost: n})
}

// Peek says whether one unit would pass now, and takes nothing.
func (l *Limiter) Peek(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.one(ctx, Request{Key: key, Limit: limit, Mode: Peek})
}

// Charge records n units, at least 1, that have already been used, even above
// the limit: it succeeds, and delays what follows.
func (l *Limiter) Charge(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	if err := positive(n); err != nil {
		return Decision{}, err
	}
	return l.one(ctx, Request{Key: key, Limit: limit, Cost: n, Mode: Record})
}

func positive(n int64) error {
	if n < 1 {
		return invalid("cost", strconv.FormatInt(n, 10), "at least 1 unit; to take nothing use Peek")
	}
	return nil
}

// AllowAll decides a list all-or-nothing, in one atomic step: nothing is
// charged unless every request passes. The Decision has a row for each.
func (l *Limiter) AllowAll(ctx context.Context, requests ...Request) (Decision, error) {
	c := newCall(len(requests))
	defer calls.Put(c)
	rows := make([]Decision, len(requests))
	copy(c.requests, requests)
	lists := append(c.lists[:0], List{Requests: c.requests, Rows: rows})
	l.Take(ctx, lists)
	if err := lists[0].Err; err != nil {
		return Decision{}, err
	}
	d := lists[0].Decide()
	d.Rows = rows
	return d, nil
}

// AllowEach decides independent requests in one trip. The error is the first
// that a request met; the decisions of the others hold, and its own is zero.
func (l *Limiter) AllowEach(ctx context.Context, requests ...Request) ([]Decision, error) {
	c := newCall(len(requests))
	defer calls.Put(c)
	ds := make([]Decision, len(requests))
	copy(c.requests, requests)
	for i := range requests {
		c.lists[i] = List{Requests: c.requests[i : i+1], Rows: ds[i : i+1]}
	}
	l.Take(ctx, c.lists)
	var first error
	for i := range c.lists {
		if err := c.lists[i].Err; err != nil {
			ds[i] = Decision{}
			if first == nil {
				first = at(err, "requests", i, len(requests))
			}
		}
	}
	return ds, first
}

// Refund gives back the units of receipts, as many as are still recorded where
// they were charged, and returns how many that were. A receipt that this
// Limiter has seen returned gives back nothing again, as long as it is among
// the last 65,536; across processes not returning one twice is the caller's
// duty. A Refund that failed must not be repeated.
func (l *Limiter) Refund(ctx context.Context, receipts ...Receipt) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	due := make([]Receipt, 0, len(receipts))
	for i, r := range receipts {
		if r.IsZero() {
			continue
		}
		if err := r.normalize(); err != nil {
			return 0, at(err, "receipts", i, len(receipts))
		}
		due = append(due, r)
	}
	n := 0
	for _, r := range due {
		if r.Units = l.returned.claim(r); r.Units > 0 {
			due[n] = r
			n++
		}
	}
	if n == 0 {
		return 0, nil
	}
	return l.store.Refund(ctx, due[:n])
}

// RefundOldest gives back Cost units of the request's state without a receipt,
// the oldest live ones first: it never lets more pass than the limit, and may
// give back units that would have expired soon.
func (l *Limiter) RefundOldest(ctx context.Context, r Request) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := r.normalize(); err != nil {
		return 0, err
	}
	return l.store.Refund(ctx, []Receipt{{Request: r, Units: r.Cost}})
}

// Count tells how many units were taken in the last d, which is at most the
// limit's Window: exactly with sliding-log; with sliding-buckets never too few
// and too many by at most one part. Other algorithms return an *InvalidError.
func (l *Limiter) Count(ctx context.Context, key string, limit Limit, d time.Duration) (int64, error) {
	return l.CountRequest(ctx, Request{Key: key, Limit: limit}, d)
}

// CountRequest is Count for the state of a request, whose Group says where on a
// Cluster it is; Cost and Mode do not matter.
func (l *Limiter) CountRequest(ctx context.Context, r Request, d time.Duration) (int64, error) {
	r.Cost, r.Mode = 0, Enforce
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := r.normalize(); err != nil {
		return 0, err
	}
	if a := r.Limit.Algorithm; a != SlidingLog && a != SlidingBuckets {
		return 0, invalid("algorithm", a.String(), "sliding-log or sliding-buckets, which can count any recent interval")
	}
	if d < time.Microsecond || d > r.Limit.Window {
		return 0, invalid("last", d.String(), "from 1us to the limit's window, "+formatWindow(r.Limit.Window))
	}
	// A microsecond begun counts, so that nothing within d is missed.
	return l.store.Count(ctx, r, (d + time.Microsecond - 1).Truncate(time.Microsecond))
}

// Reset forgets the state of a key under a limit and reports whether there was one.
func (l *Limiter) Reset(ctx context.Context, key string, limit Limit) (bool, error) {
	n, err := l.ResetAll(ctx, Request{Key: key, Limit: limit})
	return n > 0, err
}

// ResetAll forgets the states of requests and returns how many there were.
func (l *Limiter) ResetAll(ctx context.Context, requests ...Request) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	rs := append([]Request(nil), requests...)
	for i := range rs {
		if err := rs[i].normalize(); err != nil {
			return 0, at(err, "requests", i, len(rs))
		}
	}
	return l.store.Reset(ctx, rs)
}

// returned remembers how many units of recent receipts have been given back.
type returned struct {
	mu    sync.Mutex
	units map[uint64]int64
	ring  []uint64 // the IDs in units, oldest at next
	next  int
}

const maxReturned = 1 << 16

// claim returns how many units of r have not been given back yet and marks
// them given back.
func (t *returned) claim(r Receipt) int64 {
	if r.ID == 0 {
		return r.Units
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	seen, ok := t.units[r.ID]
	if !ok {
		if t.units == nil {
			t.units = make(map[uint64]int64)
		}
		if len(t.ring) < maxReturned {
			t.ring = append(t.ring, r.ID)
		} else {
			delete(t.units, t.ring[t.next])
			t.ring[t.next] = r.ID
			t.next = (t.next + 1) % maxReturned
		}
	}
	n := max(0, min(r.Units, r.Request.Cost-seen))
	t.units[r.ID] = seen + n
	return n
}
