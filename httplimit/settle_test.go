package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

const quota = 1000

// settled is a rule for as many units an hour, of which 10 are held.
func settled(name string, s httplimit.Settlement) httplimit.Rule {
	r := rule(name, weir.PerHour(quota))
	r.Cost, r.Settle = 10, s
	return r
}

// spent sends a request to a handler under rules, and returns what each has
// charged when the handler has returned.
func spent(t *testing.T, method string, handler http.HandlerFunc, rules ...httplimit.Rule) (charged []int64) {
	t.Helper()
	lim, done := frozen(t), make(chan struct{})
	limited := httplimit.Middleware(httplimit.Options{
		Limiter: lim, Rules: always(rules...), Errors: func(_ *http.Request, err error) { t.Error(err) },
	})(handler)
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		limited.ServeHTTP(w, r)
	}))
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(r); err == nil { // else the handler has broken the connection
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	<-done
	for i := range rules {
		d, err := lim.Peek(t.Context(), rules[i].Key, rules[i].Limit)
		if err != nil {
			t.Fatal(err)
		}
		charged = append(charged, quota-d.Remaining)
	}
	return charged
}

func TestByBytes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 321)), 0o600); err != nil {
		t.Fatal(err)
	}
	hundred := strings.Repeat("x", 100)
	for name, test := range map[string]struct {
		method  string
		handler http.HandlerFunc
		want    int64
	}{
		"nothing":    {"GET", func(http.ResponseWriter, *http.Request) {}, 0},
		"less":       {"GET", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, 5},
		"more":       {"GET", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(hundred)) }, 100},
		"above Max":  {"GET", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat(hundred, 12)) }, quota},
		"a file":     {"GET", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }, 321},
		"a HEAD":     {"HEAD", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }, 0},
		"a body too": {"HEAD", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, 0},
		"no content": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			_, _ = io.WriteString(w, "hello")
		}, 0},
		"a stream": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "hello")
				w.(http.Flusher).Flush()
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}, 15},
		"a panic after something": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, hundred)
			panic(http.ErrAbortHandler)
		}, 100},
		"a connection taken over": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
			_ = conn.Close()
		}, 0},
		"deadlines": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := spent(t, test.method, test.handler, settled("bytes", httplimit.ByBytes)); got[0] != test.want {
				t.Errorf("%d bytes were charged, want %d", got[0], test.want)
			}
		})
	}
}

func TestSetUsed(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(context.Context)
		want    int64
	}{
		"nothing said": {func(context.Context) {}, 10},
		"none":         {func(ctx context.Context) { httplimit.SetUsed(ctx, "tokens", 0) }, 0},
		"less":         {func(ctx context.Context) { httplimit.SetUsed(ctx, "tokens", 3) }, 3},
		"more":         {func(ctx context.Context) { httplimit.SetUsed(ctx, "tokens", 300) }, 300},
		"negative":     {func(ctx context.Context) { httplimit.SetUsed(ctx, "tokens", -300) }, 0},
		"huge":         {func(ctx context.Context) { httplimit.SetUsed(ctx, "tokens", 1<<62) }, quota},
		"twice": {func(ctx context.Context) {
			httplimit.SetUsed(ctx, "tokens", 300)
			httplimit.SetUsed(ctx, "tokens", 4)
		}, 4},
		"from many goroutines": {func(ctx context.Context) {
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() { httplimit.SetUsed(ctx, "tokens", 7) })
			}
			all.Wait()
		}, 7},
		"of others": {func(ctx context.Context) {
			for _, name := range []string{"calls", "unheard-of", ""} {
				if httplimit.SetUsed(ctx, name, 300) {
					t.Errorf("%q is a rule of the handler's", name)
				}
			}
		}, 10},
		"a panic":            {func(context.Context) { panic(http.ErrAbortHandler) }, 10},
		"a panic after some": {func(ctx context.Context) { httplimit.SetUsed(ctx, "tokens", 4); panic(http.ErrAbortHandler) }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			handler := func(_ http.ResponseWriter, r *http.Request) { test.handler(r.Context()) }
			got := spent(t, "GET", handler, settled("calls", httplimit.AsReserved), settled("tokens", httplimit.ByHandler))
			if got[0] != 10 || got[1] != test.want {
				t.Errorf("charged %d, want 10 and %d", got, test.want)
			}
		})
	}
}

// Rules of every kind are settled at once, each in its own way.
func TestSettledTogether(t *testing.T) {
	watched := settled("watched", httplimit.ByBytes)
	watched.Mode = weir.Shadow
	unset := rule("unset", weir.PerHour(quota))
	got := spent(t, "GET", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello")
		httplimit.SetUsed(r.Context(), "tokens", 20)
	}, unset, settled("bytes", httplimit.ByBytes), watched, settled("tokens", httplimit.ByHandler))
	for i, want := range []int64{1, 5, 5, 20} {
		if got[i] != want {
			t.Errorf("charged %d, want 1, 5, 5, 20", got)
			break
		}
	}
}

// A handler reaches the rules of every Middleware around it, until it returns.
func TestSetUsedReachesOut(t *testing.T) {
	lim := frozen(t)
	around := func(rules ...httplimit.Rule) func(http.Handler) http.Handler {
		return httplimit.Middleware(httplimit.Options{Limiter: lim, Rules: always(rules...)})
	}
	var served *http.Request
	h := around(settled("outer", httplimit.ByHandler))(around(settled("inner", httplimit.ByHandler))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		served = r
		if !httplimit.SetUsed(r.Context(), "outer", 1) || !httplimit.SetUsed(r.Context(), "inner", 2) {
			t.Error("a rule was not reached")
		}
	})))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	for i, name := range []string{"outer", "inner"} {
		if httplimit.SetUsed(served.Context(), name, 500) {
			t.Errorf("%s was reached when it was settled", name)
		}
		if d, _ := lim.Peek(t.Context(), name, weir.PerHour(quota)); d.Remaining != quota-1-int64(i) {
			t.Errorf("%s: %d are left", name, d.Remaining)
		}
	}
	if httplimit.SetUsed(context.Background(), "outer", 1) {
		t.Error("a context of nothing has a rule")
	}
}

// Whoever leaves before the end of a response has used what there was of it.
func TestSettledForClientsWhoLeft(t *testing.T) {
	lim, done := frozen(t), make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	limited := httplimit.Middleware(httplimit.Options{
		Limiter: lim, Rules: always(settled("tokens", httplimit.ByHandler), settled("bytes", httplimit.ByBytes)),
		Errors: func(_ *http.Request, err error) { t.Error(err) },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
		leave()
		<-r.Context().Done()
		httplimit.SetUsed(r.Context(), "tokens", 3)
	}))
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		limited.ServeHTTP(w, r)
	}))
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(r); err == nil {
		_ = res.Body.Close()
	}
	<-done
	for name, want := range map[string]int64{"tokens": 3, "bytes": 5} {
		if d, _ := lim.Peek(t.Context(), name, weir.PerHour(quota)); quota-d.Remaining != want {
			t.Errorf("%d %s were charged, want %d", quota-d.Remaining, name, want)
		}
	}
}

// able is a ResponseWriter that can do everything, and notes what it did.
type able struct {
	*httptest.ResponseRecorder

	did []string
}

func (a *able) ReadFrom(r io.Reader) (int64, error) {
	a.did = append(a.did, "read from")
	return io.Copy(a.ResponseRecorder, r)
}

func (a *able) Push(target string, _ *http.PushOptions) error {
	a.did = append(a.did, "push "+target)
	return nil
}

func (a *able) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.did = append(a.did, "hijack")
	return nil, nil, nil
}

func (a *able) Flush() { a.did = append(a.did, "flush") }

func TestTheWriterCanDoWhatItsServerCan(t *testing.T) {
	limited := httplimit.Middleware(httplimit.Options{Limiter: frozen(t), Rules: always(settled("bytes", httplimit.ByBytes))})
	use := func(w http.ResponseWriter) error {
		var errs []error
		limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.Copy(w, io.LimitReader(strings.NewReader("hello"), 5))
			w.(http.Flusher).Flush()
			_, _, hijack := w.(http.Hijacker).Hijack()
			errs = append(errs, err, w.(http.Pusher).Push("/style.css", nil), hijack, http.NewResponseController(w).Flush())
		})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return errors.Join(errs...)
	}
	can := &able{ResponseRecorder: httptest.NewRecorder()}
	if err := use(can); err != nil || strings.Join(can.did, ", ") != "read from, flush, hijack, push /style.css, flush" {
		t.Errorf("got %v, %q", err, can.did)
	}
	cannot := struct{ http.ResponseWriter }{httptest.NewRecorder()}
	if err := use(cannot); !errors.Is(err, http.ErrNotSupported) || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v, want that nothing but writing is supported", err)
	}
	if can.Body.String() != "hello" {
		t.Errorf("wrote %q", can.Body)
	}
}

// A settlement that fails is told: the handler's answer has been given.
func TestSettlingFails(t *testing.T) {
	lim := weir.New(weir.Options{})
	var told error
	w := httptest.NewRecorder()
	httplimit.Middleware(httplimit.Options{
		Limiter: lim, Rules: always(settled("bytes", httplimit.ByBytes)), Errors: func(_ *http.Request, err error) { told = err },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hello(w, r)
		_ = lim.Close()
	})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if !errors.Is(told, weir.ErrClosed) || w.Body.String() != "hello" {
		t.Errorf("told %v, wrote %q", told, w.Body)
	}
}
