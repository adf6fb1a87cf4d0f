package algo

// fixed-window.
//
// A window starts at the first unit taken outside one (or, with Epoch, at
// multiples of Window since 1970), lasts one Window, and admits Max units; up
// to 2*Max can pass in a Window that straddles two of them.
//
// State: T is the start of the window, N the units taken in it, V the newest
// stamp.

// windowStart returns the start of a window opened at now.
func windowStart(l *Limit, now int64) int64 {
	if !l.Epoch {
		return now
	}
	start := now - now%l.Window
	if start > now { // now is negative: before 1970, or a virtual clock
		start -= l.Window
	}
	return start
}

func windowUsed(l *Limit, s *State, now int64) int64 {
	if now >= s.T+l.Window {
		return 0
	}
	return s.N
}

func windowFits(l *Limit, s *State, now, cost int64) bool {
	return windowUsed(l, s, now)+cost <= l.Max
}

func windowCharge(l *Limit, s *State, now, cost int64) {
	used := windowUsed(l, s, now)
	if used == 0 {
		s.T, s.V = windowStart(l, now), now
	}
	s.V = max(s.V, now)
	s.N = min(used+cost, maxRecorded)
}

func windowDecide(l *Limit, s *State, now, cost int64) Outcome {
	used := windowUsed(l, s, now)
	if used == 0 {
		return Outcome{Remaining: l.Max}
	}
	o := Outcome{Remaining: max(0, l.Max-used), Reset: later(s.T+l.Window, now)}
	if cost > 0 {
		o.Retry = o.Reset
	}
	return o
}

func windowRefund(l *Limit, s *State, now, cost int64, m Mark) int64 {
	if m.Stamp != s.T {
		return 0
	}
	return windowRefundOldest(l, s, now, cost)
}

func windowRefundOldest(l *Limit, s *State, now, cost int64) int64 {
	k := min(cost, windowUsed(l, s, now))
	if k > 0 {
		s.N -= k
	}
	return k
}
