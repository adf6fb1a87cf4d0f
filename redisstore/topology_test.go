package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/storetest"
)

// views opens stores that share the connections of one, and no states. With a
// group, all their requests are of it.
func views(t *testing.T, o redisstore.Options, group string) storetest.Open {
	var clock atomic.Pointer[func() time.Time]
	o.Now = func() time.Time { return (*clock.Load())() }
	shared, err := redisstore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(now func() time.Time) (weir.Store, error) {
		clock.Store(&now)
		return &view{Store: shared, name: fmt.Sprintf("%d:", opened.Add(1)), group: group, now: now, clock: &clock}, nil
	}
}

type view struct {
	weir.Store

	name, group string
	now         func() time.Time
	clock       *atomic.Pointer[func() time.Time]
	closed      atomic.Bool
}

func (v *view) own(r weir.Request) weir.Request {
	v.clock.Store(&v.now)
	r.Key, r.Group = v.name+r.Key, v.group
	return r
}

func (v *view) Take(ctx context.Context, lists []weir.List) {
	inner := make([]weir.List, len(lists))
	for i := range lists {
		if v.closed.Load() {
			lists[i].Err = weir.ErrClosed
			continue
		}
		inner[i].Rows = lists[i].Rows
		for _, r := range lists[i].Requests {
			inner[i].Requests = append(inner[i].Requests, v.own(r))
		}
	}
	if v.closed.Load() {
		return
	}
	v.Store.Take(ctx, inner)
	for i := range lists {
		lists[i].Err = inner[i].Err
	}
}

func (v *view) Refund(ctx context.Context, receipts []weir.Receipt) (int64, error) {
	if v.closed.Load() {
		return 0, weir.ErrClosed
	}
	inner := make([]weir.Receipt, len(receipts))
	for i, r := range receipts {
		if r.ID == 0 { // made from a request; others come from Take
			r.Request = v.own(r.Request)
		}
		inner[i] = r
	}
	return v.Store.Refund(ctx, inner)
}

func (v *view) Count(ctx context.Context, r weir.Request, d time.Duration) (int64, error) {
	if v.closed.Load() {
		return 0, weir.ErrClosed
	}
	return v.Store.Count(ctx, v.own(r), d)
}

func (v *view) Reset(ctx context.Context, requests []weir.Request) (int64, error) {
	if v.closed.Load() {
		return 0, weir.ErrClosed
	}
	var inner []weir.Request
	for _, r := range requests {
		inner = append(inner, v.own(r))
	}
	return v.Store.Reset(ctx, inner)
}

func (v *view) Close() error {
	v.closed.Store(true)
	return nil
}

// leastACL returns the rights of examples/weir.acl for the user weir.
func leastACL(t *testing.T) string {
	text, err := os.ReadFile("../examples/weir.acl")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.Replace(line, ">PASSWORD", ">secret", 1)
}

func TestTLSAndACL(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{TLS: true, Config: []string{leastACL(t)}})
	u := strings.Replace(server.URL(), "://", "://weir:secret@", 1) + "?ca=" + url.QueryEscape(server.CAFile())
	storetest.Run(t, views(t, redisstore.Options{URL: u}, ""))
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	u := "redis://" + strings.Join(s.Addrs(), ",") + "?master_set=" + s.Name
	storetest.Run(t, views(t, redisstore.Options{URL: u}, ""))
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	u := "redis://" + strings.Join(c.Addrs(), ",")
	for name, group := range map[string]string{"one slot": "all", "across slots": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, views(t, redisstore.Options{URL: u}, group))
		})
	}
	t.Run("found by one address", func(t *testing.T) {
		l := open(t, redisstore.Options{URL: c.Servers[0].URL()})
		for i := range 20 {
			if d, err := l.Allow(t.Context(), fmt.Sprint(i), weir.PerMinute(1)); err != nil || !d.Allowed {
				t.Errorf("key %d got %+v (%v)", i, d, err)
			}
		}
	})
	t.Run("a state stays in its group", func(t *testing.T) {
		l := open(t, redisstore.Options{URL: u})
		rs := []weir.Request{{Key: "a", Group: "g", Limit: weir.PerMinute(1)}, {Key: "b", Group: "g", Limit: weir.PerMinute(2)}}
		for i, want := range []bool{true, false} {
			if d, err := l.AllowAll(t.Context(), rs...); err != nil || d.Allowed != want {
				t.Errorf("list %d got %+v (%v)", i, d, err)
			}
		}
	})
}

// open returns a Limiter on a server.
func open(t *testing.T, o redisstore.Options) *weir.Limiter {
	t.Helper()
	s, err := redisstore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	l := weir.New(weir.Options{Store: s})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestPlain(t *testing.T) {
	server := redistest.Start(t, redistest.Options{Config: []string{"user default on nopass ~* +multi +exec +set +incrby +get +pttl +del +ping"}})
	l := open(t, redisstore.Options{URL: server.URL(), Plain: true})
	limit := weir.Limit{Max: 5, Window: time.Minute, Algorithm: weir.FixedWindow}
	for i, step := range []struct {
		cost, remaining int64
		reason          weir.Reason
	}{
		{6, 5, weir.Never}, {3, 2, weir.OK}, {3, 2, weir.OverLimit}, {1, 1, weir.OK}, {6, 1, weir.Never}, {1, 0, weir.OK}, {1, 0, weir.OverLimit}, {1, 0, weir.OverLimit},
	} {
		d, err := l.AllowN(t.Context(), "k", limit, step.cost)
		if err != nil || d.Reason != step.reason || d.Remaining != step.remaining || d.Limit != 5 || d.Allowed != (step.reason == weir.OK) {
			t.Errorf("step %d: got %+v (%v)", i, d, err)
		}
		if wait := d.Reason == weir.OverLimit; wait != (d.RetryAfter > 0) || d.RetryAfter > time.Minute+time.Millisecond {
			t.Errorf("step %d: waits %s", i, d.RetryAfter)
		}
	}
	if d, err := l.Peek(t.Context(), "k", limit); err != nil || d.Allowed || d.Remaining != 0 || d.ResetAfter <= 0 {
		t.Errorf("a peek got %+v (%v)", d, err)
	}
	limit.Max = 6
	if d, err := l.Allow(t.Context(), "k", limit); err != nil || d.Remaining != 5 {
		t.Errorf("another Max got %+v (%v)", d, err)
	}
	if ok, err := l.Reset(t.Context(), "k", limit); err != nil || !ok {
		t.Errorf("reset=%t (%v)", ok, err)
	}
	keys := server.Must(t, "KEYS", "*").([]any)
	if len(keys) != 1 {
		t.Errorf("keys %q, want one", keys)
	}
	for _, k := range keys {
		if ttl := server.Must(t, "PTTL", k.(string)).(int64); ttl <= 0 || ttl > 60_000 {
			t.Errorf("%s lives for %d ms", k, ttl)
		}
	}
}

// Plain mode refuses what it cannot do in one transaction.
func TestPlainRefuses(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	l := open(t, redisstore.Options{URL: server.URL(), Plain: true})
	fixed := weir.Limit{Max: 5, Window: time.Minute, Algorithm: weir.FixedWindow}
	epoch, tiny := fixed, fixed
	epoch.Epoch, tiny.Window = true, 1500*time.Microsecond
	for name, call := range map[string]func() error{
		"list": func() error {
			_, err := l.AllowAll(t.Context(), weir.Request{Key: "a", Limit: fixed}, weir.Request{Key: "b", Limit: fixed})
			return err
		},
		"algorithm": func() error { _, err := l.Allow(t.Context(), "k", weir.PerMinute(5)); return err },
		"epoch":     func() error { _, err := l.Allow(t.Context(), "k", epoch); return err },
		"window":    func() error { _, err := l.Allow(t.Context(), "k", tiny); return err },
		"charge":    func() error { _, err := l.Charge(t.Context(), "k", fixed, 1); return err },
		"refund":    func() error { _, err := l.RefundOldest(t.Context(), weir.Request{Key: "k", Limit: fixed}); return err },
	} {
		var invalid *weir.InvalidError
		if err := call(); !errors.As(err, &invalid) || !strings.Contains(invalid.Want, "plain mode") {
			t.Errorf("%s got %v, want an InvalidError that tells what plain mode has", name, err)
		}
	}
	if size := server.Must(t, "DBSIZE"); size != int64(0) {
		t.Errorf("what was refused left %v keys", size)
	}
}

// 64 callers on one key get exactly Max, though the script of the decision is
// a transaction.
func TestPlainConcurrent(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	l := open(t, redisstore.Options{URL: server.URL(), Plain: true})
	limit := weir.Limit{Max: 1000, Window: time.Hour, Algorithm: weir.FixedWindow}
	admitted := make(chan int, 64)
	for range 64 {
		go func() {
			n := 0
			for range 50 {
				if d, err := l.Allow(t.Context(), "k", limit); err != nil {
					t.Error(err)
				} else if d.Allowed {
					n++
				}
			}
			admitted <- n
		}()
	}
	total := 0
	for range 64 {
		total += <-admitted
	}
	if total != 1000 {
		t.Errorf("%d were admitted, want 1000", total)
	}
}
