package telemetry

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// sample is a row of an answer, on its way to the sketches, or an answer without.
type sample struct {
	of      *tally // nil if there was no row
	key     string
	allowed bool
	first   bool          // of its answer
	took    time.Duration // of the answer
}

const ringSlots = 1 << 12

// ring takes samples from many goroutines without a lock, and loses those that
// do not fit. It is the bounded queue of Dmitry Vyukov: whose turn a slot is
// says its number, n while n is to be written there and n+1 while it is to be read.
type ring struct {
	slots [ringSlots]struct {
		turn atomic.Uint64
		sample
	}
	_       [64]byte // no writer shares a cache line with the slots
	tail    atomic.Uint64
	dropped atomic.Uint64
	shift   atomic.Uint32 // one of 2^shift answers is a sample
	_       [64]byte
	head    uint64 // of the reader, who is alone
	arrived uint64 // samples since the last adapt
	missed  uint64 // dropped at the last adapt
}

func newRing() *ring {
	r := new(ring)
	for i := range r.slots {
		r.slots[i].turn.Store(uint64(i))
	}
	return r
}

// draw reports whether an answer shall be a sample. Each is as likely to be one as
// any other.
func (r *ring) draw() bool {
	shift := r.shift.Load()
	return shift == 0 || rand.Uint64()>>(64-shift) == 0
}

// weight is how many answers a sample stands for.
func (r *ring) weight() float64 { return float64(uint64(1) << r.shift.Load()) }

// put adds a sample, or counts it as dropped.
func (r *ring) put(s sample) {
	for {
		n := r.tail.Load()
		slot := &r.slots[n%ringSlots]
		switch turn := slot.turn.Load(); {
		case turn < n:
			r.dropped.Add(1)
			return
		case turn == n && r.tail.CompareAndSwap(n, n+1):
			slot.sample = s
			slot.turn.Store(n + 1)
			return
		}
	}
}

// drain hands over what there is, at most a whole ring. One goroutine at a time
// may call it.
func (r *ring) drain(see func(*sample)) {
	for range ringSlots {
		slot := &r.slots[r.head%ringSlots]
		if slot.turn.Load() != r.head+1 {
			return
		}
		see(&slot.sample)
		slot.sample = sample{}
		slot.turn.Store(r.head + ringSlots)
		r.head++
		r.arrived++
	}
}

// adapt chooses how many answers are samples, so that as many as came since it
// was called last would fill half of the ring.
func (r *ring) adapt() {
	dropped := r.dropped.Load()
	came := (r.arrived + dropped - r.missed) << r.shift.Load()
	r.arrived, r.missed = 0, dropped
	r.shift.Store(uint32(min(bits.Len64(came/(ringSlots/2)), 32)))
}
