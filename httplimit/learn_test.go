package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// What a response asks for, by what the next call waits.
func TestTransportLearns(t *testing.T) {
	const ok, tooMany, unavailable = 200, http.StatusTooManyRequests, http.StatusServiceUnavailable
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	epoch := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	for _, tt := range []struct {
		status int
		fields []string
		want   time.Duration
	}{
		{ok, nil, 0},
		{tooMany, nil, 0},
		{tooMany, []string{"Retry-After: 7"}, 7 * time.Second},
		{unavailable, []string{"Retry-After: 7"}, 7 * time.Second},
		{http.StatusForbidden, []string{"Retry-After: 7"}, 7 * time.Second},
		{ok, []string{"Retry-After: 7"}, 0},
		{tooMany, []string{"Retry-After: 0"}, 0},
		{tooMany, []string{"Retry-After: 1.5"}, 1500 * time.Millisecond},
		{tooMany, []string{"Retry-After: " + at(9*time.Second)}, 9 * time.Second},
		{tooMany, []string{"Retry-After: " + at(-9*time.Second)}, 0},
		// By the server's clock, which may be years ahead.
		{tooMany, []string{"Retry-After: " + at(100_000*time.Hour+9*time.Second), "Date: " + at(100_000*time.Hour)}, 9 * time.Second},
		{tooMany, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(100_000*time.Hour+9*time.Second), "Date: " + at(100_000*time.Hour)}, 9 * time.Second},
		// Retry-After is what counts, where it can be read.
		{tooMany, []string{"Retry-After: 3", `RateLimit: "a";r=0;t=30`}, 3 * time.Second},
		{tooMany, []string{"Retry-After: soon", `RateLimit: "a";r=0;t=30`}, 30 * time.Second},
		{tooMany, []string{"Retry-After: -3"}, 0},
		{tooMany, []string{"Retry-After: nan"}, 0},
		{tooMany, []string{"Retry-After: 1e300"}, 0},
		// The draft's fields.
		{ok, []string{`RateLimit: "a";r=0;t=5`}, 5 * time.Second},
		{ok, []string{`RateLimit: "a";r=1;t=5`}, 0},
		{ok, []string{`RateLimit: "a";r=0;t=5, "b";r=0;t=8`, `RateLimit: "c";r=3;t=900`}, 8 * time.Second},
		{ok, []string{`RateLimit: "a";r=0`, `RateLimit-Policy: "b";q=1;w=99, "a";q=10;w=60`}, time.Minute},
		{ok, []string{`RateLimit: "a";r=0`}, 0},
		{ok, []string{`RateLimit: a;r=0;pk=:aGk=:;t=5;x="y;t=9"`}, 5 * time.Second},
		{ok, []string{`RateLimit: ("a" "b");r=0;t=9, "a";r=0;t=5;x=%"caf%c3%a9";y=?1;z;at=@0`}, 5 * time.Second},
		{ok, []string{`RateLimit: "a";r=0;t=5,`}, 0}, // not well-formed
		{ok, []string{`RateLimit: "a";r=0;t=-5`}, 0},
		{ok, []string{`RateLimit: "a";r=0;t=5.5`}, 0},
		// Older ones.
		{ok, []string{"RateLimit-Remaining: 0", "RateLimit-Reset: 4"}, 4 * time.Second},
		{ok, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 4"}, 4 * time.Second},
		{ok, []string{"X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 4"}, 0},
		{ok, []string{"X-RateLimit-Reset: 4"}, 0},
		{ok, []string{"X-RateLimit-Remaining: 0"}, 0},
		{ok, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(4*time.Second)}, 4 * time.Second},
		{ok, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(4*time.Second) + "000"}, 4 * time.Second},
		{ok, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(-4*time.Second)}, 0},
		{ok, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1m30s"}, 90 * time.Second},
		// Nobody makes us wait for ever.
		{tooMany, []string{"Retry-After: 999999999"}, time.Hour},
		{tooMany, []string{"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"}, time.Hour},
		{ok, []string{`RateLimit: "a";r=0;t=999999999999999`}, time.Hour},
		{ok, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 99999999999999"}, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			pass(time.Until(now))
			var told time.Duration
			first := true
			server := newAnswers(func(*http.Request) (*http.Response, error) {
				if first {
					first = false
					return respond(tt.status, tt.fields...), nil
				}
				return respond(ok), nil
			})
			transport := &httplimit.Transport{
				Base: server, Limiter: weir.New(weir.Options{}),
				Learned: func(key string, pause time.Duration, err error) {
					if told = pause; key != "api.test" || err != nil {
						t.Errorf("%q, %v", key, err)
					}
				},
			}
			if got := mustGet(t, transport, "http://API.test/"); got.StatusCode != tt.status {
				t.Errorf("status %d became %d", tt.status, got.StatusCode)
			}
			mustGet(t, transport, "http://api.test/")
			if took := server.at[1]; told != tt.want || took < tt.want || took > tt.want+time.Millisecond {
				t.Errorf("%d %q: learned %s, waited %s, want %s", tt.status, tt.fields, told, took, tt.want)
			}
		})
	}
}

func TestTransportMaxPause(t *testing.T) {
	for _, tt := range []struct{ most, want time.Duration }{
		{time.Second, time.Second},
		{0, time.Hour},
		{-1, time.Hour},
		{1000 * time.Hour, 24 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newAnswers(func(*http.Request) (*http.Response, error) {
				return respond(429, "Retry-After: 999999"), nil
			})
			transport := &httplimit.Transport{Base: server, Limiter: weir.New(weir.Options{}), MaxPause: tt.most}
			mustGet(t, transport, "http://api.test/")
			mustGet(t, transport, "http://api.test/")
			if took := server.at[1]; took < tt.want || took > tt.want+time.Millisecond {
				t.Errorf("MaxPause %s: waited %s", tt.most, took)
			}
		})
	}
}

// fleet is transports that share a store, on a server that answers what it is
// told to.
type fleet struct {
	server  *answers
	members []*httplimit.Transport
	fields  chan string // what the next calls are told, by a 429
}

func newFleet(n int) *fleet {
	f := &fleet{fields: make(chan string, 100)}
	f.server = newAnswers(func(*http.Request) (*http.Response, error) {
		select {
		case field := <-f.fields:
			return respond(429, field), nil
		default:
			return respond(200), nil
		}
	})
	store := weir.NewMemory(weir.MemoryOptions{})
	for range n {
		f.members = append(f.members, &httplimit.Transport{Base: f.server, Limiter: weir.New(weir.Options{Store: store})})
	}
	return f
}

// One is told, and all pause: those that call and those that wait; who cannot
// wait that long is told at once; another host is another matter.
func TestTransportSharesWhatItLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.fields <- "Retry-After: 10"
		mustGet(t, f.members[0], "http://api.test/")
		pass(2 * time.Second)

		short, stop := context.WithTimeout(t.Context(), 7*time.Second)
		defer stop()
		start := time.Now()
		if _, err := get(short, t, f.members[1], "http://api.test/"); !errors.Is(err, weir.ErrDeadline) || time.Since(start) != 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		mustGet(t, f.members[1], "http://other.test/")
		if time.Since(start) != 0 {
			t.Errorf("another host waited %s", time.Since(start))
		}
		var calls sync.WaitGroup
		for _, member := range f.members {
			for range 100 {
				calls.Go(func() { mustGet(t, member, "http://api.test/") })
			}
		}
		calls.Wait()
		for _, at := range f.server.at[2:] {
			if at < 10*time.Second || at > 10*time.Second+20*time.Millisecond {
				t.Errorf("a call came at %s", at)
			}
		}
	})
}

// However many are told of one event, the pause is as long as the longest.
func TestTransportPausesDoNotAddUp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fields []string
		want   time.Duration
	}{
		{"all the same", []string{"Retry-After: 10", "Retry-After: 10", "Retry-After: 10", "Retry-After: 10"}, 10 * time.Second},
		{"longer and longer", []string{"Retry-After: 5", "Retry-After: 10", "Retry-After: 20", "Retry-After: 30"}, 30 * time.Second},
		{"shorter and shorter", []string{"Retry-After: 30", "Retry-After: 20", "Retry-After: 10", "Retry-After: 5"}, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(len(tt.fields))
				together := make(chan struct{})
				var n int
				var mu sync.Mutex
				f.server.answer = func(*http.Request) (*http.Response, error) {
					mu.Lock()
					field := "Retry-After: 0"
					if n < len(tt.fields) {
						field = tt.fields[n]
					}
					if n++; n == len(tt.fields) {
						close(together)
					}
					mu.Unlock()
					<-together
					return respond(429, field), nil
				}
				var calls sync.WaitGroup
				for _, member := range f.members {
					calls.Go(func() { mustGet(t, member, "http://api.test/") })
				}
				calls.Wait()
				mustGet(t, f.members[0], "http://api.test/")
				if at := f.server.at[len(tt.fields)]; at < tt.want || at > tt.want+time.Millisecond {
					t.Errorf("the next call came at %s, want %s", at, tt.want)
				}
			})
		})
	}
}

// Calls of a LearnKey of their own do not pause for others, and those without
// one for nobody.
func TestTransportLearnKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAnswers(func(*http.Request) (*http.Response, error) { return respond(429, "Retry-After: 10"), nil })
		transport := &httplimit.Transport{
			Base: server, Limiter: weir.New(weir.Options{}),
			LearnKey: func(r *http.Request) string { return r.Header.Get("Api-Key") },
		}
		for _, key := range []string{"one", "two", "", "", "one"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Api-Key", key)
			if _, err := transport.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []time.Duration{0, 0, 0, 0, 10 * time.Second} {
			if at := server.at[i]; at < want || at > want+time.Millisecond {
				t.Errorf("call %d came at %s, want %s", i, at, want)
			}
		}
	})
}

// A pause is not noticed while there is none, at hundreds of calls at once.
func TestTransportWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(2)
		var calls sync.WaitGroup
		for i := range 1000 {
			calls.Go(func() { mustGet(t, f.members[i%2], "http://api.test/") })
		}
		calls.Wait()
		if took := time.Since(f.server.start); took != 0 {
			t.Errorf("1000 calls took %s", took)
		}
	})
}

// What could not be learned is told, and the response returned all the same.
func TestTransportCannotLearn(t *testing.T) {
	lim := weir.New(weir.Options{})
	var told error
	transport := &httplimit.Transport{
		Limiter: lim,
		Base: newAnswers(func(*http.Request) (*http.Response, error) {
			return respond(429, "Retry-After: 10"), lim.Close()
		}),
		Learned: func(_ string, _ time.Duration, err error) { told = err },
	}
	if got := mustGet(t, transport, "http://api.test/"); got.StatusCode != 429 || !errors.Is(told, weir.ErrClosed) {
		t.Errorf("%d, learned with %v", got.StatusCode, told)
	}
}

// pass lets d go by.
func pass(d time.Duration) { <-time.After(d) }
