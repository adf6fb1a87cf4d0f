package algo

import "sort"

// sliding-log and sliding-buckets.
//
// The log remembers, for every unit, the stamp at which it was taken. A cost c
// passes at now iff the units stamped later than now-Window, plus c, are at
// most Max. That is exact: the admitted cost in any interval of length Window
// is at most Max, and nothing is denied that this would allow.
//
// sliding-buckets is the same log in which units of one part of the window
// share a cell, stamped with the newest of them. Parts are the intervals
// [i*Part, (i+1)*Part). A unit therefore counts for at least a Window and for
// less than Window+Part: never more than Max in any Window, at most one part
// too strict. With Part 1 it is the log.
//
// State: T is the newest stamp and N the running total up to it; Cells are the
// older stamps, oldest first, each with the running total up to it; R is the
// running total before the oldest unit remembered. Running totals make both
// questions (how many since t, which stamp holds unit u) a binary search, and
// make a cost of 10,000 one cell.
//
// The time of a log is max(now, T): what had left the window by the newest
// stamp does not come back when the clock steps back, and may be forgotten. Of
// the units that Charge has recorded above 2*Max the stamps are forgotten: they
// share that of the newest of them, which no decision can see until some of the
// 2*Max are given back.

// logRestamp keeps the units live at the newest stamp, as if taken now.
func logRestamp(l *Limit, s *State, now int64) {
	s.R = s.N - logLive(l, s, s.T, l.Window)
	s.Cells = s.Cells[:0]
	s.T = now
}

// logBefore returns the running total before the first unit stamped after t.
func logBefore(s *State, t int64) int64 {
	if s.T <= t {
		return s.N
	}
	i := sort.Search(len(s.Cells), func(i int) bool { return s.Cells[i].T > t })
	if i == 0 {
		return s.R
	}
	return max(s.R, s.Cells[i-1].Sum)
}

// logLive counts the units taken in the last d before max(now, T).
func logLive(_ *Limit, s *State, now, d int64) int64 { return s.N - logBefore(s, max(now, s.T)-d) }

func logFits(l *Limit, s *State, now, cost int64) bool {
	return cost <= l.Max && logLive(l, s, now, l.Window)+cost <= l.Max
}

func logCharge(l *Limit, s *State, now, cost int64) {
	most := int64(maxLogged)
	if l.Kind == SlidingBuckets {
		most = maxInBuckets
	}
	if s.N-s.R+cost > most {
		if cost = min(cost, most-logLive(l, s, now, l.Window)); cost == 0 {
			return
		}
	}
	stamp := now
	if s.N > s.R {
		stamp = max(now, s.T)
		if AddsCell(l, s, now) {
			s.Cells = append(s.Cells, Cell{s.T, s.N})
		}
	} else {
		s.Cells, s.N, s.R = s.Cells[:0], 0, 0
	}
	s.T = stamp
	s.N += cost
	if s.N-s.R > 2*l.Max && logLive(l, s, now, l.Window) > 2*l.Max {
		logMerge(s, stamp-l.Window, s.N-2*l.Max)
	}
}

// logMerge puts the cells after t whose units are all among the first n into one.
func logMerge(s *State, t, n int64) {
	first := sort.Search(len(s.Cells), func(i int) bool { return s.Cells[i].T > t })
	last := sort.Search(len(s.Cells), func(i int) bool { return s.Cells[i].Sum > n }) - 1
	if first < last {
		s.Cells = append(s.Cells[:first], s.Cells[last:]...)
	}
}

// part returns the number of the part that a time lies in.
func (l *Limit) part(t int64) int64 {
	n := t / l.Part
	if t%l.Part < 0 {
		n--
	}
	return n
}

// AddsCell reports whether a Charge at now would append a cell to s.
func AddsCell(l *Limit, s *State, now int64) bool {
	return s.N > s.R && l.part(max(now, s.T)) != l.part(s.T)
}

// Compact forgets, in place, the cells that no decision can see any more. A
// store calls it when its room for cells is full.
func Compact(l *Limit, s *State) {
	kept := s.Cells[:0]
	for _, c := range s.Cells {
		switch {
		case c.T <= s.T-l.Window:
			s.R = max(s.R, c.Sum)
		case c.Sum > s.R:
			kept = append(kept, c)
		}
	}
	s.Cells = kept
}

func logDecide(l *Limit, s *State, now, cost int64) Outcome {
	live := logLive(l, s, now, l.Window)
	if live == 0 {
		return Outcome{Remaining: l.Max}
	}
	o := Outcome{Remaining: max(0, l.Max-live), Reset: later(s.T+l.Window, now)}
	if cost > 0 {
		// The last unit that must leave before cost more units fit.
		u := s.N - (l.Max - cost)
		t := s.T
		if i := sort.Search(len(s.Cells), func(i int) bool { return s.Cells[i].Sum >= u }); i < len(s.Cells) {
			t = s.Cells[i].T
		}
		o.Retry = later(t+l.Window, now)
	}
	return o
}

func logRefund(l *Limit, s *State, now, cost int64, m Mark) int64 {
	// i is the cell of the mark's part; len(Cells) stands for the newest stamp.
	part := l.part(m.Stamp)
	i := sort.Search(len(s.Cells), func(i int) bool { return l.part(s.Cells[i].T) >= part })
	gone := s.N - logLive(l, s, now, l.Window)
	t, sum, before := s.T, s.N, gone
	if i < len(s.Cells) {
		t, sum = s.Cells[i].T, s.Cells[i].Sum
	}
	if i > 0 {
		before = max(before, s.Cells[i-1].Sum)
	}
	k := min(cost, sum-before)
	if l.part(t) != part || k <= 0 {
		return 0
	}
	s.R = gone // giving back the newest units may set T back, and must revive nothing
	s.N -= k
	if i < len(s.Cells) && k == sum-before { // a cell without units must lend its stamp to nobody's
		s.Cells = append(s.Cells[:i], s.Cells[i+1:]...)
	}
	for ; i < len(s.Cells); i++ {
		s.Cells[i].Sum -= k
	}
	// A newest stamp without units would make the key look used for too long.
	for n := len(s.Cells); n > 0 && s.Cells[n-1].Sum == s.N; n-- {
		s.T, s.Cells = s.Cells[n-1].T, s.Cells[:n-1]
	}
	return k
}

func logRefundOldest(l *Limit, s *State, now, cost int64) int64 {
	live := logLive(l, s, now, l.Window)
	k := min(cost, live)
	if k > 0 {
		s.R = s.N - live + k
	}
	return k
}

// Count tells how many units were taken in the last d before now, up to 2*Max:
// exactly for the log; never too few, and too many by at most one part, for
// buckets. It is defined for d up to the Window.
func Count(l *Limit, s *State, now, d int64) int64 { return min(2*l.Max, logLive(l, s, now, d)) }
