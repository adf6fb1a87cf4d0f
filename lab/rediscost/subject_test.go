package rediscost

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

// patient ends the URL of a server on a busy machine.
const patient = "?write_timeout=30s"

// steps is a clock that moves one step with every so many readings, up to its
// end. A store reads its clock once a list.
type steps struct {
	from, end time.Time
	step      time.Duration
	per, n    int64
}

func (c *steps) now() time.Time {
	at := c.from.Add(time.Duration(c.n/c.per) * c.step)
	c.n++
	if !c.end.IsZero() && at.After(c.end) {
		return c.end
	}
	return at
}

// subject fills the windows that are measured, and measures their memory.
func (s *server) subject(l layout, q question) *subject {
	subject := &subject{layout: l, question: q}
	keys := min(100, 40_000/q.max)
	step := year / time.Duration(q.max)
	now := time.Now()
	past := func() *steps { return &steps{from: now.Add(step - year), end: now, step: step, per: keys} }

	s.fill(s.taker(l, q, year, "still", keys, batch, past()), q.max*keys)
	subject.denies = s.taker(l, q, year, "still", keys, batch, nil)
	subject.deniesStill = s.taker(l, q, year, "still", keys, batch, &steps{from: now, per: 1})

	clock := past()
	subject.admits = s.taker(l, q, year, "moving", keys, batch, clock)
	s.fill(subject.admits, q.max*keys)
	*clock = steps{from: now, step: step * time.Duration(q.pace), per: keys, n: keys}
	for range q.max * keys / batch {
		subject.admits() // one window more, until it is as it stays
	}
	if q.levels == 1 && q.pace == 1 {
		subject.bytes = s.hour(l, q)
	}
	return subject
}

// fill takes n units while the clock moves up to its end, and then all that is left.
func (s *server) fill(take taker, n int64) {
	for range n / batch {
		take()
	}
	for left := 1; left > 0; {
		left = take()
	}
}

// hour returns the mean memory of a key over an hour of windows of a minute
// that are full all the time; for the largest, over six of them.
func (s *server) hour(l layout, q question) float64 {
	clock := &steps{from: time.Now(), step: time.Minute / time.Duration(q.max), per: 1}
	take := s.taker(l, q, time.Minute, "hour", 1, 7, clock) // 7, to see the key at all its sizes
	windows := min(60, 60_000/q.max)
	for clock.n < q.max {
		take()
	}
	key := s.key(name(q, "hour", 0, 0))
	sum, samples, admitted := 0.0, 0.0, 0.0
	for clock.n < (windows+1)*q.max {
		admitted += float64(take())
		sum += s.memory(key)
		samples++
	}
	if admitted < samples*7*moving {
		s.Fatalf("%s: %.0f of %.0f decisions of a moving window were admitted, want most", l.name, admitted, samples*7)
	}
	s.Must(s, "DEL", key)
	return sum / samples
}

// name is the part of a key's name that says what is limited.
func name(q question, set string, key, level int64) string {
	return fmt.Sprintf("%s:%d:%d:%d:%d:%02d", set, q.max, q.levels, q.pace, level, key)
}

// taker returns what takes so many units at once, one of each key in turn.
func (s *server) taker(l layout, q question, window time.Duration, set string, keys int64, units int, clock *steps) taker {
	if l.naive {
		return s.naive(q, window, set, keys, units, clock)
	}
	o := l.store
	o.URL = s.URL() + patient
	if clock != nil {
		o.Now = clock.now
	}
	limit := weir.Limit{Max: q.max, Window: window, Algorithm: l.algorithm}
	lists := make([]weir.List, units)
	for i := range lists {
		for level := range q.levels {
			lists[i].Requests = append(lists[i].Requests, weir.Request{Key: name(q, set, int64(i)%keys, level), Limit: limit})
		}
	}
	return s.limiter(o, lists)
}

// limiter returns what takes all of the lists.
func (s *server) limiter(o redisstore.Options, lists []weir.List) taker {
	store, err := redisstore.Open(o)
	if err != nil {
		s.Fatal(err)
	}
	limiter := weir.New(weir.Options{Store: store})
	s.Cleanup(func() {
		if err := limiter.Close(); err != nil {
			s.Error(err)
		}
	})
	return func() (admitted int) {
		limiter.Take(ctx, lists)
		for i := range lists {
			if lists[i].Err != nil {
				s.Fatal(lists[i].Err)
			}
			if lists[i].Admitted() {
				admitted++
			}
		}
		return admitted
	}
}

// byHand is a sliding log as it is usually written: a member a unit.
const byHand = `
local now = ARGV[1]
if now == '' then
	local t = redis.call('TIME')
	now = t[1] * 1000000 + t[2]
else
	now = tonumber(now)
end
local max, window = tonumber(ARGV[2]), tonumber(ARGV[3])
for i = 1, #KEYS do
	redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now - window)
	if redis.call('ZCARD', KEYS[i]) >= max then return 0 end
end
for i = 1, #KEYS do
	redis.call('ZADD', KEYS[i], now, ARGV[4])
	redis.call('EXPIRE', KEYS[i], math.ceil(window / 1000000))
end
return 1`

func (s *server) naive(q question, window time.Duration, set string, keys int64, units int, clock *steps) taker {
	sha := s.load(byHand)
	id := uint64(1) << 60
	return func() int {
		return s.run(sha, units, func(i int) (names, args []string) {
			for level := range q.levels {
				names = append(names, "weir:hand:{abc}"+name(q, set, int64(i)%keys, level))
			}
			now := ""
			if clock != nil {
				now = strconv.FormatInt(clock.now().UnixMicro(), 10)
			}
			id++
			return names, []string{now, strconv.FormatInt(q.max, 10), strconv.FormatInt(window.Microseconds(), 10), fmt.Sprintf("%016x", id)}
		})
	}
}

// plain is fixed-window without scripts. Its time is the server's alone.
func (s *server) plain() *subject {
	q := question{max: 100, levels: 1, pace: 1}
	take := func(most int64, set string) taker {
		lists := make([]weir.List, batch)
		for i := range lists {
			limit := weir.Limit{Max: most, Window: year, Algorithm: weir.FixedWindow}
			lists[i].Requests = []weir.Request{{Key: name(q, set, int64(i%100), 0), Limit: limit}}
		}
		return s.limiter(redisstore.Options{URL: s.URL() + patient, Plain: true}, lists)
	}
	subject := &subject{layout: layout{name: "fixed-window, plain mode"}, question: q, denies: take(q.max, "full"), admits: take(weir.MaxUnits, "free")}
	s.fill(subject.denies, 0)
	subject.bytes = s.memory(s.key(name(q, "full", 0, 0)))
	return subject
}
