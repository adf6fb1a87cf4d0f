package layer

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// The breaker opens when, of the last lastCalls, mostFailed have failed:
	// far from the third that fails where a Cluster has lost one primary of three.
	lastCalls, mostFailed = 20, 16
	// An open breaker lets a try through after minPause, then twice that, and
	// so on to maxPause; of each a random part, at least half, passes.
	minPause, maxPause = 100 * time.Millisecond, time.Second
	// manyFlying is the number of calls in flight at which one that is closing
	// has closed. From one, each success allows for one more, which doubles
	// them with each round.
	manyFlying = 16
)

// breaker decides which calls a store is asked at all.
type breaker struct {
	mu      sync.Mutex
	last    uint32 // calls, the latest in the lowest bit, set if it failed
	open    error  // why calls are refused; nil if none are
	again   time.Time
	pause   time.Duration // before again
	turn    int           // calls let in before the last change from open to closed, or back, no longer count
	allowed int           // calls in flight while it is closing; 0 while it is open
	flying  int
}

// pass is a call that a breaker has let in.
type pass struct {
	breaker *breaker
	turn    int
	left    atomic.Bool
}

// failing returns why calls are refused, or nil once a try has succeeded.
func (b *breaker) failing() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.allowed > 1 {
		return nil
	}
	return b.open
}

// mistaken reports whether calls are refused because of a mistake in the settings.
func (b *breaker) mistaken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return mistaken(b.open)
}

// enter lets a call in or says why not.
func (b *breaker) enter() (*pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != nil {
		switch {
		case b.allowed == 0 && !time.Now().Before(b.again):
			b.allowed = 1
		case b.flying >= b.allowed:
			return nil, b.open
		}
		b.flying++
	}
	return &pass{breaker: b, turn: b.turn}, nil
}

// leave notes how a call ended, and reports whether it was the first to do so
// for the call. A caller's error is no failure.
func (p *pass) leave(err error) bool {
	if !p.left.CompareAndSwap(false, true) {
		return false
	}
	p.breaker.note(p.turn, err)
	return true
}

func (b *breaker) note(turn int, err error) {
	failed := err != nil && failure(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if turn != b.turn {
		return
	}
	b.last = b.last << 1 & (1<<lastCalls - 1)
	if failed {
		b.last |= 1
	}
	switch {
	case b.open == nil:
		if bits.OnesCount32(b.last) >= mostFailed {
			b.trip(err)
		}
	case failed:
		b.trip(err)
	default:
		b.flying--
		if b.allowed++; b.allowed > manyFlying {
			b.open, b.last, b.pause = nil, 0, 0
		}
	}
}

// trip opens the breaker. Processes that open theirs together do not try again
// together.
func (b *breaker) trip(err error) {
	b.open = notAsked(err, mistaken(b.open))
	b.pause = min(max(minPause, 2*b.pause), maxPause)
	now := time.Now()
	b.again = now.Add(b.pause/2 + scatter(now, b.pause/2))
	b.turn++
	b.allowed, b.flying = 0, 0
}

// scatter returns a time below most that differs among processes, as the
// nanoseconds that their clocks show do. A simulated clock makes it repeat.
func scatter(now time.Time, most time.Duration) time.Duration {
	part, _ := bits.Mul64(uint64(now.UnixNano())*0x9e3779b97f4a7c15, uint64(most))
	return time.Duration(part)
}

// notAsked returns what calls meet until the store is asked again. Where the
// cause was a mistake in the settings it stays one until the breaker closes:
// that another try only took too long tells nothing else.
func notAsked(cause error, mistake bool) error {
	var e *weir.StoreError
	if !errors.As(cause, &e) {
		e = &weir.StoreError{Err: cause}
	}
	return &weir.StoreError{
		Server: e.Server, Hint: e.Hint, Settings: e.Settings || mistake,
		Err: fmt.Errorf("not asked for a moment, as calls have failed: %w", e.Err),
	}
}

// mistaken reports whether an error is a mistake in the settings.
func mistaken(err error) bool {
	var e *weir.StoreError
	return errors.As(err, &e) && e.Settings
}
