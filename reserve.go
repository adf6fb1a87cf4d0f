package weir

import (
	"context"
	"errors"
	"strconv"
	"sync"
)

// ErrSettled is returned by Commit for a Reservation that was committed or
// cancelled before.
var ErrSettled = errors.New("weir: the reservation was settled before")

// Reservation holds units whose use is not known yet: reserve an estimate, then
// Commit what was used in the end, or Cancel. The units are held from the moment
// of the reservation, never from one to come, and age out of their window like
// any others, so one whose holder has crashed needs no cleaning up.
//
// It is safe for concurrent use; only the first Commit or Cancel acts.
type Reservation struct {
	// Decision is what Reserve was told, with a row for each request. If it was
	// denied nothing is held, and there is nothing to settle.
	Decision

	limiter  *Limiter
	requests []Request
	mu       sync.Mutex
	settled  bool
}

// Reserve takes units for all requests or for none, as AllowAll does, to be
// settled when it is known how many were used.
func (l *Limiter) Reserve(ctx context.Context, requests ...Request) (*Reservation, error) {
	d, err := l.AllowAll(ctx, requests...)
	if err != nil {
		return nil, err
	}
	r := &Reservation{Decision: d, limiter: l, requests: append([]Request(nil), requests...)}
	return r, normalize(r.requests)
}

// Commit says how many units each request has used in the end, in their order;
// those past the end of used have used what they reserved. What was not used
// goes back exactly, as by Refund, and what was used beyond the reservation is
// charged, as by Charge, even above the limit. Requests that hold nothing, such
// as a Shadow that did not fit, stay as they are.
//
// It does not end with ctx, as it is called when the work is over, often by a
// caller who has left. A Commit that failed must not be repeated. The error is
// an *InvalidError, which has changed nothing, ErrSettled, or the store's.
func (r *Reservation) Commit(ctx context.Context, used ...int64) error {
	if len(used) > len(r.requests) {
		return invalid("used", strconv.Itoa(len(used))+" numbers", "at most one for each request that was reserved, "+strconv.Itoa(len(r.requests)))
	}
	for i, n := range used {
		if n < 0 || n > MaxUnits {
			return at(invalid("used", strconv.FormatInt(n, 10), "0 to 2147483648 units"), "requests", i, len(r.requests))
		}
	}
	if !r.settle() {
		return ErrSettled
	}
	var back []Receipt
	var more []Request
	for i, n := range used {
		row, held := r.Rows[i], r.requests[i]
		switch {
		case row.Receipt.IsZero():
		case n < held.Cost:
			back = append(back, row.Receipt.Part(held.Cost-n))
		case n > held.Cost:
			held.Cost, held.Mode = n-held.Cost, Record
			more = append(more, held)
		}
	}
	ctx = context.WithoutCancel(ctx)
	_, failed := r.limiter.Refund(ctx, back...)
	if len(more) == 0 {
		return failed
	}
	_, err := r.limiter.AllowAll(ctx, more...)
	return errors.Join(failed, err)
}

// Cancel gives back all that is held and has not aged out, and returns how many
// units that were; 0 after a Commit, so that it can be deferred. Like Commit it
// does not end with ctx.
func (r *Reservation) Cancel(ctx context.Context) (int64, error) {
	if !r.settle() {
		return 0, nil
	}
	return r.limiter.Refund(context.WithoutCancel(ctx), r.Receipts()...)
}

// settle reports whether the reservation had not been settled before.
func (r *Reservation) settle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.settled
	r.settled = true
	return first
}
