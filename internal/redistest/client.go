package redistest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

// ReplyError is an error that a server replied, such as "WRONGTYPE Operation
// against a key holding the wrong kind of value".
type ReplyError string

// Error returns the text of the reply.
func (e ReplyError) Error() string { return string(e) }

// Client is a connection that speaks RESP2, just enough for tests. One goroutine
// may use it at a time.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
}

// replyTimeout bounds connecting, and each command with its reply.
const replyTimeout = 5 * time.Second

// Dial connects to a host and port, or to the absolute path of a Unix socket;
// with TLS unless config is nil.
func Dial(addr string, config *tls.Config) (*Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	dial := new(net.Dialer).DialContext
	if config != nil {
		dial = (&tls.Dialer{Config: config}).DialContext
	}
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, in: bufio.NewReader(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() { _ = c.conn.Close() }

// Do sends a command of any bytes and returns the reply: a string, an int64, nil,
// or a []any of these, in which an error is a ReplyError. An error that is the
// whole reply is returned as one. It waits up to 5 s; after an error that is no
// ReplyError the connection is of no more use.
func (c *Client) Do(args ...string) (any, error) {
	if err := c.conn.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	var command bytes.Buffer
	fmt.Fprintf(&command, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := c.conn.Write(command.Bytes()); err != nil {
		return nil, err
	}
	reply, err := c.read()
	if e, failed := reply.(ReplyError); failed {
		return nil, e
	}
	return reply, err
}

// read reads one reply.
func (c *Client) read() (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < len("+\r\n") {
		return nil, fmt.Errorf("reply %q: want a type, a text and CR LF", line)
	}
	text := line[1 : len(line)-2]
	switch line[0] {
	case '+':
		return text, nil
	case '-':
		return ReplyError(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reply %q: %w", line, err)
	}
	switch {
	case line[0] == ':':
		return n, nil
	case n == -1:
		return nil, nil //nolint:nilnil // Redis' nil is a reply like any other
	case line[0] == '$':
		return c.bulk(n)
	case line[0] == '*':
		return c.array(n)
	}
	return nil, fmt.Errorf("reply %q: want RESP2", line)
}

func (c *Client) bulk(n int64) (any, error) {
	var text bytes.Buffer
	if _, err := io.CopyN(&text, c.in, n+2); err != nil {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return string(text.Bytes()[:n]), nil
}

func (c *Client) array(n int64) (any, error) {
	all := []any{}
	for range n {
		reply, err := c.read()
		if err != nil {
			return nil, err
		}
		all = append(all, reply)
	}
	return all, nil
}
