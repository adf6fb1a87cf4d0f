package sim

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// Comparison says what one algorithm decides on the requests of a rule, and
// where it differs from the exact one, sliding-log, on the same requests. Each
// algorithm remembers what it has itself admitted.
type Comparison struct {
	Algorithm string `json:"algorithm"`
	// Configured says that the rule's own limit uses this algorithm.
	Configured bool  `json:"configured"`
	Admitted   int64 `json:"admitted"`
	Denied     int64 `json:"denied"`
	// Over counts the requests admitted that the exact algorithm denies, Under
	// those denied that it admits.
	Over  int64 `json:"admitted_exact_denies"`
	Under int64 `json:"denied_exact_admits"`
}

// algorithms are all there are, the exact one first.
var algorithms = [...]weir.Algorithm{
	weir.SlidingLog, weir.SlidingBuckets, weir.SlidingCounter, weir.FixedWindow, weir.TokenBucket,
}

// contest runs the requests of one rule through every algorithm side by side,
// on the pure functions that all stores share.
type contest struct {
	states map[identity]*algo.State
	scores [len(algorithms)]Comparison
}

// identity is what a state is known by under the contract of weir.Request.
type identity struct {
	key   string
	limit weir.Limit // without Max and Burst
}

func newContest() contest { return contest{states: make(map[identity]*algo.State)} }

// run decides one request of cost 1 at now under each algorithm.
func (c *contest) run(key string, limit weir.Limit, now int64) {
	exact := false
	for i, a := range algorithms {
		admitted := c.take(key, under(limit, a), now)
		if i == 0 {
			exact = admitted
		}
		c.scores[i].count(admitted, exact)
	}
}

func (s *Comparison) count(admitted, exact bool) {
	if admitted {
		s.Admitted++
	} else {
		s.Denied++
	}
	switch {
	case admitted && !exact:
		s.Over++
	case !admitted && exact:
		s.Under++
	}
}

// under returns the limit as the algorithm would keep it: with the limit's own
// burst, buckets and alignment where the algorithm has them, else the defaults.
func under(l weir.Limit, a weir.Algorithm) weir.Limit {
	v := weir.Limit{Max: l.Max, Window: l.Window, Algorithm: a}
	switch a {
	case weir.SlidingBuckets:
		v.Buckets = l.Buckets
	case weir.FixedWindow:
		v.Epoch = l.Epoch
	case weir.TokenBucket:
		v.Burst = l.Burst
	}
	// The only refusal is of a log above what stores keep. Here it is kept all
	// the same, since it is what the others are measured by.
	v, _ = v.Normal()
	return v
}

// take admits a request if it fits, on the state that its limit shares.
func (c *contest) take(key string, limit weir.Limit, now int64) bool {
	id := identity{key, limit}
	id.limit.Max, id.limit.Burst = 0, 0
	s := c.states[id]
	if s == nil {
		s = new(algo.State)
		c.states[id] = s
	}
	l := algo.Make(algo.Kind(limit.Algorithm), limit.Max, limit.Burst, limit.Window.Microseconds(), int64(limit.Buckets), limit.Epoch)
	algo.Settle(&l, s, now)
	if !algo.Fits(&l, s, now, 1) {
		return false
	}
	if len(s.Cells) == cap(s.Cells) {
		algo.Compact(&l, s)
		s.Cells = slices.Grow(s.Cells, len(s.Cells))
	}
	algo.Charge(&l, s, now, 1)
	return true
}

// comparisons returns the scores; none if there was no request to decide.
func (c *contest) comparisons(configured weir.Algorithm) []Comparison {
	if c.scores[0].Admitted+c.scores[0].Denied == 0 {
		return []Comparison{}
	}
	out := make([]Comparison, len(algorithms))
	for i, s := range c.scores {
		s.Algorithm = algorithms[i].String()
		s.Configured = algorithms[i] == configured
		out[i] = s
	}
	return out
}
