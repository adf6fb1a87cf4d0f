package weir_test

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
)

// benchLimits is a limit for each algorithm.
var benchLimits = []weir.Limit{
	{Max: 10, Window: 1e9, Algorithm: weir.SlidingLog},
	{Max: 10, Window: 1e9, Algorithm: weir.SlidingBuckets},
	{Max: 10, Window: 1e9, Algorithm: weir.SlidingCounter},
	{Max: 10, Window: 1e9, Algorithm: weir.FixedWindow},
	{Max: 10, Window: 1e9, Algorithm: weir.TokenBucket},
}

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%07d", i)
	}
	return keys
}

// BenchmarkAllow times a keyed decision on one hot key (nearly all denied) and
// on a million keys (nearly all admitted), beside the floor of any store: hash
// the key, take a lock, read a map. Run it with -cpu 1,2.
func BenchmarkAllow(b *testing.B) {
	for _, keys := range [][]string{benchKeys(1), benchKeys(1_000_000)} {
		b.Run(fmt.Sprintf("keys=%d/floor", len(keys)), func(b *testing.B) { benchFloor(b, keys) })
		for _, limit := range benchLimits {
			b.Run(fmt.Sprintf("keys=%d/%s", len(keys), limit.Algorithm), func(b *testing.B) {
				lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{})})
				ctx := context.Background()
				eachKey(b, keys, func(key string) {
					if _, err := lim.Allow(ctx, key, limit); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

// eachKey calls do with the keys in turn, in a scattered order, on every goroutine.
func eachKey(b *testing.B, keys []string, do func(string)) {
	for _, k := range keys {
		do(k)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i += 7919 {
			do(keys[i%len(keys)])
		}
	})
}

func benchFloor(b *testing.B, keys []string) {
	type shard struct {
		mu sync.Mutex
		m  map[uint64]int64
	}
	shards := make([]shard, 128)
	for i := range shards {
		shards[i].m = make(map[uint64]int64)
	}
	seed := maphash.MakeSeed()
	for _, k := range keys {
		h := maphash.String(seed, k)
		shards[h%128].m[h] = 1
	}
	eachKey(b, keys, func(key string) {
		h := maphash.String(seed, key)
		s := &shards[h%128]
		s.mu.Lock()
		if s.m[h] == 0 {
			b.Error("missing")
		}
		s.mu.Unlock()
	})
}
