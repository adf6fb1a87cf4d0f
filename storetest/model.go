package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// NewModel returns the reference Store: the pure functions over a map, under
// one lock. It never forgets a state. Other stores are compared with it.
func NewModel(now func() time.Time) weir.Store {
	return &model{now: now, states: make(map[string]*life)}
}

type model struct {
	mu     sync.Mutex
	now    func() time.Time
	states map[string]*life
	ids    uint64
	births int64
	closed bool
}

// life is a state from its first use, or since it was reset.
type life struct {
	algo.State
	birth int64
}

func limitOf(l weir.Limit) algo.Limit {
	return algo.Make(algo.Kind(l.Algorithm), l.Max, l.Burst, l.Window.Microseconds(), int64(l.Buckets), l.Epoch)
}

func identity(r *weir.Request) string {
	return fmt.Sprintf("%d/%d/%d/%t/%s", r.Limit.Algorithm, r.Limit.Window, r.Limit.Buckets, r.Limit.Epoch, r.Key)
}

func (m *model) state(r *weir.Request, l *algo.Limit, now int64) *life {
	s := m.states[identity(r)]
	if s == nil {
		m.births++
		s = &life{birth: m.births}
		m.states[identity(r)] = s
	}
	algo.Settle(l, &s.State, now)
	return s
}

func (m *model) Take(_ context.Context, lists []weir.List) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now().UnixMicro()
	for i := range lists {
		if m.closed {
			lists[i].Err = weir.ErrClosed
			continue
		}
		m.take(&lists[i], now)
	}
}

func (m *model) take(l *weir.List, now int64) {
	for i := range l.Requests {
		m.look(l, i, now)
	}
	admitted := l.Admitted()
	for _, mode := range []weir.Mode{weir.Enforce, weir.Shadow, weir.Record} {
		if !admitted && mode != weir.Record {
			continue
		}
		done := make(map[string]algo.Mark)
		for i := range l.Requests {
			if l.Requests[i].Mode == mode {
				m.charge(l, i, now, done)
			}
		}
	}
}

// sum is the cost of all rows of the state and mode of row i.
func sum(rs []weir.Request, i int) (cost int64) {
	for j := range rs {
		if rs[j].Mode == rs[i].Mode && identity(&rs[j]) == identity(&rs[i]) {
			cost += rs[j].Cost
		}
	}
	return cost
}

// look decides row i without charging it.
func (m *model) look(l *weir.List, i int, now int64) {
	r := &l.Requests[i]
	limit, cost := limitOf(r.Limit), sum(l.Requests, i)
	s := m.state(r, &limit, now)
	d := weir.Decision{Allowed: r.Mode == weir.Record || algo.Fits(&limit, &s.State, now, cost), Limit: limit.Burst}
	switch {
	case d.Allowed:
		cost = 0
	case cost > limit.Burst:
		d.Reason = weir.Never
	default:
		d.Reason = weir.OverLimit
	}
	l.Rows[i] = outcome(d, algo.Decide(&limit, &s.State, now, cost))
}

// charge charges row i, or, if done has its state, reports the charge it was part of.
func (m *model) charge(l *weir.List, i int, now int64, done map[string]algo.Mark) {
	r := &l.Requests[i]
	limit := limitOf(r.Limit)
	s := m.state(r, &limit, now)
	mark, charged := done[identity(r)]
	if !charged {
		m.look(l, i, now)
		if !l.Rows[i].Allowed {
			return
		}
		mark = algo.Charge(&limit, &s.State, now, sum(l.Requests, i))
		done[identity(r)] = mark
	}
	m.ids++
	d := weir.Decision{Allowed: true, Limit: limit.Burst}
	d.Receipt = weir.Receipt{
		Request: weir.Request{Key: r.Key, Group: r.Group, Limit: r.Limit, Cost: r.Cost}, Units: r.Cost,
		Stamp: mark.Stamp, Level: mark.Level, Place: mark.Place, Back: mark.Back, Birth: s.birth, ID: m.ids,
	}
	l.Rows[i] = outcome(d, algo.Decide(&limit, &s.State, now, 0))
}

func outcome(d weir.Decision, o algo.Outcome) weir.Decision {
	d.Remaining = o.Remaining
	d.RetryAfter = time.Duration(o.Retry) * time.Microsecond
	d.ResetAfter = time.Duration(o.Reset) * time.Microsecond
	return d
}

func (m *model) Refund(_ context.Context, receipts []weir.Receipt) (total int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, weir.ErrClosed
	}
	now := m.now().UnixMicro()
	for i := range receipts {
		r := &receipts[i]
		limit := limitOf(r.Request.Limit)
		s := m.state(&r.Request, &limit, now)
		switch {
		case r.ID == 0:
			total += algo.RefundOldest(&limit, &s.State, now, r.Units)
		case r.Birth == s.birth:
			total += algo.Refund(&limit, &s.State, now, r.Units, algo.Mark{Stamp: r.Stamp, Level: r.Level, Place: r.Place, Back: r.Back})
		}
	}
	return total, nil
}

func (m *model) Count(_ context.Context, r weir.Request, d time.Duration) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, weir.ErrClosed
	}
	limit, now := limitOf(r.Limit), m.now().UnixMicro()
	return algo.Count(&limit, &m.state(&r, &limit, now).State, now, d.Microseconds()), nil
}

func (m *model) Reset(_ context.Context, requests []weir.Request) (n int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, weir.ErrClosed
	}
	now := m.now().UnixMicro()
	for i := range requests {
		limit := limitOf(requests[i].Limit)
		if algo.Decide(&limit, &m.state(&requests[i], &limit, now).State, now, 0).Reset > 0 {
			n++
		}
		delete(m.states, identity(&requests[i]))
	}
	return n, nil
}

func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
