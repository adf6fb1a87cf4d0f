package storetest_test

import (
	"context"
	"flag"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// mutant is a store that breaks one line of the contract. Each overrides what
// it needs; the rest is the reference store.
type mutant struct {
	weir.Store
	now    func() time.Time
	take   func(m *mutant, lists []weir.List)
	refund func(m *mutant, rs []weir.Receipt) (int64, error)
	count  func(m *mutant, r weir.Request, d time.Duration) (int64, error)
	reset  func(m *mutant, rs []weir.Request) (int64, error)
	seen   map[string]weir.Limit
	last   time.Time
	busy   *atomic.Bool // while a Take is answered

	immortal bool          // Close does nothing
	tick     time.Duration // the clock's resolution, if not 0
}

func (m *mutant) Close() error {
	if m.immortal {
		return nil
	}
	return m.Store.Close()
}

func (m *mutant) Take(ctx context.Context, lists []weir.List) {
	if m.take == nil {
		m.Store.Take(ctx, lists)
		return
	}
	m.take(m, lists)
}

func (m *mutant) Refund(ctx context.Context, rs []weir.Receipt) (int64, error) {
	if m.refund == nil {
		return m.Store.Refund(ctx, rs)
	}
	return m.refund(m, rs)
}

func (m *mutant) Count(ctx context.Context, r weir.Request, d time.Duration) (int64, error) {
	if m.count == nil {
		return m.Store.Count(ctx, r, d)
	}
	return m.count(m, r, d)
}

func (m *mutant) Reset(ctx context.Context, rs []weir.Request) (int64, error) {
	if m.reset == nil {
		return m.Store.Reset(ctx, rs)
	}
	return m.reset(m, rs)
}

var background = context.Background()

// after lets the reference store answer, then changes each row.
func after(change func(r *weir.Request, d *weir.Decision)) func(*mutant, []weir.List) {
	return func(m *mutant, lists []weir.List) {
		m.Store.Take(background, lists)
		for _, l := range lists {
			for i := range l.Rows {
				change(&l.Requests[i], &l.Rows[i])
			}
		}
	}
}

// before changes each request, then lets the reference store answer. Receipts
// and requests keep what the caller sent.
func before(change func(m *mutant, r *weir.Request)) func(*mutant, []weir.List) {
	return func(m *mutant, lists []weir.List) {
		changed := make([]weir.List, len(lists))
		for i, l := range lists {
			changed[i] = weir.List{Requests: slices.Clone(l.Requests), Rows: l.Rows}
			for j := range changed[i].Requests {
				change(m, &changed[i].Requests[j])
			}
		}
		m.Store.Take(background, changed)
		for i := range lists {
			lists[i].Err = changed[i].Err
		}
	}
}

// also takes one more request after the answer.
func (m *mutant) also(r weir.Request) {
	m.Store.Take(background, []weir.List{{Requests: []weir.Request{r}, Rows: make([]weir.Decision, 1)}})
}

// window changes the window of one algorithm behind the caller's back.
func window(a weir.Algorithm, d time.Duration) func(*mutant, []weir.List) {
	return before(func(_ *mutant, r *weir.Request) {
		if r.Limit.Algorithm == a {
			r.Limit.Window = max(time.Microsecond, r.Limit.Window+d)
		}
	})
}

// swapped keeps one algorithm's limits by another algorithm.
func swapped(from, to weir.Algorithm) func(*mutant, []weir.List) {
	return before(func(_ *mutant, r *weir.Request) {
		if r.Limit.Algorithm == from {
			// A log cannot keep the largest limits.
			if l, err := (weir.Limit{Max: r.Limit.Max, Window: r.Limit.Window, Algorithm: to}).Normal(); err == nil {
				r.Limit = l
			}
		}
	})
}

// refilled forgets what has drained of the unit at the head of a bucket, when a
// take was allowed or when it was not.
func refilled(when bool) func(*mutant, []weir.List) {
	return func(m *mutant, lists []weir.List) {
		m.Store.Take(background, lists)
		for _, l := range lists {
			for i, d := range l.Rows {
				r := l.Requests[i]
				if r.Limit.Algorithm != weir.TokenBucket || r.Mode == weir.Peek || d.Allowed != when {
					continue
				}
				_, _ = m.Store.Reset(background, []weir.Request{r})
				if r.Cost, r.Mode = d.Limit-d.Remaining, weir.Record; r.Cost > 0 {
					m.also(r)
				}
			}
		}
	}
}

// mutants has at least one for each line of the contract that a store keeps.
// caught names checks that must fail on it; the model check alone is not
// enough, since it would only say that two stores differ.
var mutants = []struct {
	line, name string
	m          mutant
	caught     []string
}{
	{"bound of sliding-log", "a window one microsecond short", mutant{take: window(weir.SlidingLog, -time.Microsecond)}, []string{"exact", "bounds"}},
	{"bound of sliding-log", "a window one microsecond long", mutant{take: window(weir.SlidingLog, time.Microsecond)}, []string{"exact"}},
	{"bound of sliding-log", "a fixed window in its place", mutant{take: swapped(weir.SlidingLog, weir.FixedWindow)}, []string{"exact", "bounds"}},
	{"bound of sliding-log", "a token bucket in its place", mutant{take: swapped(weir.SlidingLog, weir.TokenBucket)}, []string{"exact", "bounds"}},
	{"bound of sliding-buckets", "a window one part short", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Limit.Algorithm == weir.SlidingBuckets {
			r.Limit.Window = max(time.Microsecond, (r.Limit.Window - r.Limit.Window/time.Duration(r.Limit.Buckets)).Truncate(time.Microsecond))
		}
	})}, []string{"bounds"}},
	{"bound of sliding-buckets", "one part in place of all", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Limit.Algorithm == weir.SlidingBuckets {
			r.Limit.Buckets = 1
		}
	})}, []string{"buckets-strict"}},
	{"bound of sliding-buckets", "a count that starts one part late", mutant{count: func(m *mutant, r weir.Request, d time.Duration) (int64, error) {
		part := r.Limit.Window / time.Duration(r.Limit.Buckets+1)
		return m.Store.Count(background, r, max(time.Microsecond, (d-part).Truncate(time.Microsecond)))
	}}, []string{"vectors"}},
	{"bound of sliding-counter", "a log in its place", mutant{take: swapped(weir.SlidingCounter, weir.SlidingLog)}, []string{"vectors"}},
	{"bound of fixed-window", "one unit more", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Limit.Algorithm == weir.FixedWindow {
			r.Limit.Max++
		}
	})}, []string{"bounds"}},
	{"bound of fixed-window", "windows by the wall clock always", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Limit.Epoch = r.Limit.Algorithm == weir.FixedWindow
	})}, []string{"vectors"}},
	{"bound of token-bucket", "a burst of one more", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Limit.Algorithm == weir.TokenBucket {
			r.Limit.Burst++
		}
	})}, []string{"bounds"}},
	{"bound of token-bucket", "a rate one microsecond fast", mutant{take: window(weir.TokenBucket, -time.Microsecond)}, []string{"bounds"}},
	{"1 a denial consumes nothing", "it consumes one where one fits", mutant{take: func(m *mutant, lists []weir.List) {
		m.Store.Take(background, lists)
		for _, l := range lists {
			for i := range l.Rows {
				if r := l.Requests[i]; !l.Rows[i].Allowed && r.Mode == weir.Enforce {
					r.Cost = 1
					m.also(r)
				}
			}
		}
	}}, []string{"denial-free", "exact", "never"}},
	{"1 a denial consumes nothing", "a peek consumes", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Mode == weir.Peek {
			r.Mode = weir.Shadow
		}
	})}, []string{"denial-free", "exact"}},
	{"2 all or nothing", "rows of a denied list are charged on their own", mutant{take: func(m *mutant, lists []weir.List) {
		for i := range lists {
			for j := range lists[i].Requests {
				one := []weir.List{{Requests: lists[i].Requests[j : j+1], Rows: lists[i].Rows[j : j+1]}}
				m.Store.Take(background, one)
				lists[i].Err = one[0].Err
			}
		}
	}}, []string{"all-or-nothing"}},
	{"2 all or nothing", "rows of one state are not summed", mutant{take: func(m *mutant, lists []weir.List) {
		m.Store.Take(background, lists)
		for _, l := range lists {
			for i := 1; i < len(l.Requests); i++ {
				if l.Requests[i].Key == l.Requests[0].Key && l.Requests[i].Mode == weir.Enforce && l.Requests[0].Mode == weir.Enforce {
					l.Rows[0].Allowed = true
				}
			}
		}
	}}, []string{"vectors"}},
	{"modes", "a shadow row denies", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Mode == weir.Shadow {
			r.Mode = weir.Enforce
		}
	})}, []string{"vectors", "shadow"}},
	{"modes", "a shadow row is charged whatever it says", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Mode == weir.Shadow {
			r.Mode = weir.Record
		}
	})}, []string{"vectors", "shadow"}},
	{"modes", "a record row can be denied", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Mode == weir.Record {
			r.Mode = weir.Shadow
		}
	})}, []string{"vectors"}},
	{"3 state identity", "Max is part of it", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Key += "/" + r.Limit.String()
	})}, []string{"limit-change", "limit-raise"}},
	{"3 state identity", "another Max acts once the state is gone", mutant{take: before(func(m *mutant, r *weir.Request) {
		state := r.Key + r.Limit.Window.String()
		first, ok := m.seen[state]
		if !ok {
			first, m.seen[state] = r.Limit, r.Limit
		}
		r.Limit.Max, r.Limit.Burst = first.Max, first.Burst
	})}, []string{"limit-change", "limit-raise"}},
	{"3 state identity", "the window is not, so another one keeps the state", mutant{take: before(func(m *mutant, r *weir.Request) {
		first, ok := m.seen[r.Key]
		if !ok {
			first, m.seen[r.Key] = r.Limit, r.Limit
		}
		r.Limit.Window = first.Window
	})}, []string{"limit-change", "limit-raise"}},
	{"3 state identity", "the algorithm is not, so another one keeps the state", mutant{take: func(m *mutant, lists []weir.List) {
		for _, l := range lists {
			for i := range l.Requests {
				r := l.Requests[i]
				if first, ok := m.seen[r.Key]; ok && first.Algorithm != r.Limit.Algorithm {
					l.Requests[i].Limit.Algorithm, l.Requests[i].Limit.Burst, l.Requests[i].Limit.Buckets = first.Algorithm, first.Burst, first.Buckets
				} else {
					m.seen[r.Key] = r.Limit
				}
			}
		}
		m.Store.Take(background, lists)
	}}, []string{"limit-change"}},
	{"4 never", "it is over the limit instead", mutant{take: after(func(_ *weir.Request, d *weir.Decision) {
		if d.Reason == weir.Never {
			d.Reason = weir.OverLimit
		}
	})}, []string{"never"}},
	{"4 never", "it has a wait", mutant{take: after(func(r *weir.Request, d *weir.Decision) {
		if d.Reason == weir.Never {
			d.RetryAfter = r.Limit.Window
		}
	})}, []string{"never"}},
	{"5 RetryAfter", "one microsecond more", mutant{take: after(func(_ *weir.Request, d *weir.Decision) {
		if d.RetryAfter > 0 {
			d.RetryAfter += time.Microsecond
		}
	})}, []string{"retry"}},
	{"5 RetryAfter", "one microsecond less", mutant{take: after(func(_ *weir.Request, d *weir.Decision) {
		if d.RetryAfter > 0 {
			d.RetryAfter -= time.Microsecond
		}
	})}, []string{"retry"}},
	{"5 RetryAfter", "the reset in its place", mutant{take: after(func(_ *weir.Request, d *weir.Decision) {
		if d.RetryAfter > 0 {
			d.RetryAfter = d.ResetAfter
		}
	})}, []string{"retry"}},
	{"5 ResetAfter", "one microsecond less", mutant{take: after(func(_ *weir.Request, d *weir.Decision) {
		if d.ResetAfter > 0 {
			d.ResetAfter -= time.Microsecond
		}
	})}, []string{"retry"}},
	{"6 refund", "the oldest units go in place of the receipt's", mutant{refund: func(m *mutant, rs []weir.Receipt) (int64, error) {
		for i := range rs {
			rs[i].ID = 0
		}
		return m.Store.Refund(background, rs)
	}}, []string{"exact", "refund-once"}},
	{"6 refund", "one unit too few", mutant{refund: func(m *mutant, rs []weir.Receipt) (int64, error) {
		for i := range rs {
			rs[i].Units--
		}
		return m.Store.Refund(background, rs)
	}}, []string{"refund-once"}},
	{"6 refund", "expired units are given back", mutant{refund: func(m *mutant, rs []weir.Receipt) (int64, error) {
		n, err := m.Store.Refund(background, rs)
		return max(n, rs[0].Units), err
	}}, []string{"refund-once"}},
	{"6 refund", "what an unused key is given back is kept as credit", mutant{
		refund: func(m *mutant, rs []weir.Receipt) (int64, error) {
			n, err := m.Store.Refund(background, rs)
			if n == 0 {
				m.seen[rs[0].Request.Key] = rs[0].Request.Limit
			}
			return n, err
		},
		take: before(func(m *mutant, r *weir.Request) {
			if _, credit := m.seen[r.Key]; credit && r.Mode == weir.Enforce {
				r.Limit.Max++
				if r.Limit.Burst > 0 {
					r.Limit.Burst++
				}
			}
		}),
	}, []string{"refund-at-capacity", "vectors"}},
	{"6 charge", "nothing is recorded above the limit", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Mode == weir.Record {
			r.Mode, r.Cost = weir.Shadow, min(r.Cost, r.Limit.Capacity())
		}
	})}, []string{"vectors"}},
	{"6 count", "the whole window is counted", mutant{count: func(m *mutant, r weir.Request, _ time.Duration) (int64, error) {
		return m.Store.Count(background, r, r.Limit.Window)
	}}, []string{"vectors"}},
	{"7 expiry", "states are forgotten after half their window", mutant{take: func(m *mutant, lists []weir.List) {
		for _, l := range lists {
			for _, r := range l.Requests {
				one := []weir.List{{Requests: []weir.Request{{Key: r.Key, Limit: r.Limit, Cost: 1, Mode: weir.Peek}}, Rows: make([]weir.Decision, 1)}}
				m.Store.Take(background, one)
				if one[0].Rows[0].ResetAfter < r.Limit.Window/2 {
					_, _ = m.Store.Reset(background, []weir.Request{r})
				}
			}
		}
		m.Store.Take(background, lists)
	}}, []string{"exact", "bounds"}},
	{"7 expiry", "windows below a second are forgotten at once", mutant{take: func(m *mutant, lists []weir.List) {
		m.Store.Take(background, lists)
		for _, l := range lists {
			for _, r := range l.Requests {
				if r.Limit.Window < time.Second {
					_, _ = m.Store.Reset(background, []weir.Request{r})
				}
			}
		}
	}}, []string{"sub-second", "tiny-windows", "exact"}},
	{"7 expiry", "windows are rounded up to seconds", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Limit.Window = (r.Limit.Window + time.Second - 1).Truncate(time.Second)
	})}, []string{"sub-second", "tiny-windows", "exact"}},
	{"bound of token-bucket", "what has drained of a unit is lost with a denial", mutant{take: refilled(false)}, []string{"slow-refill", "denial-free"}},
	{"bound of token-bucket", "what has drained of a unit is lost with a take", mutant{take: refilled(true)}, []string{"slow-refill", "sub-second"}},
	{"numbers", "time is in milliseconds", mutant{tick: time.Millisecond}, []string{"tiny-windows", "sub-second", "exact"}},
	{"numbers", "stamps have 14 digits", mutant{tick: 100 * time.Microsecond}, []string{"tiny-windows", "large-limits"}},
	{"numbers", "windows have 32 bits", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Limit.Window = min(r.Limit.Window, (1<<31-1)*time.Microsecond)
	})}, []string{"large-limits"}},
	{"numbers", "costs have 31 bits", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Cost = min(r.Cost, 1<<31-1)
	})}, []string{"large-limits"}},
	{"numbers", "a unit takes whole microseconds", mutant{take: before(func(_ *mutant, r *weir.Request) {
		if r.Limit.Algorithm == weir.TokenBucket {
			unit := (r.Limit.Window.Microseconds() + r.Limit.Max - 1) / r.Limit.Max
			r.Limit.Window = time.Duration(unit*r.Limit.Max) * time.Microsecond
		}
	})}, []string{"large-limits"}},
	{"8 clock", "a step back forgets everything", mutant{take: func(m *mutant, lists []weir.List) {
		now := m.now()
		for _, l := range lists {
			for i := range l.Requests {
				if r := &l.Requests[i]; now.Before(m.last) {
					_, _ = m.Store.Reset(background, []weir.Request{*r})
				}
			}
		}
		m.last = now
		m.Store.Take(background, lists)
	}}, []string{"clock-back"}},
	{"9 linearizable", "look first, charge later", mutant{take: func(m *mutant, lists []weir.List) {
		looks := make([]weir.List, len(lists))
		for i, l := range lists {
			looks[i] = weir.List{Requests: slices.Clone(l.Requests), Rows: l.Rows}
			for j := range looks[i].Requests {
				looks[i].Requests[j].Mode = weir.Peek
			}
		}
		m.Store.Take(background, looks)
		for range 100 { // others may look in between
			runtime.Gosched()
		}
		for i := range lists {
			if lists[i].Err = looks[i].Err; lists[i].Err != nil || !lists[i].Admitted() {
				continue
			}
			charged := weir.List{Requests: slices.Clone(lists[i].Requests), Rows: make([]weir.Decision, len(lists[i].Rows))}
			for j := range charged.Requests {
				charged.Requests[j].Mode = weir.Record
			}
			m.Store.Take(background, []weir.List{charged})
			for j := range charged.Rows {
				lists[i].Rows[j].Receipt = charged.Rows[j].Receipt
			}
		}
	}}, []string{"concurrent"}},
	{"9 linearizable", "an error where two meet", mutant{take: func(m *mutant, lists []weir.List) {
		if !m.busy.CompareAndSwap(false, true) {
			for i := range lists {
				lists[i].Err = context.DeadlineExceeded
			}
			return
		}
		for range 100 { // others may come meanwhile
			runtime.Gosched()
		}
		m.Store.Take(background, lists)
		m.busy.Store(false)
	}}, []string{"concurrent"}},
	{"10 keys", "they end at a NUL", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Key, _, _ = strings.Cut(r.Key, "\x00")
	})}, []string{"keys"}},
	{"10 keys", "they end after 255 bytes", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Key = r.Key[:min(len(r.Key), 255)]
	})}, []string{"keys"}},
	{"10 keys", "they are made valid UTF-8", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Key = strings.ToValidUTF8(r.Key, "?")
	})}, []string{"keys"}},
	{"10 keys", "space around them is dropped", mutant{take: before(func(_ *mutant, r *weir.Request) {
		r.Key = strings.TrimSpace(r.Key)
	})}, []string{"keys"}},
	{"11 errors", "a closed store still answers", mutant{immortal: true}, []string{"closed"}},
	{"13 reasons", "a denial is ok", mutant{take: after(func(_ *weir.Request, d *weir.Decision) { d.Reason = weir.OK })}, []string{"never", "vectors"}},
	{"remaining", "one more than there is", mutant{take: after(func(_ *weir.Request, d *weir.Decision) {
		if d.Remaining > 0 && d.Remaining < d.Limit {
			d.Remaining++
		}
	})}, []string{"vectors"}},
	{"each", "a trip is one list", mutant{take: func(m *mutant, lists []weir.List) {
		var all weir.List
		for _, l := range lists {
			all.Requests = append(all.Requests, l.Requests...)
		}
		all.Rows = make([]weir.Decision, len(all.Requests))
		one := []weir.List{all}
		m.Store.Take(background, one)
		for i := range lists {
			n := copy(lists[i].Rows, one[0].Rows)
			one[0].Rows, lists[i].Err = one[0].Rows[n:], one[0].Err
		}
	}}, []string{"each"}},
}

// TestMutants shows that the suite fails on every broken store.
func setShort(t *testing.T, value string) {
	t.Helper()
	if err := flag.Set("test.short", value); err != nil {
		t.Fatal(err)
	}
}

func TestMutants(t *testing.T) {
	// It is the whole suite that must catch them.
	if testing.Short() {
		setShort(t, "false")
		t.Cleanup(func() { setShort(t, "true") })
	}
	checks := make(map[string]storetest.Check)
	for _, c := range storetest.Checks() {
		checks[c.Name] = c
	}
	for _, mu := range mutants {
		t.Run(mu.line+"/"+mu.name, func(t *testing.T) {
			t.Parallel()
			open := func(now func() time.Time) (weir.Store, error) {
				m := mu.m
				m.now = func() time.Time { return now().Truncate(m.tick) }
				m.Store, m.seen, m.busy = storetest.NewModel(m.now), make(map[string]weir.Limit), new(atomic.Bool)
				return &m, nil
			}
			if len(mu.caught) == 0 {
				t.Error("no check is named that must catch it")
			}
			for _, name := range mu.caught {
				if checks[name].Run(open) == nil {
					t.Errorf("the check %q passes a store with the fault %q", name, mu.name)
				}
			}
		})
	}
}
