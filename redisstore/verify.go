package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// verify does again, with the pure functions, what a script has done to a row,
// and returns how that differs. clocked says that the script had a clock of
// its own, which makes keys live an hour longer.
func (w *row) verify(t *told, r *reader, clocked bool) error {
	r.int(7)
	before := w.stored(r.bytes(int(r.int(4))))
	ttl := r.int(7) - 2
	after := w.stored(r.bytes(int(r.int(4))))
	if r.bad {
		return errReply
	}
	algo.Settle(&w.limit, &before, t.now)
	fits := algo.Fits(&w.limit, &before, t.now, w.cost)
	if t.charged {
		algo.Charge(&w.limit, &before, t.now, w.cost)
	}
	want, got := w.show(&before, t.now), w.show(&after, t.now)
	switch {
	case t.charged && !fits && w.mode != weir.Record, t.charged && w.mode == weir.Peek:
		return w.differs("charged what does not fit")
	case got != want:
		return w.differs("left " + got + ", want " + want)
	}
	whole := *t
	whole.state = after
	if d, full := w.decide(t), w.decide(&whole); d.Allowed != full.Allowed || d.Remaining != full.Remaining || d.RetryAfter != full.RetryAfter || d.ResetAfter != full.ResetAfter {
		return w.differs(fmt.Sprintf("told %+v, want %+v", d, full))
	}
	if t.charged {
		return w.verifyTTL(&after, t.now, ttl, clocked)
	}
	return nil
}

// verifyTTL checks that a state lives until it stops mattering, and at most a
// second longer. With a clock of its own, which steps while the server's goes
// on, it may be a Window longer, and a minute less for the test.
func (w *row) verifyTTL(s *algo.State, now, ttl int64, clocked bool) error {
	low := algo.Decide(&w.limit, s, now, 0).Reset/1000 - 1000 // the clock goes on while the script runs
	high := low + 2002
	if clocked {
		low, high = low+3600_000-60_000, high+3600_000+w.limit.Window/1000
	}
	if ttl < low || ttl > high {
		return w.differs(fmt.Sprintf("lives for %d ms, want %d to %d", ttl, low, high))
	}
	return nil
}

func (w *row) differs(how string) error {
	return fmt.Errorf("the script and the pure functions differ on %s (layout %d, max %d, window %d us, cost %d, %s): %s", w.key, w.layout, w.limit.Max, w.limit.Window, w.cost, w.mode, how)
}

// stored reads a stored value.
func (w *row) stored(value string) (s algo.State) {
	switch {
	case value == "":
	case w.layout == sortedSet:
		return storedSet(value)
	case w.layout == packedLog:
		return storedLog(value, 3)
	case w.layout == packedBuckets:
		return storedLog(value, 5)
	default:
		s, _ = readFixed(w.layout, &reader{b: value})
	}
	return s
}

// storedLog reads cells with totals of so many bytes, which wrap around.
func storedLog(value string, size int) (s algo.State) {
	r := reader{b: value}
	r.int(7)
	last := r.int(size)
	for r.b != "" && !r.bad {
		stamp, total := r.int(7), r.int(size)
		push(&s, stamp, (total-last)&(1<<(8*size)-1))
		last = total
	}
	return s
}

// storedSet reads "total:units stamp" for each member.
func storedSet(value string) (s algo.State) {
	words := strings.Fields(value)
	for i := 0; i+1 < len(words); i += 2 {
		_, text, _ := strings.Cut(words[i], ":")
		units, _ := strconv.ParseInt(text, 10, 64)
		stamp, _ := strconv.ParseInt(words[i+1], 10, 64)
		push(&s, stamp, units)
	}
	return s
}

// push adds units to a log.
func push(s *algo.State, stamp, units int64) {
	if s.N > 0 && stamp != s.T {
		s.Cells = append(s.Cells, algo.Cell{T: s.T, Sum: s.N})
	}
	s.T, s.N = stamp, s.N+units
}

// show writes all of a state that matters at now.
func (w *row) show(s *algo.State, now int64) string {
	if !w.limit.Kind.HasCells() {
		return fmt.Sprintf("%+v", *s)
	}
	edge := max(now, s.T) - w.limit.Window
	last, text := s.R, ""
	for _, c := range slices.Concat(s.Cells, []algo.Cell{{T: s.T, Sum: s.N}}) {
		if c.T > edge && c.Sum > last {
			text += fmt.Sprintf(" %d@%d", c.Sum-last, c.T)
		}
		last = max(last, c.Sum)
	}
	return text
}
