package linear

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/lab/check"
	"github.com/weirlimit/weir/redisstore"
)

// TestBroken shows that a store that is wrong now and then, or only when two
// ask at once, is found out.
func TestBroken(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for name, breaks := range map[string]func(weir.Store) weir.Store{
		"loses-a-charge":  func(s weir.Store) weir.Store { return &loses{Store: s} },
		"charges-twice":   func(s weir.Store) weir.Store { return &twice{Store: s} },
		"peeks-then-acts": func(s weir.Store) weir.Store { return torn{s} },
		"answers-late":    func(s weir.Store) weir.Store { return &late{Store: s, known: make(map[string]weir.Decision)} },
	} {
		t.Run(name, func(t *testing.T) {
			limit := weir.Limit{Max: 15, Window: 50 * time.Millisecond, Algorithm: weir.SlidingLog}
			history := record(t, limit, each, func() (weir.Store, error) {
				store, err := redisstore.Open(redisstore.Options{URL: server.URL() + "?write_timeout=30s", Prefix: name})
				return breaks(store), err
			})
			if check.Linearizable(history, patience) == nil {
				t.Error("its history is linearizable")
			}
		})
	}
}

// loses gives back the units of every 50th charge.
type loses struct {
	weir.Store

	charges int
}

func (s *loses) Take(ctx context.Context, lists []weir.List) {
	s.Store.Take(ctx, lists)
	if r := lists[0].Rows[0].Receipt; !r.IsZero() {
		if s.charges++; s.charges%50 == 0 {
			_, lists[0].Err = s.Refund(ctx, []weir.Receipt{r})
		}
	}
}

// twice sends every 50th request again, as after a timeout.
type twice struct {
	weir.Store

	requests int
}

func (s *twice) Take(ctx context.Context, lists []weir.List) {
	s.Store.Take(ctx, lists)
	if s.requests++; s.requests%50 == 0 {
		s.Store.Take(ctx, lists)
	}
}

// torn looks whether a request fits, and then charges it.
type torn struct{ weir.Store }

func (s torn) Take(ctx context.Context, lists []weir.List) {
	r := &lists[0].Requests[0]
	if r.Mode != weir.Enforce {
		s.Store.Take(ctx, lists)
		return
	}
	r.Mode = weir.Peek
	s.Store.Take(ctx, lists)
	if lists[0].Err == nil && lists[0].Rows[0].Allowed {
		r.Mode = weir.Record
		s.Store.Take(ctx, lists)
	}
}

// late answers every second Peek as it did the one before.
type late struct {
	weir.Store

	known map[string]weir.Decision
}

func (s *late) Take(ctx context.Context, lists []weir.List) {
	r, row := &lists[0].Requests[0], &lists[0].Rows[0]
	if d, ok := s.known[r.Key]; ok && r.Mode == weir.Peek {
		*row = d
		delete(s.known, r.Key)
		return
	}
	s.Store.Take(ctx, lists)
	if r.Mode == weir.Peek {
		s.known[r.Key] = *row
	}
}
