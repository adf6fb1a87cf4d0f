package weir_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// The limit is an argument, so plans per user need no registry.
func ExampleLimiter_Allow() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	for range 6 {
		d, err := lim.Allow(ctx, "search:alice", weir.PerMinute(5))
		switch {
		case err != nil:
			fmt.Println("the store failed:", err)
		case d.Allowed:
			fmt.Println("search,", d.Remaining, "more")
		default:
			fmt.Println("try again in", d.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// search, 4 more
	// search, 3 more
	// search, 2 more
	// search, 1 more
	// search, 0 more
	// try again in 1m0s
}

// Bytes and tokens are units like any other.
func ExampleLimiter_AllowN() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	limit := weir.PerDay(1_000_000)
	for _, bytes := range []int64{600_000, 600_000, 300_000} {
		d, _ := lim.AllowN(ctx, "upload:alice", limit, bytes)
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 400000
	// false 400000
	// true 100000
}

// Several limits decided in one atomic step: nothing is taken unless all allow.
func ExampleLimiter_AllowAll() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	notify := func(category string) {
		d, _ := lim.AllowAll(ctx,
			weir.Request{Key: "global", Limit: weir.Per(10, 30*time.Minute)},
			weir.Request{Key: "category:" + category, Limit: weir.Per(3, 30*time.Minute)})
		fmt.Println(category, d.Allowed, "of all", d.Rows[0].Remaining, "of its category", d.Rows[1].Remaining)
	}
	for range 4 {
		notify("errors")
	}
	notify("deploys")
	// Output:
	// errors true of all 9 of its category 2
	// errors true of all 8 of its category 1
	// errors true of all 7 of its category 0
	// errors false of all 7 of its category 0
	// deploys true of all 6 of its category 2
}

// Independent requests in one trip to the store.
func ExampleLimiter_AllowEach() {
	lim := weir.New(weir.Options{})
	ds, _ := lim.AllowEach(context.Background(),
		weir.Request{Key: "alice", Limit: weir.PerSecond(1)},
		weir.Request{Key: "alice", Limit: weir.PerSecond(1)},
		weir.Request{Key: "bob", Limit: weir.PerSecond(1)})
	for _, d := range ds {
		fmt.Println(d.Allowed, d.Reason)
	}
	// Output:
	// true ok
	// false over_limit
	// true ok
}

func ExampleLimiter_Peek() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	for range 3 { // looking takes nothing
		d, _ := lim.Peek(ctx, "alice", weir.PerMinute(5))
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 5
	// true 5
	// true 5
}

// Wait keeps one's own calls to somebody else within their limit.
func ExampleLimiter_Wait() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	start := time.Now()
	for range 5 {
		if _, err := lim.Wait(ctx, "their-api", weir.Per(2, 20*time.Millisecond)); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("5 calls, 2 every 20ms, took at least 40ms:", time.Since(start) >= 40*time.Millisecond)
	// Output: 5 calls, 2 every 20ms, took at least 40ms: true
}

func ExampleLimiter_WaitN() {
	lim := weir.New(weir.Options{})
	limit := weir.PerHour(10)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	_, err := lim.WaitN(ctx, "alice", limit, 11)
	fmt.Println(errors.Is(err, weir.ErrNever), err)
	if _, err := lim.WaitN(ctx, "alice", limit, 10); err == nil {
		fmt.Println("ten at once")
	}
	_, err = lim.WaitN(ctx, "alice", limit, 1) // returns now, not in a minute
	fmt.Println(errors.Is(err, weir.ErrDeadline), err)
	// Output:
	// true weir: the cost is above what the limit can ever admit
	// ten at once
	// true weir: the context's deadline is nearer than the wait
}

// A budget, and each project's share of it: a call waits for both.
func ExampleLimiter_WaitAll() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	start := time.Now()
	for range 3 {
		if _, err := lim.WaitAll(ctx,
			weir.Request{Key: "their-api", Limit: weir.Per(4, 20*time.Millisecond)},
			weir.Request{Key: "their-api:reports", Limit: weir.Per(1, 20*time.Millisecond)},
		); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("3 calls, 1 every 20ms, took at least 40ms:", time.Since(start) >= 40*time.Millisecond)
	// Output: 3 calls, 1 every 20ms, took at least 40ms: true
}

// What a call has used is known only after it: record it then, even above the
// limit, and what follows waits.
func ExampleLimiter_Charge() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	tokens := weir.PerMinute(1000)
	d, _ := lim.Charge(ctx, "alice", tokens, 1500)
	fmt.Println(d.Allowed, d.Remaining)
	d, _ = lim.Allow(ctx, "alice", tokens)
	fmt.Println(d.Allowed, d.RetryAfter.Round(time.Minute))
	// Output:
	// true 0
	// false 1m0s
}

// A call that did not happen gives back exactly what it took, once.
func ExampleLimiter_Refund() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	d, _ := lim.AllowN(ctx, "alice", weir.PerMinute(5), 3)
	fmt.Println(d.Remaining, "remain")

	n, _ := lim.Refund(ctx, d.Receipts()...)
	fmt.Println(n, "given back")
	n, _ = lim.Refund(ctx, d.Receipts()...)
	fmt.Println(n, "given back again")
	// Output:
	// 2 remain
	// 3 given back
	// 0 given back again
}

// How many in the last twenty seconds, under a limit by the minute?
func ExampleLimiter_Count() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return now }})})
	for range 6 {
		_, _ = lim.Allow(ctx, "alice", weir.PerMinute(100))
		now = now.Add(5 * time.Second)
	}
	n, _ := lim.Count(ctx, "alice", weir.PerMinute(100), 20*time.Second)
	fmt.Println(n)
	n, _ = lim.Count(ctx, "alice", weir.PerMinute(100), time.Minute)
	fmt.Println(n)
	// Output:
	// 3
	// 6
}

func ExampleLimiter_Reset() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	for range 3 {
		_, _ = lim.Allow(ctx, "alice", weir.PerMinute(5))
	}
	was, _ := lim.Reset(ctx, "alice", weir.PerMinute(5))
	d, _ := lim.Peek(ctx, "alice", weir.PerMinute(5))
	fmt.Println(was, d.Remaining)
	// Output: true 5
}

// Take is the door under all others: many lists, each all-or-nothing, in one trip.
func ExampleLimiter_Take() {
	lim := weir.New(weir.Options{})
	limit := weir.PerMinute(3)
	lists := []weir.List{
		{Requests: []weir.Request{{Key: "team", Limit: limit}, {Key: "alice", Limit: limit, Cost: 2}}},
		{Requests: []weir.Request{{Key: "team", Limit: limit}, {Key: "alice", Limit: limit, Cost: 2}}},
		{Requests: []weir.Request{{Key: "team", Limit: limit}, {Key: "bob", Limit: weir.PerMinute(-1)}}},
	}
	lim.Take(context.Background(), lists)
	for i := range lists {
		if err := lists[i].Err; err != nil {
			fmt.Println(err)
			continue
		}
		d := lists[i].Decide()
		fmt.Println(d.Allowed, "team", lists[i].Rows[0].Remaining, "alice", lists[i].Rows[1].Remaining)
	}
	// Output:
	// true team 2 alice 1
	// false team 2 alice 1
	// weir: requests[1].max "-1": want 1 to 2147483648 units, such as 5 in 5/minute; to deny everything use a rule's deny
}

func ExampleParseLimit() {
	for _, text := range []string{"100/30m", "5/minute", "10/s burst 20", "50000/h buckets=60", "5/day epoch", "5 per minute"} {
		limit, err := weir.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		normal, _ := limit.Normal()
		fmt.Println(limit, normal.Algorithm)
	}
	// Output:
	// 100/30m sliding-log
	// 5/1m sliding-log
	// 10/1s burst=20 token-bucket
	// 50000/1h buckets=60 sliding-buckets
	// 5/1d epoch fixed-window
	// weir: limit "5 per minute": want a limit such as "100/30m", "5/minute", "10/s burst=20" or "50000/h buckets=60"
}

// Another Max acts at once on what has been recorded.
func ExampleLimit() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	free, paid := weir.PerMinute(2), weir.PerMinute(10)
	for range 3 {
		d, _ := lim.Allow(ctx, "alice", free)
		fmt.Println("free:", d.Allowed, d.Remaining)
	}
	d, _ := lim.Allow(ctx, "alice", paid)
	fmt.Println("paid:", d.Allowed, d.Remaining)
	// Output:
	// free: true 1
	// free: true 0
	// free: false 0
	// paid: true 7
}

// The same traffic under each algorithm: five calls at the end of a minute,
// five at the start of the next, of five a minute.
func ExampleAlgorithm() {
	ctx := context.Background()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for a := weir.SlidingLog; a <= weir.TokenBucket; a++ {
		now := start
		lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return now }})})
		limit := weir.Limit{Max: 5, Window: time.Minute, Algorithm: a, Epoch: a == weir.FixedWindow}
		admitted := 0
		for _, second := range []int{56, 57, 58, 59, 59, 60, 61, 62, 63, 64} {
			now = start.Add(time.Duration(second) * time.Second)
			if d, _ := lim.Allow(ctx, "alice", limit); d.Allowed {
				admitted++
			}
		}
		fmt.Println(a, admitted)
	}
	// Output:
	// sliding-log 5
	// sliding-buckets 5
	// sliding-counter 5
	// fixed-window 10
	// token-bucket 5
}

// A shadow request never denies; it shows what a new limit would do.
func ExampleRequest() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	for range 3 {
		d, _ := lim.AllowAll(ctx,
			weir.Request{Key: "alice", Limit: weir.PerMinute(5)},
			weir.Request{Key: "alice", Limit: weir.PerHour(2), Mode: weir.Shadow})
		fmt.Println(d.Allowed, "stricter:", d.Rows[1].Allowed)
	}
	// Output:
	// true stricter: true
	// true stricter: true
	// true stricter: false
}

// A receipt may travel as text and come back from elsewhere.
func ExampleReceipt() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	d, _ := lim.AllowN(ctx, "alice", weir.PerMinute(5), 3)
	text, _ := d.Receipt.MarshalText()

	var r weir.Receipt
	if err := r.UnmarshalText(text); err != nil {
		fmt.Println(err)
	}
	n, _ := lim.Refund(ctx, r.Part(2)) // two of the three
	fmt.Println(n, "of", r.Request.Cost)
	// Output: 2 of 3
}

// A denial says why. A cost above the limit is one that no wait ends.
func ExampleDecision() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	for _, n := range []int64{4, 3, 9} {
		d, _ := lim.AllowN(ctx, "alice", weir.PerMinute(5), n)
		fmt.Println(n, d.Allowed, d.Reason, d.Remaining, "of", d.Limit, d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// 4 true ok 1 of 5 0s
	// 3 false over_limit 1 of 5 1m0s
	// 9 false never 1 of 5 0s
}

func ExampleInvalidError() {
	lim := weir.New(weir.Options{})
	_, err := lim.Allow(context.Background(), "alice", weir.Per(5, 0))
	var invalid *weir.InvalidError
	if errors.As(err, &invalid) {
		fmt.Println(invalid.Field)
		fmt.Println(err)
	}
	// Output:
	// window
	// weir: window "0s": want a whole number of microseconds from 1us to 366d, such as 30m
}

// The clock can be injected, and the memory is bounded.
func ExampleMemory() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return now }, MaxKeys: 1000})
	lim := weir.New(weir.Options{Store: store})

	first, _ := lim.Allow(ctx, "alice", weir.PerMinute(1))
	now = now.Add(time.Minute - time.Microsecond)
	early, _ := lim.Allow(ctx, "alice", weir.PerMinute(1))
	now = now.Add(early.RetryAfter)
	late, _ := lim.Allow(ctx, "alice", weir.PerMinute(1))
	fmt.Println(first.Allowed, early.Allowed, early.RetryAfter, late.Allowed)

	for i := range 2000 {
		_, _ = lim.Allow(ctx, fmt.Sprint(i), weir.PerMinute(1))
	}
	fmt.Println(store.Stats().Keys, "kept,", store.Stats().Evicted, "evicted")
	// Output:
	// true false 1µs true
	// 1000 kept, 1001 evicted
}

// A model's answer costs as many tokens as it will have: an estimate is held
// while it works, and settled when they have been counted.
func ExampleLimiter_Reserve() {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	calls, tokens := weir.PerMinute(60), weir.PerDay(100_000)
	complete := func(prompt string) (used int64) { return int64(len(prompt)) * 50 }

	r, err := lim.Reserve(ctx,
		weir.Request{Key: "calls:alice", Limit: calls},
		weir.Request{Key: "tokens:alice", Limit: tokens, Cost: 4_000})
	if err != nil || !r.Allowed {
		return
	}
	defer func() { _, _ = r.Cancel(ctx) }() // gives everything back, unless it was committed
	used := complete("Why is the sky blue today?")
	if err := r.Commit(ctx, 1, used); err != nil {
		fmt.Println(err)
	}
	d, _ := lim.Peek(ctx, "tokens:alice", tokens)
	fmt.Println(d.Remaining, "tokens are left")
	// Output: 98700 tokens are left
}
