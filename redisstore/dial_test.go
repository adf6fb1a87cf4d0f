package redisstore

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// TestSlowDials holds that callers who have less time than a connection takes
// get one in the end.
func TestSlowDials(t *testing.T) {
	server := redistest.Start(t, redistest.Options{TLS: true})
	store, err := Open(Options{URL: "rediss://" + slow(t, server.Addr(), 300*time.Millisecond) + "?ca=" + server.CAFile()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Must(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	lim := weir.New(weir.Options{Store: store})
	redistest.Await(t, "a decision within 100ms", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := lim.Allow(ctx, "k", weir.PerHour(1_000_000))
		return err
	})
}

// slow returns the address of a server that leads to another, a while after it
// has been connected to.
func slow(t *testing.T, to string, after time.Duration) string {
	return listen(t, func(from net.Conn) {
		<-time.After(after)
		server, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(from, server)
			_ = from.Close()
		}()
		_, _ = io.Copy(server, from)
		_ = server.Close()
	})
}
