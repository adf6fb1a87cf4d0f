package redisstore

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// row is the requests of a list that share a state and a mode, as a script
// sees them: their cost is its sum.
type row struct {
	key    string
	layout layout
	mode   weir.Mode
	limit  algo.Limit
	cost   int64
}

// limitOf returns the limit that a script is given.
func limitOf(l weir.Limit) algo.Limit {
	return algo.Make(algo.Kind(l.Algorithm), l.Max, l.Burst, l.Window.Microseconds(), int64(l.Buckets), l.Epoch)
}

// text writes the row for a script; see the head of one.lua.
func (w *row) text(mode uint8, cost int64) string {
	part := w.limit.Part
	if w.layout == fixedWindow && !w.limit.Epoch {
		part = 0
	}
	b := make([]byte, 0, 28)
	b = append(b, mode)
	b = binary.BigEndian.AppendUint32(b, uint32(w.limit.Max))
	b = binary.BigEndian.AppendUint32(b, uint32(w.limit.Burst))
	for _, n := range [...]int64{w.limit.Window, part, cost} {
		b = appendInt(b, n, 6)
	}
	return string(b)
}

// appendInt writes n in so many bytes, the most significant first.
func appendInt(b []byte, n int64, size int) []byte {
	for i := size - 1; i >= 0; i-- {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}

// reader takes integers from a reply. What is read past the end is 0 and bad.
type reader struct {
	b   string
	bad bool
}

func (r *reader) int(size int) (n int64) {
	for _, c := range []byte(r.bytes(size)) {
		n = n<<8 | int64(c)
	}
	return n
}

func (r *reader) bytes(size int) string {
	if len(r.b) < size {
		r.b, r.bad = "", true
		return ""
	}
	text := r.b[:size]
	r.b = r.b[size:]
	return text
}

// told is what a script tells of a row.
type told struct {
	now     int64
	charged bool
	state   algo.State
	birth   int64 // of the life of the state, where a receipt needs it
}

// tell reads what a script tells of a row of a cost.
func (w *row) tell(r *reader) told {
	t := told{now: r.int(7), charged: r.int(1) == 1}
	switch w.layout {
	case packedLog, packedBuckets, sortedSet:
		t.state = toldLog(w, r)
	default:
		t.state, t.birth = readFixed(w.layout, r)
	}
	return t
}

// toldLog makes a log of what is told of one: the newest stamp, the live units,
// and the stamp of the last unit in the way. For algo.Decide it is the same.
func toldLog(w *row, r *reader) algo.State {
	s := algo.State{T: r.int(7), N: r.int(5)}
	blocking := r.int(7)
	switch {
	case s.N == 0:
		s.T = 0
	case blocking > 0 && blocking < s.T:
		s.Cells = []algo.Cell{{T: blocking, Sum: s.N - (w.limit.Max - w.cost)}}
	}
	return s
}

// readFixed reads a state that is stored whole.
func readFixed(l layout, r *reader) (s algo.State, birth int64) {
	s.T, s.N = r.int(7), r.int(5)
	switch l {
	case slidingCounter:
		s.R, s.V = r.int(5), r.int(7)
	case fixedWindow:
		s.V = r.int(7)
	default:
		s.R, s.V, s.M = r.int(6), r.int(7), r.int(4)
	}
	return s, r.int(7)
}

var errReply = errors.New("the reply of a script is not as weir wrote it: is something else under weir's keys?")

// decide tells what a row came to.
func (w *row) decide(t *told) weir.Decision {
	d := weir.Decision{Allowed: t.charged || algo.Fits(&w.limit, &t.state, t.now, w.cost), Limit: w.limit.Burst}
	cost := int64(0)
	switch {
	case d.Allowed:
	case w.cost > w.limit.Burst:
		d.Reason = weir.Never
	default:
		d.Reason, cost = weir.OverLimit, w.cost
	}
	o := algo.Decide(&w.limit, &t.state, t.now, cost)
	d.Remaining = o.Remaining
	d.RetryAfter = time.Duration(o.Retry) * time.Microsecond
	d.ResetAfter = time.Duration(o.Reset) * time.Microsecond
	return d
}
