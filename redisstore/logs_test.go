package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/storetest"
)

// TestLargeLogs compares logs of many cells with the pure functions.
func TestLargeLogs(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for _, sorted := range []bool{false, true} {
		n := 0
		err := checkLogs(func(now func() time.Time) (weir.Store, error) {
			n++
			return openStore(t, Options{URL: server.URL(), Prefix: fmt.Sprintf("weir:%t:%d", sorted, n), SortedSet: sorted, Verify: true, Now: now}), nil
		})
		if err != nil {
			t.Errorf("as a sorted set=%t: %v", sorted, err)
		}
	}
}

// TestLogsStaySmall holds that a log in steady use keeps little more than its
// window holds.
func TestLogsStaySmall(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for _, sorted := range []bool{false, true} {
		err := checkSteady(server, func(now func() time.Time) *Store {
			return openStore(t, Options{URL: server.URL(), Prefix: fmt.Sprint("weir", sorted), SortedSet: sorted, Now: now})
		})
		if err != nil {
			t.Errorf("as a sorted set=%t: %v", sorted, err)
		}
	}
}

// demand is how many calls a script made, and how many cells there were.
type demand struct{ calls, cells int64 }

// checkSteady takes all that limits admit, and in the third window as much again,
// which is denied. Where a window begins is guessed, and what has left it is cut
// now and then: answers do not tell whether that goes well, so this holds that it
// demands no more than it has.
func checkSteady(server *redistest.Server, open func(now func() time.Time) *Store) error {
	for _, tt := range []struct {
		limit          string
		packed, sorted demand
	}{
		{"1/1s", demand{3, 2}, demand{6, 1}},
		{"2/1s", demand{7, 7}, demand{15, 2}},
		{"3/1s", demand{10, 10}, demand{22, 3}},
		{"13/1s", demand{44, 29}, demand{92, 13}},
		{"14/1s", demand{75, 30}, demand{99, 14}},
		{"30/1s", demand{161, 46}, demand{211, 30}},
		{"500/1s", demand{2519, 613}, demand{3501, 500}},
		{"1118/1118ms", demand{5611, 1228}, demand{7827, 1118}}, // of which a cut keeps no more than is live
		{"3/1s buckets=1000", demand{10, 10}, demand{}},
		{"30/1s buckets=1000", demand{159, 46}, demand{}},
	} {
		limit, err1 := weir.ParseLimit(tt.limit)
		limit, err2 := limit.Normal()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		got, sorted, err := steady(server, open, limit)
		want := tt.packed
		if sorted {
			want = tt.sorted
		}
		if err != nil || got.calls > want.calls || got.cells > want.cells {
			return fmt.Errorf("%s: %+v, want at most %+v (%w)", tt.limit, got, want, err)
		}
	}
	return nil
}

// steady returns what one limit demands in its third window, and whether of a sorted set.
func steady(server *redistest.Server, open func(now func() time.Time) *Store, limit weir.Limit) (got demand, sorted bool, err error) {
	now := storetest.Epoch
	store, k := open(func() time.Time { return now }), weir.Request{Key: limit.String(), Limit: limit}
	lim, w := weir.New(weir.Options{Store: store}), store.single(&k)
	size, length := map[layout]int64{packedLog: 10, packedBuckets: 12}[w.layout], "STRLEN"
	if w.layout == sortedSet {
		size, length = 1, "ZCARD"
	}
	for i := range 3 * limit.Max {
		now = now.Add(limit.Window / time.Duration(limit.Max))
		if i == 2*limit.Max {
			if _, err := server.Do("CONFIG", "RESETSTAT"); err != nil {
				return got, false, err
			}
		}
		// A bucket may be up to a part too strict.
		d, err := lim.Allow(context.Background(), k.Key, limit)
		if err != nil || !d.Allowed && w.layout != packedBuckets {
			return got, false, fmt.Errorf("step %d: %+v (%w)", i, d, err)
		}
		if i < 2*limit.Max {
			continue
		}
		if d, err := lim.Allow(context.Background(), k.Key, limit); err != nil || d.Allowed {
			return got, false, fmt.Errorf("step %d: %+v (%w)", i, d, err)
		}
		reply, err := server.Do(length, w.key)
		n, _ := reply.(int64)
		if got.cells = max(got.cells, n/size); err != nil || n == 0 {
			return got, false, fmt.Errorf("step %d: no key (%w)", i, err)
		}
	}
	const others = "evalsha hello ping info auth client|setinfo config|resetstat"
	got.calls = -limit.Max // those above
	stats, err := server.Info("commandstats")
	for name, text := range stats {
		count, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		if n, err := strconv.ParseInt(count, 10, 64); err == nil && !slices.Contains(strings.Fields(others), strings.TrimPrefix(name, "cmdstat_")) {
			got.calls += n
		}
	}
	if err != nil || w.layout == packedBuckets {
		return got, false, err
	}
	// As many units must leave as are asked for, so this looks far back.
	cost := limit.Max/2 + 1
	d, err := lim.AllowN(context.Background(), k.Key, limit, cost)
	late := d.RetryAfter - time.Duration(cost)*limit.Window/time.Duration(limit.Max)
	if err != nil || late.Abs() > 2*time.Microsecond {
		err = fmt.Errorf("%d units: %+v, late by %s (%w)", cost, d, late, err)
	}
	return got, w.layout == sortedSet, err
}

// checkLogs plays histories of one busy key on a store and on the pure
// functions. The numbers of units are around those that are read at once, and
// such that running totals begin anew.
func checkLogs(open storetest.Open) error {
	for i, base := range []string{
		"13/1h", "14/1h", "15/1h", "16/1h", "20/1h", "40/1h", "300/1h", "100000/1h",
		"14/1h buckets=20", "40/1h buckets=100", "300/1h buckets=1000", "100000/1h buckets=7", "2147483648/1h",
		"250/1h", "250/1h buckets=10000",
	} {
		limit, err := weir.ParseLimit(base)
		if err != nil {
			return err
		}
		tw := &twins{r: rand.New(rand.NewPCG(1, uint64(i))), now: storetest.Epoch, limit: limit}
		store, err := open(func() time.Time { return tw.now })
		if err != nil {
			return err
		}
		tw.both = [2]*weir.Limiter{weir.New(weir.Options{Store: store}), weir.New(weir.Options{Store: storetest.NewModel(func() time.Time { return tw.now })})}
		if limit.Max == 250 {
			if err := tw.full(); err != nil {
				return fmt.Errorf("%s, full of units: %w", base, err)
			}
			continue
		}
		for step := range 300 {
			if what, err := tw.step(); err != nil {
				return fmt.Errorf("%s, step %d, %s: %w", base, step, what, err)
			}
		}
		if limit.Max == weir.MaxUnits {
			if err := tw.overflow(); err != nil {
				return fmt.Errorf("%s: %w", base, err)
			}
		}
	}
	return nil
}

// twins are a store and the pure functions under the same history.
type twins struct {
	r        *rand.Rand
	now      time.Time
	limit    weir.Limit
	both     [2]*weir.Limiter
	receipts [2][]weir.Receipt
}

// compare makes both do the same.
func (w *twins) compare(do func(lim *weir.Limiter, i int) (weir.Decision, int64, error)) error {
	var got [2]string
	var errs [2]error
	for i, lim := range w.both {
		d, n, err := do(lim, i)
		if !d.Receipt.IsZero() {
			w.receipts[i] = append(w.receipts[i], d.Receipt)
		}
		d.Receipt = weir.Receipt{}
		got[i], errs[i] = fmt.Sprintf("%+v %d", d, n), err
	}
	if got[0] != got[1] {
		errs[1] = fmt.Errorf("got %s, want %s", got[0], got[1])
	}
	return errors.Join(errs[:]...)
}

// overflow charges more than is remembered, and gives all of it back.
func (w *twins) overflow() error {
	ctx := context.Background()
	for i := range 600 {
		w.now = w.now.Add(time.Millisecond)
		err := w.compare(func(lim *weir.Limiter, _ int) (weir.Decision, int64, error) {
			if i < 300 {
				d, err := lim.Charge(ctx, "k", w.limit, weir.MaxUnits)
				return d, 0, err
			}
			n, err := lim.RefundOldest(ctx, weir.Request{Key: "k", Limit: w.limit, Cost: weir.MaxUnits})
			return weir.Decision{}, n, err
		})
		if err != nil {
			return fmt.Errorf("overflow, step %d: %w", i, err)
		}
	}
	return nil
}

// full takes units one by one, and then asks and gives back in all places of a
// log of so many cells.
func (w *twins) full() error {
	ctx, l := context.Background(), w.limit
	for range l.Max {
		w.now = w.now.Add(time.Duration(w.r.Int64N(int64(2*l.Window) / l.Max)).Truncate(time.Microsecond))
		if err := w.compare(func(lim *weir.Limiter, _ int) (weir.Decision, int64, error) {
			d, err := lim.Allow(ctx, "k", l)
			return d, 0, err
		}); err != nil {
			return err
		}
	}
	for i := range int64(20) {
		w.now = w.now.Add(l.Window / 30)
		err := w.compare(func(lim *weir.Limiter, j int) (weir.Decision, int64, error) {
			d, err1 := lim.AllowN(ctx, "k", l, l.Max-i*l.Max/25)
			n, err2 := lim.Count(ctx, "k", l, time.Duration(i+1)*l.Window/21)
			back, err3 := lim.Refund(ctx, w.receipts[j][len(w.receipts[j])-int(i*11%200)-1])
			oldest, err4 := lim.RefundOldest(ctx, weir.Request{Key: "k", Limit: l, Cost: i % 3})
			return d, n + 1000*back + 10000*oldest, errors.Join(err1, err2, err3, err4)
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

// step does something at random to both. A full window is what is frequent.
func (w *twins) step() (what string, err error) {
	ctx, l := context.Background(), w.limit
	fraction := func(of, least int64) int64 { return least + w.r.Int64N(max(1, of)) }
	switch chance := w.r.IntN(60); {
	case chance < 8: // all of a burst, or half a window, has the same stamp
	case chance < 10:
		w.now = w.now.Add(l.Window * time.Duration(fraction(20, 1)) / 16)
	case chance < 12:
		w.now = w.now.Add(-l.Window / time.Duration(fraction(8, 1)))
	default:
		w.now = w.now.Add(time.Duration(fraction(2*int64(l.Window)/min(l.Max, 40), 1)).Truncate(time.Microsecond))
	}
	if w.r.IntN(30) == 0 && l.Max < 1000 {
		l.Max = max(1, l.Max+fraction(5, -2))
	}
	unit := max(1, l.Max/40) // so that few charges fill a large limit
	switch chance := w.r.IntN(40); {
	case chance < 2:
		n := fraction(3*l.Max, 1)
		return fmt.Sprint("charge ", n), w.compare(func(lim *weir.Limiter, _ int) (weir.Decision, int64, error) {
			d, err := lim.Charge(ctx, "k", l, min(n, weir.MaxUnits))
			return d, 0, err
		})
	case chance < 6 && len(w.receipts[0]) > 0:
		back := w.r.IntN(min(len(w.receipts[0]), 30)) + 1
		part := fraction(2*unit, 1)
		return fmt.Sprintf("refund %d of the last but %d", part, back), w.compare(func(lim *weir.Limiter, i int) (weir.Decision, int64, error) {
			n, err := lim.Refund(ctx, w.receipts[i][len(w.receipts[i])-back].Part(part))
			return weir.Decision{}, n, err
		})
	case chance < 7:
		n := fraction(l.Max, 1)
		return fmt.Sprint("oldest ", n), w.compare(func(lim *weir.Limiter, _ int) (weir.Decision, int64, error) {
			n, err := lim.RefundOldest(ctx, weir.Request{Key: "k", Limit: l, Cost: n})
			return weir.Decision{}, n, err
		})
	case chance < 9:
		d := time.Duration(fraction(int64(l.Window/time.Microsecond), 1)) * time.Microsecond
		return fmt.Sprint("count ", d), w.compare(func(lim *weir.Limiter, _ int) (weir.Decision, int64, error) {
			n, err := lim.Count(ctx, "k", l, min(d, l.Window))
			return weir.Decision{}, n, err
		})
	case chance < 11:
		unit = fraction(l.Max, 1)
	case chance < 20:
		unit = fraction(3*unit, 1)
	}
	return fmt.Sprint("take ", unit), w.compare(func(lim *weir.Limiter, _ int) (weir.Decision, int64, error) {
		d, err := lim.AllowN(ctx, "k", l, unit)
		return d, 0, err
	})
}
