package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stalling is a server that takes a millisecond, but answers nobody from 500 to
// 700 ms after its start, and counts the answers that took longer.
type stalling struct {
	start time.Time
	late  atomic.Int64
}

func (s *stalling) ask(context.Context, int64) error {
	asked := time.Now()
	<-time.After(time.Millisecond)
	if at := time.Since(s.start); at > 500*time.Millisecond && at < 700*time.Millisecond {
		<-time.After(700*time.Millisecond - at)
	}
	if time.Since(asked) > time.Millisecond {
		s.late.Add(1)
	}
	return nil
}

// bubble runs a test under a clock that moves when all wait.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	usual := sleep
	t.Cleanup(func() { sleep = usual })
	sleep = func(d time.Duration) { <-time.After(d) }
	synctest.Test(t, test)
}

// A fifth of a second in which nobody is answered is a fifth of what is asked in
// a second, though only as many questions as there are callers are kept waiting.
func TestOpenCountsWhatAStallHeldUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := stalling{start: time.Now()}
		const callers = 4
		took, err := Open(t.Context(), callers, 1000, time.Second, s.ask)
		if err != nil || len(took) != 1000 {
			t.Fatalf("%d answers, %v", len(took), err)
		}
		if n := s.late.Load(); n != callers {
			t.Errorf("%d questions took long, as each caller sees it, want %d: a closed loop would tell of no more", n, callers)
		}
		for _, c := range []struct {
			q        float64
			from, to time.Duration
		}{
			{0.5, time.Millisecond, time.Millisecond},
			{0.9, 100 * time.Millisecond, 150 * time.Millisecond},
			{0.99, 190 * time.Millisecond, 200 * time.Millisecond},
			{1, 199 * time.Millisecond, 201 * time.Millisecond},
		} {
			if got := Quantile(took, c.q); got < c.from || got > c.to {
				t.Errorf("quantile %v is %v, want %v to %v", c.q, got, c.from, c.to)
			}
		}
	})
}

func TestClosedAsksAgainWhenAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked [2000]atomic.Bool
		n, took, err := Closed(t.Context(), 2, time.Second, func(_ context.Context, n int64) error {
			<-time.After(time.Millisecond)
			if asked[n].Swap(true) {
				t.Errorf("question %d comes twice", n)
			}
			return nil
		})
		if err != nil || n != 2000 || took != time.Second {
			t.Errorf("%d answers in %v, %v; want 2 callers to ask every millisecond", n, took, err)
		}
	})
}

func TestFirstErrorEndsARun(t *testing.T) {
	failed := errors.New("failed")
	third := func(ctx context.Context, n int64) error {
		if n == 2 {
			return failed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
			return nil
		}
	}
	bubble(t, func(t *testing.T) {
		start := time.Now()
		if _, _, err := Closed(t.Context(), 2, time.Hour, third); !errors.Is(err, failed) {
			t.Errorf("closed: %v", err)
		}
		if _, err := Open(t.Context(), 2, 1, time.Hour, third); !errors.Is(err, failed) {
			t.Errorf("open: %v", err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Open(ctx, 2, 1, time.Hour, third); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestCPUGrows(t *testing.T) {
	before, ok := CPU()
	if !ok {
		t.Log("this system does not tell")
		return
	}
	for range 1 << 20 {
		if now, _ := CPU(); now > before {
			return
		}
	}
	t.Error("no processor time has passed")
}

func TestQuantile(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]time.Duration{0.01: 1, 0.1: 1, 0.5: 5, 0.9: 9, 0.999: 10, 1: 10} {
		if got := Quantile(sorted, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}
