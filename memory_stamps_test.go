package weir_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// TestStampsAreBounded: long logs under few keys cannot fill the memory. The
// log in use stays exact, and others make room for it.
func TestStampsAreBounded(t *testing.T) {
	var now time.Time
	store := weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return now }, MaxKeys: 100})
	lim := weir.New(weir.Options{Store: store})
	limit := weir.Limit{Max: 100_000, Window: 24 * time.Hour, Algorithm: weir.SlidingLog}
	const takes, bound = 40_000, 1<<20 + 16*100 + 1<<17
	for k := range 40 {
		key := fmt.Sprint(k)
		for range takes {
			now = now.Add(time.Millisecond)
			mustAllow(t, lim, key, limit, 1, true)
		}
		if left := remaining(t, lim, key, limit); left != limit.Max-takes {
			t.Errorf("the log in use has %d left, want %d", left, limit.Max-takes)
		}
		if s := store.Stats(); s.Stamps > bound {
			t.Fatalf("room for %d stamps, want at most %d", s.Stamps, bound)
		}
	}
	if s := store.Stats(); s.Evicted == 0 {
		t.Error("nothing was evicted, though all logs together are above the bound")
	}
	if _, err := lim.ResetAll(context.Background(), weir.Request{Key: "39", Limit: limit}); err != nil {
		t.Fatal(err)
	}
	before := store.Stats()
	mustAllow(t, lim, "39", limit, 1, true)
	if after := store.Stats(); after.Stamps != before.Stamps {
		t.Errorf("a first use takes room for %d stamps", after.Stamps-before.Stamps)
	}
}
