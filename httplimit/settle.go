package httplimit

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/weirlimit/weir"
)

// Settlement says how many units a request has used in the end. What a Rule
// with ByBytes or ByHandler holds meanwhile is its Cost, an estimate: what was
// not used of it goes back exactly, and what was used beyond it is charged,
// even above the limit.
type Settlement uint8

const (
	// AsReserved charges the Cost.
	AsReserved Settlement = iota
	// ByBytes charges a unit for each byte of the response's body, as the
	// handler wrote it: up to weir.MaxUnits, none for HEAD, and none after the
	// handler has taken the connection over (http.Hijacker). For it the handler
	// is given another http.ResponseWriter, which can flush, read from, hijack,
	// push and be unwrapped by an http.ResponseController like that around it.
	ByBytes
	// ByHandler charges what the handler says by SetUsed, and the Cost if it says
	// nothing. For it the request's context is derived from that around it.
	ByHandler
)

// SetUsed says, with the context of a request, that it has used so many units
// of the rule of that name, whose Settle is ByHandler; of several calls the last
// one holds. Units below 0 are none, those above weir.MaxUnits are MaxUnits. It
// reports whether there is such a rule, which is false if the request is not
// limited by it, and when the handler has returned. It is safe for concurrent use.
func SetUsed(ctx context.Context, name string, units int64) bool {
	t, _ := ctx.Value(tallyKey{}).(*tally)
	for ; t != nil; t = t.outer {
		if t.set(name, units) {
			return true
		}
	}
	return false
}

type tallyKey struct{}

// tally is what a request has used, while it is served.
type tally struct {
	outer   *tally // that of a Middleware around this one
	rules   []Rule
	mu      sync.Mutex
	used    []int64
	settled bool
}

func newTally(ctx context.Context, rules []Rule) *tally {
	t := &tally{rules: rules, used: make([]int64, len(rules))}
	t.outer, _ = ctx.Value(tallyKey{}).(*tally)
	for i := range rules {
		t.used[i] = cmp.Or(rules[i].Cost, 1)
	}
	return t
}

func (t *tally) set(name string, units int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.rules, func(r Rule) bool { return r.Settle == ByHandler && r.Name == name })
	if i < 0 || t.settled {
		return false
	}
	t.used[i] = min(max(units, 0), weir.MaxUnits)
	return true
}

// settle ends the tally with so many bytes written, and returns it.
func (t *tally) settle(bytes int64) []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled = true
	for i := range t.rules {
		if t.rules[i].Settle == ByBytes {
			t.used[i] = min(bytes, weir.MaxUnits)
		}
	}
	return t.used
}

// serve calls the handler, and settles what it has used if a rule says so. A
// handler that panics has used what it did until then.
func (l *limited) serve(w http.ResponseWriter, r *http.Request, rules []Rule, held *weir.Reservation) {
	settles := func(s Settlement) bool {
		return held != nil && slices.ContainsFunc(rules, func(r Rule) bool { return r.Settle == s })
	}
	byBytes, byHandler := settles(ByBytes), settles(ByHandler)
	if !byBytes && !byHandler {
		l.next.ServeHTTP(w, r)
		return
	}
	t, body := newTally(r.Context(), rules), &counted{ResponseWriter: w}
	defer func() {
		if err := held.Commit(r.Context(), t.settle(body.bytes)...); err != nil {
			l.Errors(r, err)
		}
	}()
	if byBytes && r.Method != http.MethodHead {
		w = body
	}
	if byHandler {
		r = r.WithContext(context.WithValue(r.Context(), tallyKey{}, t))
	}
	l.next.ServeHTTP(w, r)
}

// counted counts the bytes of a body. It has what handlers look for in a
// ResponseWriter without an http.ResponseController, whether that which it
// wraps can do it or not: then it says http.ErrNotSupported.
type counted struct {
	http.ResponseWriter

	bytes int64
}

// Write implements io.Writer.
func (c *counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, so that files are still sent by the kernel.
func (c *counted) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(c.ResponseWriter, src)
	c.bytes += n
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Flush implements http.Flusher.
func (c *counted) Flush() { _ = c.FlushError() }

// FlushError is Flush for http.ResponseController.
func (c *counted) FlushError() error { return http.NewResponseController(c.ResponseWriter).Flush() }

// Hijack implements http.Hijacker.
func (c *counted) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(c.ResponseWriter).Hijack()
}

// Push implements http.Pusher.
func (c *counted) Push(target string, o *http.PushOptions) error {
	if p, ok := c.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, o)
	}
	return http.ErrNotSupported
}
