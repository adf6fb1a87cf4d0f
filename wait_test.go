package weir_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// inBubble runs a test for each algorithm on a fresh limiter whose clock is
// that of a bubble. A goroutine that is left in the bubble fails the test.
func inBubble(t *testing.T, n int64, window time.Duration, test func(t *testing.T, lim *weir.Limiter, limit weir.Limit)) {
	for _, limit := range everyAlgorithm(n, window) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := weir.New(weir.Options{})
				test(t, lim, limit)
				if err := lim.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// pass lets d go by.
func pass(d time.Duration) { <-time.After(d) }

// waited is how one WaitN ended.
type waited struct {
	who   int
	took  time.Duration
	at    time.Duration // since the first began
	units int64
	id    uint64 // of its receipt, which a store in memory gives out in order
	err   error
}

// line starts waiters one after the other and collects them as they end.
type line struct {
	lim   *weir.Limiter
	limit weir.Limit
	start time.Time
	n     int
	ended chan waited
}

func newLine(lim *weir.Limiter, limit weir.Limit) *line {
	return &line{lim: lim, limit: limit, start: time.Now(), ended: make(chan waited, 1000)}
}

// join starts a waiter and returns once it waits (or has ended).
func (l *line) join(ctx context.Context, units int64) {
	who := l.n
	l.n++
	go func() {
		began := time.Now()
		d, err := l.lim.WaitN(ctx, "k", l.limit, units)
		l.ended <- waited{who, time.Since(began), time.Since(l.start), units, d.Receipt.ID, err}
	}()
	synctest.Wait()
}

// rest waits for the next n waiters to end and returns them in the order in
// which they were served.
func (l *line) rest(n int) []waited {
	var all []waited
	for range n {
		all = append(all, <-l.ended)
	}
	slices.SortStableFunc(all, func(a, b waited) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	return all
}

// quiet checks that no waiter has ended that rest has not returned.
func (l *line) quiet(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(l.ended) > 0 {
		t.Errorf("%+v ended, though none should have", <-l.ended)
	}
}

// TestWaitSleepsExactly: a wait takes the RetryAfter that a denial at its
// start tells, to the microsecond, wherever between two microseconds it starts.
func TestWaitSleepsExactly(t *testing.T) {
	for _, offset := range []time.Duration{0, 1, 500, 999, 123_456_789} {
		inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
			start := time.Now()
			if d, err := lim.WaitN(t.Context(), "k", limit, 5); err != nil || !d.Allowed || time.Since(start) != 0 {
				t.Fatalf("a fresh key took %s: %+v (%v)", time.Since(start), d, err)
			}
			pass(offset)
			for _, n := range []int64{1, 5, 2} {
				told := mustAllow(t, lim, "k", limit, n, false).RetryAfter
				start := time.Now()
				d, err := lim.WaitN(t.Context(), "k", limit, n)
				if err != nil || !d.Allowed || d.Receipt.Units != n {
					t.Fatalf("%+v, %v", d, err)
				}
				if took := time.Since(start); took != told {
					t.Errorf("%d units waited %s, want %s", n, took, told)
				}
			}
		})
	}
}

// TestWaitIsFair: 50 waiters of mixed cost on one key are served in the order
// in which they came, the one that wants all among them, and never beyond the
// limit.
func TestWaitIsFair(t *testing.T) {
	inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		const n = 50
		mustAllow(t, lim, "k", limit, 5, true)
		l := newLine(lim, limit)
		for i := range n {
			l.join(t.Context(), []int64{1, 3, 2, 5, 1}[i%5])
			pass(time.Millisecond)
		}
		var before time.Duration
		all := l.rest(n)
		for i, w := range all {
			if w.err != nil || w.who != i {
				t.Fatalf("the %dth to be served came as %dth (%v)", i, w.who, w.err)
			}
			if w.at-before > 2*limit.Window {
				t.Errorf("at the head of the line it took %s to get %d units", w.at-before, w.units)
			}
			before = w.at
			var within int64
			for _, v := range all[:i+1] {
				if v.at > w.at-limit.Window {
					within += v.units
				}
			}
			if most := 2 * limit.Max; within > most || within > limit.Max && limit.Algorithm <= weir.SlidingBuckets {
				t.Errorf("%d units in the window up to %s", within, w.at)
			}
		}
	})
}

// TestWaitBigIsNotStarved: whoever wants much is passed neither by those who
// came later nor by those who did not wait to wait.
func TestWaitBigIsNotStarved(t *testing.T) {
	inBubble(t, 10, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		mustAllow(t, lim, "k", limit, 10, true)
		l := newLine(lim, limit)
		l.join(t.Context(), 10)
		for range 20 {
			l.join(t.Context(), 1)
			pass(10 * time.Millisecond)
		}
		for i, w := range l.rest(21) {
			if w.err != nil || w.who != i {
				t.Errorf("%+v was served in the place of %d", w, i)
			}
		}
	})
}

// TestWaitCancelled: whoever gives up, in the middle of the line or at its
// head, gives up its place, at once, and takes nothing.
func TestWaitCancelled(t *testing.T) {
	for _, gone := range []int{0, 1, 2} {
		inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
			// serve returns when the waiters of 3, 4 and 2 units are served.
			serve := func(key string, cancels int) (at []time.Duration) {
				mustAllow(t, lim, key, limit, 5, true)
				start := time.Now()
				ended := make(chan waited, 3)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i, units := range []int64{3, 4, 2} {
					mine := t.Context()
					if i == gone {
						if cancels == 0 { // this one never comes
							continue
						}
						mine = ctx
					}
					go func() {
						_, err := lim.WaitN(mine, key, limit, units)
						ended <- waited{who: i, at: time.Since(start), err: err}
					}()
					synctest.Wait()
				}
				pass(10 * time.Millisecond)
				if cancels > 0 {
					cancel()
					if w := <-ended; w.who != gone || !errors.Is(w.err, context.Canceled) || w.at != 10*time.Millisecond {
						t.Fatalf("the waiter that gives up at 10ms: %+v", w)
					}
				}
				for range 2 {
					w := <-ended
					if w.err != nil {
						t.Fatal(w.err)
					}
					at = append(at, w.at)
				}
				return at
			}
			without, with := serve("without", 0), serve("with", 1)
			if !slices.Equal(without, with) {
				t.Errorf("the others were served at %v, want %v as without it", with, without)
			}
		})
	}
}

// TestWaitDeadline: a deadline nearer than the wait is told at once, not when
// it comes; one farther does no harm.
func TestWaitDeadline(t *testing.T) {
	inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		mustAllow(t, lim, "k", limit, 5, true)
		told := mustAllow(t, lim, "k", limit, 2, false).RetryAfter
		for _, d := range []time.Duration{1, told / 2, told - 1} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			start := time.Now()
			got, err := lim.WaitN(ctx, "k", limit, 2)
			if !errors.Is(err, weir.ErrDeadline) || time.Since(start) != 0 || got.Allowed {
				t.Errorf("a wait of %s with %s left: %v after %s", told, d, err, time.Since(start))
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), told+1)
		defer cancel()
		if d, err := lim.WaitN(ctx, "k", limit, 2); err != nil || !d.Allowed {
			t.Errorf("a wait of %s with a nanosecond more left: %+v, %v", told, d, err)
		}
	})
}

// TestWaitDeadlineIsTheWait: when the wait and the context end together,
// nobody waits in vain.
func TestWaitDeadlineIsTheWait(t *testing.T) {
	inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		for i := range 20 { // the outcome must not depend on which of two timers is seen first
			key := fmt.Sprint(i)
			mustAllow(t, lim, key, limit, 5, true)
			told := mustAllow(t, lim, key, limit, 2, false).RetryAfter
			ctx, cancel := context.WithTimeout(t.Context(), told)
			defer cancel()
			start := time.Now()
			d, err := lim.WaitN(ctx, key, limit, 2)
			if !d.Allowed && (!errors.Is(err, weir.ErrDeadline) || time.Since(start) != 0) {
				t.Fatalf("waited %s for %v", time.Since(start), err)
			}
		}
	})
}

// TestWaitDeadlineInLine: the wait of whoever stands in line is that of those
// before it too.
func TestWaitDeadlineInLine(t *testing.T) {
	for _, tt := range []struct {
		max     int64
		window  time.Duration
		ahead   []int64
		units   int64
		left    time.Duration
		nearer  bool
		because string
	}{
		{5, time.Second, []int64{2, 2}, 1, 100 * time.Millisecond, true, "even the first unit takes longer"},
		{5, time.Second, []int64{2, 2}, 1, 10 * time.Second, false, "all five pass within two windows"},
		{1, time.Second, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, 5 * time.Second, true, "ten units at one a second come first"},
		{5, time.Minute, []int64{5, 5, 5}, 5, 2 * time.Minute, true, "fifteen units at five a minute come first"},
		{5, time.Minute, []int64{5, 5, 5}, 5, 10 * time.Minute, false, "twenty units at five a minute pass in less than five"},
	} {
		t.Run(fmt.Sprintf("%d after %v with %s left", tt.units, tt.ahead, tt.left), func(t *testing.T) {
			inBubble(t, tt.max, tt.window, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
				mustAllow(t, lim, "k", limit, tt.max, true)
				l := newLine(lim, limit)
				for _, units := range tt.ahead {
					l.join(t.Context(), units)
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.left)
				defer cancel()
				l.join(ctx, tt.units)
				if tt.nearer {
					if len(l.ended) == 0 {
						t.Errorf("it waits, though %s", tt.because)
					}
					for _, w := range l.rest(len(tt.ahead) + 1) {
						if w.who == len(tt.ahead) && (!errors.Is(w.err, weir.ErrDeadline) || w.took != 0) {
							t.Errorf("it ended after %s with %v, though %s", w.took, w.err, tt.because)
						}
					}
					return
				}
				for i, w := range l.rest(len(tt.ahead) + 1) {
					if w.err != nil || w.who != i {
						t.Errorf("%+v, though %s", w, tt.because)
					}
				}
			})
		})
	}
}

// TestWaitDeadlineInALongLine: the wait of a line may be longer than any
// Duration can tell.
func TestWaitDeadlineInALongLine(t *testing.T) {
	for _, limit := range everyAlgorithm(1, weir.MaxWindow) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 400
				lim := weir.New(weir.Options{})
				mustAllow(t, lim, "k", limit, 1, true)
				l := newLine(lim, limit)
				ctx, cancel := context.WithCancel(t.Context())
				for range n {
					l.join(ctx, 1)
				}
				short, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				l.join(short, 1)
				if w := l.rest(1)[0]; w.who != n || !errors.Is(w.err, weir.ErrDeadline) || w.took != 0 {
					t.Errorf("after %d others at one a year, with an hour left: %+v", n, w)
				}
				cancel()
				l.rest(n)
			})
		})
	}
}

// TestWaitNever: a cost above the capacity is refused at once, with or without
// a line, and whatever the context.
func TestWaitNever(t *testing.T) {
	inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		check := func(ctx context.Context) {
			t.Helper()
			start := time.Now()
			d, err := lim.WaitN(ctx, "k", limit, 6)
			if !errors.Is(err, weir.ErrNever) || d.Allowed || d.Reason != weir.Never || time.Since(start) != 0 {
				t.Errorf("6 of 5: %+v, %v after %s", d, err, time.Since(start))
			}
		}
		check(t.Context())
		if left := remaining(t, lim, "k", limit); left != 5 {
			t.Errorf("it left %d of 5", left)
		}
		mustAllow(t, lim, "k", limit, 5, true)
		l := newLine(lim, limit)
		l.join(t.Context(), 1)
		check(t.Context())
		if w := l.rest(1)[0]; w.err != nil {
			t.Error(w.err)
		}
	})
}

// TestWaitEndedContext: a context that has ended is told at once, takes
// nothing, and leaves no place in the line behind.
func TestWaitEndedContext(t *testing.T) {
	inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		l := newLine(lim, limit)
		l.join(ended, 1)
		if w := l.rest(1)[0]; !errors.Is(w.err, context.Canceled) || w.took != 0 {
			t.Errorf("without a line: %+v", w)
		}
		if left := remaining(t, lim, "k", limit); left != 5 {
			t.Errorf("it left %d of 5", left)
		}
		mustAllow(t, lim, "k", limit, 5, true)
		l.join(t.Context(), 1)
		l.join(ended, 1)
		if w := l.rest(1)[0]; w.who != 2 || !errors.Is(w.err, context.Canceled) || w.took != 0 {
			t.Errorf("in line: %+v", w)
		}
		l.join(t.Context(), 1)
		for i, w := range l.rest(2) {
			if want := []int{1, 3}[i]; w.who != want || w.err != nil {
				t.Errorf("%+v, want %d to be served", w, want)
			}
		}
	})
}

// TestWaitClosed: Close reaches those who wait when they next ask the store.
func TestWaitClosed(t *testing.T) {
	inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		mustAllow(t, lim, "k", limit, 5, true)
		l := newLine(lim, limit)
		for range 3 {
			l.join(t.Context(), 2)
		}
		l.quiet(t)
		if err := lim.Close(); err != nil {
			t.Fatal(err)
		}
		l.join(t.Context(), 1)
		for _, w := range l.rest(4) {
			if !errors.Is(w.err, weir.ErrClosed) || w.took > 2*time.Second {
				t.Errorf("%+v, want ErrClosed within the wait", w)
			}
		}
		start := time.Now()
		if _, err := lim.Wait(t.Context(), "k", limit); !errors.Is(err, weir.ErrClosed) || time.Since(start) != 0 {
			t.Errorf("a wait after Close: %v after %s", err, time.Since(start))
		}
	})
}

// TestWaitKeysAreIndependent: a line is for one state; another key, window or
// algorithm does not stand in it.
func TestWaitKeysAreIndependent(t *testing.T) {
	inBubble(t, 5, time.Hour, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		mustAllow(t, lim, "k", limit, 5, true)
		l := newLine(lim, limit)
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			l.join(ctx, 5)
		}
		start := time.Now()
		wait := func(what, key string, limit weir.Limit) {
			if d, err := lim.WaitN(t.Context(), key, limit, 5); err != nil || !d.Allowed || time.Since(start) != 0 {
				t.Errorf("%s waited %s (%v)", what, time.Since(start), err)
			}
		}
		wait("another key", "k2", limit)
		other := limit
		other.Window = 2 * time.Hour
		wait("another window", "k", other)
		for _, other := range everyAlgorithm(5, time.Hour) {
			if other.Algorithm != limit.Algorithm {
				wait("another algorithm", "k", other)
			}
		}
		l.quiet(t)
		cancel()
		for _, w := range l.rest(3) {
			if !errors.Is(w.err, context.Canceled) {
				t.Error(w.err)
			}
		}
	})
}

// TestWaitSharesALine: plans that differ in Max share the state, so they
// share the line.
func TestWaitSharesALine(t *testing.T) {
	inBubble(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, limit weir.Limit) {
		mustAllow(t, lim, "k", limit, 5, true)
		l := newLine(lim, limit)
		l.join(t.Context(), 5)
		l.limit.Max = 6
		if l.limit.Burst > 0 {
			l.limit.Burst = 6
		}
		l.join(t.Context(), 1) // would pass at once on its own
		l.quiet(t)
		for i, w := range l.rest(2) {
			if w.who != i || w.err != nil {
				t.Errorf("%+v was served in the place of %d", w, i)
			}
		}
	})
}

// fickle answers from a script, then admits.
type fickle struct {
	brokenStore
	script []weir.Decision
	err    error
}

func (s *fickle) Take(_ context.Context, lists []weir.List) {
	s.calls++
	if len(s.script) == 0 {
		lists[0].Rows[0], lists[0].Err = weir.Decision{Allowed: s.err == nil}, s.err
		return
	}
	lists[0].Rows[0], s.script = s.script[0], s.script[1:]
}

// TestWaitOnOddStores: a denial that knows no wait is asked again soon, an
// error while waiting is the caller's, and never means ErrNever.
func TestWaitOnOddStores(t *testing.T) {
	degraded := weir.Decision{Reason: weir.StoreDenied}
	second := weir.Decision{Reason: weir.OverLimit, RetryAfter: time.Second}
	for _, tt := range []struct {
		name   string
		script []weir.Decision
		after  error
		want   error
		took   time.Duration
	}{
		{"degraded", []weir.Decision{degraded, degraded, degraded}, nil, nil, 3 * time.Millisecond},
		{"told twice", []weir.Decision{second, second}, nil, nil, 2 * time.Second},
		{"breaks", []weir.Decision{second}, errBroken, errBroken, time.Second},
		{"never", []weir.Decision{second, {Reason: weir.Never}}, nil, weir.ErrNever, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &fickle{script: tt.script, err: tt.after}
				start := time.Now()
				d, err := weir.New(weir.Options{Store: store}).Wait(t.Context(), "k", weir.PerSecond(1))
				if !errors.Is(err, tt.want) || time.Since(start) != tt.took || d.Allowed != (tt.want == nil) {
					t.Errorf("%+v, %v after %s, want %v after %s", d, err, time.Since(start), tt.want, tt.took)
				}
				if store.calls != len(tt.script)+1-map[bool]int{true: 1}[tt.name == "never"] {
					t.Errorf("the store was asked %d times", store.calls)
				}
			})
		})
	}
}
