package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// The tests of this file run by the server's own clock.

// kept is a limit and how a store keeps it.
type kept struct {
	weir.Limit

	sorted bool
}

func (k kept) String() string {
	return k.Limit.String() + map[bool]string{true: " as a sorted set"}[k.sorted]
}

// everyLayout returns a limit by each algorithm and layout.
func everyLayout(t *testing.T, limit weir.Limit) (all []kept) {
	t.Helper()
	for a := weir.SlidingLog; a <= weir.TokenBucket; a++ {
		limit.Algorithm = a
		l, err := limit.Normal()
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, kept{l, false}); a == weir.SlidingLog {
			all = append(all, kept{l, true})
		}
	}
	return all
}

// eachLayout runs a test for a limit by each algorithm and layout, on an empty
// server.
func eachLayout(t *testing.T, limit weir.Limit, test func(t *testing.T, server *redistest.Server, o redisstore.Options, l weir.Limit)) {
	server := redistest.Start(t, redistest.Options{})
	for _, k := range everyLayout(t, limit) {
		server.Must(t, "FLUSHALL")
		t.Run(k.String(), func(t *testing.T) {
			test(t, server, redisstore.Options{URL: server.URL(), SortedSet: k.sorted}, k.Limit)
		})
	}
}

// states returns the names of all keys on a server.
func states(t *testing.T, server *redistest.Server) (names []string) {
	t.Helper()
	for _, name := range server.Must(t, "KEYS", "*").([]any) {
		names = append(names, name.(string))
	}
	return names
}

// TestEveryKeyHasALifetime holds that one use leaves one key, which is gone when
// it has stopped to matter, and at most a second later.
func TestEveryKeyHasALifetime(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	// Verify also compares the lifetime in the script, where no key is gone yet.
	packed := open(t, redisstore.Options{URL: server.URL(), Verify: true})
	sorted := open(t, redisstore.Options{URL: server.URL(), Verify: true, SortedSet: true})
	check := func(k kept) {
		lim := map[bool]*weir.Limiter{false: packed, true: sorted}[k.sorted]
		if d, err := lim.Allow(t.Context(), "k", k.Limit); err != nil || !d.Allowed {
			t.Errorf("%s: got %+v, %v", k, d, err)
		}
		most := max(k.Window, 300*time.Millisecond) + time.Second + time.Millisecond
		if k.Algorithm == weir.SlidingCounter {
			most += k.Window // a counter matters for one window more
		}
		for _, name := range states(t, server) {
			const gone, endless = -2, -1
			ms := server.Must(t, "PTTL", name).(int64)
			if ms == endless || ms > most.Milliseconds() || ms == gone && k.Window >= time.Second {
				t.Errorf("%s: %s lives for %d ms, want up to %s", k, name, ms, most)
			}
		}
	}
	for _, window := range []time.Duration{time.Second, time.Minute, weir.MaxWindow} {
		for _, k := range everyLayout(t, weir.Per(3, window)) {
			check(k)
			if names := states(t, server); len(names) != 1 {
				t.Errorf("%s: one use leaves %q", k, names)
			}
			server.Must(t, "FLUSHALL")
		}
	}
	tiny := []time.Duration{time.Microsecond, 500 * time.Microsecond, 999 * time.Microsecond, time.Millisecond, 300 * time.Millisecond}
	for i := range tiny { // the longest first, lest it looks at what others left
		for _, k := range everyLayout(t, weir.Per(3, tiny[i])) {
			check(k)
		}
	}
	redistest.Await(t, "all keys to be gone", func() error {
		if names := states(t, server); len(names) > 0 {
			return fmt.Errorf("%q", names)
		}
		return nil
	})
}

// TestTinyWindowsAdmitAgain holds that windows below a millisecond fill up, and
// admit again.
func TestTinyWindowsAdmitAgain(t *testing.T) {
	for _, window := range []time.Duration{time.Microsecond, 500 * time.Microsecond, 999 * time.Microsecond} {
		t.Run(window.String(), func(t *testing.T) {
			eachLayout(t, weir.Per(3, window), func(t *testing.T, _ *redistest.Server, o redisstore.Options, l weir.Limit) {
				lim := open(t, o)
				for range 5 {
					redistest.Await(t, "the whole limit to pass", func() error {
						// One step takes all, and one more than that.
						d, err := lim.AllowAll(t.Context(), weir.Request{Key: "k", Limit: l, Cost: 3}, weir.Request{Key: "k", Limit: l, Mode: weir.Shadow})
						if err != nil {
							t.Fatal(err)
						}
						if more := d.Rows[1]; d.Allowed && (more.Allowed || more.RetryAfter < 1 || more.RetryAfter > 2*l.Window) {
							t.Errorf("one above the limit got %+v", more)
						}
						if !d.Allowed {
							return fmt.Errorf("denied for %s", d.RetryAfter)
						}
						return nil
					})
				}
			})
		})
	}
}

// TestSubSecondWindowsAreKept holds that what was taken within a window below a
// second counts until its end: no state is lost to a lifetime in whole seconds.
func TestSubSecondWindowsAreKept(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	lims := map[bool]*weir.Limiter{
		false: open(t, redisstore.Options{URL: server.URL()}),
		true:  open(t, redisstore.Options{URL: server.URL(), SortedSet: true}),
	}
	taken := make(map[kept]time.Time)
	for _, window := range []time.Duration{5 * time.Millisecond, 250 * time.Millisecond, 999 * time.Millisecond} {
		for _, k := range everyLayout(t, weir.Per(3, window)) {
			taken[k] = time.Now()
			if d, err := lims[k.sorted].AllowN(t.Context(), "k", k.Limit, 3); err != nil || !d.Allowed {
				t.Fatalf("%s: got %+v, %v", k, d, err)
			}
		}
	}
	for k, at := range taken {
		redistest.Await(t, k.String()+" to pass once more", func() error {
			d, err := lims[k.sorted].AllowN(t.Context(), "k", k.Limit, 3)
			if passed := time.Since(at); err != nil || d.Allowed && passed < k.Window {
				t.Fatalf("%s: after %s got %+v, %v", k, passed, d, err)
			}
			if !d.Allowed {
				return fmt.Errorf("denied for %s", d.RetryAfter)
			}
			return nil
		})
	}
}

// TestManyCallersOneKey holds that 64 callers of two stores, 50 times each, are
// admitted exactly Max, without errors.
func TestManyCallersOneKey(t *testing.T) {
	// A bucket of so slow a rate does not refill while the test runs.
	eachLayout(t, weir.Per(1000, weir.MaxWindow), func(t *testing.T, _ *redistest.Server, o redisstore.Options, l weir.Limit) {
		stores := []*weir.Limiter{open(t, o), open(t, o)}
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for i := range 64 {
			callers.Go(func() {
				for range 50 {
					d, err := stores[i%2].Allow(t.Context(), "k", l)
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		callers.Wait()
		if admitted.Load() != l.Max {
			t.Errorf("%d were admitted, want %d", admitted.Load(), l.Max)
		}
	})
}

// TestOneMicrosecond holds that units which two stores take within the same
// microsecond are all counted.
func TestOneMicrosecond(t *testing.T) {
	eachLayout(t, weir.PerHour(100), func(t *testing.T, _ *redistest.Server, o redisstore.Options, l weir.Limit) {
		o.Now = func() time.Time { return time.Unix(1_800_000_000, 0) }
		stores := []*weir.Limiter{open(t, o), open(t, o)}
		for i := range 101 {
			if d, err := stores[i%2].Allow(t.Context(), "k", l); err != nil || d.Allowed != (i < 100) || d.Remaining != max(0, int64(99-i)) {
				t.Fatalf("unit %d got %+v (%v)", i+1, d, err)
			}
		}
	})
}

// TestKeysAreData holds that no key, whatever its bytes, is taken for another or
// in the way of one.
func TestKeysAreData(t *testing.T) {
	names := []string{
		"", "k", "k\x00", "k\n", "k\r\n", "k ", " k", "{k}", "{", "}", "{}", "*", "k*", "\xff", "é", "%6B", "#k",
		strings.Repeat("k", 10_240), strings.Repeat("k", 10_241), strings.Repeat("\x00", 10_240),
	}
	eachLayout(t, weir.PerHour(2), func(t *testing.T, _ *redistest.Server, o redisstore.Options, l weir.Limit) {
		lim := open(t, o)
		for round, want := range []bool{true, true, false} {
			for _, key := range names {
				if d, err := lim.Allow(t.Context(), key, l); err != nil || d.Allowed != want {
					t.Errorf("unit %d of %.20q: %+v (%v)", round+1, key, d, err)
				}
			}
		}
	})
}

// TestCrash holds that the end of a server while it is used is a typed error,
// and that the store works again as soon as the server is back.
func TestCrash(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	lim := open(t, redisstore.Options{URL: server.URL()})
	l := weir.PerHour(weir.MaxUnits)
	ctx, stop := context.WithCancel(t.Context())
	var admitted, failed atomic.Int64
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for ctx.Err() == nil {
				bounded, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				_, err := lim.Allow(bounded, fmt.Sprint(i%4), l)
				cancel()
				var e *weir.StoreError
				switch {
				case err == nil:
					admitted.Add(1)
				case !errors.As(err, &e) || e.Server != server.Addr() || e.Settings || errors.Is(err, context.DeadlineExceeded):
					t.Errorf("got %v, want a *StoreError of %s before the deadline", err, server.Addr())
				default:
					failed.Add(1)
				}
			}
		})
	}
	above := func(n *atomic.Int64, least int64) func() error {
		return func() error {
			if got := n.Load(); got < least {
				return fmt.Errorf("%d of %d", got, least)
			}
			return nil
		}
	}
	for range 3 {
		redistest.Await(t, "decisions", above(&admitted, admitted.Load()+100))
		server.Kill()
		redistest.Await(t, "errors", above(&failed, failed.Load()+16))
		server.Restart(t)
	}
	redistest.Await(t, "decisions again", above(&admitted, admitted.Load()+1000))
	stop()
	callers.Wait()
}

// TestForeignValues holds that what weir did not write, under a key of weir's,
// gives a typed error or a decision: no call hangs, the server survives, and so
// does the store.
func TestForeignValues(t *testing.T) {
	eachLayout(t, weir.PerHour(20), func(t *testing.T, server *redistest.Server, o redisstore.Options, l weir.Limit) {
		lim := open(t, o)
		if _, err := lim.Allow(t.Context(), "k", l); err != nil {
			t.Fatal(err)
		}
		name := states(t, server)[0]
		for _, foreign := range foreignValues(name, o.SortedSet) {
			for what, use := range uses(lim, l) {
				server.Must(t, "DEL", name)
				server.Must(t, foreign...)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				err := use(ctx)
				cancel()
				if _, hangs := server.Do("PING"); hangs != nil {
					t.Fatalf("after %.40q of %d bytes, %s got %v, and the server %v", foreign, len(foreign[2]), what, err, hangs)
				}
				var e *weir.StoreError
				switch errors.As(err, &e); {
				case err != nil && e == nil:
					t.Errorf("after %.40q, %s got %v, want a *StoreError if any", foreign, what, err)
				case (foreign[0] != "SET" || o.SortedSet) && (e == nil || e.Hint == "" || e.Unknown):
					t.Errorf("after %.40q, %s got %v, want a *StoreError that says what to do", foreign, what, err)
				}
			}
		}
		server.Must(t, "DEL", name)
		if d, err := lim.Allow(t.Context(), "k", l); err != nil || !d.Allowed {
			t.Errorf("without what was foreign: %+v (%v)", d, err)
		}
	})
}

// foreignValues are commands that write to a key as weir does not: another type
// or, if weir's is a string, one of any bytes.
func foreignValues(key string, sorted bool) [][]string {
	all := [][]string{{"RPUSH", key, "x"}, {"SADD", key, "x"}, {"HSET", key, "f", "x"}, {"XADD", key, "*", "f", "x"}}
	if sorted {
		return append(all, []string{"SET", key, "x"})
	}
	all = append(all, []string{"ZADD", key, "1", "x"})
	random := rand.NewChaCha8([32]byte{})
	for _, n := range []int{0, 1, 7, 9, 10, 11, 12, 19, 20, 24, 26, 30, 31, 33, 36, 40, 100, 120, 1000, 100_000} {
		value := make([]byte, n)
		_, _ = random.Read(value)
		for _, value := range []string{string(value), strings.Repeat("\x00", n), strings.Repeat("\xff", n)} {
			all = append(all, []string{"SET", key, value})
		}
	}
	return all
}

// uses are the ways to use a key.
func uses(lim *weir.Limiter, l weir.Limit) map[string]func(context.Context) error {
	k := weir.Request{Key: "k", Limit: l}
	all := map[string]func(context.Context) error{
		"a peek":   func(ctx context.Context) error { _, err := lim.Peek(ctx, "k", l); return err },
		"a take":   func(ctx context.Context) error { _, err := lim.AllowN(ctx, "k", l, 3); return err },
		"a charge": func(ctx context.Context) error { _, err := lim.Charge(ctx, "k", l, 30); return err },
		"a refund": func(ctx context.Context) error { _, err := lim.RefundOldest(ctx, k); return err },
		"a list": func(ctx context.Context) error {
			_, err := lim.AllowAll(ctx, k, weir.Request{Key: "k", Limit: l, Mode: weir.Shadow})
			return err
		},
	}
	if slices.Contains([]weir.Algorithm{weir.SlidingLog, weir.SlidingBuckets}, l.Algorithm) {
		all["a count"] = func(ctx context.Context) error { _, err := lim.Count(ctx, "k", l, time.Minute); return err }
	}
	return all
}
