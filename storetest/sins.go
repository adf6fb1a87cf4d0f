package storetest

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// What limiters are known to get wrong, by the name of the behaviour.

// share is the time in which k units drain at the rate of a limit, rounded up
// to the microsecond.
func share(l weir.Limit, k int64) time.Duration {
	n := new(big.Int).Mul(big.NewInt(k), big.NewInt(l.Window.Microseconds()))
	n.Add(n, big.NewInt(l.Max-1)).Div(n, big.NewInt(l.Max))
	return time.Duration(n.Int64()) * time.Microsecond
}

// waitFor tells between which bounds the wait for k units lies where all of a
// limit was taken just now, none before. A token bucket's Burst is its Max.
func waitFor(l weir.Limit, k int64) (least, most time.Duration) {
	switch l.Algorithm {
	case weir.TokenBucket:
		return share(l, k), share(l, k)
	case weir.SlidingCounter:
		return l.Window + share(l, k), l.Window + share(l, k)
	case weir.SlidingBuckets:
		return l.Window, l.Window + part(l)
	}
	return l.Window, l.Window
}

// useUp takes a whole limit from an unused key, some of it at a time, waits
// for k units and takes them, not a microsecond too early.
func (p *player) useUp(key string, limit weir.Limit, k int64) error {
	left := limit.Max
	for _, cost := range []int64{limit.Max / 3, 1, limit.Max - limit.Max/3 - 1} {
		if cost == 0 {
			continue
		}
		left -= cost
		d, err := p.limiter.AllowN(ctx, key, limit, cost)
		if err != nil || !d.Allowed || d.Remaining != left {
			return fmt.Errorf("take %d got %s, want remaining=%d (%v)", cost, show(d), left, err)
		}
	}
	full := p.clock.at
	d, err := p.limiter.AllowN(ctx, key, limit, k)
	if least, most := waitFor(limit, k); err != nil || d.Allowed || d.RetryAfter < least || d.RetryAfter > most {
		return fmt.Errorf("take %d above the limit got %s, want a wait from %s to %s (%v)", k, show(d), least, most, err)
	}
	for _, early := range []time.Duration{time.Microsecond, 0} {
		p.clock.Set(full + d.RetryAfter - early)
		if ok, err := p.allow(key, limit, k); err != nil || ok != (early == 0) {
			return fmt.Errorf("%s before the wait for %d units, %s, has passed: allowed=%t (%v)", early, k, d.RetryAfter, ok, err)
		}
	}
	return nil
}

func tinyWindows(open Open) error {
	for _, limit := range []weir.Limit{weir.Per(2, 500*time.Microsecond), weir.Per(1, time.Microsecond), weir.Per(7, 999*time.Microsecond)} {
		err := every(open, limit, func(p *player, limit weir.Limit) error {
			for range 5 {
				if err := p.useUp("k", limit, 1); err != nil {
					return err
				}
				d, err := p.limiter.Peek(ctx, "k", limit)
				if err != nil || d.ResetAfter <= 0 || d.ResetAfter > 2*limit.Window {
					return fmt.Errorf("a used key has %s, want a reset within two windows (%v)", show(d), err)
				}
				p.clock.Set(p.clock.at + d.ResetAfter)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func largeLimits(open Open) error {
	for _, limit := range []weir.Limit{
		weir.PerDay(299_999), weir.PerDay(300_000), weir.PerSecond(100_000), weir.Per(weir.MaxUnits, weir.MaxWindow), weir.Per(1, weir.MaxWindow),
	} {
		err := every(open, limit, func(p *player, limit weir.Limit) error {
			for i, k := range []int64{1, 2, 7, limit.Max / 3, limit.Max - 1, limit.Max} {
				if k < 1 || k > limit.Max {
					continue
				}
				// A time whose every digit counts.
				p.clock.Set(p.clock.at + 123_456_789*time.Microsecond)
				if err := p.useUp(fmt.Sprint(i), limit, k); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func subSecond(open Open) error {
	t := traits{only: []string{"take", "take", "take", "peek"}, steps: 250, keys: 6, dense: true}
	for _, w := range []time.Duration{time.Millisecond, 250 * time.Millisecond, 999 * time.Millisecond, 1500 * time.Millisecond} {
		for _, a := range algorithms {
			t.windows, t.algorithms = []time.Duration{w}, []weir.Algorithm{a}
			if err := search(open, seed+8, 1, t, likeNaive); err != nil {
				return err
			}
		}
	}
	return nil
}

// likeNaive compares each verdict with a naive count of all that was admitted.
func likeNaive(open Open, steps []Step) (int, error) {
	answers, err := play(open, steps)
	l := newLedger()
	for i, a := range answers {
		s := steps[i]
		if s.Verb == "take" {
			key, cost := s.Rows[0].Name, s.Rows[0].Cost
			capacity := l.limits[key].Capacity()
			least, most := l.used(key, s.At)
			if a.Allowed && least+cost > capacity || !a.Allowed && most+cost <= capacity {
				return i, fmt.Errorf("%s: allowed=%t, but %d to %d of %d are used", s, a.Allowed, least, most, capacity)
			}
		}
		l.enter(s, a)
	}
	return len(answers), err
}

// used counts what weighs on a key at a time. Of all but sliding-buckets it is
// exact, of the other algorithms than sliding-log if nothing was given back.
func (l *ledger) used(key string, at time.Duration) (least, most int64) {
	limit := l.limits[key]
	w := limit.Window
	// A use of nothing brings the count up to date.
	uses := append(slices.Clip(l.uses[key]), use{at: at})
	var n int64
	switch limit.Algorithm {
	case weir.SlidingBuckets:
		return l.within(key, at-w, at), l.within(key, at-w-part(limit), at)
	case weir.FixedWindow:
		n = inWindow(limit, uses)
	case weir.SlidingCounter:
		n = inCounters(w, uses)
	case weir.TokenBucket:
		n = owed(limit, uses)
	default:
		n = l.within(key, at-w, at)
	}
	return n, n
}

// opened is the start of a fixed window that opens at a time.
func opened(l weir.Limit, at time.Duration) time.Duration {
	if !l.Epoch {
		return at
	}
	return at - time.Duration(Epoch.Add(at).UnixMicro()%l.Window.Microseconds())*time.Microsecond
}

// inWindow counts the units in the fixed window of the last use.
func inWindow(l weir.Limit, uses []use) (n int64) {
	var start time.Duration
	for _, u := range uses {
		if n == 0 || u.at >= start+l.Window {
			start, n = opened(l, u.at), 0
		}
		n += u.units
	}
	return n
}

// inCounters estimates the units in the window that ends with the last use.
func inCounters(w time.Duration, uses []use) int64 {
	var start time.Duration
	var current, previous int64
	for _, u := range uses {
		switch {
		case current == 0, u.at >= start+2*w:
			start, current, previous = u.at, 0, 0
		case u.at >= start+w:
			start, current, previous = start+w, 0, current
		}
		current += u.units
	}
	left := int64(start + w - uses[len(uses)-1].at)
	return current + (previous*left+int64(w)-1)/int64(w)
}

// owed counts what has not drained from a token bucket at the last use.
func owed(l weir.Limit, uses []use) int64 {
	var level int64 // in units, times the window
	var last time.Duration
	for _, u := range uses {
		level = max(0, level-int64(u.at-last)*l.Max) + u.units*int64(l.Window)
		last = u.at
	}
	return (level + int64(l.Window) - 1) / int64(l.Window)
}

func limitRaise(open Open) error {
	return every(open, weir.PerHour(1), func(p *player, hourly weir.Limit) error {
		raised := weir.Limit{Max: 100, Window: time.Hour, Algorithm: hourly.Algorithm}
		other := weir.Limit{Max: 100, Window: time.Second, Algorithm: hourly.Algorithm}
		return p.verdicts([]verdict{
			{"the unit of 1/h", hourly, 1, true},
			{"one above it", hourly, 1, false},
			{"100 of 100/h with one used", raised, 100, false},
			{"99 of 100/h with one used", raised, 99, true},
			{"one above 100/h", raised, 1, false},
			{"100/s in its place", other, 100, true},
			{"one above 100/s", other, 1, false},
			{"1/h again with 100 used", hourly, 1, false},
		})
	})
}

func slowRefill(open Open) error {
	for _, l := range []weir.Limit{{Max: 1, Burst: 1}, {Max: 1, Burst: 2}, {Max: 7, Burst: 2}} {
		l.Window, l.Algorithm = time.Hour, weir.TokenBucket
		if err := fresh(open, l, (*player).deniedBeforeRefills); err != nil {
			return err
		}
	}
	return fresh(open, weir.Limit{Max: 1, Window: time.Hour, Burst: 2}, (*player).takenBeforeRefills)
}

// deniedBeforeRefills keeps a bucket empty and asks often for what is not there.
func (p *player) deniedBeforeRefills(limit weir.Limit) error {
	empty := p.clock.at
	if ok, err := p.allow("k", limit, limit.Burst); err != nil || !ok {
		return fmt.Errorf("a full bucket is denied (%v)", err)
	}
	for refill := range int64(20) {
		due := empty + share(limit, refill+1)
		for _, early := range []time.Duration{4 * time.Minute, time.Second, time.Microsecond, 0} {
			p.clock.Set(due - early)
			peek, err := p.limiter.Peek(ctx, "k", limit)
			ok, err2 := p.allow("k", limit, 1)
			if err := firstOf(err, err2); err != nil || peek.Allowed != ok || ok != (early == 0) {
				return fmt.Errorf("%s before refill %d: peek allowed=%t, take allowed=%t (%v)", early, refill+1, peek.Allowed, ok, err)
			}
		}
	}
	return nil
}

// takenBeforeRefills takes a microsecond before each refill what the refill
// before it has brought.
func (p *player) takenBeforeRefills(limit weir.Limit) error {
	start := p.clock.at
	for n := range time.Duration(20) {
		p.clock.Set(start + n*(limit.Window-time.Microsecond))
		if ok, err := p.allow("k", limit, 1); err != nil || !ok {
			return fmt.Errorf("take %d, a microsecond before a refill, is denied (%v)", n+1, err)
		}
	}
	return nil
}

func refundAtCapacity(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		if err := p.nothingBack(limit, weir.Receipt{}); err != nil {
			return fmt.Errorf("a key that was never used: %w", err)
		}
		d, err := p.limiter.AllowN(ctx, "k", limit, 2)
		n, err2 := p.limiter.Refund(ctx, d.Receipt)
		if err := firstOf(err, err2, p.nothingBack(limit, d.Receipt)); err != nil || n != 2 {
			return fmt.Errorf("2 units of which a receipt gave back %d: %v", n, err)
		}
		d, err = p.limiter.AllowN(ctx, "k", limit, 2)
		n, err2 = p.limiter.RefundOldest(ctx, weir.Request{Key: "k", Limit: limit, Cost: 9})
		if err := firstOf(err, err2, p.nothingBack(limit, d.Receipt)); err != nil || n != 2 {
			return fmt.Errorf("2 units of which 9 gave back %d: %v", n, err)
		}
		d, err = p.limiter.AllowN(ctx, "k", limit, 5)
		p.clock.Set(p.clock.at + 2*limit.Window)
		if err := firstOf(err, p.nothingBack(limit, d.Receipt)); err != nil {
			return fmt.Errorf("5 units that have expired: %w", err)
		}
		return nil
	})
}

// nothingBack gives units back to an unused key, twice around the Limiter,
// which would refuse a receipt by itself, and looks for what that did.
func (p *player) nothingBack(limit weir.Limit, receipt weir.Receipt) error {
	receipts := []weir.Receipt{{Request: weir.Request{Key: "k", Limit: limit, Cost: 3}, Units: 3}}
	if !receipt.IsZero() {
		receipts = append(receipts, receipt)
	}
	if n, err := p.store.Refund(ctx, receipts); err != nil || n != 0 {
		return fmt.Errorf("a refund gave back %d (%v)", n, err)
	}
	for range 2 { // now, and two windows later
		d, err := p.limiter.Peek(ctx, "k", limit)
		if err != nil || d.Remaining != limit.Max || d.ResetAfter != 0 {
			return fmt.Errorf("after a refund it has %s (%v)", show(d), err)
		}
		if err := p.verdicts([]verdict{{"the whole limit", limit, 5, true}, {"one above it", limit, 1, false}}); err != nil {
			return fmt.Errorf("after a refund %w", err)
		}
		p.clock.Set(p.clock.at + 2*limit.Window)
	}
	return nil
}
