// Package linear checks that concurrent clients of a store see what one client
// after the other could have seen: histories of many clients, each with
// connections of its own to one real server, are searched for an order in which
// the pure step gives every answer.
package linear

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/lab/check"
	"github.com/weirlimit/weir/redisstore"
)

const (
	// each is how often a client asks: 5,120 operations in all.
	each = 320
	// patience is how long the search for an order may take.
	patience = 2 * time.Minute
)

// A history takes many windows, and is offered more than all of them admit.
var limits = []struct {
	name  string
	limit weir.Limit
	store redisstore.Options
}{
	{name: "sliding-log", limit: weir.Limit{Algorithm: weir.SlidingLog}},
	{name: "sliding-log-sorted-set", limit: weir.Limit{Algorithm: weir.SlidingLog}, store: redisstore.Options{SortedSet: true}},
	{name: "sliding-buckets", limit: weir.Limit{Algorithm: weir.SlidingBuckets, Buckets: 10}},
	{name: "sliding-counter", limit: weir.Limit{Algorithm: weir.SlidingCounter}},
	{name: "fixed-window", limit: weir.Limit{Algorithm: weir.FixedWindow}},
	{name: "token-bucket", limit: weir.Limit{Algorithm: weir.TokenBucket, Burst: 20}},
}

func TestLinearizable(t *testing.T) { linearizable(t, each) }

// linearizable checks a history of each client asking so many times, for each limit.
func linearizable(t *testing.T, times int) {
	server := redistest.Start(t, redistest.Options{})
	for _, l := range limits {
		t.Run(l.name, func(t *testing.T) {
			l.limit.Max, l.limit.Window = 15, 50*time.Millisecond
			l.store.URL, l.store.Prefix = server.URL()+"?write_timeout=30s", l.name
			history := record(t, l.limit, times, func() (weir.Store, error) { return redisstore.Open(l.store) })
			telling(t, l.limit.Algorithm, history)
			if err := check.Linearizable(history, patience); err != nil {
				t.Error(err)
			}
		})
	}
}

// telling checks that a history has enough of all that a store could get wrong.
func telling(t *testing.T, algorithm weir.Algorithm, history []check.Op) {
	t.Helper()
	want := map[string]int{
		"take allowed": 100, "take denied": 100, "peek allowed": 10, "peek denied": 10, "charge allowed": 100,
		"refund of some": 20, "refund of none": 20, "reset of some": 20, "at once": len(history) / 4,
	}
	if algorithm == weir.SlidingLog || algorithm == weir.SlidingBuckets {
		want["count of some"] = 50
	}
	ends := make(map[string]time.Time)
	for i := range history {
		o := &history[i]
		key := ""
		for _, r := range o.Requests {
			key = r.Key
		}
		for _, r := range o.Receipts {
			key = r.Request.Key
		}
		want[outcome(o)]--
		if o.Call.Before(ends[key]) {
			want["at once"]--
		}
		if o.Return.After(ends[key]) {
			ends[key] = o.Return
		}
	}
	for what, missing := range want {
		if missing > 0 {
			t.Errorf("the history lacks %d of %q", missing, what)
		}
	}
}

// outcome puts an operation among those that are alike.
func outcome(o *check.Op) string {
	if o.Verb != check.Taken {
		if o.N > 0 {
			return string(o.Verb) + " of some"
		}
		return string(o.Verb) + " of none"
	}
	verb := map[weir.Mode]string{weir.Enforce: "take", weir.Peek: "peek", weir.Record: "charge"}[o.Requests[0].Mode]
	if o.Rows[0].Allowed {
		return verb + " allowed"
	}
	return verb + " denied"
}
