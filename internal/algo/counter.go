package algo

// sliding-counter.
//
// Two adjoining windows are counted; the units of the previous one are taken
// to be spread evenly over it, so those still in the last Window are estimated
// as its count times the part of it that the last Window overlaps, rounded up.
// A cost passes iff the estimate plus the current count plus the cost is at
// most Max. It is an estimate: it can admit more than Max in a Window and deny
// what an exact log would allow.
//
// State: T is the start of the current window (the first unit after a pause of
// a whole Window starts one), N its count, R the previous window's, V the newest
// stamp.

// counterAt returns the state as of now; start never lies after max(T, now).
func counterAt(l *Limit, s *State, now int64) (start, cur, prev int64) {
	switch {
	case s.N == 0 && (s.R == 0 || now >= s.T+l.Window), now >= s.T+2*l.Window:
		return now, 0, 0
	case now >= s.T+l.Window:
		return s.T + l.Window, 0, s.N
	}
	return s.T, s.N, s.R
}

// counterFitsAt is the test at into microseconds into the current window.
func counterFitsAt(l *Limit, into, cur, prev, cost int64) bool {
	return cur+mulDivCeil(prev, l.Window-into, 0, l.Window)+cost <= l.Max
}

func counterFits(l *Limit, s *State, now, cost int64) bool {
	start, cur, prev := counterAt(l, s, now)
	return counterFitsAt(l, max(0, now-start), cur, prev, cost)
}

func counterCharge(l *Limit, s *State, now, cost int64) {
	start, cur, prev := counterAt(l, s, now)
	if cur == 0 && prev == 0 {
		s.V = now
	}
	s.V = max(s.V, now)
	s.T, s.N, s.R = start, min(cur+cost, maxRecorded), prev
}

func counterDecide(l *Limit, s *State, now, cost int64) Outcome {
	start, cur, prev := counterAt(l, s, now)
	if cur == 0 && prev == 0 {
		return Outcome{Remaining: l.Max}
	}
	into := max(0, now-start)
	o := Outcome{Remaining: max(0, l.Max-cur-mulDivCeil(prev, l.Window-into, 0, l.Window))}
	switch {
	case cur > 0:
		o.Reset = later(start+2*l.Window, now)
	default:
		o.Reset = later(start+l.Window, now)
	}
	if cost > 0 {
		if room := l.Max - cur - cost; room >= 0 {
			o.Retry = later(start+counterWait(l, prev, room), now)
		} else {
			o.Retry = later(start+l.Window+counterWait(l, cur, l.Max-cost), now)
		}
	}
	return o
}

// counterWait returns how far into a window the estimate of the previous
// window's prev units has fallen to room.
func counterWait(l *Limit, prev, room int64) int64 {
	if prev <= room {
		return 0
	}
	q, _ := mulDivFloor(room, l.Window, 0, prev)
	return l.Window - q
}

func counterRefund(l *Limit, s *State, now, cost int64, m Mark) int64 {
	start, cur, prev := counterAt(l, s, now)
	switch m.Stamp {
	case start:
		k := min(cost, cur)
		return counterGiveBack(s, start, cur-k, prev, k)
	case start - l.Window:
		k := min(cost, prev)
		return counterGiveBack(s, start, cur, prev-k, k)
	}
	return 0
}

func counterRefundOldest(l *Limit, s *State, now, cost int64) int64 {
	start, cur, prev := counterAt(l, s, now)
	old := min(cost, prev)
	k := old + min(cost-old, cur)
	return counterGiveBack(s, start, cur-(k-old), prev-old, k)
}

func counterGiveBack(s *State, start, cur, prev, k int64) int64 {
	if k > 0 {
		s.T, s.N, s.R = start, cur, prev
	}
	return k
}
