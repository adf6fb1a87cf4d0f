package soak

import (
	"context"
	"slices"
	"sync"
	"time"
)

// stalls knows when a process, or this one, did not get to run: a question that
// asks nothing of the service is answered late then. Other answers that are late
// at the time say nothing.
type stalls struct {
	mu    sync.Mutex
	due   time.Time // of the answer that is waited for
	spans []span    // within the last patience
}

type span struct{ from, to time.Time }

// overlaps reports whether the spans have a moment in common.
func (s span) overlaps(o span) bool { return s.from.Before(o.to) && o.from.Before(s.to) }

const (
	// probePace is how often a process is asked, and tooLate how late an answer is
	// that shows a stall: it has used up a fifth of what all may take.
	probePace = 20 * time.Millisecond
	tooLate   = 20 * time.Millisecond
)

// probe asks the process at a place until ctx ends.
func (s *soak) probe(ctx context.Context, place int) {
	for {
		due := time.Now().Add(probePace)
		s.stalls[place].expect(due)
		select {
		case <-ctx.Done():
			return
		case <-time.After(probePace):
		}
		if p := s.processes[place].Load(); p != nil {
			if response, err := s.client.Get(p.url + "/healthz"); err == nil {
				response.Body.Close()
			}
		}
		s.stalls[place].met(span{due, time.Now()})
	}
}

func (s *stalls) expect(due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = due
}

// met notes when an answer was due, and when it came.
func (s *stalls) met(took span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = time.Time{}
	if took.to.Sub(took.from) > tooLate {
		s.spans = append(slices.DeleteFunc(s.spans, func(o span) bool { return o.to.Before(took.from.Add(-patience)) }), took)
	}
}

// during reports whether there was a stall, which may last.
func (s *stalls) during(asked span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.due.IsZero() && asked.to.Sub(s.due) > tooLate {
		return true
	}
	return slices.ContainsFunc(s.spans, asked.overlaps)
}
