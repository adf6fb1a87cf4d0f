package redistest_test

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

func TestServerIsItsOwn(t *testing.T) {
	a, b := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
	for _, s := range []*redistest.Server{a, b} {
		want(t, s, "OK", "SET", "who", s.Addr())
		want(t, s, []any{"save", ""}, "CONFIG", "GET", "save")
		want(t, s, []any{"bind", "127.0.0.1"}, "CONFIG", "GET", "bind")
		info, err := s.Info("server")
		if err != nil || info["process_id"] != strconv.Itoa(s.PID()) || s.URL() != "redis://127.0.0.1:"+info["tcp_port"] {
			t.Errorf("%s, process %d: INFO says process %s, port %s, %v", s.URL(), s.PID(), info["process_id"], info["tcp_port"], err)
		}
	}
	want(t, a, a.Addr(), "GET", "who")
}

func TestKillAndRestart(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Config: []string{"maxmemory 5mb"}})
	want(t, s, "OK", "SET", "key", "value")
	addr, pid := s.Addr(), s.PID()
	s.Kill()
	s.Kill()
	if reply, err := s.Do("PING"); err == nil {
		t.Errorf("killed, it answers %v", reply)
	}
	s.Restart(t)
	s.Restart(t)
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("restarted, it is at %s in process %d, before at %s in process %d", s.Addr(), s.PID(), addr, pid)
	}
	want(t, s, nil, "GET", "key")
	want(t, s, []any{"maxmemory", "5242880"}, "CONFIG", "GET", "maxmemory")
}

func TestSignal(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	s.Signal(t, syscall.SIGTERM)
	redistest.Await(t, "the end of the server", func() error { return refused(s.Addr()) })
}

// TestTakenPort restarts servers whose port, or Cluster bus port, somebody took.
func TestTakenPort(t *testing.T) {
	for offset, config := range map[int][]string{0: nil, 10_000: {"cluster-enabled yes"}} {
		s := redistest.Start(t, redistest.Options{Config: config})
		s.Kill()
		_, port, err := net.SplitHostPort(s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		thief, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n+offset))
		if err != nil {
			t.Fatal(err)
		}
		go hangUp(thief)
		if text := failure(t, func(tb testing.TB) { s.Restart(tb) }); !strings.Contains(text, "the port was taken") {
			t.Errorf("port %d + %d taken: failed with %q", n, offset, text)
		}
		if err := thief.Close(); err != nil {
			t.Fatal(err)
		}
		s.Restart(t)
	}
}

// hangUp accepts connections and closes them, until l is closed.
func hangUp(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// TestServerEndsWithTest starts a server in a test that ends before this one.
func TestServerEndsWithTest(t *testing.T) {
	addr := ""
	t.Run("inner", func(t *testing.T) { addr = redistest.Start(t, redistest.Options{}).Addr() })
	if err := refused(addr); err != nil {
		t.Error(err)
	}
}

func TestReplies(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	binary := "a\r\nb\x00\xff$5\r\n"
	want(t, s, "OK", "SET", binary, strings.Repeat(binary, 10_000))
	want(t, s, strings.Repeat(binary, 10_000), "GET", binary)
	want(t, s, "", "ECHO", "")
	want(t, s, int64(-2), "PTTL", "nothing")
	want(t, s, nil, "GET", "nothing")
	want(t, s, []any{int64(1), "two", nil, []any{}, redistest.ReplyError("ERR five")},
		"EVAL", "return {1, 'two', false, {}, redis.error_reply('ERR five')}", "0")
	_, err := s.Do("LPUSH", binary, "x")
	var reply redistest.ReplyError
	if !errors.As(err, &reply) || !strings.HasPrefix(reply.Error(), "WRONGTYPE ") {
		t.Errorf("LPUSH to a string: %v, want WRONGTYPE", err)
	}
	want(t, s, "PONG", "PING")
}

func TestReconnects(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	want(t, s, "OK", "QUIT")
	if reply, err := s.Do("PING"); err == nil {
		t.Errorf("after QUIT it answers %v on the same connection", reply)
	}
	want(t, s, "PONG", "PING")
}

func TestUsers(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Config: []string{"requirepass secret", "user weir on >word ~weir:* +get +ping"}})
	want(t, s, "OK", "SET", "weir:a", "1") // whatever the test's users may do
	c := dial(t, s.Addr())
	tests := []struct {
		command, want string
	}{
		{"GET weir:a", "NOAUTH"},
		{"AUTH wrong", "WRONGPASS"},
		{"AUTH weir word", "OK"},
		{"GET weir:a", "1"},
		{"GET other", "NOPERM"},
		{"AUTH secret", "OK"},
		{"GET other", "<nil>"},
	}
	for _, test := range tests {
		reply, err := c.Do(strings.Fields(test.command)...)
		got := fmt.Sprint(reply)
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), " ")
		}
		if got != test.want {
			t.Errorf("%s: %v, %v, want %s", test.command, reply, err, test.want)
		}
	}
}

func TestTLS(t *testing.T) {
	s := redistest.Start(t, redistest.Options{TLS: true})
	want(t, s, "PONG", "PING")
	if !strings.HasPrefix(s.URL(), "rediss://127.0.0.1:") {
		t.Errorf("URL %s", s.URL())
	}
	other := redistest.Start(t, redistest.Options{TLS: true})
	if _, err := redistest.Dial(s.Addr(), other.TLS()); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("with the CA of another server: %v", err)
	}
	if reply, err := dial(t, s.Addr()).Do("PING"); err == nil {
		t.Errorf("without TLS it answers %v", reply)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Run(strings.Repeat("a long name ", 10), func(t *testing.T) {
		s := redistest.Start(t, redistest.Options{Unix: true})
		want(t, s, "OK", "SET", "key", "value")
		if got, err := dial(t, s.Socket()).Do("GET", "key"); got != "value" || err != nil {
			t.Errorf("GET through the socket: %v, %v", got, err)
		}
	})
}

func TestSentinel(t *testing.T) {
	set := redistest.StartSentinel(t)
	if len(set.Addrs()) != 3 || len(set.Servers) != 3 {
		t.Fatalf("Sentinels %v, servers %v", set.Addrs(), set.Servers)
	}
	first, err := set.Primary()
	if err != nil || first != set.Servers[0] {
		t.Fatalf("primary %v, %v, want the first server", first, err)
	}
	want(t, first, "OK", "SET", "key", "value")
	want(t, first, int64(2), "WAIT", "2", "4000")
	first.Kill()
	var second *redistest.Server
	redistest.Await(t, "another primary", func() error {
		second, err = set.Primary()
		if err == nil && second == first {
			err = errors.New("the killed server is the primary")
		}
		return err
	})
	want(t, second, "value", "GET", "key")
}

func TestCluster(t *testing.T) {
	c := redistest.StartCluster(t)
	if len(c.Addrs()) != 6 {
		t.Fatalf("servers %v", c.Addrs())
	}
	for owner, key := range []string{"bar", "c", "foo"} { // slots 5061, 7365 and 12182
		for n, s := range c.Servers[:3] {
			_, err := s.Do("SET", key, "value")
			if moved := err != nil && strings.HasPrefix(err.Error(), "MOVED "); moved == (n == owner) {
				t.Errorf("SET %s on server %d: %v; its slot is on server %d", key, n, err, owner)
			}
		}
		want(t, c.Servers[owner], int64(1), "WAIT", "1", "4000")
		replica := c.Servers[3+owner]
		want(t, replica, "OK", "READONLY")
		want(t, replica, "value", "GET", key)
	}
}

// TestMissing runs where nothing is installed.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", "")
	tests := []struct {
		want  string
		start func(testing.TB)
	}{
		{"redis-server or valkey-server, which is not on PATH; install it: apt-get install redis-server ", func(tb testing.TB) {
			redistest.Start(tb, redistest.Options{})
		}},
		{"nutcracker, which is not on PATH; install it: apt-get install nutcracker ", func(tb testing.TB) {
			redistest.StartTwemproxy(tb, new(redistest.Server))
		}},
	}
	for _, test := range tests {
		if text := failure(t, test.start); !strings.HasPrefix(text, "redistest: this test needs "+test.want) {
			t.Errorf("failed with %q, want %q", text, test.want)
		}
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), 0
		never := func() error { calls++; return errors.New("not yet") }
		text := failure(t, func(tb testing.TB) { redistest.Await(tb, "the end", never) })
		if waited := time.Since(start); text != "waited 20s for the end: not yet\n" || waited < 20*time.Second || calls < 2000 {
			t.Errorf("after %v and %d calls: failed with %q", waited, calls, text)
		}
		start, calls = time.Now(), 0
		redistest.Await(t, "three calls", func() error {
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if waited := time.Since(start); waited != 20*time.Millisecond {
			t.Errorf("three calls took %v, want 20ms", waited)
		}
	})
}

func TestBadConfig(t *testing.T) {
	text := failure(t, func(tb testing.TB) { redistest.Start(tb, redistest.Options{Config: []string{"no-such-setting 1"}}) })
	if !strings.Contains(text, "ended instead of answering") || !strings.Contains(text, "no-such-setting") {
		t.Errorf("failed with %q, want what the server said", text)
	}
}

// failure returns how start fails its test.
func failure(t *testing.T, start func(testing.TB)) string {
	f := &fake{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		start(f)
	}()
	<-done
	for _, clean := range slices.Backward(f.cleanups) {
		clean()
	}
	return f.text
}

// fake is a test that is meant to fail.
type fake struct {
	testing.TB

	text     string // what it was told
	failed   bool
	cleanups []func()
}

func (f *fake) Helper()                         {}
func (f *fake) Failed() bool                    { return f.failed }
func (f *fake) Cleanup(clean func())            { f.cleanups = append(f.cleanups, clean) }
func (f *fake) Logf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) + "\n" }

func (f *fake) Fatalf(format string, args ...any) {
	f.failed = true
	f.Logf(format, args...)
	runtime.Goexit()
}

// refused returns nil if nobody listens.
func refused(addr string) error {
	client, err := redistest.Dial(addr, nil)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		client.Close()
	}
	return fmt.Errorf("connecting to %s: %v, want connection refused", addr, err)
}

func want(t *testing.T, s *redistest.Server, want any, args ...string) {
	t.Helper()
	if got, err := s.Do(args...); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %.100q: %.100v, %v, want %.100v", s.Addr(), args, got, err, want)
	}
}

func dial(t *testing.T, addr string) *redistest.Client {
	t.Helper()
	c, err := redistest.Dial(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
