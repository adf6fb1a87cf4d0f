package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/lab/check"
	"github.com/weirlimit/weir/storetest"
)

// server is the store, with a clock that steps, and a log of what changed it,
// from which a replica is made. It is the pure one: what weir.Memory forgets of
// no use any more depends on hashes that differ from run to run.
type server struct {
	mu     sync.Mutex
	plan   *plan
	store  weir.Store
	ahead  time.Duration // of its clock before that of the simulation
	replay time.Time     // what its clock shows while a replica is made
	log    []written
	ids    uint64 // given out, as those of the stores before and after a loss are the same
	// known are the receipts of this store, by the ID that a client has them by.
	known  map[uint64]weir.Receipt
	events []check.Op
}

// written is a call that may have changed the states.
type written struct {
	at, clock time.Time
	do        func() (int64, error)
}

var errDown = &weir.StoreError{Err: errors.New("CLUSTERDOWN the cluster is down")}

func newServer(p *plan) *server {
	s := &server{plan: p}
	s.fresh()
	return s
}

func (s *server) fresh() {
	s.known = make(map[uint64]weir.Receipt)
	s.store = storetest.NewModel(s.now)
}

func (s *server) now() time.Time {
	if !s.replay.IsZero() {
		return s.replay
	}
	return time.Now().Add(s.ahead)
}

// write does what changes the states, and notes it for a replica.
func (s *server) write(t *trip, do func() (int64, error)) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.done = append(t.done, time.Now())
	s.log = append(s.log, written{at: time.Now(), clock: s.now(), do: do})
	return do()
}

// take decides the next list of a trip, unless the server of its keys is down.
func (s *server) take(t *trip, l *weir.List) {
	_, broken := s.plan.during(time.Now(), -1, shard)
	if broken && slices.ContainsFunc(l.Requests, func(r weir.Request) bool { return r.Key[len(r.Key)-1]%2 == 0 }) {
		l.Err = errDown
		t.done = append(t.done, time.Time{})
		return
	}
	_, l.Err = s.write(t, func() (int64, error) {
		lists := []weir.List{{Requests: l.Requests, Rows: make([]weir.Decision, len(l.Rows))}}
		s.store.Take(context.Background(), lists)
		if s.replay.IsZero() {
			copy(l.Rows, lists[0].Rows)
			s.number(l.Rows)
		}
		for i, d := range l.Rows {
			s.known[d.Receipt.ID] = lists[0].Rows[i].Receipt
		}
		return 0, lists[0].Err
	})
}

func (s *server) number(rows []weir.Decision) {
	for i := range rows {
		if r := &rows[i].Receipt; !r.IsZero() {
			s.ids++
			r.ID = s.ids
		}
	}
}

// refund gives receipts back, unless some are of charges that are lost: as
// those of another life, they would be of no state that it knows.
func (s *server) refund(t *trip, receipts []weir.Receipt) (int64, error) {
	s.mu.Lock()
	_, known := s.translate(receipts)
	s.mu.Unlock()
	if !known {
		return 0, nil
	}
	return s.write(t, func() (int64, error) {
		own, _ := s.translate(receipts)
		return s.store.Refund(context.Background(), own)
	})
}

// translate returns receipts as this store has given them out.
func (s *server) translate(receipts []weir.Receipt) (own []weir.Receipt, known bool) {
	for _, r := range receipts {
		n, ok := s.known[r.ID]
		if !ok {
			return nil, false
		}
		n.Units = r.Units
		own = append(own, n)
	}
	return own, true
}

func (s *server) reset(t *trip, requests []weir.Request) (int64, error) {
	return s.write(t, func() (int64, error) { return s.store.Reset(context.Background(), requests) })
}

func (s *server) count(t *trip, r weir.Request, d time.Duration) (int64, error) {
	return s.write(t, func() (int64, error) { return s.store.Count(context.Background(), r, d) })
}

// suffer does what an event does to the store, at its time.
func (s *server) suffer(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.fault {
	case step:
		s.ahead += e.amount
		s.events = append(s.events, check.Step(e.from, e.amount))
	case forget:
		s.fresh()
		s.log = nil
		s.events = append(s.events, check.Lose(e.from, e.from, time.Time{}))
	case behind:
		to := e.from.Add(-e.amount)
		s.fresh()
		s.log = slices.DeleteFunc(s.log, func(w written) bool { return w.at.After(to) })
		for _, w := range s.log {
			s.replay = w.clock
			_, _ = w.do() // what it was answered then, it is answered now
		}
		s.replay = time.Time{}
		s.events = append(s.events, check.Lose(e.from, e.from, to))
	}
}
