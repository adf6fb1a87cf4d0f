//go:build long

package redisstore_test

import (
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
