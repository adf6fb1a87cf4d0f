package redisstore_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/storetest"
)

var opened atomic.Int64

// opener opens stores on one server that share no state.
func opener(o redisstore.Options) storetest.Open {
	return func(now func() time.Time) (weir.Store, error) {
		o := o
		o.Prefix = fmt.Sprintf("weir:%d", opened.Add(1))
		o.Now = now
		return redisstore.Open(o)
	}
}

func TestPacked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	storetest.Run(t, views(t, redisstore.Options{URL: server.URL()}, ""))
}

// Every step of the suite is done again by the pure functions.
func TestVerified(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	storetest.Run(t, views(t, redisstore.Options{URL: server.URL(), Verify: true}, ""))
}

// The other tests of the suite share connections; here each store has its own.
func TestOpened(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for _, c := range storetest.Checks() {
		if !slices.Contains([]string{"keys", "cancelled", "concurrent", "each", "closed"}, c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(opener(redisstore.Options{URL: server.URL()})); err != nil {
				t.Error(err)
			}
		})
	}
}
