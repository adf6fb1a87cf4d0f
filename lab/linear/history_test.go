package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/lab/check"
)

const (
	clients = 16
	keys    = 8
)

var ctx = context.Background()

// client asks about random keys through a store of its own, and writes down
// what it asked, when, and what it was told.
type client struct {
	limiter  *weir.Limiter
	limit    weir.Limit
	random   *rand.Rand
	receipts [keys][]weir.Receipt // of its charges that it has not refunded
	history  []check.Op
}

// record lets all clients ask at once, `each` times each, and returns the
// history. open returns a store for one of them; all share their states.
func record(t *testing.T, limit weir.Limit, each int, open func() (weir.Store, error)) (history []check.Op) {
	t.Helper()
	all := make([]client, clients)
	for i := range all {
		store, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		all[i] = client{limiter: weir.New(weir.Options{Store: store}), limit: limit, random: rand.New(rand.NewPCG(uint64(i), 0))}
	}
	errs := make([]error, clients)
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() { errs[i] = all[i].run(i, each) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		history = append(history, all[i].history...)
	}
	slices.SortFunc(history, func(a, b check.Op) int { return a.Call.Compare(b.Call) })
	return history
}

func (c *client) run(id, times int) error {
	for range times {
		key := c.random.IntN(keys)
		o := c.ask(key)
		if o.Client = id; o.Err != nil {
			return fmt.Errorf("%s", &o)
		}
		for _, row := range o.Rows {
			if !row.Receipt.IsZero() {
				c.receipts[key] = append(c.receipts[key], row.Receipt)
			}
		}
		c.history = append(c.history, o)
	}
	return nil
}

// ask draws what to ask about a key, and asks.
func (c *client) ask(key int) check.Op {
	r := weir.Request{Key: fmt.Sprintf("key %d", key), Limit: c.limit, Cost: 1 + c.random.Int64N(3)}
	counts := c.limit.Algorithm == weir.SlidingLog || c.limit.Algorithm == weir.SlidingBuckets
	switch die, mine := c.random.IntN(100), c.receipts[key]; {
	case die < 10:
		r.Mode, r.Cost = weir.Peek, 1
	case die < 15:
		r.Mode = weir.Record
	case die < 17:
		return check.Reset(ctx, c.limiter, r)
	case die < 27 && counts:
		return check.Count(ctx, c.limiter, r, time.Duration(1+c.random.Int64N(c.limit.Window.Microseconds()))*time.Microsecond)
	case die < 45 && len(mine) > 0:
		last := len(mine) - 1
		c.receipts[key] = mine[:last]
		return check.Refund(ctx, c.limiter, mine[last].Part(r.Cost))
	}
	return check.Take(ctx, c.limiter, r)
}
