package fleet

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/lab/check"
	"github.com/weirlimit/weir/layer"
)

// process is one life of a node, which ends by a crash or with the simulation.
type process struct {
	node, life int
	from, to   time.Time
}

// processes returns the lives of all nodes.
func (p *plan) processes() (all []process) {
	for node := range p.nodes {
		alive, life := p.start, 0
		for _, e := range p.events {
			if e.fault == crash && e.node == node {
				if e.from.After(alive) {
					all = append(all, process{node, life, alive, e.from})
					life++
				}
				if e.to.After(alive) {
					alive = e.to
				}
			}
		}
		all = append(all, process{node, life, alive, p.end})
	}
	return all
}

// record is an Op and what a client cannot know of it.
type record struct {
	check.Op
	process

	within time.Duration // it is to be answered
	left   bool          // its caller may have left before that
	shared bool          // a refund of what a share was charged
	trip   *trip
}

// simulation is one run of a plan.
type simulation struct {
	*plan

	network *network
	mu      sync.Mutex
	records []record
	told    map[process]int // degraded lists, as Observe told
}

// afterwards is the time in which all that is still on its way arrives, and
// after which no goroutine may be left.
const afterwards = time.Second

// simulate runs a plan in the bubble that it is called in.
func simulate(seed uint64) *simulation {
	p := newPlan(seed, time.Now())
	n := &network{instants: &instants{taken: make(map[int64]bool)}, plan: p, server: newServer(p), last: make(map[[3]int]time.Time)}
	for i := range p.events {
		e := &p.events[i]
		e.from = n.from(e.from)
		e.to = n.from(e.to)
	}
	s := &simulation{plan: p, network: n, told: make(map[process]int)}
	var running sync.WaitGroup
	for _, e := range p.events {
		running.Go(func() {
			until(context.Background(), e.from)
			n.server.suffer(e)
		})
	}
	for _, process := range p.processes() {
		running.Go(func() { s.live(process) })
	}
	running.Wait()
	until(context.Background(), s.end.Add(afterwards))
	slices.SortStableFunc(s.records, func(a, b record) int { return a.Call.Compare(b.Call) })
	return s
}

// live runs the clients of a process until it ends.
func (s *simulation) live(p process) {
	until(context.Background(), p.from)
	ctx, crash := context.WithCancel(context.Background())
	defer crash()
	skewed := func() time.Time { return time.Now().Add(s.skew[p.node]) }
	fallback := layer.NewFallback(layer.FallbackOptions{
		Store: &link{network: s.network, node: p.node}, Deadline: s.deadline, Replicas: s.nodes, MaxInFlight: s.inFlight,
		Memory:  weir.MemoryOptions{Now: skewed},
		Observe: func(e layer.Event) { s.observe(p, e) },
	})
	var running sync.WaitGroup
	for i := range s.clients {
		c := &client{
			simulation: s, process: p, limiter: weir.New(weir.Options{Store: fallback}), id: p.node*100 + p.life*10 + i,
			random: rand.New(rand.NewPCG(s.seed, 1+uint64(p.node*100+p.life*10+i))),
		}
		running.Go(func() { c.run(ctx) })
	}
	if p.to != s.end {
		until(ctx, p.to)
		crash()
	}
	running.Wait()
}

func (s *simulation) observe(p process, e layer.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[p] += e.Degraded
}

// charge is the receipts of a list, by the store or by a share.
type charge struct {
	receipts []weir.Receipt
	shared   bool
}

// client asks for random things, one after the other.
type client struct {
	*simulation

	process  process
	limiter  *weir.Limiter
	id       int
	random   *rand.Rand
	receipts []charge // that it has not given back
}

func (c *client) run(ctx context.Context) {
	for {
		gap := c.gap
		if !c.calm && time.Now().After(c.calmed) {
			gap = time.Duration(c.clients) * 100 * time.Millisecond
		}
		at := time.Now().Add(draw(c.random, 0, 2*gap))
		trip := &trip{
			there: draw(c.random, 100*time.Microsecond, longestWay), back: draw(c.random, 100*time.Microsecond, longestWay),
			extra: draw(c.random, 0, time.Second), luck: c.random.Float64(), connection: c.random.IntN(2),
		}
		if c.random.IntN(5) == 0 {
			trip.stubborn = draw(c.random, 0, 300*time.Millisecond)
		}
		patience := time.Hour
		if !c.calm && c.random.IntN(10) == 0 {
			patience = draw(c.random, time.Millisecond, 60*time.Millisecond)
		}
		lists := c.lists()
		within := c.within(lists)
		at = c.network.from(at, within, c.deadline, patience)
		if !at.Before(c.end) || !until(ctx, at) {
			return
		}
		c.ask(ctx, trip, lists, within, patience)
	}
}

// lists draws what to ask for: mostly one key, or several as one list or each
// by itself.
func (c *client) lists() []weir.List {
	of := func(rules ...int) (l weir.List) {
		for _, i := range rules {
			r := c.rules[i]
			r.Cost = pick(c.random, 1, 1, 1, 2, 1+c.random.Int64N(r.Limit.Max+1))
			r.Mode = pick(c.random, weir.Enforce, weir.Enforce, weir.Enforce, weir.Enforce, weir.Shadow, weir.Peek, weir.Record)
			if r.Mode == weir.Record && c.random.IntN(3) > 0 {
				r.Mode = weir.Enforce
			}
			l.Requests = append(l.Requests, r)
		}
		l.Rows = make([]weir.Decision, len(rules))
		return l
	}
	some := c.random.Perm(len(c.rules))[:1+c.random.IntN(3)]
	switch c.random.IntN(4) {
	case 0:
		return []weir.List{of(some...)}
	case 1:
		var lists []weir.List
		for _, i := range some {
			lists = append(lists, of(i))
		}
		return lists
	}
	return []weir.List{of(some[0])}
}

// within is how long a call may take.
func (c *client) within(lists []weir.List) time.Duration {
	d := c.deadline
	for _, l := range lists {
		for _, r := range l.Requests {
			if r.Deadline > 0 {
				d = min(d, r.Deadline)
			}
		}
	}
	return d
}

// ask asks, and notes what it was told.
func (c *client) ask(ctx context.Context, t *trip, lists []weir.List, within, patience time.Duration) {
	ctx = context.WithValue(ctx, tripKey{}, t)
	if patience < time.Hour {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	r := lists[0].Requests[0]
	counts := r.Limit.Algorithm == weir.SlidingLog || r.Limit.Algorithm == weir.SlidingBuckets
	var ops []check.Op
	shared := false
	switch die := c.random.IntN(100); {
	case die < 20 && len(c.receipts) > 0:
		last := len(c.receipts) - 1
		receipts := c.receipts[last].receipts
		shared = c.receipts[last].shared
		c.receipts = c.receipts[:last]
		receipts[0] = receipts[0].Part(1 + c.random.Int64N(receipts[0].Units))
		within = c.deadline
		ops = append(ops, check.Refund(ctx, c.limiter, receipts...))
	case die < 25 && counts:
		within = c.deadline
		ops = append(ops, check.Count(ctx, c.limiter, r, draw(c.random, time.Microsecond, r.Limit.Window)))
	case die < 26 && c.resets:
		within = c.deadline
		ops = append(ops, check.Reset(ctx, c.limiter, r))
	default:
		ops = c.take(ctx, lists)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range ops {
		o.Client = c.id
		c.records = append(c.records, record{Op: o, process: c.process, within: min(within, patience), left: ctx.Err() != nil, shared: shared, trip: t})
	}
}

// take decides lists in one trip, and keeps their receipts.
func (c *client) take(ctx context.Context, lists []weir.List) (ops []check.Op) {
	call := time.Now()
	c.limiter.Take(ctx, lists)
	now := time.Now()
	for _, l := range lists {
		ops = append(ops, check.Op{Verb: check.Taken, Call: call, Return: now, Requests: l.Requests, Rows: l.Rows, Err: l.Err})
		if l.Err != nil {
			continue
		}
		if receipts := (weir.Decision{Rows: l.Rows}).Receipts(); len(receipts) > 0 {
			c.receipts = append(c.receipts, charge{receipts, ops[len(ops)-1].Degraded()})
		}
	}
	return ops
}
