package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// event is units that were charged, or given back if they are negative.
type event struct {
	// at is when it happened, in microseconds: as the store says or, where only
	// the times of request and answer are known, the one that accuses nobody.
	at    int64
	units int64
	// life is that of the process whose share was charged; 0 is the store.
	life    int
	receipt weir.Receipt
}

// identity is what a store keeps one state for, among those of one life.
type identity struct {
	life      int
	key       string
	algorithm weir.Algorithm
	window    time.Duration
}

// ledger replays what was charged and finds what must not have been admitted:
//
//   - sliding-log, sliding-buckets: more than Max within a Window.
//   - fixed-window, sliding-counter: more than Max in a window of their own.
//   - token-bucket: more than Burst + Max/Window * T in some time T.
//
// So the store never admits more than a limit, except that what it has lost
// does not count, and no process more than its share of it. It remembers as
// much as stores do.
type ledger struct {
	mu      sync.Mutex
	pending []event
	losses  []int64 // when the store lost everything

	accounts map[identity]*account
}

// horizon is how long events wait for those that happened before them: longer
// than any answer takes.
const horizon = 2 * patience

// account is what is known of one state.
type account struct {
	losses  int   // how many were before its newest charge
	expires int64 // when it matters to nobody any more
	charges []charge
	owed    int64 // of a token bucket at newest, in units * microseconds of Window
	newest  int64
}

// charge is units with the stamp of their receipt.
type charge struct{ stamp, units int64 }

func newLedger() *ledger { return &ledger{accounts: make(map[identity]*account)} }

func (l *ledger) add(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, e)
}

// lost notes that all that the store has charged by now is lost.
func (l *ledger) lost(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses = append(l.losses, at.UnixMicro())
}

// lossesBy returns how many losses there were by at.
func (l *ledger) lossesBy(at int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, _ := slices.BinarySearch(l.losses, at)
	return n
}

// settle replays what happened until a horizon ago, and returns what it finds
// wrong. One goroutine calls it.
func (l *ledger) settle(now time.Time) (wrong []string) {
	until := now.Add(-horizon).UnixMicro()
	for _, e := range l.before(until) {
		if text := l.replay(e); text != "" {
			wrong = append(wrong, text)
		}
	}
	for id, a := range l.accounts {
		if a.expires < until {
			delete(l.accounts, id)
		}
	}
	return wrong
}

// before takes the events before a time, in order: of those at one time what
// gave back comes first.
func (l *ledger) before(until int64) []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortStableFunc(l.pending, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units))
	})
	n, _ := slices.BinarySearchFunc(l.pending, until, func(e event, at int64) int { return cmp.Compare(e.at, at) })
	ready := slices.Clone(l.pending[:n])
	l.pending = slices.Delete(l.pending, 0, n)
	return ready
}

// replay returns what is wrong with an event, if anything is.
func (l *ledger) replay(e event) string {
	r := &e.receipt.Request
	id := identity{e.life, r.Key, r.Limit.Algorithm, r.Limit.Window}
	a := l.accounts[id]
	if a == nil {
		a = new(account)
		l.accounts[id] = a
	}
	if losses := l.lossesBy(e.at); e.life == 0 && losses > a.losses {
		*a = account{losses: losses}
	}
	if e.units < 0 {
		if e.life > 0 || l.lossesBy(e.receipt.Stamp) == a.losses {
			a.giveBack(&e)
		}
		return ""
	}
	a.expires = max(a.expires, e.at+lifetime(r.Limit).Microseconds())
	if used := a.charge(&e); used > r.Limit.Capacity() {
		return fmt.Sprintf("%s %s of %q admitted %d units, %v more than it may", e.whose(), r.Limit, r.Key, used, used-r.Limit.Capacity())
	}
	return ""
}

func (e *event) whose() string {
	if e.life == 0 {
		return "the store's"
	}
	return fmt.Sprintf("process life %d's share", e.life)
}

// lifetime is how long a state may be kept after its newest charge, or the start
// of its window.
func lifetime(l weir.Limit) time.Duration {
	switch l.Algorithm {
	case weir.SlidingBuckets:
		return l.Window + l.Window/time.Duration(l.Buckets) + keptFor
	case weir.SlidingCounter:
		return 2*l.Window + keptFor
	}
	return l.Window + keptFor
}

// charge returns how many units count at once.
func (a *account) charge(e *event) (used int64) {
	window := e.receipt.Request.Limit.Window.Microseconds()
	switch e.receipt.Request.Limit.Algorithm {
	case weir.TokenBucket:
		return a.pour(e, window)
	case weir.SlidingLog, weir.SlidingBuckets:
		a.forget(e.at - window)
		a.charges = append(a.charges, charge{e.receipt.Stamp, e.units})
		for _, c := range a.charges {
			used += c.units
		}
		return used
	}
	a.forget(e.receipt.Stamp - 2*window)
	i := slices.IndexFunc(a.charges, func(c charge) bool { return c.stamp == e.receipt.Stamp })
	if i < 0 {
		i = len(a.charges)
		a.charges = append(a.charges, charge{stamp: e.receipt.Stamp})
	}
	a.charges[i].units += e.units
	return a.charges[i].units
}

// pour charges a token bucket. Part of a unit counts as one.
func (a *account) pour(e *event, window int64) (used int64) {
	a.drain(e, window)
	a.owed += e.units * window
	return (a.owed + window - 1) / window
}

func (a *account) drain(e *event, window int64) {
	if e.at > a.newest {
		// What drains in more than a Window, Max, is all that can be owed.
		a.owed = max(0, a.owed-min(e.at-a.newest, 2*window)*e.receipt.Request.Limit.Max)
		a.newest = e.at
	}
}

func (a *account) forget(until int64) {
	a.charges = slices.DeleteFunc(a.charges, func(c charge) bool { return c.stamp <= until })
}

func (a *account) giveBack(e *event) {
	if l := e.receipt.Request.Limit; l.Algorithm == weir.TokenBucket {
		a.drain(e, l.Window.Microseconds())
		a.owed = max(0, a.owed+e.units*l.Window.Microseconds())
		return
	}
	for i := range a.charges {
		if c := &a.charges[i]; c.stamp == e.receipt.Stamp {
			c.units = max(0, c.units+e.units)
			return
		}
	}
}

// living are the states that the store can still have a reason to keep.
type living struct {
	mu    sync.Mutex
	until map[identity]time.Time
}

func newLiving() *living { return &living{until: make(map[identity]time.Time)} }

// touch notes that a state may matter until a time.
func (l *living) touch(r *weir.Request, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := identity{0, r.Key, r.Limit.Algorithm, r.Limit.Window}
	if until.After(l.until[id]) {
		l.until[id] = until
	}
}

// keptFor is how long after it has ceased to matter a key may be kept.
const keptFor = time.Second

// expiry is when a state is to be gone at the latest, by the receipt of its
// newest charge.
func expiry(r *weir.Receipt) time.Time {
	at, limit := time.UnixMicro(r.Stamp), r.Request.Limit
	if limit.Algorithm == weir.TokenBucket {
		return at.Add(limit.Window*time.Duration(r.Level)/time.Duration(limit.Max) + keptFor)
	}
	return at.Add(lifetime(limit))
}

// lost notes that there are none any more.
func (l *living) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.until)
}

func (l *living) count(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.until, func(_ identity, until time.Time) bool { return until.Before(now) })
	return len(l.until)
}
