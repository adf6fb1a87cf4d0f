package weir

import (
	"context"
	"slices"
	"time"
)

// Request asks for Cost units of the state named by Key and Limit.
type Request struct {
	// Key names what is limited: any bytes, any length.
	Key string
	// Limit is the limit to hold it to. The state is identified by Key and the
	// limit's Algorithm, Window, Buckets and Epoch; another Max or Burst keeps
	// what is recorded.
	Limit Limit
	// Cost is the number of units, up to MaxUnits; 0 means 1.
	Cost int64
	// Mode says what the answer does; the zero value enforces.
	Mode Mode
	// Group picks the slot that the state lives in on a Cluster; empty means
	// Key. Requests of one Group are decided in one step there. All requests for
	// a Key must be of the same Group.
	Group string
	// OnFailure says how the request is decided when the store cannot be asked,
	// and Deadline how long the store may take, 0 meaning as long as for others.
	// Only layer.Fallback looks at them, and httplimit.Middleware at OnFailure.
	OnFailure OnFailure
	Deadline  time.Duration
}

// Mode says what a Request's answer does to its list and its state.
type Mode uint8

// The modes. A list is admitted iff every Enforce row fits.
const (
	// Enforce denies the list if it does not fit, and is charged with it.
	Enforce Mode = iota
	// Shadow never denies the list; it is charged iff the list is admitted and
	// it fits itself. Its row says what it would have decided.
	Shadow
	// Peek charges nothing and never denies the list. Its row says whether
	// Cost (by default 1) would pass now.
	Peek
	// Record charges whatever the verdict: the use has already happened.
	Record
)

var modeNames = [...]string{"enforce", "shadow", "peek", "record"}

// String returns "enforce", "shadow", "peek" or "record".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "unknown"
}

// OnFailure says how a Request is decided when the store cannot be asked.
type OnFailure uint8

// What can be done without the store. The strictest of a list wins: OnFailureDeny,
// then OnFailureLocal.
const (
	// OnFailureLocal decides by this process' share of the limit.
	OnFailureLocal OnFailure = iota
	// OnFailureAllow admits.
	OnFailureAllow
	// OnFailureDeny denies.
	OnFailureDeny
)

var onFailureNames = [...]string{"local", "allow", "deny"}

// String returns "local", "allow" or "deny".
func (o OnFailure) String() string {
	if int(o) < len(onFailureNames) {
		return onFailureNames[o]
	}
	return "unknown"
}

// UnmarshalText reads what String writes; anything else is an *InvalidError.
func (o *OnFailure) UnmarshalText(text []byte) error {
	i := slices.Index(onFailureNames[:], string(text))
	if i < 0 {
		return invalid("on_failure", string(text), "allow, deny or local")
	}
	*o = OnFailure(i)
	return nil
}

// List is a list of Requests that is decided all-or-nothing, and its answer.
type List struct {
	// Requests is what is asked. Rows of the same state and Mode count as one
	// row of the sum of their costs: each reports what the sum would get.
	Requests []Request
	// Rows has a Decision for each Request, filled in by the Store.
	Rows []Decision
	// Err is set instead of the rows when the list could not be decided.
	Err error
}

// Store remembers what was taken and owns the clock. It receives Requests that
// the Limiter has validated: limits are normal, costs at least 1. All methods
// may be called concurrently. Errors are for infrastructure only.
//
// The contract of a Store is the suite in package storetest.
type Store interface {
	// Take decides each list by itself, all-or-nothing and in one step, and
	// fills in its Rows (which have the length of its Requests) or its Err. All
	// lists share one trip. What a denial leaves behind changes no later answer.
	//
	// Within an admitted list Enforce rows are charged first, then Shadow rows
	// that still fit, then Record rows; a denied list charges its Record rows.
	Take(ctx context.Context, lists []List)
	// Refund gives back the Units of each receipt, as far as they are still
	// recorded where it was charged, and returns how many that were. It does
	// not know which receipts have been returned before; the Limiter does.
	Refund(ctx context.Context, receipts []Receipt) (int64, error)
	// Count tells how many units of the request's state were taken in the last
	// d, up to its Window. The algorithm is sliding-log or sliding-buckets.
	Count(ctx context.Context, request Request, d time.Duration) (int64, error)
	// Reset forgets the states of the requests and returns how many there were.
	Reset(ctx context.Context, requests []Request) (int64, error)
	// Close frees what the store holds; every later call fails with ErrClosed.
	Close() error
}

// Admitted reports whether every Enforce row of l passes, which is when a list
// is charged.
func (l *List) Admitted() bool {
	for i := range l.Rows {
		if l.Requests[i].Mode == Enforce && !l.Rows[i].Allowed {
			return false
		}
	}
	return true
}

// Decide combines the rows of l into the list's Decision, without Rows. The
// Enforce rows speak for it; a list without any is answered by its Peek rows,
// and one with neither is allowed.
//
// A denied list takes its numbers from the denied row with the longest wait, a
// row that never passes being longer than any (of those the one with the least
// limit); an allowed one from the row with least remaining.
func (l *List) Decide() Decision {
	speaker := Record
	for i := range l.Requests {
		speaker = min(speaker, speakOrder[l.Requests[i].Mode&3])
	}
	d := Decision{Allowed: true, Reason: NoRule}
	best := -1
	for i := range l.Rows {
		if speakOrder[l.Requests[i].Mode&3] == speaker && (best < 0 || tighter(&l.Rows[i], &l.Rows[best])) {
			best = i
		}
	}
	if best < 0 {
		return d
	}
	d = l.Rows[best]
	d.Receipt, d.Rows = Receipt{}, nil
	if l.Requests[best].Mode == Shadow && !d.Allowed {
		d.Allowed, d.RetryAfter = true, 0
		switch d.Reason {
		case StoreLocal, CachedDenial:
		case StoreDenied:
			d.Reason = StoreAllowed
		default:
			d.Reason = OK
		}
	}
	return d
}

// speakOrder ranks the modes by who speaks for a list: Enforce before Peek
// before Shadow before Record.
var speakOrder = [4]Mode{Enforce: 0, Peek: 1, Shadow: 2, Record: 3}

// tighter reports whether row a rather than row b decides a list.
func tighter(a, b *Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.Allowed:
		return a.Remaining < b.Remaining
	case (a.Reason == Never) != (b.Reason == Never):
		return a.Reason == Never
	case a.Reason == Never:
		return a.Limit < b.Limit
	}
	return a.RetryAfter > b.RetryAfter
}
