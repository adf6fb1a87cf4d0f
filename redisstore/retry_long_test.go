//go:build long

package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// found is how soon after a failover the new primary is used.
const found = 3 * time.Second

// underLoad asks for keys in many slots while happen makes a failover, and holds
// that soon after it all are served again. What fails in between must not look
// like a mistake in the settings.
func underLoad(t *testing.T, s *Store, happen func()) {
	t.Helper()
	over, loaded := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(loaded)
		for {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
				_ = serve(t, s)
			}
		}
	}()
	happen()
	start := time.Now()
	close(over)
	<-loaded
	redistest.Await(t, "all keys to be served", func() error { return serve(t, s) })
	if d := time.Since(start); d > found {
		t.Errorf("served %s after the failover, want %s", d, found)
	}
}

// serve asks for 16 keys in one call of 50 ms, and returns one of its errors.
func serve(t *testing.T, s *Store) (failed error) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var requests []weir.Request
	for i := range 16 {
		requests = append(requests, weir.Request{Key: fmt.Sprint(i), Limit: weir.Limit{Max: 1 << 30, Window: time.Hour, Algorithm: weir.FixedWindow}, Cost: 1})
	}
	lists := listsOf(requests...)
	s.Take(ctx, lists)
	for i := range lists {
		var e *weir.StoreError
		if errors.As(lists[i].Err, &e) && e.Settings {
			t.Errorf("got %v", e)
		}
		failed = cmp.Or(failed, lists[i].Err)
	}
	return failed
}

// TestLongSentinelFailover makes the primary a replica, or kills it.
func TestLongSentinelFailover(t *testing.T) {
	for name, fail := range map[string]func(*testing.T, *redistest.Sentinel){
		"demoted": func(t *testing.T, set *redistest.Sentinel) {
			set.Sentinels[0].Must(t, "SENTINEL", "FAILOVER", set.Name)
		},
		"killed": func(_ *testing.T, set *redistest.Sentinel) { set.Servers[0].Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			set := redistest.StartSentinel(t)
			s := openStore(t, Options{URL: "redis://" + strings.Join(set.Addrs(), ",") + "?master_set=" + set.Name})
			if err := s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			underLoad(t, s, func() {
				fail(t, set)
				redistest.Await(t, "another primary", func() error {
					next, err := set.Primary()
					if err == nil && next == set.Servers[0] {
						err = errors.New("it is still the first")
					}
					return err
				})
			})
		})
	}
}

// TestLongClusterFailover has a replica take over, and kills a primary.
func TestLongClusterFailover(t *testing.T) {
	c := redistest.StartCluster(t)
	s := openStore(t, Options{URL: "redis://" + strings.Join(c.Addrs(), ",")})
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	takesOver := func(replica *redistest.Server) {
		redistest.Await(t, "the replica to take over", func() error {
			info, err := replica.Info("replication")
			if err == nil && info["role"] != "master" {
				err = fmt.Errorf("it is a %s", info["role"])
			}
			return err
		})
	}
	underLoad(t, s, func() {
		c.Servers[3].Must(t, "CLUSTER", "FAILOVER")
		takesOver(c.Servers[3])
	})
	underLoad(t, s, func() {
		c.Servers[1].Kill()
		takesOver(c.Servers[4])
	})
}
