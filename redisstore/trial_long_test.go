//go:build long

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/storetest"
)

// trial is what one mutant is put through on a server. Its stores share a
// connection, since there are thousands.
type trial struct {
	server *redistest.Server
	store  *Store
	every  int // of so many stores that a check opens one is the mutant, the others are right
	opened int
	err    error // the first that a store returned
}

// mortal is a store of a trial: what fails once always does, so that a check ends
// soon after.
type mortal struct {
	*Store

	trial *trial
}

// once calls, unless a call has failed.
func (m mortal) once(call func() error) error {
	if m.trial.err == nil {
		m.trial.err = call()
	}
	return m.trial.err
}

func (m mortal) Take(ctx context.Context, lists []weir.List) {
	err := m.once(func() error {
		m.Store.Take(ctx, lists)
		var errs []error
		for i := range lists {
			errs = append(errs, lists[i].Err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		for i := range lists {
			lists[i].Err = err
		}
	}
}

func (m mortal) Refund(ctx context.Context, rs []weir.Receipt) (n int64, err error) {
	err = m.once(func() error { n, err = m.Store.Refund(ctx, rs); return err })
	return n, err
}

func (m mortal) Count(ctx context.Context, r weir.Request, d time.Duration) (n int64, err error) {
	err = m.once(func() error { n, err = m.Store.Count(ctx, r, d); return err })
	return n, err
}

func (m mortal) Reset(ctx context.Context, rs []weir.Request) (n int64, err error) {
	err = m.once(func() error { n, err = m.Store.Reset(ctx, rs); return err })
	return n, err
}

func (mortal) Close() error { return nil }

// open is the storetest.Open of a trial.
func (r *trial) open(now func() time.Time) (weir.Store, error) {
	if r.opened++; r.opened%r.every != 0 {
		return storetest.NewModel(now), nil
	}
	return r.fresh(now), nil
}

// fresh returns a store without any state, by the server's clock if now is nil.
func (r *trial) fresh(now func() time.Time) mortal {
	s := &Store{link: r.store.link, keys: keys{prefix: fmt.Sprint(r.store.options.Prefix, ":", r.opened)}, scripts: r.store.scripts, options: r.store.options}
	s.options.Now = now
	s.ids.Store(1)
	return mortal{s, r}
}

// limitsOf are limits of 10 units an hour by every algorithm.
func limitsOf() []weir.Limit {
	var all []weir.Limit
	for _, a := range []weir.Algorithm{weir.SlidingLog, weir.SlidingBuckets, weir.SlidingCounter, weir.FixedWindow, weir.TokenBucket} {
		l, err := weir.Limit{Max: 10, Window: time.Hour, Algorithm: a}.Normal()
		if err != nil {
			panic(err) // it is valid
		}
		all = append(all, l)
	}
	return all
}

// serverClock checks that a charge is stamped with the server's time, and lives
// by it. Verify mode would hold that no time passes within a script.
func (r *trial) serverClock() error {
	store := r.fresh(nil)
	store.options.Verify = false
	lim := weir.New(weir.Options{Store: store})
	for _, l := range limitsOf() {
		before, err := r.time()
		if err != nil {
			return err
		}
		d, err := lim.Allow(context.Background(), "k", l)
		if err != nil {
			return err
		}
		after, err := r.time()
		if stamp := d.Receipt.Stamp; err != nil || stamp < before || stamp > after {
			return fmt.Errorf("%s: stamped %d, not from %d to %d (%w)", l, stamp, before, after, err)
		}
		ttl, err := r.ttl(&weir.Request{Key: "k", Limit: l})
		if extra := ttl - d.ResetAfter; err != nil || extra < -early || extra > late {
			return fmt.Errorf("%s: lives %s longer than it matters (%w)", l, extra, err)
		}
	}
	return nil
}

// time returns the server's time in microseconds.
func (r *trial) time() (int64, error) {
	reply, err := r.server.Do("TIME")
	if err != nil {
		return 0, err
	}
	parts, _ := reply.([]any)
	return strconv.ParseInt(fmt.Sprintf("%s%06s", parts...), 10, 64)
}

// A key may live so much less than it matters, since the server's clock goes on
// until this is read, and so much longer.
const early, late = 500 * time.Millisecond, 1100 * time.Millisecond

// lifetimes checks that what gives units back, and what re-stamps a state after
// a step of the clock, leaves keys that live as long as they matter, or as before.
func (r *trial) lifetimes() error {
	for _, l := range limitsOf() {
		if err := errors.Join(r.lifetime(l, true), r.lifetime(l, false), r.sweep(l, 0), r.sweep(l, 300_000), r.sweep(l, 600_000)); err != nil {
			return fmt.Errorf("%s: %w", l, err)
		}
	}
	return nil
}

func (r *trial) lifetime(l weir.Limit, refund bool) error {
	now := storetest.Epoch.Add(700 * time.Millisecond)
	r.opened++
	lim, ctx := weir.New(weir.Options{Store: r.fresh(func() time.Time { return now })}), context.Background()
	k := weir.Request{Key: "k", Limit: l}
	_, err1 := lim.AllowN(ctx, "k", l, 5)
	now = now.Add(10 * time.Minute)
	second, err2 := lim.AllowN(ctx, "k", l, 3)
	before, err3 := r.ttl(&k)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	for i, step := range []func() error{
		func() error { _, err := lim.Refund(ctx, second.Receipt.Part(1)); return err },
		func() error { _, err := lim.RefundOldest(ctx, k); return err },
		func() error { _, err := lim.Refund(ctx, second.Receipt); return err },
		func() error { now = now.Add(-3 * time.Hour); return nil },
	} {
		if !refund && i < 3 {
			continue
		}
		failed := step()
		d, err := lim.Peek(ctx, "k", l)
		ttl, err2 := r.ttl(&k)
		matters := d.ResetAfter + time.Hour // as long as each.lua adds to the clock of a test
		low, high := min(before, matters)-early, max(before, matters)+late
		if err := errors.Join(failed, err, err2); err != nil || ttl < low || ttl > high {
			return fmt.Errorf("step %d: lives for %s, not from %s to %s (%w)", i, ttl, low, high, err)
		}
		before = ttl
	}
	return nil
}

// sweep checks that a key lives as long as it matters, and at most a second
// longer, at every charge of some seconds, wherever other numbers than a second
// have their multiples. The first charge of a second must set the lifetime of a
// log: the server's clock does not step as that of the test does, so another
// lifetime is put in its place before.
func (r *trial) sweep(l weir.Limit, seconds time.Duration) error {
	now := storetest.Epoch.Add(seconds * time.Second)
	r.opened++
	store := r.fresh(func() time.Time { return now })
	lim, k := weir.New(weir.Options{Store: store}), weir.Request{Key: "k", Limit: l}
	w := store.single(&k)
	logged := w.layout == packedLog || w.layout == packedBuckets || w.layout == sortedSet
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 100 {
		before := now
		now = now.Add(time.Duration(random.IntN(1_000_000)) * time.Microsecond)
		if logged && now.Unix() > before.Unix() {
			if _, err := r.server.Do("PEXPIRE", w.key, "1000000000"); err != nil {
				return err
			}
		}
		d, err1 := lim.Charge(context.Background(), "k", l, 1)
		ttl, err2 := r.ttl(&k)
		extra := ttl - time.Hour - d.ResetAfter
		if err := errors.Join(err1, err2); err != nil || extra < -early || extra > late {
			return fmt.Errorf("charge %d lives %s longer than it matters (%w)", i, extra, err)
		}
	}
	return nil
}

// wraps compares token buckets with the pure functions, in which the numbers of
// what has drained, and of what has been given back, begin anew while receipts
// are out.
func (r *trial) wraps() error {
	for seed := range uint64(60) {
		if err := r.wrap(rand.New(rand.NewPCG(1, seed))); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return nil
}

func (r *trial) wrap(random *rand.Rand) error {
	now := storetest.Epoch
	r.opened++
	store, ctx := r.fresh(func() time.Time { return now }), context.Background()
	lim := weir.New(weir.Options{Store: store})
	k := weir.Request{Key: "k", Limit: limitsOf()[4]}
	w := store.single(&k)
	pure := algo.State{T: now.UnixMicro(), N: random.Int64N(6), V: 1<<52 - 1 - random.Int64N(6), M: 1<<31 - 1 - random.Int64N(6)}
	value := []byte{}
	for _, field := range [...][2]int64{{pure.T, 7}, {pure.N, 5}, {pure.R, 6}, {pure.V, 7}, {pure.M, 4}, {pure.T, 7}} {
		value = appendInt(value, field[0], int(field[1]))
	}
	if _, err := r.server.Do("SET", w.key, string(value), "EX", "3600"); err != nil {
		return err
	}
	var receipts []weir.Receipt
	var marks []algo.Mark
	for i := range 12 {
		if random.IntN(3) > 0 {
			now = now.Add(time.Duration(random.Int64N(int64(20 * time.Minute))).Truncate(time.Microsecond))
		}
		if i < 2 || random.IntN(2) == 0 {
			n := 1 + random.Int64N(5)
			d, err := lim.Charge(ctx, "k", k.Limit, n)
			if err != nil {
				return err
			}
			receipts, marks = append(receipts, d.Receipt), append(marks, algo.Charge(&w.limit, &pure, now.UnixMicro(), n))
			continue
		}
		last := random.IntN(len(receipts))
		n, err1 := lim.Refund(ctx, receipts[last])
		stored, err2 := r.server.Do("GET", w.key)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		want := algo.Refund(&w.limit, &pure, now.UnixMicro(), receipts[last].Units, marks[last])
		receipts, marks = slices.Delete(receipts, last, last+1), slices.Delete(marks, last, last+1)
		text, _ := stored.(string)
		if got, left := w.stored(text), pure; n != want || w.show(&got, 0) != w.show(&left, 0) {
			return fmt.Errorf("step %d gives %d and leaves %s, want %d and %s", i, n, w.show(&got, 0), want, w.show(&left, 0))
		}
		if len(receipts) == 0 {
			return nil
		}
	}
	return nil
}

// ttl returns how long the state of a request lives.
func (r *trial) ttl(k *weir.Request) (time.Duration, error) {
	s := r.fresh(nil)
	reply, err := r.server.Do("PTTL", s.keys.state(s.layout(k.Limit), k))
	ms, _ := reply.(int64)
	return time.Duration(ms) * time.Millisecond, err
}
