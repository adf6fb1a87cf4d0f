package layer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/storetest"
)

// TestStore holds that a Fallback keeps the contract of its store.
func TestStore(t *testing.T) {
	storetest.Run(t, func(now func() time.Time) (weir.Store, error) {
		memory := weir.NewMemory(weir.MemoryOptions{Now: now})
		return layer.NewFallback(layer.FallbackOptions{Store: memory, Deadline: time.Minute}), nil
	})
}

// TestShares holds that the shares keep it, too, if there is one of them.
func TestShares(t *testing.T) {
	takes := []string{
		"bounds", "exact", "all-or-nothing", "shadow", "never", "tiny-windows", "sub-second",
		"large-limits", "slow-refill", "clock-back", "keys", "cancelled", "concurrent", "concurrent-lists", "each",
	}
	for _, c := range storetest.Checks() {
		if !slices.Contains(takes, c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			err := c.Run(func(now func() time.Time) (weir.Store, error) {
				return undegraded{layer.NewFallback(layer.FallbackOptions{
					Store: &faulty{err: errAway}, Memory: weir.MemoryOptions{Now: now},
				})}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

var errAway = &weir.StoreError{Server: "10.0.0.7:6379", Hint: "is the server running?", Err: errors.New("connection refused")}

// faulty is a store in memory that fails, or does not answer, as long as it is told to.
type faulty struct {
	weir.Store

	mu    sync.Mutex
	err   error
	hangs bool
	delay time.Duration
	asked int
	most  int // calls at a time
	now   int
}

func newFaulty() *faulty { return &faulty{Store: weir.NewMemory(weir.MemoryOptions{})} }

func (f *faulty) be(err error, hangs bool, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hangs, f.delay = err, hangs, delay
}

func (f *faulty) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// busiest returns how many calls there were at a time.
func (f *faulty) busiest() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

// enter fails, hangs for an hour without looking at ctx, or lets a call through.
func (f *faulty) enter() error {
	f.mu.Lock()
	f.asked++
	f.now++
	f.most = max(f.most, f.now)
	err, hangs, delay := f.err, f.hangs, f.delay
	f.mu.Unlock()
	if hangs {
		delay = time.Hour
	}
	if delay > 0 {
		<-time.After(delay)
	}
	f.mu.Lock()
	f.now--
	f.mu.Unlock()
	return err
}

func (f *faulty) Take(ctx context.Context, lists []weir.List) {
	if err := f.enter(); err != nil {
		for i := range lists {
			lists[i].Err = err
		}
		return
	}
	f.Store.Take(ctx, lists)
}

func (f *faulty) Refund(ctx context.Context, rs []weir.Receipt) (int64, error) {
	if err := f.enter(); err != nil {
		return 0, err
	}
	return f.Store.Refund(ctx, rs)
}

func (f *faulty) Count(ctx context.Context, r weir.Request, d time.Duration) (int64, error) {
	if err := f.enter(); err != nil {
		return 0, err
	}
	return f.Store.Count(ctx, r, d)
}

func (f *faulty) Reset(ctx context.Context, rs []weir.Request) (int64, error) {
	if err := f.enter(); err != nil {
		return 0, err
	}
	return f.Store.Reset(ctx, rs)
}

func (f *faulty) Close() error {
	if f.Store == nil {
		return nil
	}
	return f.Store.Close()
}

// undegraded is a Fallback whose store is away, without saying so.
type undegraded struct{ *layer.Fallback }

func (u undegraded) Take(ctx context.Context, lists []weir.List) {
	u.Fallback.Take(ctx, lists)
	for i := range lists {
		for j := range lists[i].Rows {
			d := &lists[i].Rows[j]
			switch {
			case d.Reason == weir.StoreLocal && d.Allowed:
				d.Reason = weir.OK
			case d.Reason == weir.StoreLocal:
				d.Reason = weir.OverLimit
			}
		}
	}
}

// rig is a Limiter over a Fallback over a faulty store.
type rig struct {
	*weir.Limiter

	store    *faulty
	fallback *layer.Fallback
	mu       sync.Mutex
	events   []layer.Event
}

// run runs a test under a clock of its own; every goroutine must end.
func run(t *testing.T, o layer.FallbackOptions, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{store: newFaulty()}
		o.Store = r.store
		o.Observe = func(e layer.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		}
		r.fallback = layer.NewFallback(o)
		r.Limiter = weir.New(weir.Options{Store: r.fallback})
		test(t, r)
		<-time.After(2 * time.Hour) // for calls that hang
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// ask takes one unit of a limit of 10 an hour.
func (r *rig) ask(t *testing.T, key string, how weir.OnFailure) weir.Decision {
	t.Helper()
	d, err := r.AllowAll(t.Context(), weir.Request{Key: key, Limit: weir.PerHour(10), OnFailure: how})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// trip makes calls fail until the breaker is open.
func (r *rig) trip(t *testing.T) {
	t.Helper()
	for range 20 {
		r.ask(t, "trip", weir.OnFailureAllow)
	}
	if r.fallback.Failing() == nil {
		t.Fatal("the breaker is closed after 20 failures")
	}
}

func TestDeadline(t *testing.T) {
	tests := []struct {
		name     string
		deadline time.Duration // of the options
		requests []weir.Request
		want     time.Duration
	}{
		{"by default", 0, []weir.Request{{Key: "a"}}, 50 * time.Millisecond},
		{"as set", 20 * time.Millisecond, []weir.Request{{Key: "a"}}, 20 * time.Millisecond},
		{"the shortest of a list", 20 * time.Millisecond, []weir.Request{{Key: "a"}, {Key: "b", Deadline: 5 * time.Millisecond}, {Key: "c", Deadline: time.Second}}, 5 * time.Millisecond},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, layer.FallbackOptions{Deadline: test.deadline}, func(t *testing.T, r *rig) {
				r.store.be(nil, true, 0)
				for i := range test.requests {
					test.requests[i].Limit = weir.PerHour(10)
				}
				start := time.Now()
				d, err := r.AllowAll(t.Context(), test.requests...)
				if took := time.Since(start); err != nil || took != test.want || d.Reason != weir.StoreLocal {
					t.Errorf("a store that hangs: %v, %v after %v, want %v after %v", d.Reason, err, took, weir.StoreLocal, test.want)
				}
			})
		})
	}
}

// TestShortDeadline holds that a rule that has less time than the store takes
// does not keep the others from it.
func TestShortDeadline(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		r.store.be(nil, false, 10*time.Millisecond)
		for range 100 {
			d, err := r.AllowAll(t.Context(), weir.Request{Key: "k", Limit: weir.PerHour(10), Deadline: time.Millisecond})
			if err != nil || d.Reason != weir.StoreLocal {
				t.Fatalf("within 1ms of a store that takes 10ms: %v, %v", d.Reason, err)
			}
		}
		if d := r.ask(t, "other", weir.OnFailureLocal); d.Reason != weir.OK {
			t.Errorf("within 50ms: %v, failing: %v", d.Reason, r.fallback.Failing())
		}
	})
}

// TestLate holds that what comes just in time counts, and what does not is not waited for.
func TestLate(t *testing.T) {
	for _, test := range []struct {
		delay time.Duration
		want  weir.Reason
	}{{49 * time.Millisecond, weir.OK}, {51 * time.Millisecond, weir.StoreLocal}} {
		run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
			r.store.be(nil, false, test.delay)
			if d := r.ask(t, "k", weir.OnFailureLocal); d.Reason != test.want {
				t.Errorf("after %v: %v, want %v", test.delay, d.Reason, test.want)
			}
		})
	}
}

// TestUnknownOutcome holds that a charge that comes too late stays in the store.
func TestUnknownOutcome(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		r.store.be(nil, false, time.Second)
		r.ask(t, "k", weir.OnFailureLocal)
		<-time.After(2 * time.Second)
		r.store.be(nil, false, 0)
		if d := r.ask(t, "k", weir.OnFailureLocal); d.Remaining != 8 {
			t.Errorf("%d remaining after two charges of 10, want 8", d.Remaining)
		}
	})
}

func TestBreaker(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		for range 100 {
			r.ask(t, "fine", weir.OnFailureLocal)
		}
		r.store.be(nil, true, 0)
		start := time.Now()
		for range 100 {
			r.ask(t, "k", weir.OnFailureLocal)
		}
		if took := time.Since(start); took != 16*50*time.Millisecond {
			t.Errorf("100 calls waited for %v in all, want no more than 16 deadlines", took)
		}
		// While it hangs it is tried once in half a second to a second.
		before := r.store.count()
		for start := time.Now(); time.Since(start) < time.Minute; <-time.After(10 * time.Millisecond) {
			r.ask(t, "k", weir.OnFailureLocal)
		}
		if tries := r.store.count() - before; tries < 60 || tries > 125 {
			t.Errorf("it was tried %d times in a minute", tries)
		}
		r.store.be(nil, false, 0)
		start = time.Now()
		for r.ask(t, "again", weir.OnFailureLocal).Reason != weir.OK {
			<-time.After(time.Millisecond)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it was used again after %v, want at most a second", took)
		}
		for range 20 {
			r.ask(t, "again", weir.OnFailureLocal)
		}
		if err := r.fallback.Failing(); err != nil {
			t.Errorf("still failing: %v", err)
		}
	})
}

// TestStall holds that a store that was silent for a moment is used again soon.
func TestStall(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		r.store.be(nil, false, 130*time.Millisecond)
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() { r.ask(t, "k", weir.OnFailureAllow) })
		}
		callers.Wait()
		if r.fallback.Failing() == nil {
			t.Fatal("50 calls that took too long left the breaker closed")
		}
		r.store.be(nil, false, 0)
		start := time.Now()
		for r.ask(t, "again", weir.OnFailureLocal).Reason != weir.OK {
			<-time.After(time.Millisecond)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("it was used again after %v, want at most 100ms", took)
		}
	})
}

// TestHerd holds that callers come back to the store a few at a time.
func TestHerd(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		r.store.be(errAway, false, 0)
		r.trip(t)
		r.store.be(nil, false, 10*time.Millisecond)
		<-time.After(time.Second)
		r.store.mu.Lock()
		r.store.most = 0
		r.store.mu.Unlock()
		for round, want := range []int{1, 2, 4, 8} {
			var callers sync.WaitGroup
			for range 100 {
				callers.Go(func() { r.ask(t, fmt.Sprint("k", round), weir.OnFailureAllow) })
			}
			callers.Wait()
			if r.store.busiest() > want {
				t.Errorf("round %d: %d calls at a time, want %d", round, r.store.busiest(), want)
			}
		}
	})
}

// TestErrorRatio holds that some failures among many answers open nothing.
func TestErrorRatio(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		for i := range 200 {
			r.store.be(nil, false, 0)
			if i%4 < 3 {
				r.store.be(errAway, false, 0)
			}
			r.ask(t, "k", weir.OnFailureAllow)
		}
		if err := r.fallback.Failing(); err != nil || r.store.count() != 200 {
			t.Errorf("asked %d times of 200, failing: %v", r.store.count(), err)
		}
	})
}

// TestInFlight holds that no more than so many calls wait for a store that hangs.
func TestInFlight(t *testing.T) {
	run(t, layer.FallbackOptions{MaxInFlight: 5}, func(t *testing.T, r *rig) {
		r.store.be(nil, true, 0)
		start := time.Now()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { r.ask(t, "k", weir.OnFailureLocal) })
		}
		callers.Wait()
		if took := time.Since(start); took != 50*time.Millisecond || r.store.busiest() != 5 {
			t.Errorf("%d calls in flight for %v, want 5 for 50ms", r.store.busiest(), took)
		}
	})
}

// TestCallerLeavesQueue holds that a caller who leaves before the store was
// asked learns that nothing was charged.
func TestCallerLeavesQueue(t *testing.T) {
	run(t, layer.FallbackOptions{MaxInFlight: 1}, func(t *testing.T, r *rig) {
		r.store.be(nil, true, 0)
		r.ask(t, "k", weir.OnFailureLocal)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := r.Allow(ctx, "k", weir.PerHour(10))
		var e *weir.StoreError
		if !errors.As(err, &e) || e.Unknown || !errors.Is(err, context.DeadlineExceeded) || r.store.count() != 1 {
			t.Errorf("asked %d times, got %v", r.store.count(), err)
		}
	})
}

// TestQueue holds that a store that answers is not given up when more callers
// come than may be in flight.
func TestQueue(t *testing.T) {
	run(t, layer.FallbackOptions{MaxInFlight: 5}, func(t *testing.T, r *rig) {
		r.store.be(nil, false, time.Millisecond)
		var callers sync.WaitGroup
		var degraded atomic.Int64
		for i := range 100 {
			callers.Go(func() {
				if r.ask(t, fmt.Sprint(i), weir.OnFailureLocal).Reason != weir.OK {
					degraded.Add(1)
				}
			})
		}
		if callers.Wait(); degraded.Load() > 0 || r.store.busiest() > 5 {
			t.Errorf("%d of 100 degraded, %d in flight", degraded.Load(), r.store.busiest())
		}
	})
}

// TestCallerLeaves holds that a caller who leaves is told so, and that the
// breaker learns nonetheless that the store hangs.
func TestCallerLeaves(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		r.store.be(nil, true, 0)
		for range 16 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, err := r.Allow(ctx, "k", weir.PerHour(10))
			cancel()
			var e *weir.StoreError
			if !errors.As(err, &e) || !e.Unknown || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
		}
		<-time.After(50 * time.Millisecond)
		if r.fallback.Failing() == nil {
			t.Error("16 calls that hung left the breaker closed")
		}
	})
}

func TestOnFailure(t *testing.T) {
	local, allow, deny := weir.OnFailureLocal, weir.OnFailureAllow, weir.OnFailureDeny
	settings := &weir.StoreError{Settings: true, Err: errors.New("WRONGPASS")}
	row := func(cost int64, how weir.OnFailure, mode weir.Mode) weir.Request {
		return weir.Request{Key: fmt.Sprint(how, mode, cost), Limit: weir.PerHour(10), Cost: cost, OnFailure: how, Mode: mode}
	}
	enforce, shadow, peek, record := weir.Enforce, weir.Shadow, weir.Peek, weir.Record
	const (
		byLocal = "true store_unavailable_local 5"
		allowed = "true store_unavailable_allowed 10"
		denied  = "false store_unavailable_denied 10"
	)
	tests := []struct {
		name string
		err  error
		list []weir.Request
		want string   // allowed, reason and limit
		rows []string // the same, if they differ from it
	}{
		{"local, by half of the limit", errAway, []weir.Request{row(1, local, enforce)}, byLocal, nil},
		{"allow", errAway, []weir.Request{row(1, allow, enforce)}, allowed, nil},
		{"deny", errAway, []weir.Request{row(1, deny, enforce)}, denied, nil},
		{"deny before local before allow", errAway, []weir.Request{row(1, local, enforce), row(1, deny, enforce), row(1, allow, enforce)}, denied, nil},
		{"local before allow", errAway, []weir.Request{row(1, allow, enforce), row(1, local, enforce)}, byLocal, nil},
		{"a mistake in the settings lets nobody in", settings, []weir.Request{row(1, allow, enforce)}, byLocal, nil},
		{"and denies as before", settings, []weir.Request{row(1, deny, enforce)}, denied, nil},
		{"a shadow has no say", errAway, []weir.Request{row(1, deny, shadow), row(1, allow, enforce)}, allowed, nil},
		{"shadows alone never deny", errAway, []weir.Request{row(1, deny, shadow)}, "true store_unavailable_allowed 10", []string{denied}},
		{"nor by their share", errAway, []weir.Request{row(6, local, shadow)}, "true store_unavailable_allowed 5", []string{"false store_unavailable_denied 5"}},
		{"a peek", errAway, []weir.Request{row(1, local, peek)}, byLocal, nil},
		{"a charge", errAway, []weir.Request{row(6, local, record)}, byLocal, nil},
		{"a cost above the share", errAway, []weir.Request{row(6, local, enforce)}, "false store_unavailable_denied 5", nil},
		{"a cost above the limit", errAway, []weir.Request{row(11, local, enforce)}, "false never 5", nil},
		{"never, whoever allows", errAway, []weir.Request{row(11, allow, enforce)}, "false never 10", nil},
	}
	text := func(d weir.Decision) string { return fmt.Sprint(d.Allowed, " ", d.Reason, " ", d.Limit) }
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, layer.FallbackOptions{Replicas: 2}, func(t *testing.T, r *rig) {
				r.store.be(test.err, false, 0)
				d, err := r.AllowAll(t.Context(), test.list...)
				if err != nil || text(d) != test.want {
					t.Errorf("%s, %v, want %s", text(d), err, test.want)
				}
				if wait := d.RetryAfter > 0; wait != (d.Reason == weir.StoreDenied) {
					t.Errorf("%s: retry after %v", d.Reason, d.RetryAfter)
				}
				for i, row := range d.Rows {
					if test.rows != nil && text(row) != test.rows[i] {
						t.Errorf("row %d: %s, want %s", i, text(row), test.rows[i])
					}
				}
				if e := r.events; len(e) != 1 || e[0].Lists != 1 || e[0].Degraded != 1 || !errors.Is(e[0].Err, test.err) {
					t.Errorf("observed %+v", e)
				}
			})
		})
	}
}

// TestShare holds that what processes admit without the store is the limit, or
// a unit each if they are more than its units.
func TestShare(t *testing.T) {
	limits := []weir.Limit{
		weir.PerHour(10), {Max: 10, Window: time.Hour, Algorithm: weir.SlidingBuckets}, {Max: 10, Window: time.Hour, Algorithm: weir.FixedWindow},
		{Max: 10, Window: time.Hour, Algorithm: weir.SlidingCounter}, {Max: 1, Window: time.Hour, Burst: 10},
	}
	for _, limit := range limits {
		for replicas, want := range map[int]int{0: 10, 1: 10, 2: 5, 3: 3, 10: 1, 11: 1, 1000: 1} {
			run(t, layer.FallbackOptions{Replicas: replicas}, func(t *testing.T, r *rig) {
				r.store.be(errAway, false, 0)
				got := 0
				for range 20 {
					if d, err := r.Allow(t.Context(), "k", limit); err == nil && d.Allowed {
						got++
					}
				}
				if got != want {
					t.Errorf("%s: one of %d replicas admits %d, want %d", limit, replicas, got, want)
				}
			})
		}
	}
}

// TestReceipts holds that units go back to where they were charged.
func TestReceipts(t *testing.T) {
	run(t, layer.FallbackOptions{Replicas: 2}, func(t *testing.T, r *rig) {
		ctx, limit := t.Context(), weir.PerHour(10)
		stored, err1 := r.AllowN(ctx, "k", limit, 10)
		r.store.be(errAway, false, 0)
		local, err2 := r.AllowN(ctx, "k", limit, 5)
		text, err3 := local.Receipt.MarshalText()
		var sent weir.Receipt
		if err := errors.Join(err1, err2, err3, sent.UnmarshalText(text)); err != nil || local.Reason != weir.StoreLocal {
			t.Fatalf("%v: %v", local.Reason, err)
		}
		if n, err := r.Refund(ctx, sent.Part(2)); n != 2 || err != nil {
			t.Errorf("%d units came back to the share, %v, want 2", n, err)
		}
		var e *weir.StoreError
		if n, err := r.Refund(ctx, stored.Receipt.Part(3)); n != 0 || !errors.As(err, &e) {
			t.Errorf("%d units came back to a store that is away, %v", n, err)
		}
		if d, err := r.Peek(ctx, "k", limit); err != nil || d.Remaining != 2 {
			t.Errorf("the share has %d units, %v, want 2", d.Remaining, err)
		}
		r.store.be(nil, false, 0)
		if n, err := r.Refund(ctx, stored.Receipt.Part(4), local.Receipt.Part(1)); n != 5 || err != nil {
			t.Errorf("%d units came back, %v, want 4 to the store and 1 to the share", n, err)
		}
		if d, err := r.Peek(ctx, "k", limit); err != nil || d.Reason != weir.OK || d.Remaining != 4 {
			t.Errorf("the store has %d units, %v, want 4", d.Remaining, err)
		}
	})
}

// TestErrors holds that only failures of the store are made up for.
func TestErrors(t *testing.T) {
	invalid := &weir.InvalidError{Field: "algorithm", Want: "fixed-window"}
	for _, err := range []error{invalid, weir.ErrClosed} {
		run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
			r.store.be(err, false, 0)
			for range 30 {
				if _, got := r.Allow(t.Context(), "k", weir.PerHour(10)); !errors.Is(got, err) {
					t.Fatalf("got %v, want %v", got, err)
				}
			}
			if failing := r.fallback.Failing(); failing != nil || r.events[0] != (layer.Event{Lists: 1}) {
				t.Errorf("failing: %v, observed %+v", failing, r.events[0])
			}
		})
	}
}

// TestSettings holds that a mistake in the settings, once seen, lets nobody in
// by allow until the store has answered again.
func TestSettings(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		r.store.be(&weir.StoreError{Settings: true, Err: errors.New("WRONGPASS")}, false, 0)
		for start := time.Now(); time.Since(start) < time.Minute; <-time.After(100 * time.Millisecond) {
			if d := r.ask(t, "k", weir.OnFailureAllow); d.Reason != weir.StoreLocal {
				t.Fatalf("%v after %v", d.Reason, time.Since(start))
			}
			r.store.be(nil, true, 0) // from now on it takes too long to say so
			if r.fallback.Failing() == nil {
				r.store.be(&weir.StoreError{Settings: true, Err: errors.New("WRONGPASS")}, false, 0)
			}
		}
		r.store.be(nil, false, 0)
		<-time.After(time.Second)
		for range 20 {
			if d := r.ask(t, "k", weir.OnFailureAllow); d.Reason != weir.OK && d.Reason != weir.OverLimit {
				t.Errorf("%v from a store that is back", d.Reason)
			}
		}
		r.store.be(errAway, false, 0)
		r.trip(t)
		if d := r.ask(t, "k", weir.OnFailureAllow); d.Reason != weir.StoreAllowed {
			t.Errorf("%v from a store that is away, want that the mistake is forgotten", d.Reason)
		}
	})
}

func TestNotAsked(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		r.store.be(errAway, false, 0)
		r.trip(t)
		_, err1 := r.Count(t.Context(), "k", weir.PerHour(10), time.Minute)
		_, err2 := r.RefundOldest(t.Context(), weir.Request{Key: "k", Limit: weir.PerHour(10)})
		_, err3 := r.Reset(t.Context(), "k", weir.PerHour(10))
		for _, err := range []error{err1, err2, err3, r.fallback.Failing()} {
			var e *weir.StoreError
			if !errors.As(err, &e) || e.Unknown || e.Server != errAway.Server || e.Hint != errAway.Hint || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("got %v", err)
			}
		}
	})
}

// TestOtherCalls holds that what is no Take is bounded as well.
func TestOtherCalls(t *testing.T) {
	calls := map[string]func(*rig) error{
		"count": func(r *rig) error {
			_, err := r.Count(context.Background(), "k", weir.PerHour(10), time.Minute)
			return err
		},
		"reset": func(r *rig) error { _, err := r.Reset(context.Background(), "k", weir.PerHour(10)); return err },
		"refund": func(r *rig) error {
			_, err := r.RefundOldest(context.Background(), weir.Request{Key: "k", Limit: weir.PerHour(10)})
			return err
		},
	}
	for name, call := range calls {
		run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
			if err := call(r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			r.store.be(nil, true, 0)
			start := time.Now()
			err := call(r)
			var e *weir.StoreError
			if took := time.Since(start); took != 50*time.Millisecond || !errors.As(err, &e) || !e.Unknown {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
}

// TestReset holds that a reset reaches the share.
func TestReset(t *testing.T) {
	run(t, layer.FallbackOptions{}, func(t *testing.T, r *rig) {
		r.store.be(errAway, false, 0)
		r.ask(t, "k", weir.OnFailureLocal)
		if _, err := r.Reset(t.Context(), "k", weir.PerHour(10)); err == nil {
			t.Error("a store that is away was reset")
		}
		if d := r.ask(t, "k", weir.OnFailureLocal); d.Remaining != 9 {
			t.Errorf("%d remaining after a reset and a charge of 10, want 9", d.Remaining)
		}
	})
}

// partly fails for some keys, as a Cluster does of which a server is away.
type partly struct{ weir.Store }

func (p partly) Take(ctx context.Context, lists []weir.List) {
	p.Store.Take(ctx, lists)
	for i := range lists {
		if strings.HasPrefix(lists[i].Requests[0].Key, "away") {
			lists[i].Err = errAway
		}
	}
}

// TestBatch holds that each list of a call is decided by what the store said of it.
func TestBatch(t *testing.T) {
	fallback := layer.NewFallback(layer.FallbackOptions{Store: partly{weir.NewMemory(weir.MemoryOptions{})}})
	lim := weir.New(weir.Options{Store: fallback})
	var requests []weir.Request
	for _, key := range []string{"a", "away", "b", "c"} {
		requests = append(requests, weir.Request{Key: key, Limit: weir.PerHour(100)})
	}
	for range 50 {
		ds, err := lim.AllowEach(t.Context(), requests...)
		var got []weir.Reason
		for _, d := range ds {
			got = append(got, d.Reason)
		}
		if want := []weir.Reason{weir.OK, weir.StoreLocal, weir.OK, weir.OK}; err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
	}
	if fallback.Failing() != nil {
		t.Error("a quarter of the lists of each call opened the breaker")
	}
}
