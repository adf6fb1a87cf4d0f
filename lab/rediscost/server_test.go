package rediscost

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir/internal/redistest"
)

const (
	// batch is how many decisions are sent at once, trips how many batches are
	// one measurement.
	batch, trips = 200, 10
)

var ctx = context.Background()

// server is a Redis server and what is asked of it directly.
type server struct {
	*redistest.Server
	testing.TB

	client  rueidis.Client
	nothing taker
}

// taker sends a batch of decisions and returns how many were admitted.
type taker func() int

func start(t testing.TB) *server {
	s := &server{TB: t, Server: redistest.Start(t, redistest.Options{})}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s.client = client
	sha := s.load("return 1")
	s.nothing = func() int {
		return s.run(sha, batch, func(int) (keys, args []string) { return []string{"weir:nothing"}, nil })
	}
	return s
}

// load loads a script.
func (s *server) load(script string) string { return fmt.Sprint(s.Must(s, "SCRIPT", "LOAD", script)) }

// run runs a script n times in one trip, and adds up the results.
func (s *server) run(sha string, n int, call func(i int) (keys, args []string)) (sum int) {
	commands := make(rueidis.Commands, n)
	for i := range commands {
		keys, args := call(i)
		commands[i] = s.client.B().Evalsha().Sha1(sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	for _, result := range s.client.DoMulti(ctx, commands...) {
		n, err := result.AsInt64()
		if err != nil {
			s.Fatal(err)
		}
		sum += int(n)
	}
	return sum
}

// cost is of a decision: the time in its script (usec_per_call of INFO
// commandstats) and all that the server's process took (used_cpu of INFO cpu),
// each as a ratio to that of a script that does nothing.
type cost struct{ script, processor float64 }

// ratio measures a taker just after a script that does nothing, and returns
// what part of its decisions were admitted.
func (s *server) ratio(take taker) (c cost, admitted float64) {
	floor, _ := s.measure(s.nothing)
	c, n := s.measure(take)
	return cost{c.script / floor.script, c.processor / floor.processor}, float64(n) / (batch * trips)
}

// measure returns what a decision takes, in microseconds, and how many were admitted.
func (s *server) measure(take taker) (c cost, admitted int) {
	s.Must(s, "CONFIG", "RESETSTAT")
	before := s.processor()
	for range trips {
		admitted += take()
	}
	after := s.processor()
	stats, err := s.Info("commandstats")
	if err != nil {
		s.Fatal(err)
	}
	for _, command := range []string{"evalsha", "multi", "exec"} { // what they run is in their times
		c.script += field(stats["cmdstat_"+command], "usec")
	}
	return cost{c.script / (batch * trips), (after - before) / (batch * trips)}, admitted
}

// processor returns the processor time that the server has taken, in microseconds.
func (s *server) processor() float64 {
	cpu, err := s.Info("cpu")
	if err != nil {
		s.Fatal(err)
	}
	total := 0.0
	for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu[part], 64)
		if err != nil {
			s.Fatal(err)
		}
		total += seconds * 1e6
	}
	return total
}

// field returns a number of a line such as "calls=1,usec=2,usec_per_call=2.00", 0 if it has none.
func field(line, name string) float64 {
	for part := range strings.SplitSeq(line, ",") {
		if value, ok := strings.CutPrefix(part, name+"="); ok {
			n, _ := strconv.ParseFloat(value, 64)
			return n
		}
	}
	return 0
}

func median(all []cost) cost {
	middle := func(of func(cost) float64) float64 {
		sorted := make([]float64, len(all))
		for i := range all {
			sorted[i] = of(all[i])
		}
		slices.Sort(sorted)
		return sorted[len(sorted)/2]
	}
	return cost{middle(func(c cost) float64 { return c.script }), middle(func(c cost) float64 { return c.processor })}
}

// key returns the one key whose name ends in suffix.
func (s *server) key(suffix string) string {
	keys, ok := s.Must(s, "KEYS", "*"+suffix).([]any)
	if !ok || len(keys) != 1 {
		s.Fatalf("the keys that end in %s are %v, want one", suffix, keys)
	}
	return fmt.Sprint(keys[0])
}

// memory returns the bytes of a key.
func (s *server) memory(key string) float64 {
	n, ok := s.Must(s, "MEMORY", "USAGE", key).(int64)
	if !ok {
		s.Fatalf("there is no key %s", key)
	}
	return float64(n)
}
