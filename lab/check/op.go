// Package check says what must hold of a history: of what clients asked a
// store, when, and what they were told, whatever happened to the store
// meanwhile. Simulations and tests on real servers hold theirs to it.
//
//   - Windows: no window of any key admits more than its algorithm's bound, and
//     what the events that happened may add.
//   - AllOrNothing: a list is charged as a whole or not at all.
//   - Refunds: no receipt gives back more than was charged.
//   - Linearizable: the store's answers are those of one that was asked one call
//     after the other.
package check

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Verb is what an Op did.
type Verb string

// The verbs. The last two are no calls but what happened to the store.
const (
	Taken    Verb = "take"
	Refunded Verb = "refund"
	Counted  Verb = "count"
	Cleared  Verb = "reset"
	// Stepped is a step of the store's clock against that of the callers.
	Stepped Verb = "step"
	// Lost is a loss of all states, or of what was written last.
	Lost Verb = "lose"
)

// Op is one call of a client, a list of requests being one call, or an event.
// Times are by one clock for all Ops of a history.
type Op struct {
	// Client tells concurrent callers apart; nothing depends on it.
	Client int
	Verb   Verb
	// Call is when it was called, and Return when it was answered; zero if it
	// never was.
	Call, Return time.Time
	// Requests are of Taken, Counted (one) and Cleared, with normal Limits;
	// those of one list are of different states.
	Requests []weir.Request
	// Rows are the decisions on a Taken, one a request.
	Rows []weir.Decision
	// Receipts are of Refunded.
	Receipts []weir.Receipt
	// Last is what Counted looks back, and By what Stepped adds to the clock: a
	// whole number of microseconds.
	Last, By time.Duration
	// N is what a Refunded, Counted or Cleared was answered.
	N int64
	// Err is what it failed with. The store may have done it nonetheless, at any
	// time from Call on, unless it is a *weir.StoreError without Unknown.
	Err error
	// At is when the store did it, if that is known. After a step back of the
	// clock it has to be: the first look at a state stamps it anew, and no answer
	// tells with what.
	At time.Time
	// Absent says that the store is known not to have done it.
	Absent bool
	// To is the time whose states a Lost brings back; zero if all are lost.
	To time.Time
}

// Take decides requests as one list and returns the Op without its Client.
func Take(ctx context.Context, l *weir.Limiter, requests ...weir.Request) Op {
	lists := []weir.List{{Requests: slices.Clone(requests)}}
	call := time.Now()
	l.Take(ctx, lists)
	return Op{Verb: Taken, Call: call, Return: time.Now(), Requests: normal(requests...), Rows: lists[0].Rows, Err: lists[0].Err}
}

// Refund gives receipts back and returns the Op without its Client.
func Refund(ctx context.Context, l *weir.Limiter, receipts ...weir.Receipt) Op {
	return timed(Op{Verb: Refunded, Receipts: slices.Clone(receipts)}, func() (int64, error) {
		return l.Refund(ctx, receipts...)
	})
}

// Count counts what was taken in the last d and returns the Op without its Client.
func Count(ctx context.Context, l *weir.Limiter, r weir.Request, d time.Duration) Op {
	return timed(Op{Verb: Counted, Requests: normal(r), Last: d}, func() (int64, error) {
		return l.CountRequest(ctx, r, d)
	})
}

// Reset forgets the states of requests and returns the Op without its Client.
func Reset(ctx context.Context, l *weir.Limiter, requests ...weir.Request) Op {
	return timed(Op{Verb: Cleared, Requests: normal(requests...)}, func() (int64, error) {
		return l.ResetAll(ctx, requests...)
	})
}

// Step returns the event that the store's clock was stepped at a time, by a
// whole number of microseconds.
func Step(at time.Time, by time.Duration) Op {
	return Op{Verb: Stepped, Call: at, Return: at, By: by}
}

// Lose returns the event that the store has lost its states between two times.
// The states as they were at a time `to` are what is left, none if it is zero.
func Lose(from, until, to time.Time) Op {
	return Op{Verb: Lost, Call: from, Return: until, To: to}
}

func timed(o Op, do func() (int64, error)) Op {
	o.Call = time.Now()
	o.N, o.Err = do()
	o.Return = time.Now()
	return o
}

// normal returns requests with their defaults filled in; invalid ones stay what
// they are.
func normal(requests ...weir.Request) []weir.Request {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].Cost = max(1, requests[i].Cost)
		if l, err := requests[i].Limit.Normal(); err == nil {
			requests[i].Limit = l
		}
	}
	return requests
}

// Degraded reports whether any row was decided without the store.
func (o *Op) Degraded() bool {
	return slices.ContainsFunc(o.Rows, func(d weir.Decision) bool { return d.Reason >= weir.StoreAllowed })
}

// Admitted reports whether the list of a Taken was admitted.
func (o *Op) Admitted() bool {
	l := weir.List{Requests: o.Requests, Rows: o.Rows}
	return o.Verb == Taken && o.Err == nil && l.Admitted()
}

// identity is what requests of one state have in common.
type identity struct {
	key       string
	algorithm weir.Algorithm
	window    time.Duration
	buckets   int
	epoch     bool
}

func identityOf(r *weir.Request) identity {
	l := &r.Limit
	return identity{r.Key, l.Algorithm, l.Window, l.Buckets, l.Epoch}
}
