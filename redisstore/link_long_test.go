//go:build long

package redisstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// TestLongTwemproxy holds that a real twemproxy serves a link that knows of it,
// from the first command on, and that one that does not know says what to do.
func TestLongTwemproxy(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	proxy := "redis://" + redistest.StartTwemproxy(t, s)
	failure{"unknown as such", proxy, "", verdict{"EOF", "?proxy=twemproxy", false, false}}.run(t)

	l := openLink(t, proxy+"?proxy=twemproxy")
	c, err := l.client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for range 50 {
				count := c.B().Eval().Script("return redis.call('INCR', KEYS[1])").Numkeys(1).Key(fmt.Sprintf("weir:%d", i%8))
				if err := c.Do(t.Context(), count.Build()).Error(); err != nil {
					t.Error(l.fail(err, true))
				}
			}
		})
	}
	callers.Wait()
	for i := range 8 {
		if n, err := s.Do("GET", fmt.Sprintf("weir:%d", i)); n != "400" || err != nil {
			t.Errorf("counted %v, %v, want 400", n, err)
		}
	}

	s.Kill()
	redistest.Await(t, "the proxy to see that the server has gone", func() error {
		var e *weir.StoreError
		if err = ask(t.Context(), l, "SET", "weir:k", "1"); !errors.As(err, &e) || !e.Unknown {
			return fmt.Errorf("got %v, want an unknown outcome", err)
		}
		return nil
	})
	s.Restart(t)
	redistest.Await(t, "the link to work again", func() error { return ask(t.Context(), l, "SET", "weir:k", "1") })
}
