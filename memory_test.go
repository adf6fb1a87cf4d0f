package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// heapNow returns the bytes in use after a collection.
func heapNow() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// heapOf returns the bytes that live because of what do returns.
func heapOf(do func() any) int64 {
	before := heapNow()
	keep := do()
	grown := heapNow() - before
	runtime.KeepAlive(keep)
	return grown
}

func keyNames(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return keys
}

// TestMaxKeysIsHard: whatever comes, no more than MaxKeys states are kept, and
// every one beyond is counted.
func TestMaxKeysIsHard(t *testing.T) {
	for _, most := range []int{1, 2, 7, 500, 1024, 5000} {
		for _, limit := range everyAlgorithm(5, time.Hour) {
			t.Run(fmt.Sprint(most, " ", limit), func(t *testing.T) {
				lim, store, _ := newFake(t, most)
				n := 3*most + 10
				for i, key := range keyNames("k", n) {
					mustAllow(t, lim, key, limit, 1, true)
					if s := store.Stats(); s.Keys != int64(min(i+1, most)) || s.Evicted != int64(max(0, i+1-most)) {
						t.Fatalf("after %d keys of at most %d: %+v", i+1, most, s)
					}
				}
				before := store.Stats()
				for _, key := range keyNames("denied", 100) {
					remaining(t, lim, key, limit)
					mustAllow(t, lim, key, limit, 6, false)
				}
				if after := store.Stats(); after != before {
					t.Errorf("peeks and denials changed %+v to %+v", before, after)
				}
			})
		}
	}
}

func TestMaxKeysUnderConcurrency(t *testing.T) {
	const most, callers, each = 4096, 16, 4000
	lim, store, _ := newFake(t, most)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprint(c, "/", i)
				if i%10 == 0 {
					r := weir.Request{Key: key, Limit: weir.PerHour(5)}
					if _, err := lim.AllowAll(context.Background(), r, weir.Request{Key: key + "b", Limit: weir.PerHour(5)}); err != nil {
						t.Error(err)
					}
				} else if _, err := lim.Allow(context.Background(), key, weir.PerHour(5)); err != nil {
					t.Error(err)
				}
				// A call in flight has counted its key before it makes room for it.
				if keys := store.Stats().Keys; keys > most+callers {
					t.Errorf("%d keys of at most %d", keys, most)
				}
			}
		})
	}
	wg.Wait()
	made := int64(callers * each * 11 / 10)
	if s := store.Stats(); s.Keys > most || s.Keys+s.Evicted != made {
		t.Errorf("%+v after %d keys, want at most %d kept and the others counted", s, made, most)
	}
}

// TestEvictsTheLeastUsed: what has been used most stays, so that a flood of
// new keys frees nobody who is over a limit.
func TestEvictsTheLeastUsed(t *testing.T) {
	for _, limit := range everyAlgorithm(10, time.Hour) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			const most = 8 // all of which are compared
			lim, store, _ := newFake(t, most)
			for i := range most {
				mustAllow(t, lim, fmt.Sprint("k", i), limit, int64(i+2), i+2 <= 10)
				if i+2 > 10 {
					t.Fatal("the test wants no more than 10 units")
				}
			}
			for i, key := range keyNames("flood", 100) {
				mustAllow(t, lim, key, limit, 1, true)
				if s := store.Stats(); s.Keys != most || s.Evicted != int64(i+1) {
					t.Fatalf("%+v", s)
				}
			}
			for i := range most {
				want := int64(10 - (i + 2))
				if i == 0 { // made room for the first of the flood, which made room for the second
					want = 10
				}
				if left := remaining(t, lim, fmt.Sprint("k", i), limit); left != want {
					t.Errorf("k%d has %d left, want %d", i, left, want)
				}
			}
		})
	}
}

func TestEvictsTheExhaustedThatResetsFirst(t *testing.T) {
	for _, limit := range everyAlgorithm(3, time.Hour) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			lim, _, clock := newFake(t, 4)
			for _, key := range []string{"second", "first", "fourth", "third"} {
				clock.Set(epoch.Add(map[string]time.Duration{"first": 0, "second": 1, "third": 2, "fourth": 3}[key] * time.Second))
				mustAllow(t, lim, key, limit, 3, true)
			}
			for _, tt := range []struct{ fresh, gone, stays string }{{"a", "first", "second"}, {"b", "second", "third"}} {
				mustAllow(t, lim, tt.fresh, limit, 3, true)
				if left := remaining(t, lim, tt.gone, limit); left != 3 {
					t.Errorf("the %s to reset was kept", tt.gone)
				}
				if left := remaining(t, lim, tt.stays, limit); left != 0 {
					t.Errorf("the %s to reset was evicted", tt.stays)
				}
			}
		})
	}
}

// TestFloodFreesNobody is TestEvictsTheLeastUsed in a store too large to
// compare all: of a quarter that is exhausted few are lost, where chance alone
// would lose nearly all.
func TestFloodFreesNobody(t *testing.T) {
	lim, _, _ := newFake(t, 8192)
	limit := weir.PerHour(10)
	blocked := keyNames("blocked", 2048)
	for _, key := range blocked {
		mustAllow(t, lim, key, limit, 10, true)
	}
	for _, key := range keyNames("flood", 40_000) {
		mustAllow(t, lim, key, limit, 1, true)
	}
	free := 0
	for _, key := range blocked {
		if remaining(t, lim, key, limit) > 0 {
			free++
		}
	}
	if free > len(blocked)/20 {
		t.Errorf("a flood of new keys freed %d of %d that were over their limit", free, len(blocked))
	}
}

// TestExpiredMakeRoom: a full store forgets what has expired before anything live.
func TestExpiredMakeRoom(t *testing.T) {
	lim, store, clock := newFake(t, 4096)
	long, short := weir.PerHour(10), weir.PerSecond(10)
	live := keyNames("live", 2048)
	for _, key := range live {
		mustAllow(t, lim, key, long, 3, true)
	}
	for _, key := range keyNames("short", 2048) {
		mustAllow(t, lim, key, short, 1, true)
	}
	clock.Advance(2 * time.Second)
	for _, key := range keyNames("new", 1024) {
		mustAllow(t, lim, key, long, 1, true)
	}
	if s := store.Stats(); s.Evicted != 0 || s.Keys > 4096 {
		t.Errorf("with 2048 expired keys, 1024 new ones made %+v", s)
	}
	for _, key := range live {
		if left := remaining(t, lim, key, long); left != 7 {
			t.Fatalf("%s has %d of 7 left", key, left)
		}
	}
}

// TestChurn: a million keys come and go; what is kept is about what is live.
func TestChurn(t *testing.T) {
	for uses, n := range map[int]int{1: 1_000_000 / scale, 3: 100_000 / scale} {
		t.Run(fmt.Sprint(uses, " uses"), func(t *testing.T) {
			lim, store, clock := newFake(t, 0)
			limit := weir.PerSecond(10) // a thousand keys a second: a thousand are live
			var most int64
			grown := heapOf(func() any {
				for i := range n {
					key := fmt.Sprint(i)
					for range uses {
						mustAllow(t, lim, key, limit, 1, true)
						clock.Advance(time.Millisecond / time.Duration(uses))
					}
					most = max(most, store.Stats().Keys)
				}
				return store
			})
			if s := store.Stats(); most > 10_000 || s.Evicted != 0 {
				t.Errorf("a thousand live keys were kept as up to %d, %d of them evicted", most, s.Evicted)
			}
			if grown > 8<<20 {
				t.Errorf("the store grew to %d bytes", grown)
			}
		})
	}
}

// TestEvictionFreesCells: keys that held a log leave its memory to the next.
func TestEvictionFreesCells(t *testing.T) {
	lim, store, clock := newFake(t, 1000)
	limit := weir.PerHour(1000)
	use := func(prefix string, n int) {
		for _, key := range keyNames(prefix, n) {
			for range 50 {
				mustAllow(t, lim, key, limit, 1, true)
				clock.Advance(time.Microsecond)
			}
		}
	}
	use("warm", 2000)
	grown := heapOf(func() any { use("more", 8000); return store })
	if s := store.Stats(); s.Keys != 1000 || s.Evicted != 9000 {
		t.Fatalf("%+v", s)
	}
	if grown > 1<<20 {
		t.Errorf("replacing 1000 logs eight times took %d bytes more", grown)
	}
}

// TestListsInAFullStore: a list that fits in the store is decided right even
// if it needs all of it; one that does not is a typed error.
func TestListsInAFullStore(t *testing.T) {
	ctx := context.Background()
	for _, most := range []int{2, 8, 64} {
		for _, limit := range everyAlgorithm(9, time.Hour) {
			t.Run(fmt.Sprint(most, " ", limit), func(t *testing.T) {
				lim, store, clock := newFake(t, most)
				list := func(name string, n int) []weir.Request {
					rs := make([]weir.Request, n)
					for i, key := range keyNames(name, n) {
						rs[i] = weir.Request{Key: key, Limit: limit}
					}
					return rs
				}
				for _, key := range keyNames("full", most) {
					mustAllow(t, lim, key, limit, 9, true)
				}
				before := store.Stats()
				var invalid *weir.InvalidError
				if _, err := lim.AllowAll(ctx, list("long", most+1)...); !errors.As(err, &invalid) || invalid.Field != "requests" || store.Stats() != before {
					t.Fatalf("a list of %d: %v, %+v", most+1, err, store.Stats())
				}
				for _, name := range []string{"a", "b", "c"} {
					rs := list(name, most)
					for round := range int64(9) { // with time between, so that logs need cells
						clock.Advance(time.Millisecond)
						d, err := lim.AllowAll(ctx, rs...)
						if err != nil || !d.Allowed {
							t.Fatalf("list %s, round %d: %+v (%v)", name, round, d, err)
						}
						for i, row := range d.Rows {
							if row.Remaining != 8-round {
								t.Fatalf("list %s, round %d, row %d: %+v, want %d left", name, round, i, row, 8-round)
							}
						}
						if s := store.Stats(); s.Keys != int64(most) {
							t.Fatalf("%+v", s)
						}
					}
					if d, err := lim.AllowAll(ctx, rs...); err != nil || d.Allowed {
						t.Fatalf("list %s, one more: %+v (%v)", name, d, err)
					}
				}
			})
		}
	}
}

// TestListKeepsItsRows: a list of live and new keys in a full store loses none
// of its live ones to its new ones.
func TestListKeepsItsRows(t *testing.T) {
	lim, _, clock := newFake(t, 8)
	limit := weir.PerHour(100)
	r := rand.New(rand.NewPCG(5, 6))
	fresh := 0
	for range 2000 {
		clock.Advance(time.Millisecond)
		var rs []weir.Request
		var want []int64
		for i := range 1 + r.IntN(8) {
			key := fmt.Sprint("old", i) // the least used of all, but in the list
			if r.IntN(2) == 0 {
				fresh++
				key = fmt.Sprint("new", fresh)
			}
			rs = append(rs, weir.Request{Key: key, Limit: limit})
			want = append(want, max(0, remaining(t, lim, key, limit)-1))
		}
		d, err := lim.AllowAll(context.Background(), rs...)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed { // one is used up: start again
			for _, q := range rs {
				if _, err := lim.Reset(context.Background(), q.Key, limit); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		for i, row := range d.Rows {
			if row.Remaining != want[i] {
				t.Fatalf("%s has %d left, want %d", rs[i].Key, row.Remaining, want[i])
			}
		}
	}
}

// TestGrowth: while the store grows to 300,000 keys every state stays exact.
func TestGrowth(t *testing.T) {
	lim, store, clock := newFake(t, 0)
	limits := everyAlgorithm(20, 24*time.Hour)
	n := 300_000 / scale
	cost := func(i int) int64 { return int64(1 + i%7) }
	for i, key := range keyNames("k", n) {
		mustAllow(t, lim, key, limits[i%5], cost(i), true)
		if i >= 1000 && i%3 == 0 { // an older key gets a second use
			j := i - 999
			mustAllow(t, lim, fmt.Sprint("k", j), limits[j%5], cost(j), true)
		}
		if i%100 == 0 {
			clock.Advance(time.Microsecond)
		}
	}
	if s := store.Stats(); s.Keys != int64(n) || s.Evicted != 0 {
		t.Errorf("%+v, want %d keys", s, n)
	}
	for i := range n {
		want := 20 - cost(i)
		if j := i + 999; j < n && j >= 1000 && j%3 == 0 {
			want -= cost(i)
		}
		if left := remaining(t, lim, fmt.Sprint("k", i), limits[i%5]); left != want {
			t.Fatalf("k%d under %s has %d left, want %d", i, limits[i%5], left, want)
		}
	}
}

// TestManyKeysLikeTheModel plays random calls over a thousand keys in one
// shard, so that its table splits and closes gaps, beside the reference store.
func TestManyKeysLikeTheModel(t *testing.T) {
	clock := newFakeClock()
	memory := weir.NewMemory(weir.MemoryOptions{Now: clock.Now, MaxKeys: 2000})
	stores := [2]*weir.Limiter{weir.New(weir.Options{Store: memory}), weir.New(weir.Options{Store: storetest.NewModel(clock.Now)})}
	r := rand.New(rand.NewPCG(7, 8))
	limits := everyAlgorithm(4, time.Second)
	var receipts [][2]weir.Receipt
	for step := range 200_000 / scale {
		clock.Advance(time.Duration(r.IntN(2000)) * time.Microsecond)
		verb := r.IntN(20)
		request := func() weir.Request {
			i := r.IntN(1000)
			return weir.Request{Key: fmt.Sprint(i), Limit: limits[i%5], Cost: 1 + r.Int64N(3), Mode: weir.Mode(r.IntN(4))}
		}
		rs := []weir.Request{request()}
		if verb < 5 {
			rs = append(rs, request(), request())
		}
		back := len(receipts) - 1 - r.IntN(50)
		var got [2]string
		var pair [2]weir.Receipt
		for i, lim := range stores {
			switch {
			case verb == 19:
				n, err := lim.ResetAll(context.Background(), rs...)
				got[i] = fmt.Sprint(n, err)
			case verb >= 15 && back >= 0:
				n, err := lim.Refund(context.Background(), receipts[back][i].Part(2))
				got[i] = fmt.Sprint(n, err)
			default:
				d, err := lim.AllowAll(context.Background(), rs...)
				for j := range d.Rows {
					pair[i] = d.Rows[j].Receipt
					d.Rows[j].Receipt = weir.Receipt{}
				}
				got[i] = fmt.Sprint(d, pair[i].IsZero(), err)
			}
		}
		if got[0] != got[1] {
			t.Fatalf("step %d: %+v\ngot  %s\nwant %s", step, rs, got[0], got[1])
		}
		if !pair[0].IsZero() {
			receipts = append(receipts, pair)
		}
	}
	if s := memory.Stats(); s.Evicted != 0 || s.Keys == 0 {
		t.Errorf("%+v", s)
	}
}

// TestLongLog: a log of a hundred thousand stamps grows, slides and shrinks,
// and stays exact.
func TestLongLog(t *testing.T) {
	const n = 100_000
	lim, _, clock := newFake(t, 0)
	limit := weir.Limit{Max: n, Window: n * time.Microsecond, Algorithm: weir.SlidingLog}
	for i := range 3 * n { // one each microsecond: from the n-th on always full, never over
		d := mustAllow(t, lim, "k", limit, 1, true)
		if want := int64(max(0, n-1-i)); d.Remaining != want {
			t.Fatalf("after %d units %d are left, want %d", i+1, d.Remaining, want)
		}
		if i%10_000 == 9_999 {
			if c, err := lim.Count(context.Background(), "k", limit, 5000*time.Microsecond); err != nil || c != 5000 {
				t.Fatalf("%d in the last 5000us (%v)", c, err)
			}
			if d := mustAllow(t, lim, "k", limit, n, d.Remaining == n); d.RetryAfter != limit.Window {
				t.Fatalf("the whole limit wants %s", d.RetryAfter)
			}
			if i >= n {
				if d := mustAllow(t, lim, "k", limit, 1, false); d.RetryAfter != time.Microsecond {
					t.Fatalf("one more wants %s", d.RetryAfter)
				}
			}
		}
		clock.Advance(time.Microsecond)
	}
	for i := range 3000 { // one each 100us: a hundredth of the stamps remain
		clock.Advance(99 * time.Microsecond)
		d := mustAllow(t, lim, "k", limit, 1, true)
		if i >= 1000 && d.Remaining != n-1000 {
			t.Fatalf("%d are left, want %d", d.Remaining, n-1000)
		}
		clock.Advance(time.Microsecond)
	}
	clock.Advance(limit.Window)
	if d := mustAllow(t, lim, "k", limit, n, true); d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
}

// TestLongLogsShareMemory: the memory of long logs serves the next ones.
func TestLongLogsShareMemory(t *testing.T) {
	lim, store, clock := newFake(t, 0)
	limit := weir.Limit{Max: 20_000, Window: 20 * time.Millisecond, Algorithm: weir.SlidingLog}
	fill := func(prefix string) {
		for i := range 20_000 {
			for _, key := range keyNames(prefix, 4) {
				mustAllow(t, lim, key, limit, 1, true)
			}
			if i%1000 == 0 { // lets expired keys be found
				for _, key := range keyNames("other", 50) {
					if _, err := lim.Reset(context.Background(), key, limit); err != nil {
						t.Fatal(err)
					}
				}
			}
			clock.Advance(time.Microsecond)
		}
		for _, key := range keyNames(prefix, 4) {
			if ok, err := lim.Reset(context.Background(), key, limit); err != nil || !ok {
				t.Fatalf("%s: %t, %v", key, ok, err)
			}
		}
	}
	fill("a")
	grown := heapOf(func() any {
		for _, prefix := range []string{"a", "a", "a", "a"} { // the same keys, so the same shards
			fill(prefix)
		}
		return store
	})
	if grown > 1<<20 {
		t.Errorf("four more rounds of four logs took %d bytes", grown)
	}
}

// TestCostTakesOneCell: many units at once take no more room than one.
func TestCostTakesOneCell(t *testing.T) {
	const keys = 10_000
	lim, store, clock := newFake(t, 0)
	limit := weir.Limit{Max: 100_000, Window: time.Hour, Algorithm: weir.SlidingLog}
	grown := heapOf(func() any {
		for _, key := range keyNames("k", keys) {
			for range 4 {
				mustAllow(t, lim, key, limit, 25_000, true)
				clock.Advance(time.Microsecond)
			}
		}
		return store
	})
	if grown > keys*400 { // a slot and a block of four cells
		t.Errorf("a hundred thousand units in four calls take %d bytes a key", grown/keys)
	}
	mustAllow(t, lim, "k17", limit, 1, false)
}

// TestBytesAKey: a key used once takes a slot in a table two thirds full.
func TestBytesAKey(t *testing.T) {
	keys := int64(200_000 / scale)
	for _, limit := range everyAlgorithm(5, time.Hour) {
		clock := newFakeClock()
		names := keyNames("some/longer/name/of/a/key/", int(keys))
		grown := heapOf(func() any {
			lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: clock.Now})})
			for _, key := range names {
				mustAllow(t, lim, key, limit, 1, true)
			}
			return lim
		})
		runtime.KeepAlive(names)
		if grown < 64*keys || grown > 160*keys {
			t.Errorf("%s: %d bytes a key", limit.Algorithm, grown/keys)
		}
	}
}

// TestResetForgets: a reset key is fresh and takes no room.
func TestResetForgets(t *testing.T) {
	ctx := context.Background()
	for _, limit := range everyAlgorithm(5, time.Hour) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			lim, store, clock := newFake(t, 0)
			keys := keyNames("k", 3000)
			for range 5 {
				for _, key := range keys {
					mustAllow(t, lim, key, limit, 1, true)
				}
				clock.Advance(time.Microsecond)
			}
			for i, key := range keys {
				if i%2 == 0 {
					continue
				}
				if ok, err := lim.Reset(ctx, key, limit); err != nil || !ok {
					t.Fatalf("%s: %t, %v", key, ok, err)
				}
				if ok, err := lim.Reset(ctx, key, limit); err != nil || ok {
					t.Fatalf("%s again: %t, %v", key, ok, err)
				}
			}
			for i, key := range keys {
				if left, want := remaining(t, lim, key, limit), int64(i%2*5); left != want {
					t.Fatalf("%s has %d left, want %d", key, left, want)
				}
			}
			if s := store.Stats(); s.Keys != 1500 {
				t.Errorf("%+v, want half of 3000 keys", s)
			}
			n, err := lim.ResetAll(ctx, weir.Request{Key: "k0", Limit: limit}, weir.Request{Key: "k1", Limit: limit}, weir.Request{Key: "k2", Limit: limit}, weir.Request{Key: "k0", Limit: limit})
			if err != nil || n != 2 {
				t.Errorf("of k0, k1, k2 and k0 again %d were there, want 2 (%v)", n, err)
			}
		})
	}
}

// TestClockBefore1970: a virtual clock may start anywhere and cross zero.
func TestClockBefore1970(t *testing.T) {
	for _, start := range []time.Time{{}, time.Unix(-1_000_000, 0), time.Unix(-1, 500_000_000), time.Unix(0, 0)} {
		forEvery(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, clock *fakeClock, limit weir.Limit) {
			clock.Set(start)
			for range 3 {
				mustAllow(t, lim, "k", limit, 5, true)
				for _, cost := range []int64{5, 1} {
					wait := mustAllow(t, lim, "k", limit, cost, false).RetryAfter
					at := clock.Now()
					clock.Set(at.Add(wait - time.Microsecond))
					mustAllow(t, lim, "k", limit, cost, false)
					clock.Set(at)
				}
				d := mustAllow(t, lim, "k", limit, 5, false)
				clock.Advance(d.ResetAfter)
				if left := remaining(t, lim, "k", limit); left != 5 {
					t.Fatalf("at %s, after the reset, %d are left", clock.Now(), left)
				}
			}
		})
	}
}

// TestEpochWindowsBefore1970: aligned windows start at multiples of Window on
// both sides of zero.
func TestEpochWindowsBefore1970(t *testing.T) {
	lim, _, clock := newFake(t, 0)
	limit := weir.Limit{Max: 1, Window: 10 * time.Second, Epoch: true}
	for _, at := range []time.Duration{-25 * time.Second, -20 * time.Second, -time.Microsecond - 10*time.Second, -10 * time.Second, 0, 9 * time.Second, 10 * time.Second} {
		clock.Set(time.Unix(0, 0).Add(at))
		d, err := lim.Allow(context.Background(), "k", limit)
		fresh := at != -time.Microsecond-10*time.Second && at != 9*time.Second // which share a window with the one before
		if err != nil || d.Allowed != fresh {
			t.Errorf("at %s: %+v, want allowed=%t (%v)", at, d, fresh, err)
		}
	}
}

// TestBucketsAcross1970: a part is not twice as long because zero lies in it.
func TestBucketsAcross1970(t *testing.T) {
	lim, _, clock := newFake(t, 0)
	limit := weir.Limit{Max: 5, Window: time.Second, Buckets: 10}
	at := func(d time.Duration) { clock.Set(time.Unix(0, 0).Add(d)) }
	at(-99 * time.Millisecond)
	mustAllow(t, lim, "k", limit, 4, true)
	at(99 * time.Millisecond)
	mustAllow(t, lim, "k", limit, 1, true)
	at(1002 * time.Millisecond) // a window and a part after the first four
	if left := remaining(t, lim, "k", limit); left != 4 {
		t.Errorf("%d are left a window and a part after 4 of 5 were taken, want 4", left)
	}
}

// TestExpiryBefore1970: keys expire on a virtual clock before 1970 too.
func TestExpiryBefore1970(t *testing.T) {
	lim, store, clock := newFake(t, 4096)
	clock.Set(time.Unix(-1_000_000, 0))
	for _, key := range keyNames("k", 50_000) { // ten are live at a time
		mustAllow(t, lim, key, weir.PerSecond(5), 1, true)
		clock.Advance(100 * time.Millisecond)
	}
	if s := store.Stats(); s.Evicted != 0 || s.Keys > 1000 {
		t.Errorf("%+v, with ten live keys", s)
	}
}

// TestClockJumpsFar: a clock may be set after the store was made, and be set
// back: what is live is kept, whatever other keys make room for themselves.
func TestClockJumpsFar(t *testing.T) {
	zero, first, last := time.Time{}, time.Unix(0, 0), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, jump := range [][2]time.Time{{zero, epoch}, {epoch, zero}, {first, last}, {last, first}, {epoch, epoch.AddDate(-100, 0, 0)}, {first, epoch}} {
		t.Run(fmt.Sprint(jump[0].Year(), " to ", jump[1].Year()), func(t *testing.T) {
			clock := &fakeClock{at: jump[0]}
			store := weir.NewMemory(weir.MemoryOptions{Now: clock.Now, MaxKeys: 2000})
			lim := weir.New(weir.Options{Store: store})
			clock.Set(jump[1])
			limit := weir.PerMinute(5)
			keys := keyNames("k", 1000)
			for _, key := range keys {
				mustAllow(t, lim, key, limit, 3, true)
			}
			for _, key := range keys {
				if left := remaining(t, lim, key, limit); left != 2 {
					t.Fatalf("%s has %d of 2 left", key, left)
				}
			}
			if s := store.Stats(); s.Keys != 1000 || s.Evicted != 0 {
				t.Errorf("%+v, want 1000 keys", s)
			}
			clock.Advance(2 * time.Minute)
			for _, key := range keyNames("other", 5000) {
				mustAllow(t, lim, key, limit, 3, true)
				clock.Advance(time.Second)
			}
			if s := store.Stats(); s.Keys > 500 || s.Evicted != 0 {
				t.Errorf("%+v, with 60 live keys", s)
			}
		})
	}
}

// TestStepBackDelaysByAWindow: a clock that steps back delays what was
// recorded just before by no more than the step, and by no more than a Window,
// however old the window is that it was recorded in.
func TestStepBackDelaysByAWindow(t *testing.T) {
	limits := append(everyAlgorithm(5, time.Second), weir.Limit{Max: 5, Window: time.Second, Epoch: true})
	for _, limit := range limits {
		for _, back := range []time.Duration{time.Microsecond, 300 * time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second, time.Hour} {
			t.Run(fmt.Sprint(limit, " ", back), func(t *testing.T) {
				lim, _, clock := newFake(t, 0)
				mustAllow(t, lim, "k", limit, 1, true)
				clock.Advance(900 * time.Millisecond)
				mustAllow(t, lim, "k", limit, 4, true)
				if n := remaining(t, lim, "k", limit); n > 0 {
					mustAllow(t, lim, "k", limit, n, true)
				}
				before := mustAllow(t, lim, "k", limit, 5, false).RetryAfter
				clock.Advance(-back)
				after := mustAllow(t, lim, "k", limit, 5, false).RetryAfter
				if most := before + min(back, limit.Window); after > most {
					t.Errorf("the wait grew from %s to %s, want at most %s", before, after, most)
				}
				clock.Advance(after)
				mustAllow(t, lim, "k", limit, 5, true)
			})
		}
	}
}

// TestConcurrentListsAreLinear: 16 callers take lists of random keys, give
// some back, and read; what was admitted and kept is exactly what is recorded.
func TestConcurrentListsAreLinear(t *testing.T) {
	const callers, rounds, keys = 16, 300, 7
	for _, limit := range everyAlgorithm(2000, time.Hour) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			lim, _, _ := newFake(t, 0)
			var held [keys]atomic.Int64
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(c), 9))
					for range rounds {
						if err := takeSome(lim, limit, r, &held); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			var total int64
			for k := range held {
				total += held[k].Load()
				if left := remaining(t, lim, fmt.Sprint(k), limit); left != limit.Max-held[k].Load() {
					t.Errorf("key %d: %d are left, but %d of %d were admitted", k, left, held[k].Load(), limit.Max)
				}
			}
			if total == 0 {
				t.Error("nothing was admitted")
			}
		})
	}
}

// takeSome takes a list and keeps the account of what it holds of each key.
func takeSome(lim *weir.Limiter, limit weir.Limit, r *rand.Rand, held *[7]atomic.Int64) error {
	ctx := context.Background()
	var rs []weir.Request
	for range 1 + r.IntN(4) {
		rs = append(rs, weir.Request{Key: fmt.Sprint(r.IntN(7)), Limit: limit, Cost: 1 + r.Int64N(3)})
	}
	d, err := lim.AllowAll(ctx, rs...)
	if err != nil || !d.Allowed {
		return err
	}
	sums := make(map[string]int64)
	for _, q := range rs {
		sums[q.Key] += q.Cost
	}
	for key, n := range sums {
		held[key[0]-'0'].Add(n)
	}
	if r.IntN(3) > 0 {
		return nil
	}
	n, err := lim.Refund(ctx, d.Receipts()...)
	for key, units := range sums {
		held[key[0]-'0'].Add(-units)
		n -= units
	}
	if err == nil && n != 0 {
		err = fmt.Errorf("%v gave back %+d units too few or many", rs, n)
	}
	return err
}

// TestConcurrentGroupNeverSplits: of two keys that are only taken together
// nobody ever sees one ahead of the other.
func TestConcurrentGroupNeverSplits(t *testing.T) {
	lim, _, _ := newFake(t, 0)
	limit := weir.PerHour(10_000)
	pair := func(mode weir.Mode) []weir.Request {
		return []weir.Request{{Key: "a", Limit: limit, Mode: mode}, {Key: "b", Limit: limit, Mode: mode}}
	}
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for range 300 {
				mode := weir.Enforce
				if c%2 == 0 {
					mode = weir.Peek
				}
				d, err := lim.AllowAll(context.Background(), pair(mode)...)
				if err != nil || d.Rows[0].Remaining != d.Rows[1].Remaining {
					t.Errorf("%+v, %v", d.Rows, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if left := remaining(t, lim, "a", limit); left != 10_000-8*300 {
		t.Errorf("%d are left", left)
	}
}

// TestNoGoroutine: no goroutine of a store outlives it.
func TestNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if one is left
		lim := weir.New(weir.Options{})
		for _, key := range keyNames("k", 1000) {
			mustAllow(t, lim, key, weir.PerSecond(5), 1, true)
		}
		if err := lim.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWallClock: without an injected clock a store runs on the wall's.
func TestWallClock(t *testing.T) {
	lim := weir.New(weir.Options{})
	before := time.Now().UnixMicro()
	d := mustAllow(t, lim, "k", weir.PerHour(5), 1, true)
	after := time.Now().UnixMicro()
	if s := d.Receipt.Stamp; s < before-1 || s > after+1 {
		t.Errorf("stamped %d, want between %d and %d", s, before, after)
	}
}
