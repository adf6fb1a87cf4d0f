package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/service/load"
)

// rounds is how often weir and the floor are driven in turn, each way, so that
// what else the machine does meets both.
const rounds = 5

// target is a front end to measure.
type target struct {
	front front
	weir  endpoint
	floor *endpoint // nil if there is none
}

// endpoint is where something is served.
type endpoint struct {
	address string
	process *spawned // nil if it is not our own
}

// side is what becomes known of an endpoint.
type side struct {
	endpoint

	ask    load.Ask
	denied atomic.Int64
	rate   []float64       // decisions a second, of each round
	cpu    []float64       // microseconds a decision, of each round that has told
	took   []time.Duration // sorted
}

// measure drives one front end, each time for slice: as fast as it answers, then
// at a rate.
func (b *bencher) measure(ctx context.Context, t target, q *questions, slice time.Duration) (measured, error) {
	sides := []*side{{endpoint: t.weir}}
	if t.floor != nil {
		sides = append(sides, &side{endpoint: *t.floor})
	}
	for _, s := range sides {
		ask, closes, err := t.front.dial(s.address, b.callers, q)
		if err != nil {
			return measured{}, err
		}
		defer closes()
		s.ask = ask.counting(&s.denied)
		if _, _, err := load.Closed(ctx, b.callers, slice, s.ask); err != nil { // to warm up
			return measured{}, err
		}
	}
	if err := inTurn(sides, func(s *side) error { return s.closed(ctx, b.callers, slice) }); err != nil {
		return measured{}, err
	}
	rate, err := b.openRate(sides)
	if err != nil {
		return measured{}, err
	}
	err = inTurn(sides, func(s *side) error { return s.open(ctx, b.callers, rate, slice) })
	return newMeasured(t.front.name, rate, sides), err
}

// slice is how long to drive a server at a time, so that all takes b.duration.
func (b *bencher) slice(targets []target) time.Duration {
	n := 0
	for _, t := range targets {
		n += 1 + 2*rounds
		if t.floor != nil {
			n += 1 + 2*rounds
		}
	}
	return b.duration / time.Duration(n)
}

func inTurn(sides []*side, drive func(s *side) error) error {
	for range rounds {
		for _, s := range sides {
			if err := drive(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *side) closed(ctx context.Context, callers int, d time.Duration) error {
	before, known := s.process.cpu()
	n, took, err := load.Closed(ctx, callers, d, s.ask)
	s.rate = append(s.rate, float64(n)/took.Seconds())
	if after, still := s.process.cpu(); known && still {
		s.cpu = append(s.cpu, micros(after-before)/float64(n))
	}
	return err
}

func (s *side) open(ctx context.Context, callers int, rate float64, d time.Duration) error {
	took, err := load.Open(ctx, callers, rate, d, s.ask)
	s.took = append(s.took, took...)
	return err
}

// openRate is the rate for the quantiles.
func (b *bencher) openRate(sides []*side) (float64, error) {
	reached := math.Inf(1)
	for _, s := range sides {
		reached = min(reached, median(s.rate))
	}
	rate := b.rate
	if rate == 0 {
		rate = max(1, math.Round(min(reached/2, maxSamples/b.duration.Seconds())))
	}
	if b.rate > reached {
		return 0, fmt.Errorf("--rate %v is above the %.0f a second that --callers %d reached, so that questions would only queue: want a lower rate or more callers", rate, reached, b.callers)
	}
	return rate, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// median returns 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
