package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// epoch is where a fakeClock starts.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fakeClock is a clock that moves when it is told to.
type fakeClock struct {
	mu sync.Mutex
	at time.Time
}

func newFakeClock() *fakeClock { return &fakeClock{at: epoch} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *fakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func (c *fakeClock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = t
}

// newFake returns a limiter in memory, its store and its clock.
func newFake(t testing.TB, maxKeys int) (*weir.Limiter, *weir.Memory, *fakeClock) {
	clock := newFakeClock()
	store := weir.NewMemory(weir.MemoryOptions{Now: clock.Now, MaxKeys: maxKeys})
	lim := weir.New(weir.Options{Store: store})
	t.Cleanup(func() {
		if err := lim.Close(); err != nil {
			t.Error(err)
		}
	})
	return lim, store, clock
}

// everyAlgorithm returns a normal limit of n units per window for each one.
func everyAlgorithm(n int64, window time.Duration) []weir.Limit {
	var limits []weir.Limit
	for a := weir.SlidingLog; a <= weir.TokenBucket; a++ {
		l, err := weir.Limit{Max: n, Window: window, Algorithm: a}.Normal()
		if err != nil {
			panic(err) // the callers' n and window are valid
		}
		limits = append(limits, l)
	}
	return limits
}

// forEvery runs a test on a fresh limiter for each algorithm.
func forEvery(t *testing.T, n int64, window time.Duration, test func(t *testing.T, lim *weir.Limiter, clock *fakeClock, limit weir.Limit)) {
	for _, limit := range everyAlgorithm(n, window) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			lim, _, clock := newFake(t, 0)
			test(t, lim, clock, limit)
		})
	}
}

// mustAllow takes n units and checks the verdict.
func mustAllow(t testing.TB, lim *weir.Limiter, key string, limit weir.Limit, n int64, allowed bool) weir.Decision {
	t.Helper()
	d, err := lim.AllowN(context.Background(), key, limit, n)
	if err != nil {
		t.Fatalf("%d of %s under %s: %v", n, key, limit, err)
	}
	if d.Allowed != allowed {
		t.Fatalf("%d of %s under %s: %+v, want allowed=%t", n, key, limit, d, allowed)
	}
	return d
}

// remaining peeks at what is left.
func remaining(t testing.TB, lim *weir.Limiter, key string, limit weir.Limit) int64 {
	t.Helper()
	d, err := lim.Peek(context.Background(), key, limit)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// TestInvalidCalls: what is wrong with an argument is a typed error that says
// where, and changes nothing.
func TestInvalidCalls(t *testing.T) {
	ctx := context.Background()
	ok := weir.PerMinute(5)
	bad := weir.PerMinute(0)
	good := weir.Request{Key: "k", Limit: ok}
	lim, store, _ := newFake(t, 0)
	for _, tt := range []struct {
		call  string
		do    func() error
		field string
	}{
		{"Allow", func() error { _, err := lim.Allow(ctx, "k", bad); return err }, "max"},
		{"AllowN 0", func() error { _, err := lim.AllowN(ctx, "k", ok, 0); return err }, "cost"},
		{"AllowN -1", func() error { _, err := lim.AllowN(ctx, "k", ok, -1); return err }, "cost"},
		{"AllowN min", func() error { _, err := lim.AllowN(ctx, "k", ok, math.MinInt64); return err }, "cost"},
		{"AllowN 2^31+1", func() error { _, err := lim.AllowN(ctx, "k", ok, weir.MaxUnits+1); return err }, "cost"},
		{"Peek", func() error { _, err := lim.Peek(ctx, "k", weir.Limit{}); return err }, "max"},
		{"Charge 0", func() error { _, err := lim.Charge(ctx, "k", ok, 0); return err }, "cost"},
		{"Charge max", func() error { _, err := lim.Charge(ctx, "k", ok, math.MaxInt64); return err }, "cost"},
		{"Wait", func() error { _, err := lim.Wait(ctx, "k", bad); return err }, "max"},
		{"WaitN 0", func() error { _, err := lim.WaitN(ctx, "k", ok, 0); return err }, "cost"},
		{"WaitN 2^31+1", func() error { _, err := lim.WaitN(ctx, "k", ok, weir.MaxUnits+1); return err }, "cost"},
		{"AllowAll one", func() error { _, err := lim.AllowAll(ctx, weir.Request{Key: "k", Limit: bad}); return err }, "max"},
		{"AllowAll third", func() error {
			_, err := lim.AllowAll(ctx, good, good, weir.Request{Key: "k", Limit: ok, Cost: -1})
			return err
		}, "requests[2].cost"},
		{"AllowAll mode", func() error {
			_, err := lim.AllowAll(ctx, good, weir.Request{Key: "k", Limit: ok, Mode: 4})
			return err
		}, "requests[1].mode"},
		{"AllowAll disagree", func() error {
			_, err := lim.AllowAll(ctx, good, weir.Request{Key: "o", Limit: ok}, weir.Request{Key: "k", Limit: weir.PerMinute(6)})
			return err
		}, "requests[2].limit"},
		{"AllowAll disagree on burst", func() error {
			l := weir.Limit{Max: 5, Window: time.Minute, Burst: 5}
			m := l
			m.Burst = 6
			_, err := lim.AllowAll(ctx, weir.Request{Key: "k", Limit: l}, weir.Request{Key: "k", Limit: m, Mode: weir.Shadow})
			return err
		}, "requests[1].limit"},
		{"AllowAll 1001", func() error { _, err := lim.AllowAll(ctx, make([]weir.Request, 1001)...); return err }, "requests"},
		{"AllowEach second", func() error {
			_, err := lim.AllowEach(ctx, weir.Request{Key: "other", Limit: ok}, weir.Request{Key: "k", Limit: ok, Cost: -1})
			return err
		}, "requests[1].cost"},
		{"RefundOldest", func() error { _, err := lim.RefundOldest(ctx, weir.Request{Key: "k", Limit: bad}); return err }, "max"},
		{"Reset", func() error { _, err := lim.Reset(ctx, "k", bad); return err }, "max"},
		{"ResetAll", func() error { _, err := lim.ResetAll(ctx, good, weir.Request{}); return err }, "requests[1].max"},
		{"Count 0", func() error { _, err := lim.Count(ctx, "k", ok, 0); return err }, "last"},
		{"Count -1s", func() error { _, err := lim.Count(ctx, "k", ok, -time.Second); return err }, "last"},
		{"Count beyond the window", func() error { _, err := lim.Count(ctx, "k", ok, time.Minute+time.Microsecond); return err }, "last"},
		{"Count of a bucket", func() error {
			_, err := lim.Count(ctx, "k", weir.Limit{Max: 5, Window: time.Minute, Burst: 5}, time.Second)
			return err
		}, "algorithm"},
		{"Count of a window", func() error {
			_, err := lim.Count(ctx, "k", weir.Limit{Max: 5, Window: time.Minute, Epoch: true}, time.Second)
			return err
		}, "algorithm"},
	} {
		err := tt.do()
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != tt.field || invalid.Want == "" {
			t.Errorf("%s: %v, want an *InvalidError about %s", tt.call, err, tt.field)
		}
	}
	if keys := store.Stats().Keys; keys != 1 { // "other", which was valid beside one that was not
		t.Errorf("invalid calls left %d keys", keys-1)
	}
}

// TestDefaultsAreFilledIn: a Request without a Cost asks for one unit, and a
// Receipt names the limit with its defaults.
func TestDefaultsAreFilledIn(t *testing.T) {
	lim, _, _ := newFake(t, 0)
	d, err := lim.AllowAll(context.Background(), weir.Request{Key: "k", Limit: weir.PerMinute(5), Group: "g"})
	if err != nil || d.Remaining != 4 || len(d.Rows) != 1 || !d.Receipt.IsZero() {
		t.Fatalf("%+v, %v", d, err)
	}
	want := weir.Request{Key: "k", Group: "g", Cost: 1, Limit: weir.Limit{Max: 5, Window: time.Minute, Algorithm: weir.SlidingLog}}
	if got := d.Rows[0].Receipt; got.Request != want || got.Units != 1 || got.ID == 0 {
		t.Errorf("the receipt is %+v, want one for %+v", got, want)
	}
}

// TestListsOfAllSizes: a list may be empty, and may be long.
func TestListsOfAllSizes(t *testing.T) {
	ctx := context.Background()
	forEvery(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, _ *fakeClock, limit weir.Limit) {
		for _, n := range []int{0, 1, 2, 1000} {
			rs := make([]weir.Request, n)
			for i := range rs {
				rs[i] = weir.Request{Key: fmt.Sprint(n, "/", i), Limit: limit}
			}
			d, err := lim.AllowAll(ctx, rs...)
			if err != nil || !d.Allowed || len(d.Rows) != n || len(d.Receipts()) != n {
				t.Fatalf("a list of %d: allowed=%t, %d rows, %d receipts, %v", n, d.Allowed, len(d.Rows), len(d.Receipts()), err)
			}
			if back, err := lim.Refund(ctx, d.Receipts()...); err != nil || back != int64(n) {
				t.Errorf("a list of %d gave back %d (%v)", n, back, err)
			}
			if ds, err := lim.AllowEach(ctx, rs...); err != nil || len(ds) != n {
				t.Errorf("%d at once: %d answers (%v)", n, len(ds), err)
			}
		}
	})
}

// TestSameStateIsSummed: rows of one state ask for the sum, in whatever order.
func TestSameStateIsSummed(t *testing.T) {
	forEvery(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, _ *fakeClock, limit weir.Limit) {
		row := func(key string, cost int64) weir.Request { return weir.Request{Key: key, Limit: limit, Cost: cost} }
		d, err := lim.AllowAll(context.Background(), row("a", 3), row("b", 1), row("a", 3))
		if err != nil || d.Allowed || d.Rows[0].Allowed || !d.Rows[1].Allowed || d.Rows[2].Allowed || d.Reason != weir.Never {
			t.Errorf("3+3 of 5 got %+v (%v)", d, err)
		}
		d, err = lim.AllowAll(context.Background(), row("a", 2), row("b", 1), row("a", 3))
		if err != nil || !d.Allowed || d.Remaining != 0 || d.Rows[1].Remaining != 4 {
			t.Errorf("2+3 of 5 got %+v (%v)", d, err)
		}
		if n, err := lim.Refund(context.Background(), d.Rows[0].Receipt); err != nil || n != 2 || remaining(t, lim, "a", limit) != 2 {
			t.Errorf("the receipt of the first row gave back %d (%v)", n, err)
		}
		if n, err := lim.Refund(context.Background(), d.Rows[2].Receipt); err != nil || n != 3 || remaining(t, lim, "a", limit) != 5 {
			t.Errorf("the receipt of the last row gave back %d (%v)", n, err)
		}
	})
}

// TestHugeSums: costs whose sum is beyond any limit are never, and charges
// beyond all counting do no harm but a long wait.
func TestHugeSums(t *testing.T) {
	ctx := context.Background()
	forEvery(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, clock *fakeClock, limit weir.Limit) {
		rs := make([]weir.Request, 1000)
		for i := range rs {
			rs[i] = weir.Request{Key: "k", Limit: limit, Cost: weir.MaxUnits}
		}
		d, err := lim.AllowAll(ctx, rs...)
		if err != nil || d.Allowed || d.Reason != weir.Never || d.RetryAfter != 0 || d.Remaining != 5 {
			t.Fatalf("2^41 units got allowed=%t reason=%s retry=%s remaining=%d (%v)", d.Allowed, d.Reason, d.RetryAfter, d.Remaining, err)
		}
		for i := range rs {
			rs[i].Mode = weir.Record
		}
		for range 3 {
			if d, err = lim.AllowAll(ctx, rs...); err != nil || !d.Allowed || d.Remaining != 0 || d.ResetAfter <= 0 {
				t.Fatalf("charging 2^41 units got allowed=%t remaining=%d reset=%s (%v)", d.Allowed, d.Remaining, d.ResetAfter, err)
			}
		}
		wait := mustAllow(t, lim, "k", limit, 1, false).RetryAfter
		if wait > 100*weir.MaxWindow { // beyond that a wait is not told exactly
			return
		}
		clock.Advance(wait - time.Microsecond)
		mustAllow(t, lim, "k", limit, 1, false)
		clock.Advance(time.Microsecond)
		mustAllow(t, lim, "k", limit, 1, true)
	})
}

// TestExtremeLimits: the largest and smallest windows and counts give sane
// answers on every algorithm, and the wait they tell is the least one.
func TestExtremeLimits(t *testing.T) {
	counts := []int64{1, 2, 3, 99_999, 100_000, weir.MaxUnits - 1, weir.MaxUnits}
	windows := []time.Duration{time.Microsecond, 2 * time.Microsecond, 7 * time.Microsecond, time.Second, weir.MaxWindow - time.Microsecond, weir.MaxWindow}
	for a := weir.SlidingLog; a <= weir.TokenBucket; a++ {
		for _, n := range counts {
			for _, w := range windows {
				limit := weir.Limit{Max: n, Window: w, Algorithm: a}
				if limit.Validate() != nil { // a log of more than 100,000
					continue
				}
				t.Run(limit.String(), func(t *testing.T) { extreme(t, limit) })
				if a == weir.TokenBucket {
					limit.Max, limit.Burst = 1, n
					if n == 1 || w < time.Second { // else the wait is beyond any clock
						t.Run(limit.String(), func(t *testing.T) { extreme(t, limit) })
					}
				}
			}
		}
	}
}

func extreme(t *testing.T, limit weir.Limit) {
	lim, _, clock := newFake(t, 0)
	n := limit.Capacity()
	if d := mustAllow(t, lim, "k", limit, n, true); d.Remaining != 0 || d.Limit != n {
		t.Errorf("all at once leaves %+v", d)
	}
	for _, cost := range []int64{1, n} {
		d := mustAllow(t, lim, "k", limit, cost, false)
		if d.RetryAfter <= 0 || d.RetryAfter > d.ResetAfter || d.Reason != weir.OverLimit {
			t.Errorf("%d more: %+v", cost, d)
		}
		clock.Advance(d.RetryAfter - time.Microsecond)
		mustAllow(t, lim, "k", limit, cost, false)
		clock.Advance(time.Microsecond)
		mustAllow(t, lim, "k", limit, cost, true)
		// Use it up again for the next cost.
		if _, err := lim.Charge(context.Background(), "k", limit, n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCountRoundsUp: a duration between two microseconds must not lose a unit
// that lies in it.
func TestCountRoundsUp(t *testing.T) {
	ctx := context.Background()
	for _, limit := range []weir.Limit{weir.PerSecond(5), {Max: 5, Window: time.Second, Buckets: 100}} {
		lim, _, clock := newFake(t, 0)
		mustAllow(t, lim, "k", limit, 3, true)
		clock.Advance(time.Microsecond)
		if n, err := lim.Count(ctx, "k", limit, 1500*time.Nanosecond); err != nil || n != 3 {
			t.Errorf("%s: 3 units taken 1us ago, but %d in the last 1.5us (%v)", limit, n, err)
		}
	}
}

// TestClosed: nothing works after Close, and closing twice is no error.
func TestClosed(t *testing.T) {
	ctx := context.Background()
	lim, store, _ := newFake(t, 0)
	limit := weir.PerMinute(5)
	r := mustAllow(t, lim, "k", limit, 1, true).Receipt
	for range 2 {
		if err := lim.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for call, do := range map[string]func() error{
		"Allow":        func() error { _, err := lim.Allow(ctx, "k", limit); return err },
		"Peek":         func() error { _, err := lim.Peek(ctx, "k", limit); return err },
		"Charge":       func() error { _, err := lim.Charge(ctx, "k", limit, 1); return err },
		"AllowAll":     func() error { _, err := lim.AllowAll(ctx, r.Request, r.Request); return err },
		"AllowEach":    func() error { _, err := lim.AllowEach(ctx, r.Request, r.Request); return err },
		"Wait":         func() error { _, err := lim.Wait(ctx, "k", limit); return err },
		"Count":        func() error { _, err := lim.Count(ctx, "k", limit, time.Second); return err },
		"Reset":        func() error { _, err := lim.Reset(ctx, "k", limit); return err },
		"Refund":       func() error { _, err := lim.Refund(ctx, r); return err },
		"RefundOldest": func() error { _, err := lim.RefundOldest(ctx, r.Request); return err },
	} {
		if err := do(); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", call, err)
		}
	}
	if keys := store.Stats().Keys; keys != 0 {
		t.Errorf("a closed store keeps %d keys", keys)
	}
}

// TestEndedContext: a context that has ended reaches no store.
func TestEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	lim, store, _ := newFake(t, 0)
	limit := weir.PerMinute(5)
	r := mustAllow(t, lim, "k", limit, 1, true).Receipt
	for call, do := range map[string]func() error{
		"Allow":        func() error { _, err := lim.Allow(ctx, "x", limit); return err },
		"Peek":         func() error { _, err := lim.Peek(ctx, "x", limit); return err },
		"Charge":       func() error { _, err := lim.Charge(ctx, "x", limit, 1); return err },
		"AllowAll":     func() error { _, err := lim.AllowAll(ctx, r.Request, weir.Request{Key: "x", Limit: limit}); return err },
		"AllowEach":    func() error { _, err := lim.AllowEach(ctx, weir.Request{Key: "x", Limit: limit}); return err },
		"Wait":         func() error { _, err := lim.Wait(ctx, "x", limit); return err },
		"Count":        func() error { _, err := lim.Count(ctx, "k", limit, time.Second); return err },
		"Reset":        func() error { _, err := lim.Reset(ctx, "k", limit); return err },
		"Refund":       func() error { _, err := lim.Refund(ctx, r); return err },
		"RefundOldest": func() error { _, err := lim.RefundOldest(ctx, r.Request); return err },
	} {
		if err := do(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", call, err)
		}
	}
	if left, keys := remaining(t, lim, "k", limit), store.Stats().Keys; left != 4 || keys != 1 {
		t.Errorf("an ended context left %d of 4 units and %d of 1 keys", left, keys)
	}
	if n, err := lim.Refund(context.Background(), r); err != nil || n != 1 {
		t.Errorf("a receipt that an ended context could not return gives back %d (%v)", n, err)
	}
}

// brokenStore fails, and counts how often it was asked.
type brokenStore struct{ calls int }

var errBroken = errors.New("the store is broken")

func (s *brokenStore) Take(_ context.Context, lists []weir.List) {
	s.calls++
	for i := range lists {
		lists[i].Err = errBroken
	}
}

func (s *brokenStore) Refund(context.Context, []weir.Receipt) (int64, error) {
	s.calls++
	return 0, errBroken
}

func (s *brokenStore) Count(context.Context, weir.Request, time.Duration) (int64, error) {
	s.calls++
	return 0, errBroken
}

func (s *brokenStore) Reset(context.Context, []weir.Request) (int64, error) {
	s.calls++
	return 0, errBroken
}

func (s *brokenStore) Close() error { s.calls++; return errBroken }

// TestStoreErrors: each call asks the store once, never again, and hands its
// error on as it is.
func TestStoreErrors(t *testing.T) {
	ctx := context.Background()
	limit := weir.PerMinute(5)
	receipts := []weir.Receipt{mustAllow(t, weir.New(weir.Options{}), "k", limit, 1, true).Receipt}
	r := receipts[0].Request
	for call, do := range map[string]func(*weir.Limiter) error{
		"Allow":        func(l *weir.Limiter) error { _, err := l.Allow(ctx, "k", limit); return err },
		"AllowAll":     func(l *weir.Limiter) error { _, err := l.AllowAll(ctx, r, r); return err },
		"AllowEach":    func(l *weir.Limiter) error { _, err := l.AllowEach(ctx, r, r); return err },
		"Wait":         func(l *weir.Limiter) error { _, err := l.Wait(ctx, "k", limit); return err },
		"Count":        func(l *weir.Limiter) error { _, err := l.Count(ctx, "k", limit, time.Second); return err },
		"Reset":        func(l *weir.Limiter) error { _, err := l.Reset(ctx, "k", limit); return err },
		"Refund":       func(l *weir.Limiter) error { _, err := l.Refund(ctx, receipts...); return err },
		"RefundOldest": func(l *weir.Limiter) error { _, err := l.RefundOldest(ctx, r); return err },
		"Close":        func(l *weir.Limiter) error { return l.Close() },
	} {
		store := new(brokenStore)
		if err := do(weir.New(weir.Options{Store: store})); !errors.Is(err, errBroken) || store.calls != 1 {
			t.Errorf("%s: %v after %d calls of the store, want its error after 1", call, err, store.calls)
		}
	}
}

// TestTakeReusesRows: lists keep their own rows and errors, in order, when
// some of them are invalid.
func TestTakeReusesRows(t *testing.T) {
	lim, _, _ := newFake(t, 0)
	limit := weir.PerMinute(2)
	list := func(keys string, l weir.Limit) weir.List {
		var rs []weir.Request
		for key := range strings.SplitSeq(keys, "") {
			rs = append(rs, weir.Request{Key: key, Limit: l})
		}
		return weir.List{Requests: rs, Rows: make([]weir.Decision, 5)}
	}
	for round := range 2 {
		lists := []weir.List{list("ab", limit), list("c", weir.Limit{}), list("abd", limit), list("", weir.Limit{}), list("ae", limit)}
		lim.Take(context.Background(), lists)
		var got []string
		for _, l := range lists {
			if l.Err != nil {
				got = append(got, "error")
				continue
			}
			s := ""
			for _, d := range l.Rows {
				s += fmt.Sprint(d.Remaining)
			}
			got = append(got, s)
		}
		want := [][]string{{"11", "error", "001", "", "02"}, {"00", "error", "001", "", "02"}}[round]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("round %d: remaining %q, want %q", round, got, want)
		}
		if last := lists[4]; last.Admitted() || last.Rows[0].Allowed || !last.Rows[1].Allowed {
			t.Errorf("round %d: the last list got %+v", round, last.Rows)
		}
	}
}
