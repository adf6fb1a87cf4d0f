package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// each runs a check on a fresh store for a limit of every algorithm: 5 units
// a second.
func each(open Open, check func(p *player, limit weir.Limit) error) error {
	return every(open, weir.PerSecond(5), check)
}

// every runs a check on a fresh store for a limit by every algorithm. A
// sliding-log keeps no more than 100,000 units.
func every(open Open, limit weir.Limit, check func(p *player, limit weir.Limit) error) error {
	for _, limit.Algorithm = range algorithms {
		if limit.Algorithm == weir.SlidingLog && limit.Max > 100_000 {
			continue
		}
		if err := fresh(open, limit, check); err != nil {
			return err
		}
	}
	return nil
}

// fresh runs a check on a fresh store for a limit.
func fresh(open Open, limit weir.Limit, check func(p *player, limit weir.Limit) error) error {
	limit, err := limit.Normal()
	if err != nil {
		return err
	}
	p, err := newPlayer(open)
	if err != nil {
		return err
	}
	defer p.store.Close()
	p.clock.Set(time.Hour)
	if err := check(p, limit); err != nil {
		return fmt.Errorf("%s: %w", limit, err)
	}
	return nil
}

var ctx = context.Background()

// allow takes n units and says whether they were admitted.
func (p *player) allow(key string, limit weir.Limit, n int64) (bool, error) {
	d, err := p.limiter.AllowN(ctx, key, limit, n)
	return d.Allowed, err
}

func refundOnce(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		for _, units := range []int64{0, 2} { // at first alone, then beside another charge
			if units > 0 {
				if _, err := p.limiter.AllowN(ctx, "k", limit, units); err != nil {
					return err
				}
			}
			if err := p.refundIsExact(limit); err != nil {
				return fmt.Errorf("beside %d other units: %w", units, err)
			}
		}
		return firstOf(p.refundExpires(limit), p.refundAfterReset(limit))
	})
}

// refundAfterReset gives units back that a reset has forgotten.
func (p *player) refundAfterReset(limit weir.Limit) error {
	p.clock.Set(9 * time.Hour)
	d, err := p.limiter.AllowN(ctx, "k", limit, 5)
	if err != nil {
		return err
	}
	if ok, err := p.limiter.Reset(ctx, "k", limit); err != nil || !ok {
		return fmt.Errorf("a used key was reset=%t (%v)", ok, err)
	}
	p.clock.Set(9*time.Hour + time.Microsecond)
	if ok, err := p.allow("k", limit, 5); err != nil || !ok {
		return fmt.Errorf("a key that was reset is not fresh (%v)", err)
	}
	if n, err := p.limiter.Refund(ctx, d.Receipt); err != nil || n != 0 {
		return fmt.Errorf("a receipt from before a reset gave back %d (%v)", n, err)
	}
	return nil
}

// refundIsExact takes 3 units and gives them back in parts.
func (p *player) refundIsExact(limit weir.Limit) error {
	before, err := p.limiter.Peek(ctx, "k", limit)
	if err != nil {
		return err
	}
	d, err := p.limiter.AllowN(ctx, "k", limit, 3)
	if err != nil {
		return err
	}
	for _, part := range []struct{ ask, want int64 }{{1, 1}, {0, 0}, {5, 2}, {3, 0}} {
		n, err := p.limiter.Refund(ctx, d.Receipt.Part(part.ask))
		if err != nil || n != part.want {
			return fmt.Errorf("Part(%d) of a receipt for 3 gave back %d, want %d (%v)", part.ask, n, part.want, err)
		}
	}
	after, err := p.limiter.Peek(ctx, "k", limit)
	if err != nil || show(before) != show(after) {
		return fmt.Errorf("take and refund left %s where %s was (%v)", show(after), show(before), err)
	}
	return nil
}

// refundExpires gives units back that no longer count.
func (p *player) refundExpires(limit weir.Limit) error {
	p.clock.Set(2 * time.Hour)
	d, err := p.limiter.AllowN(ctx, "k", limit, 5)
	if err != nil {
		return err
	}
	p.clock.Set(2*time.Hour + 3*limit.Window)
	if _, err := p.limiter.AllowN(ctx, "k", limit, 5); err != nil {
		return err
	}
	n, err := p.limiter.Refund(ctx, d.Receipt)
	if err != nil || n != 0 {
		return fmt.Errorf("an expired receipt gave back %d (%v)", n, err)
	}
	if ok, err := p.allow("k", limit, 1); err != nil || ok {
		return fmt.Errorf("an expired receipt let a sixth unit pass (%v)", err)
	}
	return nil
}

func limitChange(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		more, less, other := limit, limit, limit
		more.Max, less.Max, other.Window = 8, 2, 2*limit.Window
		if limit.Algorithm == weir.TokenBucket {
			more.Burst, less.Burst = 8, 2
		}
		err := p.verdicts([]verdict{
			{"the whole limit", limit, 5, true},
			{"one above it", limit, 1, false},
			{"4 of 8 with 5 used", more, 4, false},
			{"3 of 8 with 5 used", more, 3, true},
			{"1 of 2 with 8 used", less, 1, false},
			{"another window", other, 5, true},
		})
		if err != nil {
			return err
		}
		return p.freshUnderOthers(limit)
	})
}

// verdict is what a take is answered.
type verdict struct {
	what    string
	limit   weir.Limit
	cost    int64
	allowed bool
}

// verdicts takes from one key.
func (p *player) verdicts(want []verdict) error {
	for _, v := range want {
		if got, err := p.allow("k", v.limit, v.cost); err != nil || got != v.allowed {
			return fmt.Errorf("%s: allowed=%t (%v)", v.what, got, err)
		}
	}
	return nil
}

// freshUnderOthers uses the key up under one algorithm and tries the others.
func (p *player) freshUnderOthers(limit weir.Limit) error {
	for _, a := range algorithms {
		if a == limit.Algorithm {
			continue
		}
		other, err := weir.Limit{Max: 5, Window: limit.Window, Algorithm: a}.Normal()
		if err != nil {
			return err
		}
		if ok, err := p.allow("k", other, 5); err != nil || !ok {
			return fmt.Errorf("%s is not fresh beside %s (%v)", a, limit.Algorithm, err)
		}
	}
	return nil
}

func never(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		for range 3 {
			d, err := p.limiter.AllowN(ctx, "k", limit, 6)
			if err != nil || d.Allowed || d.Reason != weir.Never || d.RetryAfter != 0 || d.Limit != 5 {
				return fmt.Errorf("cost 6 of 5 got %s (%v)", show(d), err)
			}
		}
		d, err := p.limiter.AllowAll(ctx, weir.Request{Key: "k", Limit: limit, Cost: 5}, weir.Request{Key: "o", Limit: limit, Cost: weir.MaxUnits})
		if err != nil || d.Allowed || d.Reason != weir.Never || !d.Rows[0].Allowed {
			return fmt.Errorf("a list with a cost of 2^31 got %s (%v)", show(d), err)
		}
		if ok, err := p.allow("k", limit, 5); err != nil || !ok {
			return fmt.Errorf("the whole limit does not pass after denials (%v)", err)
		}
		return nil
	})
}

func clockBack(open Open) error {
	for _, back := range []time.Duration{time.Microsecond, time.Second / 2, time.Second, time.Second + 1000, time.Hour} {
		err := each(open, func(p *player, limit weir.Limit) error {
			full, err := p.limiter.AllowN(ctx, "k", limit, 5)
			if err != nil || !full.Allowed {
				return fmt.Errorf("the whole limit got %s (%v)", show(full), err)
			}
			before, err := p.limiter.Peek(ctx, "k", limit)
			if err != nil {
				return err
			}
			p.clock.Set(time.Hour - back)
			d, err := p.limiter.Allow(ctx, "k", limit)
			if most := before.RetryAfter + min(back, limit.Window); err != nil || d.Allowed || d.RetryAfter > most || d.RetryAfter < before.RetryAfter {
				return fmt.Errorf("a step back of %s got %s, want a wait from %s to %s (%v)", back, show(d), before.RetryAfter, most, err)
			}
			p.clock.Set(time.Hour - back + d.RetryAfter)
			if ok, err := p.allow("k", limit, 1); err != nil || !ok {
				return fmt.Errorf("after the wait of %s nothing passes (%v)", d.RetryAfter, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// oddKeys are pairwise different and easily taken for each other.
func oddKeys() []string {
	long := strings.Repeat("k", 10_000)
	return []string{
		"", "a", "A", " a", "a ", "a\x00", "a\x00b", "a\x00c", "a:b", "a:", "a%3Ab", "a\nb", "a\r\nb", "{a}", "{a}b", "{b}a", "a}", "{}a", "}{",
		"\xff", "\xfe", "é", "e\u0301", "a*", "a?", "[a]", long, long + "1", long + "2", long[1:],
	}
}

func keysAreData(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		for _, key := range oddKeys() {
			if ok, err := p.allow(key, limit, 5); err != nil || !ok {
				return fmt.Errorf("key %.20q is not fresh (%v)", key, err)
			}
		}
		for _, key := range oddKeys() {
			if ok, err := p.allow(key, limit, 1); err != nil || ok {
				return fmt.Errorf("key %.20q forgot its use (%v)", key, err)
			}
		}
		return nil
	})
}

func cancelled(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := p.limiter.AllowN(ended, "k", limit, 5); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("an ended context got %v, want context.Canceled", err)
		}
		if ok, err := p.allow("k", limit, 5); err != nil || !ok {
			return fmt.Errorf("a call with an ended context consumed something (%v)", err)
		}
		return nil
	})
}

// at64 calls do from 64 goroutines, 50 times each, and returns the first error.
func at64(do func(caller, i int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for caller := range 64 {
		wg.Go(func() {
			for i := range 50 {
				if err := do(caller, i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

func concurrent(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		limit.Max = 1000
		if limit.Burst > 0 {
			limit.Burst = 1000
		}
		var admitted atomic.Int64
		err := at64(func(int, int) error {
			ok, err := p.allow("k", limit, 1)
			if ok {
				admitted.Add(1)
			}
			return err
		})
		if err != nil || admitted.Load() != limit.Max {
			return fmt.Errorf("64 callers x 50 were admitted %d of %d (%v)", admitted.Load(), limit.Max, err)
		}
		return nil
	})
}

func concurrentLists(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		global := limit
		limit.Max, global.Max = 100, 500
		if limit.Burst > 0 {
			limit.Burst, global.Burst = 100, 500
		}
		var admitted [8]atomic.Int64
		err := at64(func(caller, i int) error {
			cat := (caller + i) % 8
			rs := []weir.Request{{Key: "global", Limit: global}, {Key: fmt.Sprintf("cat%d", cat), Limit: limit}}
			if i%2 == 0 {
				rs[0], rs[1] = rs[1], rs[0]
			}
			d, err := p.limiter.AllowAll(ctx, rs...)
			if d.Allowed {
				admitted[cat].Add(1)
			}
			return err
		})
		if err != nil {
			return err
		}
		var total int64
		for cat := range admitted {
			n := admitted[cat].Load()
			total += n
			d, err := p.limiter.Peek(ctx, fmt.Sprintf("cat%d", cat), limit)
			if err != nil || d.Remaining != limit.Max-n {
				return fmt.Errorf("category %d was admitted %d but has %d of %d left (%v)", cat, n, d.Remaining, limit.Max, err)
			}
		}
		if total != global.Max {
			return fmt.Errorf("%d lists were admitted, want the global limit, %d", total, global.Max)
		}
		return nil
	})
}

func independent(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		ds, err := p.limiter.AllowEach(ctx,
			weir.Request{Key: "a", Limit: limit, Cost: 5}, weir.Request{Key: "a", Limit: limit}, weir.Request{Key: "b", Limit: limit, Cost: 4})
		if err != nil || len(ds) != 3 || !ds[0].Allowed || ds[1].Allowed || !ds[2].Allowed || ds[2].Remaining != 1 {
			return fmt.Errorf("got %v (%v), want ok, deny, ok", ds, err)
		}
		ds, err = p.limiter.AllowEach(ctx, weir.Request{Key: "b", Limit: limit}, weir.Request{Key: "c"})
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || !ds[0].Allowed || ds[1].Allowed {
			return fmt.Errorf("beside an invalid request got %v (%v)", ds, err)
		}
		return nil
	})
}

func closed(open Open) error {
	return each(open, func(p *player, limit weir.Limit) error {
		d, err := p.limiter.Allow(ctx, "k", limit)
		if err != nil {
			return err
		}
		if err := p.limiter.Close(); err != nil {
			return err
		}
		r := weir.Request{Key: "k", Limit: limit}
		_, take := p.limiter.Allow(ctx, "k", limit)
		_, list := p.limiter.AllowAll(ctx, r, r)
		_, refund := p.limiter.Refund(ctx, d.Receipt)
		_, reset := p.limiter.ResetAll(ctx, r)
		errs := []error{take, list, refund, reset}
		if limit.Algorithm == weir.SlidingLog {
			_, count := p.limiter.Count(ctx, "k", limit, limit.Window)
			errs = append(errs, count)
		}
		for i, err := range errs {
			if !errors.Is(err, weir.ErrClosed) {
				return fmt.Errorf("call %d after Close got %v", i, err)
			}
		}
		return nil
	})
}
