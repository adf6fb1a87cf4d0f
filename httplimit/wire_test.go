package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// used is how many units of the limit of calls to a host are taken.
func used(t *testing.T, lim *weir.Limiter, url string) int64 {
	t.Helper()
	_, host, _ := strings.Cut(strings.TrimSuffix(url, "/"), "://")
	n, err := lim.Count(t.Context(), host, weir.PerHour(10), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// refused returns the URL of a server that is not there.
func refused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String() + "/"
}

// What never reached the wire is given back, however often it is tried; what
// may have is not.
func TestTransportGivesBack(t *testing.T) {
	abort := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	one := httptest.NewServer(abort)
	defer one.Close()
	two := httptest.NewUnstartedServer(abort)
	two.EnableHTTP2 = true
	two.StartTLS()
	defer two.Close()
	for _, tt := range []struct {
		name, url string
		base      http.RoundTripper
		want      int64
	}{
		{"nobody there", refused(t), new(http.Transport), 0},
		{"aborted", one.URL, one.Client().Transport, 3},
		{"aborted, HTTP/2", two.URL, two.Client().Transport, 3},
		{"of a Base that tells nothing", "http://api.test", newAnswers(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("lost")
		}), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			transport := &httplimit.Transport{Base: tt.base, Limiter: weir.New(weir.Options{}), Requests: per(weir.PerHour(10))}
			defer transport.CloseIdleConnections()
			for range 3 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tt.url, strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := transport.RoundTrip(r); err == nil {
					t.Fatal("the call went through")
				}
			}
			if n := used(t, transport.Limiter, tt.url); n != tt.want {
				t.Errorf("%d units are taken, want %d", n, tt.want)
			}
		})
	}
}

// A call whose context ends before it has a connection gets its units back,
// though nothing else can be done for that context.
func TestTransportGivesBackWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	transport := &httplimit.Transport{Base: base, Limiter: weir.New(weir.Options{}), Requests: per(weir.PerHour(10))}
	if _, err := get(ctx, t, transport, "http://api.test/"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := used(t, transport.Limiter, "http://api.test/"); n != 0 {
		t.Errorf("%d units are taken", n)
	}
}

// A request that Base sends twice, with its body, because the connection that it
// reused was closed on it, costs once.
func TestTransportReplayCostsOnce(t *testing.T) {
	var came atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != "hello" {
			t.Errorf("%q, %v", body, err)
		}
		if came.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	transport := &httplimit.Transport{Base: server.Client().Transport, Limiter: weir.New(weir.Options{}), Requests: per(weir.PerHour(10))}
	client := &http.Client{Transport: transport}
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "1")
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	if n := used(t, transport.Limiter, server.URL); came.Load() != 3 || n != 2 {
		t.Errorf("%d requests came for 2 calls, which cost %d", came.Load(), n)
	}
}
