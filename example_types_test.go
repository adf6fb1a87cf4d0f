package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Without a Store a Limiter keeps its limits in a Memory of its own.
func ExampleOptions() {
	lim := weir.New(weir.Options{})
	store := weir.NewMemory(weir.MemoryOptions{})
	same := []*weir.Limiter{weir.New(weir.Options{Store: store}), weir.New(weir.Options{Store: store})}
	for _, l := range append(same, lim) {
		d, _ := l.Allow(context.Background(), "alice", weir.PerMinute(5))
		fmt.Println(d.Remaining)
	}
	// Output:
	// 4
	// 3
	// 4
}

// A bound on the memory is a bound on the number of keys.
func ExampleMemoryOptions() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := weir.NewMemory(weir.MemoryOptions{
		Now:     func() time.Time { return now }, // for tests and simulations
		MaxKeys: 100_000,
	})
	lim := weir.New(weir.Options{Store: store})
	d, _ := lim.AllowN(context.Background(), "alice", weir.PerMinute(5), 5)
	fmt.Println(d.Allowed, d.ResetAfter)
	now = now.Add(time.Minute)
	d, _ = lim.Allow(context.Background(), "alice", weir.PerMinute(5))
	fmt.Println(d.Allowed, d.Remaining)
	// Output:
	// true 1m0s
	// true 4
}

func ExampleMemoryStats() {
	store := weir.NewMemory(weir.MemoryOptions{})
	lim := weir.New(weir.Options{Store: store})
	for _, user := range []string{"alice", "bob", "alice"} {
		_, _ = lim.Allow(context.Background(), user, weir.PerMinute(5))
	}
	stats := store.Stats()
	fmt.Println(stats.Keys, "keys,", stats.Evicted, "evicted")
	// Output: 2 keys, 0 evicted
}

// A snapshot that is not whole is refused: start with an empty store then.
func ExampleSnapshotError() {
	store := weir.NewMemory(weir.MemoryOptions{})
	lim := weir.New(weir.Options{Store: store})
	_, _ = lim.AllowN(context.Background(), "alice", weir.PerHour(5), 3)
	var file bytes.Buffer
	if err := store.Snapshot(&file); err != nil {
		fmt.Println(err)
	}

	_, err := weir.RestoreMemory(weir.MemoryOptions{}, bytes.NewReader(file.Bytes()[:file.Len()/2]))
	fmt.Println(errors.Is(err, weir.SnapshotTruncated), err)

	restored, err := weir.RestoreMemory(weir.MemoryOptions{}, bytes.NewReader(file.Bytes()))
	d, _ := weir.New(weir.Options{Store: restored}).Peek(context.Background(), "alice", weir.PerHour(5))
	fmt.Println(d.Remaining, err)
	// Output:
	// true weir: the snapshot is truncated: its end is missing
	// 2 <nil>
}

// Each mode of a request, beside one that enforces.
func ExampleMode() {
	ctx := context.Background()
	for _, mode := range []weir.Mode{weir.Enforce, weir.Shadow, weir.Peek, weir.Record} {
		lim := weir.New(weir.Options{})
		other := weir.Request{Key: "day", Limit: weir.PerDay(1), Cost: 2, Mode: mode}
		d, _ := lim.AllowAll(ctx, weir.Request{Key: "minute", Limit: weir.PerMinute(10)}, other)
		fmt.Println(mode, "admitted", d.Allowed, "its row", d.Rows[1].Allowed)
	}
	// Output:
	// enforce admitted false its row false
	// shadow admitted true its row false
	// peek admitted true its row false
	// record admitted true its row true
}

// What happens while the store is away is said with each request; it takes a
// layer.Fallback to do it.
func ExampleOnFailure() {
	login := weir.Request{Key: "login:alice", Limit: weir.PerMinute(5), OnFailure: weir.OnFailureDeny}
	help := weir.Request{Key: "help:alice", Limit: weir.PerMinute(100), OnFailure: weir.OnFailureAllow, Deadline: 10 * time.Millisecond}
	for _, r := range []weir.Request{login, help, {Key: "search:alice", Limit: weir.PerMinute(30)}} {
		fmt.Println(r.Key, r.OnFailure)
	}
	// Output:
	// login:alice deny
	// help:alice allow
	// search:alice local
}

// A reason has a name, which is the one on the wire.
func ExampleReason() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	for _, cost := range []int64{5, 1, 6} {
		d, _ := lim.AllowN(ctx, "alice", weir.PerMinute(5), cost)
		fmt.Println(d.Reason, d.Reason >= weir.StoreAllowed) // whether it is degraded
	}
	// Output:
	// ok false
	// over_limit false
	// never false
}

// A list is what a Store decides; callers of a Limiter rarely see one.
func ExampleList() {
	list := weir.List{Requests: []weir.Request{
		{Key: "global", Limit: weir.PerMinute(100)},
		{Key: "alice", Limit: weir.PerMinute(5), Cost: 6},
	}}
	lists := []weir.List{list}
	weir.New(weir.Options{}).Take(context.Background(), lists)
	fmt.Println(lists[0].Admitted(), lists[0].Decide().Reason)
	for i, row := range lists[0].Rows {
		fmt.Println(lists[0].Requests[i].Key, row.Allowed)
	}
	// Output:
	// false never
	// global true
	// alice false
}

// counting is a Store around another.
type counting struct {
	weir.Store

	trips, lists int
}

func (c *counting) Take(ctx context.Context, lists []weir.List) {
	c.trips++
	c.lists += len(lists)
	c.Store.Take(ctx, lists)
}

// A Store of one's own can be around another: here one that counts.
func ExampleStore() {
	store := &counting{Store: weir.NewMemory(weir.MemoryOptions{})}
	lim := weir.New(weir.Options{Store: store})
	request := weir.Request{Key: "alice", Limit: weir.PerMinute(5)}
	_, _ = lim.AllowEach(context.Background(), slices.Repeat([]weir.Request{request}, 3)...)
	fmt.Println(store.lists, "lists in", store.trips, "trip")
	// Output: 3 lists in 1 trip
}

// Where the store is on a server, its errors say whether it may have charged.
func ExampleStoreError() {
	var err error = &weir.StoreError{Server: "10.0.0.7:6379", Err: context.DeadlineExceeded, Unknown: true}
	var store *weir.StoreError
	if errors.As(err, &store) && store.Unknown {
		fmt.Println("not to be sent again:", err)
	}
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// not to be sent again: weir: store 10.0.0.7:6379: context deadline exceeded
	// true
}

// A reservation that is not committed is given back, and one that nobody settles
// ages out of the window.
func ExampleReservation() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	tokens := weir.Request{Key: "tokens:alice", Limit: weir.PerMinute(1000), Cost: 400}
	work := func(used int64) error {
		held, err := lim.Reserve(ctx, tokens)
		if err != nil || !held.Allowed {
			return err
		}
		defer func() { _, _ = held.Cancel(ctx) }()
		if used == 0 {
			return errors.New("it failed")
		}
		return held.Commit(ctx, used)
	}
	for _, used := range []int64{100, 0, 500} {
		err := work(used)
		d, _ := lim.Peek(ctx, tokens.Key, tokens.Limit)
		fmt.Println(d.Remaining, err)
	}
	// Output:
	// 900 <nil>
	// 900 it failed
	// 400 <nil>
}
