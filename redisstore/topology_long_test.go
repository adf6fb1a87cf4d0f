//go:build long

package redisstore_test

import (
	"flag"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/storetest"
)

// TestLongTwemproxyContract runs the contract through a proxy that has no
// MULTI, TIME, SCRIPT and HELLO of its own.
func TestLongTwemproxyContract(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	addr := redistest.StartTwemproxy(t, server)
	storetest.Run(t, views(t, redisstore.Options{URL: "redis://" + addr + "?proxy=twemproxy"}, ""))
}

// TestLongContract runs the whole contract, where the other tests draw a fifth
// of the random histories.
func TestLongContract(t *testing.T) {
	setShort(t, "false")
	t.Cleanup(func() { setShort(t, "true") })
	server := redistest.Start(t, redistest.Options{})
	for name, o := range map[string]redisstore.Options{"packed": {}, "sorted set": {SortedSet: true}} {
		t.Run(name, func(t *testing.T) {
			o.URL = server.URL()
			storetest.Run(t, views(t, o, ""))
		})
	}
}

func setShort(t *testing.T, value string) {
	t.Helper()
	if err := flag.Set("test.short", value); err != nil {
		t.Fatal(err)
	}
}
