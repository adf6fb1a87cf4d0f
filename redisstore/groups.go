package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
)

// On a Cluster, where no script reaches two slots, a list of several Groups
// takes two trips. The first asks every Group, in its own slot, whether its
// rows fit. If not, the list is denied and only its Record rows are charged.
// If so, the second trip charges every Group, each all-or-nothing. Where
// another list has come between, so that a Group denies, exactly what the
// others took is given back by its Receipts.
//
// So a list never admits more than its limits. What it took and gives back may
// for that moment deny another, and stays taken if it cannot be given back.
// Denials take nothing from anybody. Without another list in between, the
// answers are those of one step.

// part is the requests of a list that share a Group.
type part struct {
	requests []int     // of the list
	asked    weir.List // as the first trip found them
	charged  weir.List // as the second left them: all of them, or the Record rows
}

// across is a list of several parts.
type across struct {
	list  *weir.List
	parts []*part
}

// split returns the parts of a list.
func split(l *weir.List) across {
	a := across{list: l}
	of := make(map[string]*part)
	for i := range l.Requests {
		r := &l.Requests[i]
		p := of[group(r)]
		if p == nil {
			p = new(part)
			of[group(r)] = p
			a.parts = append(a.parts, p)
		}
		p.requests = append(p.requests, i)
		p.asked.Requests = append(p.asked.Requests, *r)
	}
	for _, p := range a.parts {
		p.asked.Rows = make([]weir.Decision, len(p.requests))
	}
	return a
}

// takeAcross decides lists of several Groups.
func (s *Store) takeAcross(ctx context.Context, client rueidis.Client, lists []across) {
	var ask []plan
	for _, a := range lists {
		for _, p := range a.parts {
			ask = append(ask, s.plan(&p.asked, true))
		}
	}
	s.trip(ctx, client, ask)
	var charge []plan
	for _, a := range lists {
		if a.list.Err = a.err(); a.list.Err != nil {
			continue
		}
		admitted := a.admitted(func(p *part) *weir.List { return &p.asked })
		for _, p := range a.parts {
			if p.only(admitted); len(p.charged.Requests) > 0 {
				charge = append(charge, s.plan(&p.charged, false))
			}
		}
	}
	s.trip(ctx, client, charge)
	for _, a := range lists {
		if a.list.Err == nil {
			left := s.giveBack(ctx, a.answer())
			a.list.Err = a.failed(left)
		}
	}
}

// only prepares the second trip: with all requests, or else the Record rows.
func (p *part) only(all bool) {
	for _, r := range p.asked.Requests {
		if all || r.Mode == weir.Record {
			p.charged.Requests = append(p.charged.Requests, r)
		}
	}
	p.charged.Rows = make([]weir.Decision, len(p.charged.Requests))
}

// err returns why the list could not be decided: if there are several reasons,
// one that leaves unknown what was charged.
func (a *across) err() (first error) {
	for _, p := range a.parts {
		for _, l := range []*weir.List{&p.asked, &p.charged} {
			var e *weir.StoreError
			if first == nil || errors.As(l.Err, &e) && e.Unknown {
				first = l.Err
			}
		}
	}
	return first
}

// failed returns the list's error. It is not known what was charged if that
// error meets Record rows that were, or what could not be given back.
func (a *across) failed(left error) error {
	var e *weir.StoreError
	if !errors.As(a.list.Err, &e) {
		return a.list.Err
	}
	unknown := *e
	unknown.Unknown = e.Unknown || left != nil
	for _, p := range a.parts {
		for i := range p.charged.Requests {
			unknown.Unknown = unknown.Unknown || p.charged.Requests[i].Mode == weir.Record && !p.charged.Rows[i].Receipt.IsZero()
		}
	}
	return &unknown
}

func (a *across) admitted(which func(*part) *weir.List) bool {
	for _, p := range a.parts {
		if !which(p).Admitted() {
			return false
		}
	}
	return true
}

// answer fills in the rows of the list, or its error, and returns what is to be
// given back.
func (a *across) answer() (back []weir.Receipt) {
	a.list.Err = a.err()
	admitted := a.admitted(func(p *part) *weir.List { return &p.asked }) &&
		a.admitted(func(p *part) *weir.List { return &p.charged })
	for _, p := range a.parts {
		next := 0
		for i, at := range p.requests {
			row := p.asked.Rows[i]
			if next < len(p.charged.Requests) && (len(p.charged.Requests) == len(p.requests) || p.asked.Requests[i].Mode == weir.Record) {
				row = p.charged.Rows[next]
				next++
			}
			// A part that was denied has charged its Record rows alone.
			if mode := p.asked.Requests[i].Mode; (!admitted || a.list.Err != nil) && mode != weir.Record && !row.Receipt.IsZero() {
				back = append(back, row.Receipt)
				row = p.asked.Rows[i]
			}
			a.list.Rows[at] = row
		}
	}
	return back
}

// giveBackTime bounds how long an answer waits for what is given back.
const giveBackTime = time.Second

// giveBack returns what must not stay taken, also for callers who have left.
// What it cannot give back stays taken until it leaves the window.
func (s *Store) giveBack(ctx context.Context, receipts []weir.Receipt) error {
	if len(receipts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	_, err := s.Refund(ctx, receipts)
	return err
}
