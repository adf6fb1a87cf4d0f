package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir"
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
	start    time.Time
	receipts [keys][]weir.Receipt // of its charges that it has not refunded
	history  []porcupine.Operation
}

// record lets all clients ask at once, `each` times each, and returns the
// history. open returns a store for one of them; all share their states.
func record(t *testing.T, limit weir.Limit, each int, open func() (weir.Store, error)) (history []porcupine.Operation) {
	t.Helper()
	limit, err := limit.Normal()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	all := make([]client, clients)
	for i := range all {
		store, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		all[i] = client{limiter: weir.New(weir.Options{Store: store}), limit: limit, random: rand.New(rand.NewPCG(uint64(i), 0)), start: start}
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
	return history
}

func (c *client) run(id, times int) error {
	for range times {
		key := c.random.IntN(keys)
		q := c.question(key)
		sent := time.Now()
		d, n, err := c.ask(&q)
		told := time.Now()
		if err != nil {
			return fmt.Errorf("client %d: %+v: %w", id, q, err)
		}
		if !d.Receipt.IsZero() {
			c.receipts[key] = append(c.receipts[key], d.Receipt)
		}
		q.from, q.to = sent.UnixMicro(), told.UnixMicro()
		a := answerOf(d)
		a.n = n
		c.history = append(c.history, porcupine.Operation{
			ClientId: id, Input: q, Output: a, Call: sent.Sub(c.start).Nanoseconds(), Return: told.Sub(c.start).Nanoseconds(),
		})
	}
	return nil
}

// question draws what to ask about a key.
func (c *client) question(key int) question {
	q := question{verb: take, key: fmt.Sprintf("key %d", key), limit: c.limit, cost: 1 + c.random.Int64N(3)}
	counts := c.limit.Algorithm == weir.SlidingLog || c.limit.Algorithm == weir.SlidingBuckets
	switch die, mine := c.random.IntN(100), c.receipts[key]; {
	case die < 10:
		q.verb, q.cost = peek, 1
	case die < 15:
		q.verb = charge
	case die < 17:
		q.verb = reset
	case die < 27 && counts:
		q.verb, q.last = count, time.Duration(1+c.random.Int64N(c.limit.Window.Microseconds()))*time.Microsecond
	case die < 45 && len(mine) > 0:
		last := len(mine) - 1
		q.verb, q.receipt = refund, mine[last].Part(q.cost)
		c.receipts[key] = mine[:last]
	}
	return q
}

func (c *client) ask(q *question) (d weir.Decision, n int64, err error) {
	switch q.verb {
	case take:
		d, err = c.limiter.AllowN(ctx, q.key, q.limit, q.cost)
	case peek:
		d, err = c.limiter.Peek(ctx, q.key, q.limit)
	case charge:
		d, err = c.limiter.Charge(ctx, q.key, q.limit, q.cost)
	case refund:
		n, err = c.limiter.Refund(ctx, q.receipt)
	case count:
		n, err = c.limiter.Count(ctx, q.key, q.limit, q.last)
	case reset:
		n, err = c.limiter.ResetAll(ctx, weir.Request{Key: q.key, Limit: q.limit})
	}
	return d, n, err
}
