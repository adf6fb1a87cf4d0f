//go:build long

package redistest_test

import (
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

func TestLongTwemproxy(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	proxy := dial(t, redistest.StartTwemproxy(t, s))
	want(t, s, int64(0), "DBSIZE")
	if reply, err := proxy.Do("SET", "key", "value"); reply != "OK" || err != nil {
		t.Errorf("SET through the proxy: %v, %v", reply, err)
	}
	want(t, s, "value", "GET", "key")
	if reply, err := proxy.Do("TIME"); err == nil {
		t.Errorf("TIME through twemproxy, which knows no such command: %v", reply)
	}
}
