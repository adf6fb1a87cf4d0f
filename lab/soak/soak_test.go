// Package soak puts a mixed load on the service for as long as one likes, while
// its Redis server fails again and again, and checks every answer. make soak
// runs it; without -duration it takes a few seconds.
package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

var (
	duration = flag.Duration("duration", 3*time.Second, "how long TestSoak takes")
	rate     = flag.Int("rate", 800, "requests a second")
)

// workers is how many requests there are at once, at most.
const workers = 32

// soak is a run.
type soak struct {
	testing.TB

	seed      uint64
	began     time.Time
	client    *http.Client
	redis     *redistest.Server
	program   string
	args      []string
	lives     int
	processes [replicas]atomic.Pointer[process]
	watched   [replicas]watched

	*tally

	ledger *ledger
	living *living
	faults *faults
	stalls [replicas]stalls
}

func TestSoak(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), *duration)
	defer cancel()
	var load sync.WaitGroup
	for i := range workers {
		load.Go(func() { newWorker(s, i).run(ctx, workers*time.Second/time.Duration(*rate)) })
	}
	for place := range replicas {
		load.Go(func() { s.probe(ctx, place) })
	}
	s.conduct(ctx)
	load.Wait()
	s.conclude(time.Since(s.began))
}

// open starts Redis and the service.
func open(t *testing.T) *soak {
	dir := filepath.Join(t.TempDir(), "config")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range rules {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &soak{
		TB: t, seed: rand.Uint64(), redis: redistest.Start(t, redistest.Options{}), program: build(t),
		client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: workers}},
		tally:  newTally(), ledger: newLedger(), living: newLiving(), faults: newFaults(),
	}
	s.args = []string{"serve", "--http", "127.0.0.1:0", "--grpc", "off", "--admin", "off", "--redis", s.redis.URL(), "--replicas", fmt.Sprint(replicas), "--config", dir}
	for place := range s.processes {
		s.begin(place)
	}
	s.began = time.Now()
	fmt.Printf("%d processes for %v, %d requests a second, seed %d\n", replicas, *duration, *rate, s.seed)
	return s
}

// begin starts a process at its place until the test ends.
func (s *soak) begin(place int) {
	s.Helper()
	log, err := os.Create(filepath.Join(s.TempDir(), "log"))
	if err != nil {
		s.Fatal(err)
	}
	p := start(s, log, s.program, s.args...)
	s.lives++
	p.place, p.life = place, s.lives
	s.Cleanup(func() {
		p.kill()
		showEnd(s, log)
	})
	s.processes[place].Store(p)
}

// showEnd shows the end of a log if the test has failed.
func showEnd(t testing.TB, log *os.File) {
	defer log.Close()
	const most = 3000
	text, err := os.ReadFile(log.Name())
	if err != nil || !t.Failed() {
		return
	}
	t.Logf("a process logged, at last:\n%s", text[max(0, len(text)-most):])
}

// restart kills the process at a place and starts another.
func (s *soak) restart(place int) {
	s.processes[place].Swap(nil).kill()
	s.begin(place)
}

// running returns the process at a place or, where there is none, another.
func (s *soak) running(place int) *process {
	for i := range replicas {
		if p := s.processes[(place+i)%replicas].Load(); p != nil {
			return p
		}
	}
	return nil
}

// lostSince reports whether the store has lost what it had.
func (s *soak) lostSince(at time.Time) bool {
	return s.ledger.lossesBy(at.UnixMicro()) < s.ledger.lossesBy(time.Now().UnixMicro())
}

// pass lets time pass while something fails.
func (s *soak) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.Context().Done():
	}
}

// conduct watches the run, and makes one thing after the other fail, until ctx
// ends. Before it does nothing fails for a while.
func (s *soak) conduct(ctx context.Context) {
	gap := min(25*time.Second, *duration/6)
	ticks := time.NewTicker(min(time.Second, gap/2))
	defer ticks.Stop()
	line, fail, next := s.began.Add(each), s.began.Add(gap), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		now := time.Now()
		s.sample(now)
		if now.After(line) {
			s.line(now)
			line = line.Add(each)
		}
		if now.After(fail) && time.Until(s.began.Add(*duration)) > gap {
			s.recovered()
			s.faults.run(s, plan[next%len(plan)], min(maxPause, gap/2))
			next++
			fail = time.Now().Add(gap*4/5 + rand.N(gap*2/5))
		}
	}
}
