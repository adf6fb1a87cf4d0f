package layer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
)

// away is a store that cannot be reached.
type away struct{ weir.Store }

func (away) Take(_ context.Context, lists []weir.List) {
	for i := range lists {
		lists[i].Err = &weir.StoreError{Server: "10.0.0.7:6379", Err: errors.New("connection refused")}
	}
}

// While the store is away each of three processes decides by a third of the
// limit, unless a request says otherwise.
func ExampleFallback() {
	lim := weir.New(weir.Options{Store: layer.NewFallback(layer.FallbackOptions{Store: away{}, Replicas: 3})})
	for _, o := range []weir.OnFailure{weir.OnFailureLocal, weir.OnFailureAllow, weir.OnFailureDeny} {
		d, err := lim.AllowAll(context.Background(), weir.Request{Key: "alice", Limit: weir.PerMinute(30), OnFailure: o})
		fmt.Println(d.Allowed, d.Limit, d.Reason, err)
	}
	// Output:
	// true 10 store_unavailable_local <nil>
	// true 30 store_unavailable_allowed <nil>
	// false 30 store_unavailable_denied <nil>
}

func ExampleFallbackOptions() {
	lim := weir.New(weir.Options{Store: layer.NewFallback(layer.FallbackOptions{
		Store:    weir.NewMemory(weir.MemoryOptions{}), // in place of one on a server
		Replicas: 3,                                    // processes that share it
		Deadline: 20 * time.Millisecond,                // after which it is decided without it
	})})
	d, err := lim.Allow(context.Background(), "alice", weir.PerMinute(30))
	fmt.Println(d.Remaining, d.Reason, err)
	// Output: 29 ok <nil>
}

// Events are for metrics and logs.
func ExampleEvent() {
	lim := weir.New(weir.Options{Store: layer.NewFallback(layer.FallbackOptions{
		Store:   away{},
		Observe: func(e layer.Event) { fmt.Println(e.Degraded, "of", e.Lists, "without the store:", e.Err) },
	})})
	_, _ = lim.Allow(context.Background(), "alice", weir.PerMinute(30))
	// Output: 1 of 1 without the store: weir: store 10.0.0.7:6379: connection refused
}
