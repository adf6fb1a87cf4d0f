package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// fault is what goes wrong, with whom, from when to when.
type fault string

const (
	// slow adds up to amount to the way of every message.
	slow fault = "slow"
	// lossy loses a request or an answer now and then.
	lossy fault = "lossy"
	// cut loses all requests of a node, and deaf all answers to it.
	cut  fault = "cut"
	deaf fault = "deaf"
	// stopped makes the store do nothing; what it has received it does later.
	stopped fault = "stopped"
	// refusing is a store that is down: connections end at once. With silent
	// its machine is gone as well: nothing answers.
	refusing fault = "refusing"
	silent   fault = "silent"
	// password is a store that knows the nodes no more.
	password fault = "password"
	// shard is a cluster of which one server is down.
	shard fault = "shard"
	// forget is a restart without its states, and behind the promotion of a
	// replica that had not got the last of them, as old as amount.
	forget fault = "forget"
	behind fault = "behind"
	// step moves the clock of the store by amount.
	step fault = "step"
	// crash ends the process of a node; it starts again with fresh memory.
	crash fault = "crash"
)

// event is a fault and its place and time.
type event struct {
	fault

	node     int // -1: all
	from, to time.Time
	amount   time.Duration
}

func (e event) at(t time.Time, node int) bool {
	return !t.Before(e.from) && t.Before(e.to) && (e.node < 0 || e.node == node)
}

// plan is all that a seed says: who asks for what, and what goes wrong.
type plan struct {
	seed     uint64
	calm     bool // nothing goes wrong but delays below the shortest deadline
	start    time.Time
	calmed   time.Time // when the last fault is over
	end      time.Time
	nodes    int
	clients  int // of each node
	gap      time.Duration
	inFlight int
	deadline time.Duration
	skew     []time.Duration // of the nodes' clocks
	resets   bool            // clients reset keys; not with steps back, after which stamps do not tell whether a reset was before
	rules    []weir.Request
	events   []event
}

// leastDeadline is the shortest of all, longest the longest way of a message
// when nothing goes wrong, and recovery the time in which a store that is back
// is used again.
const (
	leastDeadline = 10 * time.Millisecond
	longestWay    = 1500 * time.Microsecond
	recovery      = 2 * time.Second
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// draw draws a time from one to another, in whole microseconds.
func draw(r *rand.Rand, from, to time.Duration) time.Duration {
	return (from + time.Duration(r.Int64N(int64(to-from)+1))).Truncate(time.Microsecond)
}

func newPlan(seed uint64, start time.Time) *plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := &plan{
		seed: seed, calm: r.IntN(4) == 0, start: start, nodes: 3 + r.IntN(3), clients: 1 + r.IntN(3),
		inFlight: pick(r, 0, 0, 4, 2), deadline: draw(r, 20*time.Millisecond, 80*time.Millisecond),
	}
	length := draw(r, 2*time.Second, 20*time.Second)
	if p.calm {
		p.inFlight = 0
	} else {
		length = max(length, recovery+2*time.Second)
	}
	p.end = start.Add(length)
	p.gap = length * time.Duration(p.nodes*p.clients) / 300 // some 300 calls in all
	for range p.nodes {
		p.skew = append(p.skew, draw(r, 0, 4*time.Second)-2*time.Second)
	}
	for i := range 3 + r.IntN(4) {
		p.rules = append(p.rules, rule(r, i))
	}
	p.calmed = p.end.Add(-recovery - time.Second)
	if p.calm {
		p.events = []event{{fault: slow, node: -1, from: start, to: p.end, amount: 2 * time.Millisecond}}
		return p
	}
	for range 1 + r.IntN(5) {
		p.events = append(p.events, p.event(r))
	}
	p.resets = !slices.ContainsFunc(p.events, func(e event) bool { return e.fault == step && e.amount < 0 })
	slices.SortFunc(p.events, func(a, b event) int { return a.from.Compare(b.from) })
	return p
}

// rule draws a key and how it is limited.
func rule(r *rand.Rand, i int) weir.Request {
	l := weir.Limit{
		Max: pick[int64](r, 1, 2, 5, 10, 30), Window: draw(r, 20*time.Millisecond, 2*time.Second),
		Algorithm: weir.Algorithm(1 + r.IntN(int(weir.TokenBucket))),
	}
	switch l.Algorithm {
	case weir.TokenBucket:
		l.Burst = pick[int64](r, 1, 3, 10, 40)
	case weir.SlidingBuckets:
		l.Buckets = pick(r, 1, 3, 10, 100)
	}
	return weir.Request{
		Key: fmt.Sprintf("key %d", i), Limit: l, OnFailure: weir.OnFailure(r.IntN(3)),
		Deadline: pick(r, 0, 0, leastDeadline, 30*time.Millisecond, time.Second),
	}
}

// event draws what goes wrong before all is well again.
func (p *plan) event(r *rand.Rand) event {
	room := p.calmed.Sub(p.start)
	e := event{
		fault: pick(r, slow, slow, lossy, cut, cut, deaf, stopped, refusing, silent, password, shard, forget, behind, step, crash),
		node:  -1, from: p.start.Add(draw(r, 0, room/2)),
	}
	e.to = e.from.Add(min(draw(r, time.Millisecond, 3*time.Second), p.calmed.Sub(e.from)))
	switch e.fault {
	case slow:
		e.amount = pick(r, 5*time.Millisecond, 30*time.Millisecond, 300*time.Millisecond)
		e.node = r.IntN(p.nodes+1) - 1
	case cut, deaf, crash:
		e.node = r.IntN(p.nodes)
	case behind:
		e.amount = draw(r, 0, 200*time.Millisecond)
	case step:
		e.amount = draw(r, 0, 6*time.Second) - 3*time.Second
	}
	return e
}

// during returns the event of such a fault that a node meets at a time.
func (p *plan) during(t time.Time, node int, faults ...fault) (event, bool) {
	for _, e := range p.events {
		if slices.Contains(faults, e.fault) && e.at(t, node) {
			return e, true
		}
	}
	return event{}, false
}

// down returns the event by which the store is down at a time.
func (p *plan) down(t time.Time) (event, bool) {
	return p.during(t, -1, refusing, silent, forget, behind)
}

func (e event) String() string {
	return fmt.Sprintf("%s of node %d from %s to %s (%s)", e.fault, e.node, e.from.Format(clock), e.to.Format(clock), e.amount)
}

// clock is the layout of times in messages.
const clock = "15:04:05.000000"
