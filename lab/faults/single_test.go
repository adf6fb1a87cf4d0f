package faults

import (
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// first is the faults that a limiter meets most.
var first = []fault{
	{
		name:  "latency above the deadline",
		begin: func(t testing.TB, s *site) { s.proxy.add(t, `{"type":"latency","attributes":{"latency":200}}`) },
		end:   heal,
	},
	{
		name:  "down and up",
		begin: func(_ testing.TB, s *site) { s.proxy.Stop() },
		end:   func(t testing.TB, s *site) { s.proxy.up(t) },
	},
	{
		name:   "kill -9 and restart",
		direct: true, loses: true,
		begin: func(_ testing.TB, s *site) { s.server.Kill() },
		end:   func(t testing.TB, s *site) { s.server.Restart(t) },
	},
	{
		name:   "SIGSTOP and SIGCONT",
		direct: true,
		begin:  func(t testing.TB, s *site) { s.server.Signal(t, syscall.SIGSTOP) },
		end:    func(t testing.TB, s *site) { s.server.Signal(t, syscall.SIGCONT) },
	},
	{
		name:   "SCRIPT FLUSH storm",
		direct: true, harm: none,
		begin: func(t testing.TB, s *site) { s.repeat(t, "SCRIPT", "FLUSH") },
		end:   func(_ testing.TB, s *site) { s.undo() },
	},
}

func heal(_ testing.TB, s *site) { s.proxy.clear() }

// repeat sends a command every 5 ms until undo is called.
func (s *site) repeat(t testing.TB, args ...string) {
	stop, ended := make(chan struct{}), make(chan struct{})
	s.undo = func() { close(stop); <-ended }
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if _, err := s.server.Do(args...); err != nil {
				t.Error(err)
			}
		}
	}()
}

func TestFaults(t *testing.T) {
	for _, f := range first {
		t.Run(f.name, func(t *testing.T) { t.Log(f.run(t)) })
	}
}

// A store that is closed while its servers are frozen leaves nothing behind.
func TestCloseWhileFrozen(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	closeWhileFrozen(t, server.URL(), server)
}

// stopping is how long a service may take to stop.
const stopping = 5 * time.Second

func closeWhileFrozen(t *testing.T, url string, servers ...*redistest.Server) {
	t.Helper()
	f := startFleet(t, 0, url)
	f.await(t, byStore)
	for _, s := range servers {
		s.Signal(t, syscall.SIGSTOP)
	}
	f.await(t, withoutStore)
	f.finish()
	start := time.Now()
	f.close(t)
	if took := time.Since(start); took > stopping+slack() {
		t.Errorf("closing took %v, want at most %v", took, stopping)
	}
	checkLeaks(t)
	for _, s := range servers {
		s.Signal(t, syscall.SIGCONT)
	}
	checkLeaks(t, servers...)
}
