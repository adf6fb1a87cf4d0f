// Package rediscost measures what a decision costs a Redis server, as ratios to
// a script that does nothing. make bench runs it, on a server of its own, and
// writes what it finds into docs/redis.md.
package rediscost

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

// rounds is how often everything is measured, in turn; medians are reported.
const rounds = 5

// layout is a way to keep a limit.
type layout struct {
	name      string
	algorithm weir.Algorithm
	store     redisstore.Options
	naive     bool // by the script of this package instead of a store
}

var layouts = []layout{
	{name: "sliding-log, packed", algorithm: weir.SlidingLog},
	{name: "sliding-log, sorted set", algorithm: weir.SlidingLog, store: redisstore.Options{SortedSet: true}},
	{name: "sorted set, by hand", algorithm: weir.SlidingLog, naive: true},
	{name: "sliding-buckets", algorithm: weir.SlidingBuckets},
	{name: "sliding-counter", algorithm: weir.SlidingCounter},
	{name: "fixed-window", algorithm: weir.FixedWindow},
	{name: "token-bucket", algorithm: weir.TokenBucket},
}

// logs are those of the layouts that are exact.
var logs = layouts[:3]

var sizes = []int64{10, 100, 1000, 10_000}

// BenchmarkCost measures everything once, however often it is told to.
func BenchmarkCost(b *testing.B) {
	s := start(b)
	var all []*subject
	for _, l := range layouts {
		for _, size := range sizes {
			all = append(all, s.subject(l, question{max: size, levels: 1, pace: 1}))
		}
	}
	for _, l := range logs {
		all = append(all, s.subject(l, question{max: 100, levels: 3, pace: 1}))
		all = append(all, s.subject(l, question{max: 100, levels: 1, pace: 2}))
		all = append(all, s.subject(l, question{max: 1000, levels: 1, pace: 2}))
	}
	all = append(all, s.plain())
	for range rounds {
		for _, subject := range all {
			subject.measure(s)
		}
	}
	if err := write("../../docs/redis.md", report(all)); err != nil {
		b.Fatal(err)
	}
}

// question is what a subject is asked: by how many limits of Max at once, and
// how much later than the window lets it is asked.
type question struct {
	max          int64
	levels, pace int64
}

// subject is a layout under a limit whose window is full.
type subject struct {
	layout
	question

	// denies is by the server's clock. What is admitted needs a window that
	// moves, so a clock that is handed in, as deniesStill has.
	denies, deniesStill, admits taker

	deny, admit []cost
	bytes       float64 // a key, its name included: the mean of an hour
}

// measure adds a denial and an admission, both by the server's clock: what that
// takes more than one that is handed in is the difference of two denials. Now
// and then a moving window has no room for the next unit, which then is a denial.
func (s *subject) measure(server *server) {
	deny, admitted := server.ratio(s.denies)
	still := deny
	if s.deniesStill != nil {
		still, _ = server.ratio(s.deniesStill)
	}
	mixed, moved := server.ratio(s.admits)
	if admitted > 0.01 || moved < moving {
		server.Fatalf("%s %d: %.0f%% of what was to be denied and %.0f%% of what was to be admitted was admitted", s.name, s.max, 100*admitted, 100*moved)
	}
	admission := func(deny, still, mixed float64) float64 { return (mixed-(1-moved)*still)/moved + deny - still }
	s.deny = append(s.deny, deny)
	s.admit = append(s.admit, cost{
		admission(deny.script, still.script, mixed.script),
		admission(deny.processor, still.processor, mixed.processor),
	})
}

// moving is the part of the decisions that a full, moving window admits at least.
const moving = 0.75

// year is a window in which nothing expires while the server's clock is used.
const year = 366 * 24 * time.Hour
