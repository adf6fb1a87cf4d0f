package main

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/sim"
)

// result is what became of the traffic under one algorithm.
type result struct {
	algorithm        weir.Algorithm
	admitted, denied []time.Duration
}

// replay lets the simulator decide each request.
func replay(limit weir.Limit, traffic []time.Duration) (*result, error) {
	p, err := policy.Compile([]policy.Domain{{Name: "all", Rules: []policy.Rule{{Name: "limit", Limit: limit}}}})
	if err != nil {
		return nil, err
	}
	simulator, err := sim.NewReplay(sim.Options{Policy: p, Domain: "all"})
	if err != nil {
		return nil, err
	}
	r := &result{algorithm: limit.Algorithm}
	for _, at := range traffic {
		before := simulator.Report().Admitted
		if err := simulator.Add(context.Background(), sim.Event{Time: time.Unix(0, 0).Add(at)}); err != nil {
			return nil, err
		}
		if simulator.Report().Admitted > before {
			r.admitted = append(r.admitted, at)
		} else {
			r.denied = append(r.denied, at)
		}
	}
	return r, nil
}

// within counts what was admitted in the window that ends with t.
func (r *result) within(t time.Duration) (n int) {
	for _, at := range r.admitted {
		if at <= t && t < at+window {
			n++
		}
	}
	return n
}

// peak is the most that was admitted in any window.
func (r *result) peak() (n int) {
	for _, at := range r.admitted {
		n = max(n, r.within(at))
	}
	return n
}

// needless counts what was denied although fewer than the limit had been
// admitted in the window before.
func (r *result) needless() (n int) {
	for _, at := range r.denied {
		if r.within(at) < most {
			n++
		}
	}
	return n
}

// changes are the times at which within changes, and the end.
func (r *result) changes() []time.Duration {
	all := slices.Clone(r.admitted)
	for _, at := range r.admitted {
		if at+window < length {
			all = append(all, at+window)
		}
	}
	slices.Sort(all)
	return append(slices.Compact(all), length)
}
