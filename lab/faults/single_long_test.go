//go:build long

package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// others is more faults of one server.
var others = []fault{
	{
		name: "latency around the deadline", harm: some,
		begin: func(t testing.TB, s *site) {
			s.proxy.add(t, `{"type":"latency","attributes":{"latency":42,"jitter":10}}`)
		},
		end: heal,
	},
	{
		name:  "replies lost",
		begin: func(t testing.TB, s *site) { s.proxy.add(t, `{"type":"timeout"}`) },
		end:   heal,
	},
	{
		name: "requests lost, 4 s", lasts: 4 * time.Second, // longer than a silent connection is kept
		begin: func(t testing.TB, s *site) { s.proxy.add(t, `{"type":"timeout","stream":"upstream"}`) },
		end:   heal,
	},
	{
		name: "reset by peer", says: "reset",
		begin: func(t testing.TB, s *site) { s.proxy.add(t, `{"type":"reset_peer"}`) },
		end:   heal,
	},
	{
		name: "slices of 1 byte", harm: none, pace: 400 * time.Millisecond,
		begin: func(t testing.TB, s *site) {
			s.proxy.add(t, `{"type":"slicer","attributes":{"average_size":1,"size_variation":0,"delay":1}}`)
			s.proxy.add(t, `{"type":"slicer","stream":"upstream","attributes":{"average_size":1,"size_variation":0,"delay":1}}`)
		},
		end: heal,
	},
	{
		name:  "no bandwidth",
		begin: func(t testing.TB, s *site) { s.proxy.add(t, `{"type":"bandwidth","attributes":{"rate":0}}`) },
		end:   heal,
	},
	{
		name: "restart with LOADING",
		harm: some, direct: true, loses: true, says: "LOADING", // which is over when Restart returns
		// A key takes 0.5 ms to load, and the server answers in between.
		config: []string{"enable-debug-command local", "key-load-delay 500", "loading-process-events-interval-bytes 1024"},
		begin: func(t testing.TB, s *site) {
			s.server.Must(t, "DEBUG", "POPULATE", "4000", "key", "100")
			s.server.Must(t, "SAVE")
			s.server.Restart(t)
		},
	},
	{
		name:   "maxmemory without eviction",
		direct: true, harm: some, says: "OOM",
		begin: func(t testing.TB, s *site) { s.server.Must(t, "CONFIG", "SET", "maxmemory", "1") },
		end:   func(t testing.TB, s *site) { s.server.Must(t, "CONFIG", "SET", "maxmemory", "0") },
	},
	{
		name:   "CLIENT PAUSE",
		direct: true,
		begin:  func(t testing.TB, s *site) { s.server.Must(t, "CLIENT", "PAUSE", "1500", "ALL") },
		end:    func(t testing.TB, s *site) { s.server.Must(t, "PING") }, // which is paused as well
	},
	{
		name:   "slow script",
		direct: true, says: "BUSY", config: []string{"busy-reply-threshold 300"},
		begin: func(t testing.TB, s *site) { s.loop(t) },
		end: func(t testing.TB, s *site) {
			s.server.Must(t, "SCRIPT", "KILL")
			s.undo()
		},
	},
}

// cold is faults during which the nodes start.
var cold = []fault{
	{
		name: "start without a server, 4 s", cold: true, lasts: 4 * time.Second,
		begin: func(_ testing.TB, s *site) { s.proxy.Stop() },
		end:   func(t testing.TB, s *site) { s.proxy.up(t) },
	},
	{
		name: "start with a silent server, 4 s", cold: true, lasts: 4 * time.Second,
		begin: func(t testing.TB, s *site) { s.proxy.add(t, `{"type":"timeout"}`) },
		end:   heal,
	},
}

// loop has another client run a script that does not end before SCRIPT KILL.
func (s *site) loop(t testing.TB) {
	t.Helper()
	client, err := redistest.Dial(s.server.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := client.Do("EVAL", "while true do end", "0")
		ended <- err
	}()
	s.undo = func() {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "SCRIPT KILL") {
			t.Errorf("the slow script ended with %v", err)
		}
		client.Close()
	}
}

func TestLongFaults(t *testing.T) {
	for _, f := range append(others, cold...) {
		t.Run(f.name, func(t *testing.T) { t.Log(f.run(t)) })
	}
}
