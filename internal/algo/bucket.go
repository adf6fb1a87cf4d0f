package algo

// token-bucket, as the generic cell rate algorithm: what is owed is counted
// instead of what is left, so that debt from Charge needs no sign.
//
// A bucket of Burst units drains Max units per Window, evenly. A cost c passes
// iff what is owed plus c is at most Burst; hence at most Burst + Max/Window*T
// units are admitted in any interval of length T.
//
// State: at T, N units are owed of which R/Window of a unit has already
// drained; V counts the units that have ever drained or been given back, and M
// those given back. With whole units, a remainder and the time apart, no
// rounding ever accumulates: a slow rate called just before each refill still
// refills.
//
// Units drain first in, first out: a charge that leaves N units owed holds the
// places up to V+N in the line. A unit that is given back has, as seen from
// the units still in line, drained.
//
// A Receipt can give back as many units as the bucket would hold less at T,
// had they never been taken. That is at least what is left of their places in
// the line, and at least what would be left of them in a bucket of their own;
// the larger of the two is given back. The drained part of the unit at the head
// of the line is lost with it. It is given back as of T, so that it does not
// matter at which rate the bucket has drained since, and no more is given back
// than is owed now.

// V counts modulo lineLength, which is far more than can be in line, and M
// modulo backLength. Taking M's difference for too small is safe.
const (
	lineLength = 1 << 52
	backLength = 1 << 31
)

// bucketAt returns the state as of now, which stays put while the clock is behind T.
func bucketAt(l *Limit, s *State, now int64) (owed, rem, drained int64) {
	owed, rem, drained = s.N, s.R, s.V
	if now <= s.T || owed == 0 {
		return owed, rem, drained
	}
	q, r := mulDivFloor(now-s.T, l.Max, rem, l.Window)
	if q >= owed {
		return 0, 0, (drained + owed) % lineLength
	}
	return owed - q, r, (drained + q) % lineLength
}

func bucketFits(l *Limit, s *State, now, cost int64) bool {
	owed, _, _ := bucketAt(l, s, now)
	return owed+cost <= l.Burst
}

func bucketCharge(l *Limit, s *State, now, cost int64) {
	owed, rem, drained := bucketAt(l, s, now)
	if owed == 0 {
		s.T = now
	}
	s.T = max(s.T, now)
	s.N, s.R, s.V = min(owed+cost, maxRecorded), rem, drained
}

func bucketDecide(l *Limit, s *State, now, cost int64) Outcome {
	owed, rem, _ := bucketAt(l, s, now)
	if owed == 0 {
		return Outcome{Remaining: l.Burst}
	}
	// until is the wait from now for units to drain.
	ahead := max(0, s.T-now)
	until := func(units int64) int64 {
		return min(maxWait, ahead+min(maxWait, mulDivCeil(units, l.Window, rem, l.Max)))
	}
	o := Outcome{Remaining: max(0, l.Burst-owed), Reset: until(owed)}
	if cost > 0 {
		o.Retry = until(owed + cost - l.Burst)
	}
	return o
}

func bucketRefund(l *Limit, s *State, now, cost int64, m Mark) int64 {
	line := distance(s.V, m.Place)
	since := distance(m.Place-m.Level, s.V) // drained or given back
	back := (s.M - m.Back + backLength) % backLength
	own := cost - max(0, since-back)
	if s.R > 0 && s.T != m.Stamp {
		own--
	}
	owed, _, _ := bucketAt(l, s, now)
	k := min(cost, owed, max(line, own))
	rem := s.R
	if k == line && k > own {
		rem = 0
	}
	return bucketGiveBack(s, k, rem)
}

// distance returns how far place b lies behind place a in the line, 0 if it
// lies before it.
func distance(a, b int64) int64 {
	d := (b - a) % lineLength
	if d < 0 {
		d += lineLength
	}
	if d > lineLength/2 {
		return 0
	}
	return d
}

func bucketRefundOldest(l *Limit, s *State, now, cost int64) int64 {
	owed, _, _ := bucketAt(l, s, now)
	return bucketGiveBack(s, min(cost, owed), 0)
}

func bucketGiveBack(s *State, k, rem int64) int64 {
	if k <= 0 {
		return 0
	}
	if s.N == k {
		rem = 0
	}
	s.N, s.R, s.V, s.M = s.N-k, rem, (s.V+k)%lineLength, (s.M+k)%backLength
	return k
}
