package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/service/config"
)

// served is a server that runs.
type served struct {
	*server
	output written
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned err
	err    error
}

// serve runs a server until the test ends, or it is stopped.
func serve(t *testing.T, listen listen, args ...string) *served {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	addFlags(flags)
	if err := flags.Parse(append([]string{"--grpc", "off"}, args...)); err != nil {
		t.Fatal(err)
	}
	s := &served{done: make(chan struct{})}
	var err error
	if s.server, err = open(flags, func(string) (string, bool) { return "", false }, listen, &s.output); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.err = s.run(ctx)
	}()
	t.Cleanup(func() { _ = s.stopped() })
	return s
}

// written is a log that can be read while it is written.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// stopped stops the server and returns what run did.
func (s *served) stopped() error {
	s.cancel()
	<-s.done
	return s.err
}

// decision is what the tests read of an answer.
type decision struct {
	Allowed    bool  `json:"allowed"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after_ms"`
}

func post(t *testing.T, url, body string) (d decision) {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return d
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&d); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("status %s, %v", response.Status, err)
	}
	return d
}

func TestFiveAMinuteOverHTTP(t *testing.T) {
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off")
	url := "http://" + s.doors[0].listener.Addr().String() + "/v1/check"
	const body = `{"key":"search:alice","limit":"5/minute"}`
	for remaining := int64(4); remaining >= 0; remaining-- {
		if d := post(t, url, body); !d.Allowed || d.Remaining != remaining {
			t.Errorf("got %+v, want %d remaining", d, remaining)
		}
	}
	last := int64(60_000)
	for range 11 {
		d := post(t, url, body)
		if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > last {
			t.Errorf("got %+v, want a denial and to wait at most %d ms", d, last)
		}
		last = d.RetryAfter
	}
}

func TestConcurrentClientsNeverGetMoreThanMax(t *testing.T) {
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off")
	url := "http://" + s.doors[0].listener.Addr().String() + "/v1/check"
	const clients, calls, most = 8, 25, 100
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range calls {
				if post(t, url, `{"key":"hot","limit":"100/hour"}`).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if allowed.Load() != most {
		t.Errorf("%d of %d were allowed, want %d", allowed.Load(), clients*calls, most)
	}
}

// pipes is a network in memory, on which time is that of a synctest bubble.
// Its listeners are known by the addresses that they were opened with.
type pipes map[string]*pipeListener

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (p pipes) listen(_, address string) (net.Listener, error) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	p[address] = l
	return l, nil
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

// dial connects and sends a text.
func (p pipes) dial(t *testing.T, address, text string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	select {
	case p[address].conns <- server:
	case <-p[address].closed:
		t.Fatalf("%s is closed", address)
	}
	go func() { _, _ = io.WriteString(client, text) }() // until the server has read it or hangs up
	return client
}

const (
	callers   = ":8080"
	operators = "127.0.0.1:6070"
	question  = `{"key":"a","limit":"5/minute"}`
	// request waits with its body until the server asks for it.
	request = "POST /v1/check HTTP/1.1\r\nHost: weir\r\nExpect: 100-continue\r\nContent-Length: 30\r\n\r\n"
)

// all reads until the server hangs up, and tells how long that took.
func all(t *testing.T, c net.Conn) (text string, took time.Duration) {
	t.Helper()
	start := time.Now()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(b), time.Since(start)
}

func TestSlowClientsAreHungUpOn(t *testing.T) {
	tests := map[string]struct {
		sent string
		want string
		took time.Duration
	}{
		"nothing":            {"", "", readHeaderTime},
		"half a head":        {"POST /v1/check HTTP/1.1\r\nHost:", "", readHeaderTime},
		"half a body":        {strings.Replace(request, "Expect", "X-Expect", 1) + "{", "400 Bad Request", readTime},
		"nothing after that": {"GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n", `{"alive":true}`, idleTime},
		"a head too large":   {"GET /healthz HTTP/1.1\r\nHost: weir\r\nX: " + strings.Repeat("x", 2*maxHeaderBytes), "431 ", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := pipes{}
				serve(t, network.listen)
				got, took := all(t, network.dial(t, callers, test.sent))
				if !strings.Contains(got, test.want) || took.Truncate(time.Second) != test.took {
					t.Errorf("got %q after %v, want %q after %v", got, took, test.want, test.took)
				}
			})
		})
	}
}

func TestWhoDoesNotReadIsHungUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{}
		serve(t, network.listen)
		c := network.dial(t, callers, "GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n")
		<-time.After(writeTime + time.Second)
		if got, _ := all(t, c); got != "" {
			t.Errorf("got %q, want nothing any more", got)
		}
	})
}

func TestStopFinishesWhatItHasAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{}
		s := serve(t, network.listen)
		c := network.dial(t, callers, request)
		answers := bufio.NewReader(c)
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("got %q, %v", line, err)
		}
		start := time.Now()
		s.cancel()
		<-network[callers].closed

		ready, _ := all(t, network.dial(t, operators, "GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n"))
		if !strings.Contains(ready, "503 ") || !strings.Contains(ready, `{"ready":false,"detail":"stopping",`) {
			t.Errorf("/readyz answered %q", ready)
		}
		time.AfterFunc(3*time.Second, func() { _, _ = io.WriteString(c, question) })
		answer, err := io.ReadAll(answers)
		if err != nil || !strings.Contains(string(answer), `"allowed":true`) {
			t.Errorf("got %q, %v", answer, err)
		}
		if err := s.stopped(); err != nil || time.Since(start) > 5*time.Second {
			t.Errorf("stopped after %v: %v", time.Since(start), err)
		}
		for _, want := range []string{"stopping", "stopped"} {
			if !strings.Contains(s.output.String(), want) {
				t.Errorf("the log does not say %s: %s", want, &s.output)
			}
		}
	})
}

func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{}
		s := serve(t, network.listen)
		c := network.dial(t, callers, request)
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.stopped(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < drainTime || took > 5*time.Second {
			t.Errorf("stopped after %v", took)
		}
		if !strings.Contains(s.output.String(), "cut off") {
			t.Errorf("the log does not say so: %s", &s.output)
		}
	})
}

func TestADoorThatFailsEndsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{}
		s := serve(t, network.listen)
		if err := network[callers].Close(); err != nil {
			t.Fatal(err)
		}
		<-s.done
		if err := s.err; err == nil || !strings.Contains(err.Error(), net.ErrClosed.Error()) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWhatGoesWrongInADoorIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, _, err := newLog(&out, "info", "text")
		if err != nil {
			t.Fatal(err)
		}
		network, s := pipes{}, server{log: log}
		panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault") })
		if err := s.openDoor("http", callers, s.overHTTP(panics), network.listen); err != nil {
			t.Fatal(err)
		}
		d := s.doors[0]
		go func() { _ = d.server.Serve(d.listener) }()
		if got, _ := all(t, network.dial(t, callers, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")); got != "" {
			t.Errorf("got %q", got)
		}
		if got := out.String(); !strings.Contains(got, " WARN http: panic serving") || !strings.Contains(got, "a fault") {
			t.Errorf("the log does not say so: %s", got)
		}
		if err := d.server.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:6070": true, "127.9.9.9:1": true, "localhost:6070": true, "[::1]:6070": true,
		":6070": false, "0.0.0.0:6070": false, "[::]:6070": false, "10.0.0.1:6070": false, "weir.example:6070": false, "6070": false,
	} {
		if got := loopback(address); got != want {
			t.Errorf("loopback(%q) = %v", address, got)
		}
	}
}

func TestOperatorsElsewhereNeedAToken(t *testing.T) {
	for _, test := range []struct {
		admin, token string
		ok           bool
	}{
		{operators, "", true}, {":6070", "", false}, {":6070", "s3cret", true}, {off, "", true},
	} {
		s := settings{Server: config.Server{HTTP: callers, Admin: test.admin, AdminToken: test.token}}
		if err := s.check(); (err == nil) != test.ok {
			t.Errorf("admin %q with token %q: %v", test.admin, test.token, err)
		}
	}
}

func TestReachable(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:8080": "localhost:8080", "[::]:8080": "localhost:8080", "127.0.0.1:8080": "127.0.0.1:8080", "[::1]:1": "[::1]:1",
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := reachable(a); got != want {
			t.Errorf("reachable(%s) = %s, want %s", address, got, want)
		}
	}
}

func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	log, _, err := newLog(&out, "warn", "text")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("too little")
	log.With("door", "http").WithGroup("client").Warn(`try: curl -d '{"a":1}' x`, "name", "two words\nlines")
	head, rest, _ := strings.Cut(out.String(), " ")
	if _, err := time.Parse(time.RFC3339, head); err != nil {
		t.Error(err)
	}
	if want := `WARN try: curl -d '{"a":1}' x door=http client.name="two words\nlines"` + "\n"; rest != want {
		t.Errorf("got %s want %s", rest, want)
	}
	for _, bad := range [][2]string{{"loud", "text"}, {"INFO", "text"}, {"info+3", "text"}, {"", "text"}, {"info", "xml"}} {
		if _, _, err := newLog(&out, bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), ": want ") {
			t.Errorf("%v: got %v", bad, err)
		}
	}
}
