// Package hotkeys finds the keys that come most often, in bounded memory.
package hotkeys

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"
)

// Sketch estimates how often keys come, of late, and keeps the most frequent: it
// is the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, 2005) with counts
// that halve every HalfLife (forward decay: Cormode et al., 2009).
//
// An estimate is never too low, and too high by at most Total/Slots, and by at
// most its own Error. A key whose true count is above Total/Slots is in it for
// certain. Memory is that of Slots keys, whatever comes.
//
// It is not safe for concurrent use.
type Sketch struct {
	slots    int
	halfLife time.Duration
	epoch    time.Time // where a unit weighs 1
	total    float64   // of all weights
	byKey    map[string]*slot
	least    slots
}

// Entry is a key and how often it came.
type Entry struct {
	Key string
	// Count is the estimate, and Error by how much it may be too high.
	Count, Error float64
}

// slot is a key with weights as of the epoch.
type slot struct {
	key          string
	count, error float64
	place        int // in the heap
}

// New returns a Sketch of at least one slot. Without a halfLife counts do not decay.
func New(slots int, halfLife time.Duration) *Sketch {
	return &Sketch{slots: max(1, slots), halfLife: halfLife, byKey: make(map[string]*slot)}
}

// Add counts n units, at least 0, of a key at a time. One before the latest is
// taken for what it is.
func (s *Sketch) Add(key string, n float64, now time.Time) {
	w := n * s.weight(now)
	s.total += w
	if old := s.byKey[key]; old != nil {
		old.count += w
		heap.Fix(&s.least, old.place)
		return
	}
	if len(s.least) < s.slots {
		fresh := &slot{key: key, count: w}
		s.byKey[key] = fresh
		heap.Push(&s.least, fresh)
		return
	}
	// The newcomer may have come as often as the rarest of those that are kept.
	rarest := s.least[0]
	delete(s.byKey, rarest.key)
	s.byKey[key] = rarest
	rarest.key, rarest.error = key, rarest.count
	rarest.count += w
	heap.Fix(&s.least, 0)
}

// mostWeight is where weights are brought back to 1, far from where float64
// would lose small ones or overflow.
const mostWeight = 1 << 30

// weight is what a unit of now weighs.
func (s *Sketch) weight(now time.Time) float64 {
	if s.halfLife <= 0 {
		return 1
	}
	if s.epoch.IsZero() {
		s.epoch = now
	}
	w := math.Exp2(float64(now.Sub(s.epoch)) / float64(s.halfLife))
	if w > mostWeight {
		s.scale(1 / w)
		s.epoch, w = now, 1
	}
	return w
}

func (s *Sketch) scale(by float64) {
	s.total *= by
	for _, kept := range s.least {
		kept.count *= by
		kept.error *= by
	}
}

// Top returns the n most frequent keys, the most frequent first, and how many
// units have been counted in all, as they stand at a time.
func (s *Sketch) Top(n int, now time.Time) (top []Entry, total float64) {
	w := s.weight(now)
	for _, kept := range s.least {
		top = append(top, Entry{kept.key, kept.count / w, kept.error / w})
	}
	slices.SortFunc(top, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return top[:min(n, len(top))], s.total / w
}

// slots is a heap, the least count first.
type slots []*slot

func (h slots) Len() int           { return len(h) }
func (h slots) Less(i, j int) bool { return h[i].count < h[j].count }

func (h slots) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *slots) Push(x any) {
	added := x.(*slot)
	added.place = len(*h)
	*h = append(*h, added)
}

// Pop implements heap.Interface.
func (h *slots) Pop() any {
	last := len(*h) - 1
	popped := (*h)[last]
	*h = (*h)[:last]
	return popped
}
