package layer

import (
	"context"

	"github.com/weirlimit/weir"
)

// ofShare marks the ID of a receipt of a share. Those of stores are below it.
const ofShare = 1 << 63

// backAfter is the RetryAfter of a denial that ends when the store is back,
// which nobody knows: the store is tried once in this time.
const backAfter = maxPause

// decide answers a list without the store.
func (f *Fallback) decide(ctx context.Context, l *weir.List, cause error) {
	how := strictest(l.Requests)
	if how == weir.OnFailureAllow && (mistaken(cause) || f.breaker.mistaken()) {
		how = weir.OnFailureLocal // lest a wrong password lets everybody in for as long as nobody looks
	}
	l.Err = nil
	if how == weir.OnFailureLocal {
		f.share(ctx, l)
		return
	}
	for i := range l.Requests {
		l.Rows[i] = degraded(&l.Requests[i], how)
	}
}

// strictest returns how a list is decided: deny before local before allow. Its
// Enforce rows speak for it, or all if it has none.
func strictest(requests []weir.Request) weir.OnFailure {
	order := [...]weir.OnFailure{weir.OnFailureAllow, weir.OnFailureLocal, weir.OnFailureDeny}
	rank := [...]int{weir.OnFailureAllow: 0, weir.OnFailureLocal: 1, weir.OnFailureDeny: 2}
	most, enforced := 0, false
	for i := range requests {
		own := rank[requests[i].OnFailure]
		switch enforces := requests[i].Mode == weir.Enforce; {
		case enforces && !enforced:
			most, enforced = own, true
		case enforces == enforced:
			most = max(most, own)
		}
	}
	return order[most]
}

// degraded answers a request for all that is known without any store.
func degraded(r *weir.Request, how weir.OnFailure) weir.Decision {
	d := weir.Decision{Limit: r.Limit.Capacity()}
	switch {
	case r.Cost > d.Limit && r.Mode != weir.Record:
		d.Reason = weir.Never
	case how == weir.OnFailureAllow:
		d.Allowed, d.Reason = true, weir.StoreAllowed
	default:
		d.Reason, d.RetryAfter = weir.StoreDenied, backAfter
	}
	return d
}

// share decides a list by this process' shares of its limits.
func (f *Fallback) share(ctx context.Context, l *weir.List) {
	lists := clone([]weir.List{*l})
	own := &lists[0]
	for i := range own.Requests {
		r := &own.Requests[i].Limit
		r.Max = f.part(r.Max)
		if r.Burst > 0 {
			r.Burst = f.part(r.Burst)
		}
	}
	f.shares.Take(ctx, lists)
	l.Err = own.Err
	for i := range own.Rows {
		d := own.Rows[i]
		switch r := &l.Requests[i]; {
		case d.Reason != weir.Never:
			d.Reason = weir.StoreLocal
		case r.Cost <= r.Limit.Capacity():
			d.Reason, d.RetryAfter = weir.StoreDenied, backAfter
		}
		if !d.Receipt.IsZero() {
			d.Receipt.ID |= ofShare
		}
		l.Rows[i] = d
	}
}

// part is what each of the replicas has of n units. It is never none, so that
// more replicas than units have, together, a unit each.
func (f *Fallback) part(n int64) int64 { return max(1, n/int64(f.options.Replicas)) }
