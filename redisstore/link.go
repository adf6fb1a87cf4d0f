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
	dials    *dials
	open     func(rueidis.ClientOption) (rueidis.Client, error)
	mu       sync.Mutex // held to change last
	last     atomic.Pointer[attempt]
}

// attempt is one try to connect. What it came to is set before done closes.
type attempt struct {
	done        chan struct{}
	client      rueidis.Client
	connections connections // of client
	err         error
	made        time.Time // when client was
	again       time.Time // when a failure is worth another attempt
	failed      int       // attempts that had failed before this one
}

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
	// renewAfter is how old a client is at least when it is replaced.
	renewAfter = time.Second
	// mostRedirects is how often one call follows MOVED and ASK.
	mostRedirects = 5
)

// newLink starts nothing.
//
// AlwaysPipelining: without, a caller who is alone waits for the reply itself,
// so that it does not see its context cancelled, and ends the connection for
// everybody when its deadline passes.
func newLink(e endpoint) *link {
	e.option.AlwaysPipelining = true
	dial := dialer(e.option.DialCtxFn)
	if dial == nil {
		dial = dialWith("tcp", nil)
	}
	e.option.ClusterOption.MaxMovedRedirections = mostRedirects
	return &link{endpoint: e, dials: newDials(dial), open: rueidis.NewClient}
}

// client returns the connected client. Its error is a *weir.StoreError, or
// weir.ErrClosed. Of callers that come together one attempt serves all, and
// goes on when their contexts have ended; between attempts callers fail at
// once with what the last one met.
func (l *link) client(ctx context.Context) (rueidis.Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, l.fail(err, false)
	}
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
		old.end(old.client)
	}
}

// end closes the client, nil if there is none, and the connections that it made while it was being
// closed and has forgotten, as it does where a server has just failed.
func (a *attempt) end(client rueidis.Client) {
	a.connections.refuse()
	if client != nil {
		client.Close()
	}
	a.connections.close()
}

// renew replaces the client of a server that has turned out to be a replica: the
// primary's name leads to another server by now, or Sentinel names one and its
// message has been lost. Of a Cluster each node knows the primaries. Callers
// wait for the new client, or fail if there is none.
func (l *link) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.last.Load()
	if old == nil || !old.ended() || old.client == nil || old.client.Mode() == rueidis.ClientModeCluster || time.Since(old.made) < renewAfter {
		return
	}
	next := &attempt{done: make(chan struct{})}
	l.last.Store(next)
	go l.connect(next)
	go old.end(old.client)
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
	option := l.endpoint.option
	option.DialCtxFn = a.connections.dialer(l.dials.connect)
	client, err := l.open(option)
	if err == nil {
		err = l.refuseSentinel(client)
	}
	var dialled *net.OpError // a dial that took too long counts as a deadline as well
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &dialled) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	err = l.fail(err, false)
	l.mu.Lock()
	switch {
	case l.last.Load() != a:
		a.err = weir.ErrClosed
	case err != nil:
		a.err, a.again = err, time.Now().Add(backoff(a.failed))
	default:
		a.client, a.made = client, time.Now()
	}
	l.mu.Unlock()
	close(a.done)
	if a.client == nil {
		a.end(client)
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
