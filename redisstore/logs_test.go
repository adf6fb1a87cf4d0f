package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		}, 1)
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
			return openStore(t, Options{URL: server.URL(), SortedSet: sorted, Now: now})
		})
		if err != nil {
			t.Errorf("as a sorted set=%t: %v", sorted, err)
		}
	}
}

// checkSteady takes all that limits admit for a while.
func checkSteady(server *redistest.Server, open func(now func() time.Time) *Store) error {
	for _, text := range []string{"3/1s", "30/1s", "3/1s buckets=3", "30/1s buckets=30"} {
		limit, err := weir.ParseLimit(text)
		if err != nil {
			return err
		}
		now := storetest.Epoch
		store := open(func() time.Time { return now })
		lim, k := weir.New(weir.Options{Store: store}), weir.Request{Key: "k", Limit: limit}
		for range 300 {
			now = now.Add(limit.Window / time.Duration(limit.Max))
			if _, err := lim.Allow(context.Background(), "k", limit); err != nil {
				return err
			}
		}
		w := store.single(&k)
		size := map[layout]int64{packedLog: 10, packedBuckets: 12, sortedSet: 1}[w.layout]
		reply, err := server.Do(map[bool]string{false: "STRLEN", true: "ZCARD"}[w.layout == sortedSet], w.key)
		if n, _ := reply.(int64); err != nil || n < 2*size || n > (2*limit.Max+32)*size {
			return fmt.Errorf("%s: %d cells after 300 charges (%w)", text, n/size, err)
		}
	}
	return nil
}

// checkLogs plays histories of one busy key on a store and on the pure
// functions. The numbers of units are around those that are read at once, and
// such that running totals begin anew. It stops every so many limits.
func checkLogs(open storetest.Open, every int) error {
	for i, base := range []string{
		"13/1h", "14/1h", "15/1h", "16/1h", "20/1h", "40/1h", "300/1h", "100000/1h",
		"14/1h buckets=20", "40/1h buckets=100", "300/1h buckets=1000", "100000/1h buckets=7", "2147483648/1h",
	} {
		if i%every != 0 {
			continue
		}
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
