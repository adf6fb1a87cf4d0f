package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
)

// link is the client of an endpoint, made when it is first needed and kept:
// rueidis.NewClient fails while the server is away, but a client that has once
// connected finds its server again.
type link struct {
	endpoint endpoint
	open     func(rueidis.ClientOption) (rueidis.Client, error)
	mu       sync.Mutex // held to change last
	last     atomic.Pointer[attempt]
}

// attempt is one try to connect. What it came to is set before done closes.
type attempt struct {
	done   chan struct{}
	client rueidis.Client
	err    error
	again  time.Time // when a failure is worth another attempt
	failed int       // attempts that had failed before this one
}

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// newLink starts nothing.
func newLink(e endpoint) *link { return &link{endpoint: e, open: rueidis.NewClient} }

// client returns the connected client. Its error is a *weir.StoreError, or
// weir.ErrClosed. Of callers that come together one attempt serves all, and
// goes on when their contexts have ended; between attempts callers fail at
// once with what the last one met.
func (l *link) client(ctx context.Context) (rueidis.Client, error) {
	a := l.attempt()
	if !a.ended() {
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, l.fail(ctx.Err(), false)
		}
	}
	return a.client, a.err
}

// clustered reports whether the server is a Cluster, which is known once
// client has returned one.
func (l *link) clustered() bool {
	a := l.last.Load()
	return a != nil && a.ended() && a.client != nil && a.client.Mode() == rueidis.ClientModeCluster
}

// close ends the client and, as soon as it comes up, one that is on its way.
func (l *link) close() {
	a := &attempt{done: make(chan struct{}), err: weir.ErrClosed}
	close(a.done)
	l.mu.Lock()
	old := l.last.Swap(a)
	l.mu.Unlock()
	if old != nil && old.ended() && old.client != nil {
		old.client.Close()
	}
}

func (l *link) closed() bool {
	a := l.last.Load()
	return a != nil && a.ended() && errors.Is(a.err, weir.ErrClosed)
}

// attempt returns the attempt that counts now, a new one if that is due.
func (l *link) attempt() *attempt {
	a := l.last.Load()
	if a != nil && !a.stale() {
		return a
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a = l.last.Load(); a != nil && !a.stale() {
		return a
	}
	next := &attempt{done: make(chan struct{})}
	if a != nil {
		next.failed = a.failed + 1
	}
	l.last.Store(next)
	go l.connect(next)
	return next
}

func (a *attempt) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (a *attempt) stale() bool {
	return a.ended() && a.client == nil && !errors.Is(a.err, weir.ErrClosed) && !time.Now().Before(a.again)
}

// connect makes a's client. Dialling is bounded by the endpoint's timeouts.
func (l *link) connect(a *attempt) {
	client, err := l.open(l.endpoint.option)
	if err == nil {
		err = l.refuseSentinel(client)
	}
	var dialled *net.OpError // a dial that took too long counts as a deadline as well
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &dialled) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	l.mu.Lock()
	switch {
	case l.last.Load() != a:
		a.err = weir.ErrClosed
	case err != nil:
		a.err, a.again = l.fail(err, false), time.Now().Add(backoff(a.failed))
	default:
		a.client = client
	}
	l.mu.Unlock()
	close(a.done)
	if a.client == nil && client != nil {
		client.Close()
	}
}

// backoff returns how long to wait after another failure: half of it drawn, so
// that a fleet does not come back at the same moments.
func backoff(failed int) time.Duration {
	d := min(minBackoff<<min(failed, 10), maxBackoff)
	return d/2 + rand.N(d/2)
}

// refuseSentinel returns an error if the client of a single server talks to a
// sentinel. A sentinel accepts connections but no command of a store. HELLO
// needs no right, and what does not know it is no sentinel.
func (l *link) refuseSentinel(c rueidis.Client) error {
	if c.Mode() != rueidis.ClientModeStandalone || l.endpoint.option.AlwaysRESP2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.endpoint.option.Dialer.Timeout)
	defer cancel()
	about, err := c.Do(ctx, c.B().Arbitrary("HELLO").Build()).AsMap()
	if _, refused := rueidis.IsRedisErr(err); refused {
		return nil
	}
	mode := about["mode"]
	if text, _ := mode.ToString(); text == "sentinel" {
		return errSentinel
	}
	return err
}

// greeted is a connection to a server that breaks on HELLO, which it answers
// itself as a server does that does not know it. HELLO comes with the first
// write, alone or behind AUTH; what follows passes as it is.
type greeted struct {
	net.Conn

	written bool
	before  int            // replies that come before the one to HELLO
	reply   strings.Reader // what is left of the one to HELLO
}

var hello2 = []byte("*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n")

func (c *greeted) Write(p []byte) (int, error) {
	if c.written {
		return c.Conn.Write(p)
	}
	c.written = true
	rest, found := bytes.CutSuffix(p, hello2)
	if found {
		c.reply.Reset("-ERR unknown command 'HELLO'\r\n")
	}
	if len(rest) == 0 {
		return len(p), nil
	}
	c.before = 1
	if n, err := c.Conn.Write(rest); err != nil {
		return n, err
	}
	return len(p), nil
}

func (c *greeted) Read(p []byte) (int, error) {
	switch {
	case c.reply.Len() == 0 || len(p) == 0:
		return c.Conn.Read(p)
	case c.before == 0:
		return c.reply.Read(p)
	}
	n, err := c.Conn.Read(p[:1]) // the reply to AUTH is one line
	if n == 1 && p[0] == '\n' {
		c.before = 0
	}
	return n, err
}
