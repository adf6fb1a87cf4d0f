package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/storetest"
)

func TestSortedSet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	storetest.Run(t, views(t, redisstore.Options{URL: server.URL(), SortedSet: true}, ""))
}

// shelf is limiters on one server whose sliding-logs are sorted sets, with one
// clock, which shows microseconds since 2027.
type shelf struct {
	server   *redistest.Server
	at       int64
	limiters []*weir.Limiter
}

const start = 1_798_761_600_000_000

func newShelf(t *testing.T, limiters int) *shelf {
	t.Helper()
	s := &shelf{server: redistest.Start(t, redistest.Options{})}
	for range limiters {
		store, err := redisstore.Open(redisstore.Options{
			URL: s.server.URL(), SortedSet: true,
			Now: func() time.Time { return time.UnixMicro(start + s.at) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		s.limiters = append(s.limiters, weir.New(weir.Options{Store: store}))
	}
	return s
}

// key returns the only key of the server, or "" if it has none.
func (s *shelf) key(t *testing.T) string {
	t.Helper()
	keys := s.server.Must(t, "KEYS", "*").([]any)
	switch len(keys) {
	case 0:
		return ""
	case 1:
		return keys[0].(string)
	}
	t.Fatalf("got keys %q, want one", keys)
	return ""
}

// members returns each member and its stamp, as in "2:1 at 30".
func (s *shelf) members(t *testing.T) (all []string) {
	t.Helper()
	pairs := s.server.Must(t, "ZRANGE", s.key(t), "0", "-1", "WITHSCORES").([]any)
	for i := 0; i < len(pairs); i += 2 {
		stamp, err := strconv.ParseInt(pairs[i+1].(string), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s at %d", pairs[i], stamp-start))
	}
	return all
}

func (s *shelf) want(t *testing.T, want ...string) {
	t.Helper()
	if got := s.members(t); !slices.Equal(got, want) {
		t.Errorf("at %d: got members %q, want %q", s.at, got, want)
	}
}

// TestSortedSetMembers looks at the set as a person would, after each step.
func TestSortedSetMembers(t *testing.T) {
	s := newShelf(t, 1)
	l, ctx, limit := s.limiters[0], t.Context(), weir.Per(4, 100*time.Microsecond)
	take := func(at, n int64, want bool) weir.Decision {
		t.Helper()
		s.at = at
		d, err := l.AllowN(ctx, "alice", limit, n)
		if err != nil || d.Allowed != want {
			t.Fatalf("at %d: got allowed=%t, want %t (%v)", at, d.Allowed, want, err)
		}
		return d
	}
	refund := func(want int64, receipts ...weir.Receipt) {
		t.Helper()
		if n, err := l.Refund(ctx, receipts...); err != nil || n != want {
			t.Fatalf("at %d: got %d units back, want %d (%v)", s.at, n, want, err)
		}
	}

	first := take(0, 1, true)
	second := take(30, 2, true)
	take(30, 1, true)
	if kind := s.server.Must(t, "TYPE", s.key(t)); kind != "zset" {
		t.Errorf("got a key of type %v, want a zset", kind)
	}
	full := []string{"0000000000000001:1 at 0", "0000000000000003:2 at 30", "0000000000000004:1 at 30"}
	s.want(t, full...)
	take(40, 1, false)
	s.want(t, full...)

	// What has left the window goes with the next charge, not before.
	if d := take(99, 2, false); d.RetryAfter != 31*time.Microsecond {
		t.Errorf("got RetryAfter %v, want 31us: until the member of two units has left", d.RetryAfter)
	}
	take(100, 2, false)
	s.want(t, full...)
	newest := take(100, 1, true)
	s.want(t, "0000000000000003:2 at 30", "0000000000000004:1 at 30", "0000000000000005:1 at 100")
	refund(0, first.Receipt)

	// Units go back from the newest of their stamp, and the totals since change.
	refund(2, second.Receipt)
	s.want(t, "0000000000000002:1 at 30", "0000000000000003:1 at 100")
	take(100, 1, true)
	if n, err := l.RefundOldest(ctx, weir.Request{Key: "alice", Limit: limit, Cost: 2}); err != nil || n != 2 {
		t.Fatalf("got %d of the oldest units back, want 2 (%v)", n, err)
	}
	s.want(t, "0000000000000004:1 at 100")
	refund(1, newest.Receipt)
	if key := s.key(t); key != "" {
		t.Errorf("got the key %q after all units were given back, want none", key)
	}
}

// TestSortedSetMerge charges more than is remembered one by one, and steps the
// clock back by more than a Window.
func TestSortedSetMerge(t *testing.T) {
	s := newShelf(t, 1)
	for s.at = 10; s.at <= 70; s.at += 10 {
		if _, err := s.limiters[0].Charge(t.Context(), "alice", weir.Per(2, 100*time.Microsecond), 1); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, "0000000000000003:3 at 30", "0000000000000004:1 at 40", "0000000000000005:1 at 50", "0000000000000006:1 at 60", "0000000000000007:1 at 70")
	s.at = -31
	if d, err := s.limiters[0].Peek(t.Context(), "alice", weir.Per(2, 100*time.Microsecond)); err != nil || d.ResetAfter != 100*time.Microsecond {
		t.Errorf("got ResetAfter %v after a step back, want the window (%v)", d.ResetAfter, err)
	}
	s.want(t, "0000000000000007:7 at -31")
}

// TestSortedSetUnique takes from two instances within one microsecond.
func TestSortedSetUnique(t *testing.T) {
	s := newShelf(t, 2)
	const full = 50
	for i := range full + 10 {
		d, err := s.limiters[i%2].Allow(t.Context(), "alice", weir.PerMinute(full))
		if err != nil || d.Allowed != (i < full) {
			t.Fatalf("take %d: got allowed=%t (%v)", i+1, d.Allowed, err)
		}
	}
	if n := s.server.Must(t, "ZCARD", s.key(t)); n != int64(full) {
		t.Errorf("got %v members for %d charges of one microsecond", n, full)
	}
}

// TestSortedSetExpires asks how long a key lives, by the server's clock.
func TestSortedSetExpires(t *testing.T) {
	s := newShelf(t, 0)
	store, err := redisstore.Open(redisstore.Options{URL: s.server.URL(), SortedSet: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	l := weir.New(weir.Options{Store: store})
	within := func(what string, least, most time.Duration) {
		t.Helper()
		ms, ok := s.server.Must(t, "PTTL", s.key(t)).(int64)
		if ttl := time.Duration(ms) * time.Millisecond; !ok || ttl < least || ttl > most {
			t.Errorf("after %s: got a TTL of %v, want between %v and %v", what, ttl, least, most)
		}
	}
	// The reading of the TTL may be late, but not by a quarter of an hour.
	const late, rest = 15 * time.Minute, time.Second + 2*time.Millisecond
	hour := weir.Per(5, time.Hour)
	d, err := l.Allow(t.Context(), "alice", hour)
	if err != nil {
		t.Fatal(err)
	}
	within("one use", time.Hour-late, time.Hour+rest)
	if _, err := l.AllowN(t.Context(), "alice", hour, 2); err != nil {
		t.Fatal(err)
	}
	within("another", time.Hour-late, time.Hour+rest)
	if n, err := l.Refund(t.Context(), d.Receipt); err != nil || n != 1 {
		t.Fatalf("got %d units back, want 1 (%v)", n, err)
	}
	within("a refund", time.Hour-late, time.Hour+rest)
	if n, err := l.RefundOldest(t.Context(), weir.Request{Key: "alice", Limit: hour, Cost: 1}); err != nil || n != 1 {
		t.Fatalf("got %d of the oldest units back, want 1 (%v)", n, err)
	}
	within("a refund of the oldest", time.Hour-late, time.Hour+rest)

	// A key that has ended is gone, and the server needs no look at it for that.
	s.server.Must(t, "FLUSHALL")
	if _, err := l.Allow(t.Context(), "alice", weir.Per(5, time.Microsecond)); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the key to expire", func() error {
		if key := s.key(t); key != "" {
			return fmt.Errorf("%s is there", key)
		}
		return nil
	})
}
