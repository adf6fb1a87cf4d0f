package soak

import (
	"math/bits"
	"time"
)

// histogram counts times by their size, in classes that are at most an eighth
// wide.
type histogram struct {
	classes [64 * 8]int64
	n       int64
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	us := uint64(max(d.Microseconds(), 8))
	shift := bits.Len64(us) - 4
	h.classes[shift*8+int(us>>shift)]++
	h.n++
	h.max = max(h.max, d)
}

// quantile returns a time that a part q of all does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	rest := int64(q * float64(h.n))
	for class, n := range h.classes {
		if rest -= n; rest < 0 {
			shift := max(0, class/8-1)
			end := time.Duration(class-shift*8+1) << shift
			return min(h.max, end*time.Microsecond)
		}
	}
	return h.max
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.classes {
		h.classes[i] += n
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// trend is the straight line through points, of which it keeps sums only.
type trend struct {
	from            time.Time
	n, x, y, xx, xy float64
	last            time.Duration
}

func (t *trend) add(at time.Time, y float64) {
	if t.n == 0 {
		t.from = at
	}
	t.last = at.Sub(t.from)
	x := t.last.Minutes()
	t.n++
	t.x += x
	t.y += y
	t.xx += x * x
	t.xy += x * y
}

// slope is by how much y grows in a minute.
func (t *trend) slope() float64 {
	spread := t.n*t.xx - t.x*t.x
	if spread == 0 {
		return 0
	}
	return (t.n*t.xy - t.x*t.y) / spread
}
