package soak

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// calm is the phase in which nothing fails.
	calm = "calm"
	// backWithin is how soon a store that is back is used again.
	backWithin = 2 * time.Second
	// maxPause is how long the longest fault lasts.
	maxPause = 2 * time.Second
)

// fault is something that goes wrong, for a while where that is for it to say.
type fault struct {
	name string
	do   func(s *soak, lasts time.Duration)
}

// plan is what goes wrong, in turn.
var plan = []fault{
	{"SCRIPT FLUSH", func(s *soak, _ time.Duration) { s.redis.Must(s, "SCRIPT", "FLUSH") }},
	{"Redis killed", func(s *soak, lasts time.Duration) {
		s.redis.Kill()
		s.ledger.lost(time.Now())
		s.living.lost()
		s.pass(lasts)
		s.redis.Restart(s)
	}},
	{"Redis stopped", func(s *soak, lasts time.Duration) {
		s.signal(syscall.SIGSTOP)
		s.pass(lasts)
		s.signal(syscall.SIGCONT)
	}},
	{"weir killed", func(s *soak, _ time.Duration) { s.restart(replicas - 1) }},
	{"CLIENT PAUSE", func(s *soak, lasts time.Duration) {
		s.redis.Must(s, "CLIENT", "PAUSE", strconv.FormatInt(lasts.Milliseconds(), 10))
		s.pass(lasts)
	}},
}

func (s *soak) signal(sig syscall.Signal) {
	s.Helper()
	if err := syscall.Kill(s.redis.PID(), sig); err != nil {
		s.Fatal(err)
	}
}

// faults knows when the last fault was.
type faults struct {
	mu       sync.Mutex
	name     string
	from, to time.Time
	back     [replicas]time.Duration // how long after it the store was used
	slowest  map[string]time.Duration
}

func newFaults() *faults { return &faults{slowest: make(map[string]time.Duration)} }

// run makes something fail.
func (f *faults) run(s *soak, what fault, lasts time.Duration) {
	f.mu.Lock()
	f.name, f.from, f.to, f.back = what.name, time.Now(), time.Time{}, [replicas]time.Duration{}
	f.mu.Unlock()
	what.do(s, lasts)
	f.mu.Lock()
	f.to = time.Now()
	f.mu.Unlock()
}

// any reports whether there has been one.
func (f *faults) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.name != ""
}

// phase names what failed between two times, or just before.
func (f *faults) phase(from, to time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	over := !f.to.IsZero() && from.After(f.to.Add(backWithin))
	if f.name == "" || to.Before(f.from) || over {
		return calm
	}
	return f.name
}

// asked notes that a process has asked the store, and got an answer.
func (f *faults) asked(a answered) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to.IsZero() || a.sent.Before(f.to) || f.back[a.place] > 0 {
		return
	}
	f.back[a.place] = a.got.Sub(f.to)
	f.slowest[f.name] = max(f.slowest[f.name], f.back[a.place])
}

// late returns which processes did not use the store soon after the last fault.
func (f *faults) late() (places []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for place, back := range f.back {
		if !f.to.IsZero() && (back == 0 || back > backWithin+deadline) {
			places = append(places, fmt.Sprintf("process %d after %s: %s", place, f.name, ms(back)))
		}
	}
	return places
}

// scan is a step through the keys: it returns the next cursor and those that
// live on without end, or for longer than any limit here asks for.
const scan = `
local step = redis.call('SCAN', ARGV[1], 'COUNT', 500)
local bad = {step[1]}
for _, key in ipairs(step[2]) do
	local ttl = redis.call('PTTL', key)
	if ttl == -1 or ttl > tonumber(ARGV[2]) then bad[#bad + 1] = key .. ' ' .. ttl end
end
return bad`

// keys returns how many keys Redis has, and those that stay for too long.
func (s *soak) keys() (n int, bad []string) {
	s.Helper()
	longest := strconv.FormatInt((2*time.Minute + 2*time.Second).Milliseconds(), 10)
	cursor := "0"
	for {
		step, _ := s.redis.Must(s, "EVAL", scan, "0", cursor, longest).([]any)
		for _, key := range step[1:] {
			bad = append(bad, strings.ToValidUTF8(key.(string), "?"))
		}
		if cursor = step[0].(string); cursor == "0" {
			break
		}
	}
	size, _ := s.redis.Must(s, "DBSIZE").(int64)
	return int(size), bad
}
