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
// is the Max of the last charge. With whole units, a remainder and the time
// apart, no rounding ever accumulates: a slow rate called just before each
// refill still refills.
//
// Units drain first in, first out: a charge that leaves N units owed holds the
// places up to V+N in the line. A unit that is given back has, as seen from
// the units still in line, drained. Places are counted modulo lineLength.

// A Receipt can give back as many units as the bucket would hold less, had
// they never been taken. That is at least what is left of their places in the
// line, and at least what would be left of them in a bucket of their own; the
// larger of the two is given back, and nothing that was not owed ever since.
// The drained part of the unit at the head of the line is lost with it.

// lineLength is far more than can be in line, and keeps places below 2^53.
const lineLength = 1 << 52

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

func bucketCharge(l *Limit, s *State, now, cost int64) Mark {
	owed, rem, drained := bucketAt(l, s, now)
	if owed == 0 {
		s.T = now
	}
	s.T = max(s.T, now)
	s.N, s.R, s.V, s.M = min(owed+cost, maxRecorded), rem, drained, l.Max
	return Mark{Stamp: s.T, Place: (s.V + s.N) % lineLength}
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
	owed, rem, drained := bucketAt(s.rate(l), s, now)
	line := (m.Place - drained + lineLength) % lineLength
	if line > lineLength/2 { // it has drained
		line = 0
	}
	gone, part := mulDivFloor(max(0, now-m.Stamp), max(l.Max, s.M), 0, l.Window)
	own := cost - gone
	if part > 0 {
		own--
	}
	k := min(cost, owed, max(line, own))
	if k == line && k > own {
		rem = 0
	}
	return bucketGiveBack(s, now, owed, rem, drained, k)
}

func bucketRefundOldest(l *Limit, s *State, now, cost int64) int64 {
	owed, _, drained := bucketAt(s.rate(l), s, now)
	return bucketGiveBack(s, now, owed, 0, drained, min(cost, owed))
}

// rate is the limit at which the bucket drains when units are given back: that
// of the last charge, whatever limit the units were taken under.
func (s *State) rate(l *Limit) *Limit {
	r := *l
	if s.M > 0 {
		r.Max = s.M
	}
	return &r
}

func bucketGiveBack(s *State, now, owed, rem, drained, k int64) int64 {
	if k <= 0 {
		return 0
	}
	if owed == k {
		rem = 0
	}
	s.T, s.N, s.R, s.V = max(s.T, now), owed-k, rem, (drained+k)%lineLength
	return k
}
