package decide

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// KeyState is how things stand with a key under a limit.
type KeyState struct {
	// Domain and Rule are empty of a check.
	Domain, Rule string
	// Key is that of the Row.
	Key string
	// Limit has its defaults filled in.
	Limit weir.Limit
	// Decision says whether one unit would pass now. Nothing was taken for it.
	Decision weir.Decision
	// Used is how many units are in the window: those of the Timeline if
	// Countable, and may be above the capacity; else what is not remaining.
	Used int64
	// Countable says that there is a Timeline: the algorithm is sliding-log or
	// sliding-buckets, and the store answered.
	Countable bool
	// Timeline is the window in parts of the same length, newest first, at most
	// 100; nil if not Countable.
	Timeline []Part
}

// Part is a part of a window that ends now.
type Part struct {
	// From and To are ages: the part holds what was taken since To, and before
	// From, ago.
	From, To time.Duration
	// Units is how many were taken in it.
	Units int64
}

const (
	// maxParts is how many a Timeline has, unless they were below a microsecond.
	maxParts = 100
	// inspectTime bounds how long an Inspect keeps the store at work.
	inspectTime = time.Second
)

// Inspect returns a KeyState for each limit that holds for a query, in the order
// of its rules or checks. Costs do not matter, nothing is charged, and nobody
// observes it. It takes at most a second. The errors are those of Check.
func (e *Engine) Inspect(ctx context.Context, q Query) ([]KeyState, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	p, l, err := e.peek(ctx, e.rules.Load(), &q, true)
	if err != nil {
		return nil, err
	}
	states := make([]KeyState, len(p.requests))
	for i := range states {
		row, request := &p.rows[p.of[i]], l.Requests[i]
		states[i] = KeyState{Domain: q.Domain, Rule: row.Name, Key: row.Key, Limit: request.Limit, Decision: l.Rows[i]}
		if q.Checks != nil {
			states[i].Domain = ""
		}
		states[i].look(ctx, e.limiter, request)
	}
	return states, nil
}

// look finds out what is used, and when.
func (s *KeyState) look(ctx context.Context, limiter *weir.Limiter, r weir.Request) {
	s.Used = s.Decision.Limit - s.Decision.Remaining
	a, reason := s.Limit.Algorithm, s.Decision.Reason
	if a != weir.SlidingLog && a != weir.SlidingBuckets || reason >= weir.StoreAllowed && reason <= weir.StoreLocal {
		return
	}
	parts := timeline(s.Limit.Window)
	if s.Decision.ResetAfter > 0 { // else it is as good as unused
		if !count(ctx, limiter, r, parts) {
			return
		}
		s.Used = 0
		for i := range parts {
			s.Used += parts[i].Units
		}
	}
	s.Countable, s.Timeline = true, parts
}

// timeline cuts a window into parts.
func timeline(window time.Duration) []Part {
	n := min(maxParts, int64(window/time.Microsecond))
	parts := make([]Part, n)
	last := time.Duration(0)
	for i := range parts {
		end := (window / time.Duration(n) * time.Duration(i+1)).Truncate(time.Microsecond)
		if i+1 == len(parts) {
			end = window
		}
		parts[i] = Part{From: last, To: end}
		last = end
	}
	return parts
}

// countsAtOnce is how many counts are under way at a time: few enough that they do
// not hold up decisions, nor fail together and so speak for the store.
const countsAtOnce = 4

// count fills in the units of the parts, and reports whether the store told all
// of them. What is taken meanwhile may be in some of them, and then counts once.
func count(ctx context.Context, limiter *weir.Limiter, r weir.Request, parts []Part) bool {
	totals := make([]int64, len(parts))
	var failed atomic.Bool
	for from := 0; from < len(parts) && !failed.Load(); from += countsAtOnce {
		var wait sync.WaitGroup
		for i := from; i < min(from+countsAtOnce, len(parts)); i++ {
			wait.Go(func() {
				var err error
				if totals[i], err = limiter.CountRequest(ctx, r, parts[i].To); err != nil {
					failed.Store(true)
				}
			})
		}
		wait.Wait()
	}
	if failed.Load() {
		return false
	}
	counted := int64(0)
	for i := range parts {
		parts[i].Units = max(0, totals[i]-counted)
		counted = max(counted, totals[i])
	}
	return true
}
