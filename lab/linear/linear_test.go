// Package linear checks that concurrent clients of a store see what one client
// after the other could have seen: histories of many clients, each with
// connections of its own to one real server, are searched for an order in which
// the pure step gives every answer.
package linear

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
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
			for _, part := range byKey(history) {
				if why := refuse(part); why != "" {
					t.Error(why)
				}
			}
		})
	}
}

// refuse returns why there is no order for a key's part of a history, or "".
func refuse(part []porcupine.Operation) string {
	result, info := porcupine.CheckOperationsVerbose(model, part, patience)
	if result == porcupine.Ok {
		return ""
	}
	var best []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(best) {
				best = order
			}
		}
	}
	text := fmt.Sprintf("%s: %s: of %d operations at most %d are in order. The last of them:", part[0].Input.(question).key, result, len(part), len(best))
	for _, o := range best[max(0, len(best)-20):] {
		text += describe(o)
	}
	text += "\nDoes not follow:"
	for _, o := range part {
		if !slices.Contains(best, o) {
			return text + describe(o)
		}
	}
	return text
}

// telling checks that a history has enough of all that a store could get wrong.
func telling(t *testing.T, algorithm weir.Algorithm, history []porcupine.Operation) {
	t.Helper()
	want := map[string]int{
		"take allowed": 100, "take denied": 100, "peek allowed": 10, "peek denied": 10, "charge allowed": 100,
		"refund of some": 20, "refund of none": 20, "reset of some": 20, "at once": len(history) / 4,
	}
	if algorithm == weir.SlidingLog || algorithm == weir.SlidingBuckets {
		want["count of some"] = 50
	}
	for _, part := range byKey(history) {
		var ends int64
		for _, o := range part {
			want[o.Input.(question).outcome(o.Output.(answer))]--
			if o.Call < ends {
				want["at once"]--
			}
			ends = max(ends, o.Return)
		}
	}
	for what, missing := range want {
		if missing > 0 {
			t.Errorf("the history lacks %d of %q", missing, what)
		}
	}
}
