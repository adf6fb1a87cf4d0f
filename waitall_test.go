package weir_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// crowd starts waits for lists and notes when they end.
type crowd struct {
	t     *testing.T
	lim   *weir.Limiter
	start time.Time
	limit map[string]weir.Limit
}

func newCrowd(t *testing.T, limits map[string]weir.Limit) *crowd {
	return &crowd{t: t, lim: weir.New(weir.Options{}), start: time.Now(), limit: limits}
}

// end is how a wait ended, and when since the start of its crowd.
type end struct {
	at time.Duration
	d  weir.Decision
	error
}

func (c *crowd) list(keys []string) (requests []weir.Request) {
	for _, key := range keys {
		requests = append(requests, weir.Request{Key: key, Limit: c.limit[key]})
	}
	return requests
}

// join returns once a wait for a unit of each key waits, or has ended.
func (c *crowd) join(ctx context.Context, keys ...string) <-chan end {
	ended := make(chan end, 1)
	go func() {
		d, err := c.lim.WaitAll(ctx, c.list(keys)...)
		ended <- end{time.Since(c.start), d, err}
	}()
	synctest.Wait()
	return ended
}

// takes takes a unit of each key.
func (c *crowd) takes(keys ...string) {
	c.t.Helper()
	if d, err := c.lim.AllowAll(c.t.Context(), c.list(keys)...); err != nil || !d.Allowed {
		c.t.Fatalf("%v: %+v, %v", keys, d, err)
	}
}

func (c *crowd) servedAt(what string, ended <-chan end, want time.Duration) {
	c.t.Helper()
	if e := <-ended; e.error != nil || !e.d.Allowed || e.at != want {
		c.t.Errorf("%s was served at %s, want %s (%v)", what, e.at, want, e.error)
	}
}

// TestWaitAllIsOneStep: a list waits for the longest of its waits and takes
// nothing before that.
func TestWaitAllIsOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, map[string]weir.Limit{"a": weir.PerSecond(1), "b": weir.Per(1, 3*time.Second), "c": weir.PerHour(2)})
		c.takes("a", "b")
		w := c.join(t.Context(), "a", "b", "c")
		pass(2 * time.Second)
		if left := remaining(t, c.lim, "c", c.limit["c"]); left != 2 {
			t.Errorf("a list that waits has left %d of 2", left)
		}
		e := <-w
		if e.error != nil || e.at != 3*time.Second || len(e.d.Rows) != 3 || len(e.d.Receipts()) != 3 {
			t.Errorf("%+v", e)
		}
		if left := remaining(t, c.lim, "c", c.limit["c"]); left != 1 {
			t.Errorf("it left %d of 2, want 1", left)
		}
	})
}

// TestWaitAllHoldsUpNobodyElse: whoever waits for one state, or behind somebody
// who does, leaves the others to those who came later.
func TestWaitAllHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, map[string]weir.Limit{"all": weir.PerSecond(2), "hourly": weir.PerHour(1)})
		c.takes("hourly", "all")
		c.takes("all")
		ctx, cancel := context.WithCancel(t.Context())
		var waiting []<-chan end
		for range 3 { // both states deny the first
			waiting = append(waiting, c.join(ctx, "hourly", "all"))
		}
		for i := range 4 {
			c.servedAt("who needs no hourly", c.join(t.Context(), "all"), time.Duration(i/2+1)*time.Second)
		}
		cancel()
		for _, w := range waiting {
			if e := <-w; !errors.Is(e.error, context.Canceled) || e.at != 2*time.Second {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestWaitAllIsNotStarved: whoever needs two states that others are after gets
// both, though they are never free at the same time.
func TestWaitAllIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, map[string]weir.Limit{"a": weir.PerSecond(1), "b": weir.PerSecond(1)})
		c.takes("a")
		pass(500 * time.Millisecond)
		c.takes("b")
		both := c.join(t.Context(), "a", "b")
		var others []<-chan end
		for range 10 {
			others = append(others, c.join(t.Context(), "a"), c.join(t.Context(), "b"))
		}
		// The first of the others is let pass at 1s, as b is not free before 1.5s.
		c.servedAt("who wants both", both, 2*time.Second)
		c.servedAt("the first after a", others[0], time.Second)
		for i, other := range others[1:] {
			c.servedAt("another", other, time.Duration(3+i/2)*time.Second)
		}
	})
}

// TestWaitAllKeepsTheOrder: those who want the same come in the order of their
// calls, whatever holds them up.
func TestWaitAllKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, map[string]weir.Limit{"a": weir.PerSecond(1), "b": weir.Per(1, 1500*time.Millisecond)})
		var ends []<-chan end
		for range 20 {
			ends = append(ends, c.join(t.Context(), "a", "b"))
		}
		for i, w := range ends {
			c.servedAt(strconv.Itoa(i), w, time.Duration(i)*1500*time.Millisecond)
		}
	})
}

// TestWaitAllCrowd: however lists overlap, and whoever gives up, all of the
// others are served, within the limits, and nothing stays behind.
func TestWaitAllCrowd(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			c := newCrowd(t, map[string]weir.Limit{
				"a": weir.PerSecond(1), "b": weir.Per(2, 700*time.Millisecond), "c": {Max: 5, Window: time.Second, Burst: 1}, "d": weir.Per(3, 1100*time.Millisecond),
			})
			var ends []<-chan end
			var lists [][]string
			for range 100 {
				keys := []string{"a", "b", "c", "d"}
				random.Shuffle(4, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
				keys = keys[:1+random.IntN(4)]
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if random.IntN(5) == 0 {
					time.AfterFunc(time.Duration(random.Int64N(int64(20*time.Second))), cancel)
				}
				lists, ends = append(lists, keys), append(ends, c.join(ctx, keys...))
				pass(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			}
			taken := make(map[string][]time.Duration)
			for i, w := range ends {
				e := <-w
				if errors.Is(e.error, context.Canceled) {
					continue
				}
				if e.error != nil || !e.d.Allowed {
					t.Fatalf("seed %d: %+v", seed, e)
				}
				for _, key := range lists[i] {
					taken[key] = append(taken[key], e.at.Truncate(time.Microsecond)) // as the store has it
				}
			}
			last := time.Since(c.start)
			for key, at := range taken {
				slices.Sort(at)
				limit := c.limit[key]
				for i := int(limit.Max); i < len(at) && limit.Burst == 0; i++ {
					if at[i]-at[i-int(limit.Max)] < limit.Window {
						t.Errorf("seed %d: too many of %s up to %s", seed, key, at[i])
					}
				}
			}
			if most := time.Duration(len(taken["a"])+30) * time.Second; last > most {
				t.Errorf("seed %d: it took %s", seed, last)
			}
			pass(time.Minute)
			before := time.Since(c.start)
			c.servedAt("who comes later", c.join(t.Context(), "a", "b", "c", "d"), before)
		})
	}
}

// TestWaitAllCancelled: whoever gives up leaves all of its lines.
func TestWaitAllCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, map[string]weir.Limit{"a": weir.PerHour(1), "b": weir.PerSecond(1)})
		c.takes("b")
		ctx, cancel := context.WithCancel(t.Context())
		gone := c.join(ctx, "a", "b")
		behindB, behindA := c.join(t.Context(), "b"), c.join(t.Context(), "a")
		pass(100 * time.Millisecond)
		cancel()
		if e := <-gone; !errors.Is(e.error, context.Canceled) || e.at != 100*time.Millisecond {
			t.Errorf("%+v", e)
		}
		c.servedAt("who waits for b", behindB, time.Second)
		c.servedAt("who wants a, which is free", behindA, 0)
	})
}

// TestWaitAllDeadline: a deadline nearer than the wait for any of the states is
// told at once, with those ahead reckoned in.
func TestWaitAllDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, map[string]weir.Limit{"a": weir.PerSecond(1), "b": weir.PerSecond(1), "c": weir.PerSecond(1)})
		c.takes("b")
		served := []<-chan end{c.join(t.Context(), "b"), c.join(t.Context(), "b"), c.join(t.Context(), "b")}
		short, stop := context.WithTimeout(t.Context(), 4*time.Second)
		defer stop()
		if e := <-c.join(short, "a", "b", "c"); !errors.Is(e.error, weir.ErrDeadline) || e.at != 0 {
			t.Errorf("behind three, with 4s left: %+v", e)
		}
		long, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		served = append(served, c.join(long, "a", "b", "c"))
		for i, w := range served {
			c.servedAt(strconv.Itoa(i), w, time.Duration(i+1)*time.Second)
		}
	})
}

// TestWaitAllRefuses: what cannot be is told at once and takes nothing.
func TestWaitAllRefuses(t *testing.T) {
	lim := weir.New(weir.Options{})
	limit := weir.PerHour(5)
	for _, tt := range []struct {
		name     string
		requests []weir.Request
		never    bool
		field    string
	}{
		{"never", []weir.Request{{Key: "a", Limit: limit}, {Key: "b", Limit: limit, Cost: 6}}, true, ""},
		{"never, together", []weir.Request{{Key: "a", Limit: limit, Cost: 3}, {Key: "a", Limit: limit, Cost: 3}}, true, ""},
		{"record", []weir.Request{{Key: "a", Limit: limit}, {Key: "b", Limit: limit, Mode: weir.Record}}, false, "requests[1].mode"},
		{"a bad cost", []weir.Request{{Key: "a", Limit: limit}, {Key: "b", Limit: limit, Cost: -1}}, false, "requests[1].cost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := lim.WaitAll(t.Context(), tt.requests...)
			var invalid *weir.InvalidError
			if d.Allowed || errors.Is(err, weir.ErrNever) != tt.never || errors.As(err, &invalid) == tt.never || !tt.never && invalid.Field != tt.field {
				t.Errorf("%+v, %v", d, err)
			}
			if left := remaining(t, lim, "a", limit); left != 5 {
				t.Errorf("it left %d of 5", left)
			}
		})
	}
}

// TestWaitAllModes: what does not enforce is not waited for, and answered.
func TestWaitAllModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := weir.New(weir.Options{})
		limit := weir.PerHour(1)
		mustAllow(t, lim, "full", limit, 1, true)
		start := time.Now()
		d, err := lim.WaitAll(t.Context(),
			weir.Request{Key: "full", Limit: limit, Mode: weir.Peek},
			weir.Request{Key: "full", Limit: limit, Mode: weir.Shadow},
			weir.Request{Key: "free", Limit: limit},
			weir.Request{Key: "other", Limit: limit, Cost: 9, Mode: weir.Shadow})
		if err != nil || !d.Allowed || time.Since(start) != 0 {
			t.Fatalf("%+v, %v after %s", d, err, time.Since(start))
		}
		for i, want := range []bool{false, false, true, false} {
			if d.Rows[i].Allowed != want {
				t.Errorf("row %d: %+v", i, d.Rows[i])
			}
		}
		if d, err := lim.WaitAll(t.Context()); err != nil || !d.Allowed || d.Reason != weir.NoRule {
			t.Errorf("an empty list: %+v, %v", d, err)
		}
	})
}
