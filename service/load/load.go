// Package load asks a server as fast as it answers or at a fixed rate, and
// tells how long its answers took.
package load

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Ask asks once and returns when it has been answered; n, from 0, tells the
// questions of a run apart. It must be safe for concurrent use.
type Ask func(ctx context.Context, n int64) error

// Closed lets each of the callers ask as soon as its last question has been
// answered, for d, and returns how many were answered and how long that took,
// which is d and an answer. The first error of a question ends it.
func Closed(ctx context.Context, callers int, d time.Duration, ask Ask) (asked int64, took time.Duration, err error) {
	var n atomic.Int64
	start := time.Now()
	err = together(ctx, callers, func(ctx context.Context) error {
		for time.Since(start) < d {
			if err := ask(ctx, n.Add(1)-1); err != nil {
				return err
			}
		}
		return nil
	})
	return n.Load(), time.Since(start), err
}

// Open asks at a rate a second for d, at least once, whether or not what was asked before has
// been answered, and returns how long each answer took, the shortest first. It
// took as long as it is since its question was due: a question that the callers
// were late with, because a server kept all of them waiting, has waited as well.
// The first error of a question ends it.
func Open(ctx context.Context, callers int, rate float64, d time.Duration, ask Ask) ([]time.Duration, error) {
	took := make([]time.Duration, max(1, int64(rate*d.Seconds())))
	var next atomic.Int64
	start := time.Now()
	err := together(ctx, callers, func(ctx context.Context) error {
		for ctx.Err() == nil {
			n := next.Add(1) - 1
			if n >= int64(len(took)) {
				return nil
			}
			due := time.Duration(float64(n) / rate * float64(time.Second))
			for early := due - time.Since(start); early > 0; early = due - time.Since(start) {
				sleep(early)
			}
			if err := ask(ctx, n); err != nil {
				return err
			}
			took[n] = time.Since(start) - due
		}
		return nil
	})
	slices.Sort(took)
	return took, err
}

// together runs the same on n goroutines, until all have returned or one has
// failed, and returns its error.
func together(ctx context.Context, n int, run func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// Quantile returns what a part q, above 0 and up to 1, of all did not exceed.
// They are sorted, and there is at least one.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}
