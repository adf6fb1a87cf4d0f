// Package properties drives stores with rapid state machines: random calls of
// every method of a Limiter, in random order, must get from the store the
// answers of the pure functions. A failure is printed as its shortest run.
package properties

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newMachine(t, 3).run(t) })
}

// TestMemoryClockBack has a single key: a store may forget an expired state
// once another key is used, which a clock that steps back then brings to light.
func TestMemoryClockBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, 1)
		m.actions["ClockBack"] = m.clockBack
		m.run(t)
	})
}

var ctx = context.Background()

// machine asks a Memory and the reference store the same questions.
type machine struct {
	now           time.Time
	memory, model side
	keys          []string
	limits        map[string]weir.Limit
	actions       map[string]func(*rapid.T)
}

// side is a Limiter over one of the stores, and the receipts it gave.
type side struct {
	*weir.Limiter
	receipts []weir.Receipt
}

func newMachine(t *rapid.T, keys int) *machine {
	m := &machine{now: storetest.Epoch, limits: make(map[string]weir.Limit)}
	now := func() time.Time { return m.now }
	m.memory.Limiter = weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: now})})
	m.model.Limiter = weir.New(weir.Options{Store: storetest.NewModel(now)})
	for k := range keys {
		key := fmt.Sprintf("k%d", k)
		m.keys = append(m.keys, key)
		m.limits[key] = drawLimit(t, key)
	}
	m.actions = map[string]func(*rapid.T){
		"": m.peekAll, "Allow": m.allow, "AllowAll": m.allowAll, "Charge": m.charge, "Refund": m.refund,
		"RefundOldest": m.refundOldest, "Count": m.count, "Reset": m.reset, "ChangeLimit": m.changeLimit, "Advance": m.advance,
	}
	return m
}

func (m *machine) run(t *rapid.T) {
	t.Repeat(m.actions)
	if err := m.memory.Close(); err != nil {
		t.Fatal(err)
	}
}

func drawLimit(t *rapid.T, key string) weir.Limit {
	l := weir.Limit{
		Max:       rapid.Int64Range(1, 12).Draw(t, key+" max"),
		Window:    rapid.SampledFrom([]time.Duration{time.Microsecond, 7 * time.Microsecond, 997 * time.Microsecond, time.Second, time.Hour}).Draw(t, key+" window"),
		Algorithm: weir.Algorithm(rapid.IntRange(int(weir.SlidingLog), int(weir.TokenBucket)).Draw(t, key+" algorithm")),
	}
	switch l.Algorithm {
	case weir.SlidingBuckets:
		l.Buckets = rapid.SampledFrom([]int{1, 2, 3, 10, 100}).Draw(t, key+" buckets")
	case weir.TokenBucket:
		l.Burst = rapid.Int64Range(1, 20).Draw(t, key+" burst")
	case weir.FixedWindow:
		l.Epoch = rapid.Bool().Draw(t, key+" epoch")
	}
	return l
}

// ask puts a question to both sides, whose answers must be equal.
func (m *machine) ask(t *rapid.T, question func(*side) (any, error)) {
	got, err := question(&m.memory)
	if err != nil {
		t.Fatalf("memory: %v", err)
	}
	want, err := question(&m.model)
	if err != nil {
		t.Fatalf("model: %v", err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("memory answers %+v, the pure functions %+v", got, want)
	}
}

// keep keeps the receipts of an answer. What they are for must be equal; where
// the units are is a store's own affair, and a memory store that has forgotten
// an empty bucket starts a new line.
func (s *side) keep(d weir.Decision, err error) (any, error) {
	s.receipts = append(s.receipts, d.Receipts()...)
	d.Receipt = weir.Receipt{Request: d.Receipt.Request, Units: d.Receipt.Units}
	for i := range d.Rows {
		r := &d.Rows[i].Receipt
		*r = weir.Receipt{Request: r.Request, Units: r.Units}
	}
	return d, err
}

func (m *machine) drawKey(t *rapid.T) (string, weir.Limit) {
	key := rapid.SampledFrom(m.keys).Draw(t, "key")
	return key, m.limits[key]
}

// drawCost prefers small costs; the largest never passes.
func drawCost(t *rapid.T, l weir.Limit) int64 {
	return rapid.Int64Range(1, l.Capacity()+1).Draw(t, "cost")
}

// peekAll compares all states after every step.
func (m *machine) peekAll(t *rapid.T) {
	for _, key := range m.keys {
		m.ask(t, func(s *side) (any, error) { return s.keep(s.Peek(ctx, key, m.limits[key])) })
	}
}

func (m *machine) allow(t *rapid.T) {
	key, limit := m.drawKey(t)
	cost := drawCost(t, limit)
	m.ask(t, func(s *side) (any, error) { return s.keep(s.AllowN(ctx, key, limit, cost)) })
}

func (m *machine) allowAll(t *rapid.T) {
	var requests []weir.Request
	for range rapid.IntRange(1, 5).Draw(t, "rows") {
		key, limit := m.drawKey(t)
		mode := weir.Mode(rapid.IntRange(int(weir.Enforce), int(weir.Record)).Draw(t, "mode"))
		requests = append(requests, weir.Request{Key: key, Limit: limit, Cost: drawCost(t, limit), Mode: mode})
	}
	m.ask(t, func(s *side) (any, error) { return s.keep(s.AllowAll(ctx, requests...)) })
}

func (m *machine) charge(t *rapid.T) {
	key, limit := m.drawKey(t)
	cost := drawCost(t, limit)
	m.ask(t, func(s *side) (any, error) { return s.keep(s.Charge(ctx, key, limit, cost)) })
}

// refund returns all or a part of a receipt, perhaps not for the first time.
func (m *machine) refund(t *rapid.T) {
	if len(m.memory.receipts) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.memory.receipts)-1).Draw(t, "receipt")
	part := rapid.Int64Range(1, m.memory.receipts[i].Units).Draw(t, "units")
	m.ask(t, func(s *side) (any, error) { return s.Refund(ctx, s.receipts[i].Part(part)) })
}

func (m *machine) refundOldest(t *rapid.T) {
	key, limit := m.drawKey(t)
	r := weir.Request{Key: key, Limit: limit, Cost: drawCost(t, limit)}
	m.ask(t, func(s *side) (any, error) { return s.RefundOldest(ctx, r) })
}

func (m *machine) count(t *rapid.T) {
	key, limit := m.drawKey(t)
	if limit.Algorithm != weir.SlidingLog && limit.Algorithm != weir.SlidingBuckets {
		return
	}
	last := drawMicroseconds(t, 1, limit.Window)
	m.ask(t, func(s *side) (any, error) { return s.Count(ctx, key, limit, last) })
}

func (m *machine) reset(t *rapid.T) {
	key, limit := m.drawKey(t)
	m.ask(t, func(s *side) (any, error) { return s.Reset(ctx, key, limit) })
}

// changeLimit keeps the identity of the state. It leaves the rate of a token
// bucket alone: what the old rate has drained a store may have forgotten.
func (m *machine) changeLimit(t *rapid.T) {
	key, limit := m.drawKey(t)
	units := rapid.Int64Range(1, 20).Draw(t, "units")
	if limit.Algorithm == weir.TokenBucket {
		limit.Burst = units
	} else {
		limit.Max = units
	}
	m.limits[key] = limit
}

// advance moves the clock, as often as not to the edge of a window.
func (m *machine) advance(t *rapid.T) {
	_, limit := m.drawKey(t)
	edges := rapid.SampledFrom([]time.Duration{time.Microsecond, limit.Window - time.Microsecond, limit.Window, limit.Window + time.Microsecond})
	m.now = m.now.Add(rapid.OneOf(edges, microseconds(0, 2*limit.Window)).Draw(t, "time"))
}

func (m *machine) clockBack(t *rapid.T) {
	_, limit := m.drawKey(t)
	m.now = m.now.Add(-drawMicroseconds(t, 1, 3*limit.Window))
}

func microseconds(least int64, most time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.Int64Range(least, most.Microseconds()), func(n int64) time.Duration { return time.Duration(n) * time.Microsecond })
}

func drawMicroseconds(t *rapid.T, least int64, most time.Duration) time.Duration {
	return microseconds(least, most).Draw(t, "time")
}
