package faults

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/lab/check"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/redisstore"
)

const (
	deadline = 50 * time.Millisecond
	// callers is how many goroutines ask at each node.
	callers = 8
	// usualPace is how often each does.
	usualPace = 5 * time.Millisecond
)

// rules are eight keys: for each way to decide without the store some whose
// windows come and go, and some whose windows outlast the test. Those of a way
// are a group.
var rules = func() (all []weir.Request) {
	for _, of := range []struct {
		how  weir.OnFailure
		keys string
	}{{weir.OnFailureAllow, "ab"}, {weir.OnFailureDeny, "cd"}, {weir.OnFailureLocal, "efgh"}} {
		for i, key := range of.keys {
			limit := weir.Limit{Max: 40, Window: time.Second, Algorithm: weir.SlidingLog}
			if i%2 == 1 {
				limit = weir.Limit{Max: 200, Window: time.Hour, Algorithm: weir.SlidingLog}
			}
			if i > 1 {
				limit.Algorithm, limit.Buckets = weir.SlidingBuckets, 10
			}
			all = append(all, weir.Request{Key: string(key), Group: of.how.String(), Limit: limit, OnFailure: of.how})
		}
	}
	return all
}()

// whence is who has decided.
type whence int

const (
	byStore whence = iota
	withoutStore
)

func decidedBy(o *check.Op) whence {
	if o.Degraded() {
		return withoutStore
	}
	return byStore
}

// node is a process of a fleet, as far as it decides.
type node struct {
	limiter  *weir.Limiter
	fallback *layer.Fallback
	decided  [withoutStore + 1][8]atomic.Int64 // answers, by their rules
	admitted [8]atomic.Int64                   // units by the store, by their rules

	mu       sync.Mutex
	failures []failure
}

// failure is a call that the store did not answer.
type failure struct {
	took time.Duration
	at   time.Time // its end
	text string
}

// fleet is nodes that share a store, and callers that ask them all the time.
type fleet struct {
	nodes  []*node
	stop   chan struct{}
	asking sync.WaitGroup
	ops    [][]check.Op // of each caller
	late   []time.Duration
}

// startFleet opens a node for each URL and lets callers ask, each once in a pace
// as long as it is answered in time.
func startFleet(t testing.TB, pace time.Duration, urls ...string) *fleet {
	t.Helper()
	f := &fleet{stop: make(chan struct{}), ops: make([][]check.Op, len(urls)*callers)}
	for _, url := range urls {
		store, err := redisstore.Open(redisstore.Options{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		n := new(node)
		n.fallback = layer.NewFallback(layer.FallbackOptions{Store: store, Deadline: deadline, Replicas: len(urls), Observe: n.observe})
		n.limiter = weir.New(weir.Options{Store: n.fallback})
		f.nodes = append(f.nodes, n)
	}
	for i := range f.ops {
		f.asking.Go(func() { f.ask(i, cmp.Or(pace, usualPace)) })
	}
	f.asking.Go(f.watch)
	t.Cleanup(func() { f.close(t) })
	return f
}

func (n *node) observe(e layer.Event) {
	if e.Err == nil || e.Took == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures = append(n.failures, failure{e.Took, time.Now(), e.Err.Error()})
}

// ask is a caller.
func (f *fleet) ask(id int, pace time.Duration) {
	random := rand.New(rand.NewPCG(uint64(id), 0))
	tick := time.NewTicker(pace)
	defer tick.Stop()
	n := f.nodes[f.nodeOf(id)]
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		of := []int{random.IntN(len(rules))}
		if other := random.IntN(len(rules)); random.IntN(4) == 0 && other != of[0] {
			of = append(of, other)
		}
		var requests []weir.Request
		for _, i := range of {
			r := rules[i]
			r.Cost = 1 + max(0, random.Int64N(6)-3)
			requests = append(requests, r)
		}
		o := check.Take(context.Background(), n.limiter, requests...)
		o.Client = id
		for j, i := range of {
			n.decided[decidedBy(&o)][i].Add(1)
			if o.Admitted() && decidedBy(&o) == byStore {
				n.admitted[i].Add(requests[j].Cost)
			}
		}
		f.ops[id] = append(f.ops[id], o)
	}
}

func (f *fleet) nodeOf(client int) int { return client / callers }

// watch notes how late timers of the length of a deadline are, for reasons that
// are not the store's.
func (f *fleet) watch() {
	for {
		start := time.Now()
		select {
		case <-f.stop:
			return
		case <-time.After(deadline):
		}
		f.late = append(f.late, time.Since(start)-deadline)
	}
}

// admitted returns how many units the store has admitted by a rule.
func (f *fleet) admitted(rule int) (n int64) {
	for _, node := range f.nodes {
		n += node.admitted[rule].Load()
	}
	return n
}

// await waits until each node has decided a few more times by each rule.
func (f *fleet) await(t testing.TB, w whence) {
	t.Helper()
	const few = 5
	from := make([][8]int64, len(f.nodes))
	for at, n := range f.nodes {
		for i := range rules {
			from[at][i] = n.decided[w][i].Load()
		}
	}
	redistest.Await(t, [...]string{"answers of the store", "answers without the store"}[w], func() error {
		for at, n := range f.nodes {
			for i := range rules {
				if n.decided[w][i].Load() < from[at][i]+few {
					return cmp.Or(n.fallback.Failing(), errors.New("too few by rule "+rules[i].Key))
				}
			}
		}
		return nil
	})
}

// finish ends the callers and returns what they saw.
func (f *fleet) finish() (all []check.Op) {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.asking.Wait()
	for _, ops := range f.ops {
		all = append(all, ops...)
	}
	return all
}

// close ends the callers and closes the nodes. It may be called again.
func (f *fleet) close(t testing.TB) {
	t.Helper()
	f.finish()
	for _, n := range f.nodes {
		if err := n.limiter.Close(); err != nil {
			t.Error(err)
		}
	}
}

// failures returns what the store did not answer, of all nodes, in the order of
// its end between two times.
func (f *fleet) failures(from, to time.Time) (all []failure) {
	for _, n := range f.nodes {
		n.mu.Lock()
		for _, one := range n.failures {
			if !one.at.Before(from) && one.at.Before(to) {
				all = append(all, one)
			}
		}
		n.mu.Unlock()
	}
	return all
}
