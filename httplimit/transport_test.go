package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// answers is a server in memory: it notes when calls come, and answers each.
type answers struct {
	mu     sync.Mutex
	start  time.Time
	at     []time.Duration // when calls came, since start
	answer func(*http.Request) (*http.Response, error)
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.at = append(a.at, time.Since(a.start))
	a.mu.Unlock()
	if r.Body != nil {
		_ = r.Body.Close()
	}
	if a.answer == nil {
		return respond(200), nil
	}
	return a.answer(r)
}

// respond makes a response with fields, each "Name: value".
func respond(status int, fields ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: make(http.Header), Body: http.NoBody}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func newAnswers(answer func(*http.Request) (*http.Response, error)) *answers {
	return &answers{start: time.Now(), answer: answer}
}

// per limits all calls together.
func per(limit weir.Limit) func(*http.Request) []weir.Request {
	return func(r *http.Request) []weir.Request { return []weir.Request{{Key: r.URL.Host, Limit: limit}} }
}

func get(ctx context.Context, t *testing.T, transport http.RoundTripper, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return transport.RoundTrip(r)
}

func mustGet(t *testing.T, transport http.RoundTripper, url string) *http.Response {
	t.Helper()
	response, err := get(t.Context(), t, transport, url)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// closer is a body that knows whether it has been closed.
type closer struct {
	io.Reader

	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

// Calls of two processes, which share a store, are sent as the limit says.
func TestTransportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := weir.NewMemory(weir.MemoryOptions{})
		server := newAnswers(nil)
		var fleet sync.WaitGroup
		for range 2 {
			transport := &httplimit.Transport{Base: server, Limiter: weir.New(weir.Options{Store: store}), Requests: per(weir.PerSecond(5))}
			for range 10 {
				fleet.Go(func() { mustGet(t, transport, "http://api.test/") })
			}
		}
		fleet.Wait()
		if len(server.at) != 20 {
			t.Fatalf("%d calls came, want 20", len(server.at))
		}
		for i, at := range server.at {
			if want := time.Duration(i/5) * time.Second; at != want {
				t.Errorf("call %d came at %s, want %s", i, at, want)
			}
		}
	})
}

// A share of a budget that is used up holds up nobody else's.
func TestTransportSplitsABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAnswers(nil)
		transport := &httplimit.Transport{Base: server, Limiter: weir.New(weir.Options{}), Requests: func(r *http.Request) []weir.Request {
			return []weir.Request{
				{Key: "all", Limit: weir.PerSecond(4)},
				{Key: "share:" + r.URL.Path, Limit: weir.PerSecond(3)},
			}
		}}
		took := make(map[string][]time.Duration)
		var calls sync.WaitGroup
		var mu sync.Mutex
		for _, path := range []string{"/big", "/big", "/big", "/big", "/big", "/small"} {
			calls.Go(func() {
				mustGet(t, transport, "http://api.test"+path)
				mu.Lock()
				took[path] = append(took[path], time.Since(server.start))
				mu.Unlock()
			})
			synctest.Wait()
		}
		calls.Wait()
		if took["/small"][0] != 0 || took["/big"][2] != 0 || took["/big"][3] != time.Second {
			t.Errorf("%v", took)
		}
	})
}

// What cannot be is told at once, before anything is sent.
func TestTransportFailsAtOnce(t *testing.T) {
	request := func(r weir.Request) func(*http.Request) []weir.Request {
		return func(*http.Request) []weir.Request { return []weir.Request{r} }
	}
	lim := weir.New(weir.Options{})
	for _, tt := range []struct {
		name     string
		left     time.Duration
		limiter  *weir.Limiter
		requests func(*http.Request) []weir.Request
		want     func(error) bool
	}{
		{"deadline", time.Second, lim, per(weir.PerHour(1)), is(weir.ErrDeadline)},
		{"never", time.Hour, lim, request(weir.Request{Key: "k", Limit: weir.PerMinute(5), Cost: 6}), is(weir.ErrNever)},
		{"ended", -time.Second, lim, nil, is(context.DeadlineExceeded)},
		{"a limit that is none", time.Hour, lim, per(weir.Limit{}), invalid("requests[0].max")},
		{"record", time.Hour, lim, request(weir.Request{Key: "k", Limit: weir.PerMinute(5), Mode: weir.Record}), invalid("requests[0].mode")},
		{"no limiter", time.Hour, nil, nil, invalid("limiter")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := lim.Allow(t.Context(), "api.test", weir.PerHour(1)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.left)
			defer cancel()
			server := newAnswers(nil)
			transport := &httplimit.Transport{Base: server, Limiter: tt.limiter, Requests: tt.requests}
			body := &closer{Reader: strings.NewReader("x")}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/", body)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := transport.RoundTrip(r); !tt.want(err) || tt.left > 0 && ctx.Err() != nil {
				t.Errorf("%v (%v)", err, ctx.Err())
			}
			if !body.closed || len(server.at) > 0 {
				t.Errorf("the body is closed: %t; calls: %v", body.closed, server.at)
			}
		})
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

func invalid(field string) func(error) bool {
	return func(err error) bool {
		var e *weir.InvalidError
		return errors.As(err, &e) && e.Field == field && e.Want != ""
	}
}

// The call is handed on with its own context's values and nothing changed, and
// the response as it is.
func TestTransportChangesNothing(t *testing.T) {
	type mark struct{}
	ctx := context.WithValue(t.Context(), mark{}, "mine")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Clone(ctx)
	told := respond(http.StatusTooManyRequests, "Retry-After: 1")
	transport := &httplimit.Transport{Limiter: weir.New(weir.Options{}), Base: newAnswers(func(r *http.Request) (*http.Response, error) {
		if r.Context().Value(mark{}) != "mine" {
			t.Error("the context is another")
		}
		return told, nil
	})}
	got, err := transport.RoundTrip(r)
	if err != nil || got != told || got.Request != r {
		t.Errorf("%+v, %v", got, err)
	}
	if r.Context() != ctx || r.URL.String() != before.URL.String() || len(r.Header) != len(before.Header) {
		t.Errorf("the request is now %+v", r)
	}
}
