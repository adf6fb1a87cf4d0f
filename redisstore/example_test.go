package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/redisstore"
)

// nobody is where no server listens.
const nobody = "redis://localhost:1"

// Open asks nothing of the server yet, so that a program can start while it is
// away; Ready does.
func ExampleOpen() {
	store, err := redisstore.Open(redisstore.Options{URL: nobody})
	if err != nil {
		fmt.Println(err) // the URL or another option is wrong
		return
	}
	var failed *weir.StoreError
	if errors.As(store.Ready(context.Background()), &failed) {
		fmt.Println("only other settings help:", failed.Settings)
	}
	fmt.Println(store.Close())
	// Output:
	// only other settings help: false
	// <nil>
}

// All processes that name the same server share their limits. Behind a Fallback
// they go on while it is away.
func ExampleStore() {
	store, err := redisstore.Open(redisstore.Options{URL: nobody})
	if err != nil {
		fmt.Println(err)
		return
	}
	lim := weir.New(weir.Options{Store: layer.NewFallback(layer.FallbackOptions{Store: store, Replicas: 3})})
	d, err := lim.Allow(context.Background(), "search:alice", weir.PerMinute(30))
	fmt.Println(d.Allowed, d.Remaining, d.Reason, err)
	fmt.Println(lim.Close())
	// Output:
	// true 9 store_unavailable_local <nil>
	// <nil>
}

// What is wrong with the options is said by Open.
func ExampleOptions() {
	for _, o := range []redisstore.Options{
		{URL: "10.0.0.7:6379"},
		{URL: "redis://10.0.0.7:6379", Prefix: "{shop}"},
	} {
		_, err := redisstore.Open(o)
		fmt.Println(err)
	}
	// Output:
	// weir: redis URL "***": want a URL that begins with redis://, rediss:// (TLS), valkey://, valkeys:// or unix://, as in redis://user:password@10.0.0.7:6379/0
	// weir: redis prefix "{shop}": want letters, digits and the signs . _ - / : such as weir
}

// A Table holds what processes tell each other, each entry until a time.
func ExampleTable() {
	store, err := redisstore.Open(redisstore.Options{URL: nobody})
	if err != nil {
		fmt.Println(err)
		return
	}
	notes := store.Table("notes")
	err = notes.Put(context.Background(), "maintenance", "until noon", time.Now().Add(2*time.Hour))
	var failed *weir.StoreError
	fmt.Println("the server is away:", errors.As(err, &failed))
	fmt.Println(store.Close())
	// Output:
	// the server is away: true
	// <nil>
}
