package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

var ctx = context.Background()

var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

var limits = map[string]weir.Limit{
	"log":     {Max: 5, Window: time.Second, Algorithm: weir.SlidingLog},
	"parts":   {Max: 5, Window: time.Second, Algorithm: weir.SlidingBuckets, Buckets: 10},
	"counter": {Max: 5, Window: time.Second, Algorithm: weir.SlidingCounter},
	"fixed":   {Max: 5, Window: time.Second, Algorithm: weir.FixedWindow},
	"bucket":  {Max: 5, Window: time.Second, Algorithm: weir.TokenBucket, Burst: 3},
}

// history asks a store that breaks memory's promises for random things.
func history(t *testing.T, seed uint64, breaks func(weir.Store) weir.Store) (ops []Op) {
	synctest.Test(t, func(*testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		l := weir.New(weir.Options{Store: breaks(weir.NewMemory(weir.MemoryOptions{}))})
		var receipts []weir.Receipt
		for range 300 {
			<-time.After(time.Duration(1+random.IntN(100_000)) * time.Microsecond)
			keys := []string{"log", "parts", "counter", "fixed", "bucket"}
			random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			var requests []weir.Request
			for _, key := range keys[:1+random.IntN(2)] {
				requests = append(requests, weir.Request{Key: key, Limit: limits[key], Cost: 1 + random.Int64N(2)})
			}
			switch die := random.IntN(10); {
			case die < 2 && len(receipts) > 0:
				ops = append(ops, Refund(ctx, l, receipts[len(receipts)-1]))
				receipts = receipts[:len(receipts)-1]
			case die < 3:
				ops = append(ops, Count(ctx, l, weir.Request{Key: "log", Limit: limits["log"]}, time.Second/2))
			default:
				o := Take(ctx, l, requests...)
				receipts = append(receipts, weir.Decision{Rows: o.Rows}.Receipts()...)
				ops = append(ops, o)
			}
		}
	})
	return ops
}

// sin is a store that does as another does, and then wrong.
type sin struct {
	weir.Store

	calls int
	take  func(s *sin, l *weir.List)
	again bool // refunds count twice
}

func (s *sin) Take(ctx context.Context, lists []weir.List) {
	s.Store.Take(ctx, lists)
	if s.calls++; s.take != nil {
		s.take(s, &lists[0])
	}
}

func (s *sin) Refund(ctx context.Context, receipts []weir.Receipt) (int64, error) {
	n, err := s.Store.Refund(ctx, receipts)
	if s.again {
		n *= 2
	}
	return n, err
}

// TestSins shows that each check finds what it is for, and that all are silent
// about a store that keeps its promises.
func TestSins(t *testing.T) {
	forget := func(key string) func(*sin, *weir.List) {
		return func(s *sin, l *weir.List) {
			if r := l.Requests[:1]; r[0].Key == key && l.Admitted() {
				_, _ = s.Reset(ctx, r)
			}
		}
	}
	windows := func(ops []Op) error { return Windows(ops, nil) }
	linearizable := func(ops []Op) error { return Linearizable(ops, time.Minute) }
	for name, test := range map[string]struct {
		sin   sin
		check func([]Op) error
		says  string
	}{
		"log forgets":     {sin{take: forget("log")}, windows, `"log"`},
		"parts forget":    {sin{take: forget("parts")}, windows, `"parts"`},
		"counter forgets": {sin{take: forget("counter")}, windows, `"counter"`},
		"window forgets":  {sin{take: forget("fixed")}, windows, `"fixed"`},
		"bucket forgets":  {sin{take: forget("bucket")}, windows, `"bucket"`},
		"half a list is charged": {sin{take: func(_ *sin, l *weir.List) {
			l.Rows[len(l.Rows)-1].Receipt = weir.Receipt{}
		}}, AllOrNothing, "row 0: charged=false"},
		"part of a cost is charged": {sin{take: func(_ *sin, l *weir.List) {
			if r := &l.Rows[0].Receipt; !r.IsZero() {
				r.Units = 3
			}
		}}, AllOrNothing, "row 0: charged 3"},
		"half a list is degraded": {sin{take: func(_ *sin, l *weir.List) {
			if len(l.Rows) > 1 {
				l.Rows[1].Reason = weir.StoreLocal
			}
		}}, AllOrNothing, "another is degraded"},
		"refunds of more": {sin{again: true}, Refunds, "given back"},
		"a charge gets lost": {sin{take: func(s *sin, l *weir.List) {
			if r := l.Rows[0].Receipt; !r.IsZero() && s.calls%50 == 0 {
				_, _ = s.Store.Refund(ctx, []weir.Receipt{r})
			}
		}}, linearizable, "not linearizable"},
		"a charge of a denied list": {sin{take: func(s *sin, l *weir.List) {
			if !l.Admitted() && l.Rows[0].Allowed {
				s.Store.Take(ctx, []weir.List{{Requests: l.Requests[:1], Rows: make([]weir.Decision, 1)}})
			}
		}}, linearizable, "not linearizable"},
		"an old answer": {sin{take: func(s *sin, l *weir.List) {
			if s.calls%50 == 0 {
				l.Rows[0].ResetAfter += time.Microsecond
			}
		}}, linearizable, "not linearizable"},
	} {
		t.Run(name, func(t *testing.T) {
			honest := history(t, 1, func(s weir.Store) weir.Store { return s })
			if err := test.check(honest); err != nil {
				t.Errorf("of an honest store: %v", err)
			}
			err := test.check(history(t, 1, func(s weir.Store) weir.Store {
				test.sin.Store = s
				return &test.sin
			}))
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want what contains %q", err, test.says)
			}
		})
	}
}

// taken is a Taken of one unit, admitted, between two times.
func taken(key string, from, to time.Duration) Op {
	r := weir.Request{Key: key, Limit: limits[key], Cost: 1}
	receipt := weir.Receipt{Request: r, Units: 1, Stamp: from.Microseconds(), ID: 1 + uint64(from)}
	return Op{
		Verb: Taken, Call: at(from), Return: at(to), Requests: []weir.Request{r},
		Rows: []weir.Decision{{Allowed: true, Limit: 5, Receipt: receipt}},
	}
}

// TestWindowsEdges shows what counts for a window and what does not.
func TestWindowsEdges(t *testing.T) {
	const ms = time.Millisecond
	six := func(change func(last *Op)) []Op {
		var ops []Op
		for i := range time.Duration(6) {
			ops = append(ops, taken("log", i*100*ms, i*100*ms+ms))
		}
		change(&ops[5])
		return ops
	}
	capacity := func(limit weir.Limit, _, _ time.Time) int64 { return limit.Capacity() }
	fixed := func(stamp int64) []Op {
		ops := six(func(*Op) {})
		for i := range ops {
			r := &ops[i].Rows[0].Receipt
			ops[i].Requests[0], r.Stamp = weir.Request{Key: "fixed", Limit: limits["fixed"], Cost: 1}, stamp*int64(i)
		}
		return ops
	}
	for name, test := range map[string]struct {
		ops   []Op
		extra Extra
		fails bool
	}{
		"six in a window":                  {six(func(*Op) {}), nil, true},
		"and a state was lost":             {six(func(*Op) {}), capacity, false},
		"the last perhaps after it":        {six(func(o *Op) { o.Return = at(2 * time.Second) }), nil, false},
		"the last at its end":              {six(func(o *Op) { o.Call, o.Return = at(999*ms), at(time.Second) }), nil, false},
		"the last just before its end":     {six(func(o *Op) { o.Call, o.Return = at(999*ms), at(time.Second-time.Microsecond) }), nil, true},
		"the last denied":                  {six(func(o *Op) { o.Rows[0].Allowed = false }), nil, false},
		"the last by a share":              {six(func(o *Op) { o.Rows[0].Reason = weir.StoreLocal }), nil, true},
		"the last by on_failure: allow":    {six(func(o *Op) { o.Rows[0].Reason = weir.StoreAllowed }), nil, false},
		"the last a record":                {six(func(o *Op) { o.Requests[0].Mode = weir.Record }), nil, false},
		"the last failed":                  {six(func(o *Op) { o.Err = errors.New("no") }), nil, false},
		"the last of a larger limit":       {six(func(o *Op) { o.Requests[0].Limit.Max = 6 }), nil, false},
		"the last of another window":       {six(func(o *Op) { o.Requests[0].Limit.Window = time.Minute }), nil, false},
		"the first given back before":      {slices.Concat(six(func(*Op) {}), []Op{firstBack(400*ms, 1, nil)}), nil, false},
		"the first given back after":       {slices.Concat(six(func(*Op) {}), []Op{firstBack(1100*ms, 1, nil)}), nil, true},
		"the first not given back":         {slices.Concat(six(func(*Op) {}), []Op{firstBack(400*ms, 0, nil)}), nil, true},
		"the first given back, perhaps":    {slices.Concat(six(func(*Op) {}), []Op{firstBack(400*ms, 0, errors.New("timeout"))}), nil, false},
		"reset meanwhile":                  {slices.Concat(six(func(*Op) {}), []Op{{Verb: Cleared, Call: at(ms), Return: at(2 * ms), Requests: six(func(*Op) {})[0].Requests}}), nil, false},
		"reset before":                     {slices.Concat(six(func(*Op) {}), []Op{{Verb: Cleared, Call: at(-2 * ms), Return: at(-ms), Requests: six(func(*Op) {})[0].Requests}}), nil, true},
		"six in one fixed window":          {fixed(0), nil, true},
		"six in more than one of them":     {fixed(1), nil, false},
		"a bucket faster than it may":      {bucket(190 * ms), nil, true},
		"a bucket just as fast as it may":  {bucket(200 * ms), nil, false},
		"a bucket, and a state was lost":   {bucket(190 * ms), capacity, false},
		"calls too long to say much of":    {slow(1500 * ms), nil, false},
		"calls short enough to say enough": {slow(20 * ms), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Windows(test.ops, test.extra); (err != nil) != test.fails {
				t.Errorf("got %v, want a failure: %t", err, test.fails)
			}
		})
	}
}

// firstBack gives back the charge of the time 0.
func firstBack(call time.Duration, n int64, err error) Op {
	return Op{Verb: Refunded, Call: at(call), Return: at(call + 1), Receipts: []weir.Receipt{taken("log", 0, 0).Rows[0].Receipt}, N: n, Err: err}
}

// bucket takes the burst of three, and then a unit each time.
func bucket(each time.Duration) (ops []Op) {
	for i := range time.Duration(30) {
		from := max(0, i-2) * each
		ops = append(ops, taken("bucket", from, from))
	}
	return ops
}

// slow takes six at once, in calls of a length.
func slow(length time.Duration) (ops []Op) {
	for i := range time.Duration(6) {
		ops = append(ops, taken("log", i, i+length))
	}
	return ops
}

// TestDoubt shows what an unknown outcome, and what happened to the store,
// allows for. Everything is of one key of five units a second.
func TestDoubt(t *testing.T) {
	unknown := &weir.StoreError{Unknown: true, Err: errors.New("timeout")}
	lost := func(o Op) Op { o.Err, o.Rows = unknown, nil; return o }
	done := func(o Op, d time.Duration) Op { o.At = at(d); return o }
	told := func(from time.Duration, remaining int64, reset time.Duration) Op {
		o := taken("log", from, from)
		o.Rows[0].Remaining, o.Rows[0].ResetAfter = remaining, reset
		o.Rows[0].Receipt.Stamp = o.Call.UnixMicro()
		return o
	}
	const s, ms = time.Second, time.Millisecond
	first := told(0, 4, s)
	bucket := func(from time.Duration, place int64) Op {
		o := taken("bucket", from, from)
		o.Rows[0].Limit, o.Rows[0].Remaining, o.Rows[0].ResetAfter = 3, 2, s/5
		r := &o.Rows[0].Receipt
		r.Stamp, r.Level, r.Place = o.Call.UnixMicro(), 1, place
		return o
	}
	for name, test := range map[string]struct {
		ops []Op
		ok  bool
	}{
		"in order":                          {[]Op{first, told(ms, 3, s)}, true},
		"a charge too much":                 {[]Op{first, told(ms, 2, s)}, false},
		"which an unknown one may be":       {[]Op{first, lost(taken("log", ms/2, ms)), told(ms, 2, s)}, true},
		"or not":                            {[]Op{first, lost(taken("log", ms/2, ms)), told(ms, 3, s)}, true},
		"but not later":                     {[]Op{first, told(ms, 2, s), lost(taken("log", 2*ms, 3*ms))}, false},
		"nor of another key":                {[]Op{first, lost(taken("parts", ms/2, ms)), told(ms, 2, s)}, false},
		"nor if it was not sent":            {[]Op{first, fails(taken("log", ms/2, ms), &weir.StoreError{Err: unknown.Err}), told(ms, 2, s)}, false},
		"nor if it is known to be absent":   {[]Op{first, absent(lost(taken("log", ms/2, ms))), told(ms, 2, s)}, false},
		"done late":                         {[]Op{first, done(lost(taken("log", ms/2, ms)), 2*ms), told(ms, 3, s), told(3*ms, 1, s)}, true},
		"done late, and not noticed":        {[]Op{first, done(lost(taken("log", ms/2, ms)), 2*ms), told(ms, 3, s), told(3*ms, 2, s)}, false},
		"certain again after a reset":       {[]Op{lost(first), {Verb: Cleared, Call: at(ms), Return: at(ms), Requests: first.Requests, N: 1}, told(2*ms, 4, s)}, true},
		"done before a reset, so not after": {[]Op{lost(first), {Verb: Cleared, Call: at(ms), Return: at(ms), Requests: first.Requests, N: 1}, told(2*ms, 1, s)}, false},
		"perhaps done after a reset":        {[]Op{lost(first), {Verb: Cleared, Call: at(ms), Return: at(ms), Requests: first.Requests, N: 0}, told(2*ms, 1, s)}, true},
		"all lost":                          {[]Op{first, told(ms, 3, s), Lose(at(2*ms), at(2*ms), time.Time{}), told(3*ms, 4, s)}, true},
		"all lost, and still there":         {[]Op{first, told(ms, 3, s), Lose(at(2*ms), at(2*ms), time.Time{}), told(3*ms, 2, s)}, false},
		"the last lost":                     {[]Op{first, told(ms, 3, s), Lose(at(2*ms), at(2*ms), at(ms/2)), told(3*ms, 3, s)}, true},
		"the last lost, and still there":    {[]Op{first, told(ms, 3, s), Lose(at(2*ms), at(2*ms), at(ms/2)), told(3*ms, 2, s)}, false},
		"a step forward":                    {[]Op{first, Step(at(ms), s), stamped(told(2*ms, 4, s), s)}, true},
		"a step forward, and no more left":  {[]Op{first, Step(at(ms), s), stamped(told(2*ms, 3, s), s)}, false},
		"an unused bucket kept":             {[]Op{bucket(0, 1), bucket(s, 2)}, true},
		"an unused bucket forgotten":        {[]Op{bucket(0, 1), bucket(s, 1)}, true},
		"an unused bucket confused":         {[]Op{bucket(0, 1), bucket(s, 3)}, false},
		"degraded":                          {[]Op{first, local(told(ms, 0, s)), told(2*ms, 3, s)}, true},
		"degraded, and done as well":        {[]Op{first, done(local(told(ms, 0, s)), ms), told(2*ms, 2, s)}, true},
		"degraded, and not done":            {[]Op{first, absent(local(told(ms, 0, s))), told(2*ms, 2, s)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Linearizable(test.ops, time.Minute); (err == nil) != test.ok {
				t.Errorf("got %v, want it in order: %t", err, test.ok)
			}
		})
	}
}

func fails(o Op, err error) Op { o.Err = err; return o }

func absent(o Op) Op { o.Absent = true; return o }

func local(o Op) Op { o.Rows[0].Reason = weir.StoreLocal; return o }

func stamped(o Op, ahead time.Duration) Op {
	o.Rows[0].Receipt.Stamp += ahead.Microseconds()
	return o
}

func TestBound(t *testing.T) {
	for _, test := range []struct {
		limit string
		d     time.Duration
		want  int64
	}{
		{"log", 0, 5}, {"log", time.Second, 5}, {"log", time.Second + 1, 10}, {"parts", time.Second, 5},
		{"counter", time.Second, 10}, {"fixed", time.Second, 10}, {"fixed", 2 * time.Second, 15},
		{"bucket", 0, 3}, {"bucket", 199 * time.Millisecond, 3}, {"bucket", 200 * time.Millisecond, 4}, {"bucket", time.Hour, 18003},
	} {
		t.Run(fmt.Sprintf("%s in %s", test.limit, test.d), func(t *testing.T) {
			if got := Bound(limits[test.limit], test.d); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	huge := weir.Limit{Max: weir.MaxUnits, Window: time.Microsecond, Burst: 1, Algorithm: weir.TokenBucket}
	if got, want := Bound(huge, time.Hour), int64(1)+weir.MaxUnits*3_600_000_000; got != want {
		t.Errorf("of a huge limit: got %d, want %d", got, want)
	}
}
