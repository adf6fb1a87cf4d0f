package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/sim"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// perUser is a replay against two a minute for each user.
func perUser() *sim.Replay {
	rules, err := policy.Compile([]policy.Domain{{Name: "api", Rules: []policy.Rule{{Name: "per-user", By: []string{"user"}, Limit: weir.PerMinute(2)}}}})
	if err != nil {
		log.Fatal(err)
	}
	replay, err := sim.NewReplay(sim.Options{Policy: rules, Domain: "api"})
	if err != nil {
		log.Fatal(err)
	}
	return replay
}

// add lets users come, one a second.
func add(replay *sim.Replay, users ...string) {
	for i, user := range users {
		e := sim.Event{Time: noon.Add(time.Duration(i) * time.Second), Attributes: map[string]string{"user": user}}
		if err := replay.Add(context.Background(), e); err != nil {
			log.Fatal(err)
		}
	}
}

// A clock stands still until it is told otherwise.
func ExampleClock() {
	var clock sim.Clock
	clock.Set(noon)
	lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: clock.Now})})
	for range 3 {
		d, _ := lim.Allow(context.Background(), "alice", weir.PerMinute(1))
		fmt.Println(clock.Now().Format(time.TimeOnly), d.Allowed, d.RetryAfter)
		clock.Advance(30 * time.Second)
	}
	// Output:
	// 12:00:00 true 0s
	// 12:00:30 false 30s
	// 12:01:00 true 0s
}

func ExampleEvent() {
	e, err := sim.ParseLine(`192.0.2.1 - alice [01/Jan/2026:12:00:00 +0000] "GET /search?q=weir HTTP/1.1" 200 512`)
	fmt.Println(e.Time, e.Attributes["ip"], e.Attributes["path"], err)
	// Output: 2026-01-01 12:00:00 +0000 UTC 192.0.2.1 /search <nil>
}

func ExampleReplay() {
	replay := perUser()
	add(replay, "alice", "alice", "alice", "bob")
	fmt.Println(replay.Report().Admitted, replay.Report().Denied)
	// Output: 3 1
}

// A replay can be of any store, under the replay's clock.
func ExampleOptions() {
	rules, err := policy.Compile([]policy.Domain{{Name: "api", Rules: []policy.Rule{{Name: "global", Limit: weir.PerMinute(2)}}}})
	if err != nil {
		log.Fatal(err)
	}
	replay, err := sim.NewReplay(sim.Options{
		Policy: rules,
		Domain: "api",
		Open: func(now func() time.Time) weir.Store {
			return weir.NewMemory(weir.MemoryOptions{Now: now, MaxKeys: 1000})
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	add(replay, "alice", "bob", "carol")
	fmt.Println(replay.Report().Denied)
	// Output: 1
}

// A report is JSON, too.
func ExampleReport() {
	replay := perUser()
	add(replay, "alice", "alice", "alice")
	report := replay.Report()
	report.Rules = nil
	text, err := json.Marshal(report)
	fmt.Println(string(text), err)
	// Output: {"domain":"api","requests":3,"admitted":2,"denied":1,"unmatched":0,"clamped":0,"evicted":0,"first":"2026-01-01T12:00:00Z","last":"2026-01-01T12:00:02Z","rules":null} <nil>
}

func ExampleRuleReport() {
	replay := perUser()
	add(replay, "alice", "alice", "alice", "bob")
	for _, rule := range replay.Report().Rules {
		fmt.Println(rule.Name, rule.Limit, rule.Seen, "seen,", rule.Denied, "denied,", rule.Keys, "keys")
	}
	// Output: per-user 2/1m 4 seen, 1 denied, 2 keys
}

// Whom a rule would have limited most.
func ExampleLimitedKey() {
	replay := perUser()
	add(replay, "alice", "bob", "alice", "bob", "alice", "bob", "alice")
	for _, key := range replay.Report().Rules[0].Limited {
		fmt.Println(key.Denied, key.Key)
	}
	// Output:
	// 2 api:per-user:alice
	// 1 api:per-user:bob
}

// What each algorithm would have decided, beside the exact one.
func ExampleComparison() {
	replay := perUser()
	add(replay, strings.Fields(strings.Repeat("alice ", 50))...)
	for _, c := range replay.Report().Rules[0].Algorithms {
		fmt.Println(c.Algorithm, c.Admitted, c.Over, c.Under)
	}
	// Output:
	// sliding-log 2 0 0
	// sliding-buckets 2 0 0
	// sliding-counter 2 0 0
	// fixed-window 2 0 0
	// token-bucket 3 1 0
}

// A line that is no request is counted, and does not end the reading.
func ExampleLog() {
	text := `192.0.2.1 - - [01/Jan/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 512
oops
`
	read, err := sim.ReadLog(strings.NewReader(text), func(sim.Event) error { return nil })
	fmt.Println(read.Lines, "lines,", read.Requests, "request,", read.Unparsed, "unparsed", err)
	// Output: 2 lines, 1 request, 1 unparsed <nil>
}

func ExampleUnparsedLine() {
	read, _ := sim.ReadLog(strings.NewReader("192.0.2.1 - - noon\n"), func(sim.Event) error { return nil })
	for _, line := range read.UnparsedLines {
		fmt.Println(line.Line, line.Reason != "")
	}
	// Output: 1 true
}
