package redisstore

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// dialer makes a connection to an address, with TLS if there is a config.
type dialer func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error)

// dialWith returns a dialer of TCP or Unix sockets that wraps its connections.
func dialWith(network string, wrap func(net.Conn) net.Conn) dialer {
	return func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (conn net.Conn, err error) {
		if c != nil {
			secure := tls.Dialer{NetDialer: d, Config: c}
			conn, err = secure.DialContext(ctx, network, address)
		} else {
			conn, err = d.DialContext(ctx, network, address)
		}
		if err == nil && wrap != nil {
			conn = wrap(conn)
		}
		return conn, err
	}
}

// connections are those of a client that are open.
type connections struct {
	mu      sync.Mutex
	refused bool
	open    map[*connection]struct{}
}

// connection is one of them until it is closed.
type connection struct {
	net.Conn

	of *connections
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// dialer returns one whose connections are added.
func (s *connections) dialer(dial dialer) dialer {
	return func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, address, d, c)
		if err != nil {
			return nil, err
		}
		return s.add(conn)
	}
}

func (s *connections) add(conn net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused {
		_ = conn.Close() // it has carried nothing
		return nil, net.ErrClosed
	}
	if s.open == nil {
		s.open = make(map[*connection]struct{})
	}
	added := &connection{conn, s}
	s.open[added] = struct{}{}
	return added, nil
}

// refuse lets no more be added.
func (s *connections) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = true
}

// close closes those that are left.
func (s *connections) close() {
	s.mu.Lock()
	left := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, c := range left {
		_ = c.Close() // nobody reads from it any more
	}
}

// keptFor is how long a connection waits for somebody who needs it.
const keptFor = 5 * time.Second

// dials are those that go on after the context of who asked has ended: where
// callers have less time than a dial takes, there would never be a connection.
// What one leaves behind is for the next who asks for the same address.
type dials struct {
	dial dialer
	mu   sync.Mutex
	left map[string]chan dialled
}

type dialled struct {
	conn net.Conn
	err  error
}

func newDials(dial dialer) *dials { return &dials{dial: dial, left: make(map[string]chan dialled)} }

// connect is a dialer.
func (s *dials) connect(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
	under := s.take(address)
	if under == nil {
		under = make(chan dialled, 1)
		go func() {
			conn, err := s.dial(context.WithoutCancel(ctx), address, d, c) // d has a timeout
			under <- dialled{conn, err}
		}()
	}
	select {
	case r := <-under:
		return r.conn, r.err
	case <-ctx.Done():
		s.leave(address, under)
		return nil, &net.OpError{Op: "dial", Net: address, Err: ctx.Err()}
	}
}

// take returns a dial that was left behind, or nil.
func (s *dials) take(address string) chan dialled {
	s.mu.Lock()
	defer s.mu.Unlock()
	under := s.left[address]
	delete(s.left, address)
	return under
}

// leave keeps a dial for a while. There is one for an address.
func (s *dials) leave(address string, under chan dialled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[address] != nil {
		go drop(under)
		return
	}
	s.left[address] = under
	time.AfterFunc(keptFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.left[address] == under {
			delete(s.left, address)
			go drop(under)
		}
	})
}

// drop closes the connection of a dial that nobody waits for.
func drop(under chan dialled) {
	if r := <-under; r.conn != nil {
		_ = r.conn.Close() // it has carried nothing
	}
}
