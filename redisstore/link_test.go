package redisstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

func TestConnect(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Unix: true, Config: []string{"requirepass p@ss/word", "user weir on >hunter2 ~weir:* +set +select"}})
	secure := redistest.Start(t, redistest.Options{TLS: true, Config: []string{"requirepass hunter2"}})
	mutual := redistest.Start(t, redistest.Options{TLS: true})
	client := certify(t, time.Now().Add(time.Hour))
	mustDo(t, mutual, "CONFIG", "SET", "tls-auth-clients", "yes", "tls-ca-cert-file", client.file)
	for _, url := range []string{
		mutual.URL() + "?ca=" + mutual.CAFile() + "&cert=" + client.file + "&key=" + client.key,
		loginURL(s, ":p%40ss%2Fword") + "/3",
		loginURL(s, "weir:hunter2"),
		strings.Replace(loginURL(s, "weir:hunter2"), "redis:", "valkey:", 1) + "?db=2",
		"unix://:p%40ss%2Fword@" + s.Socket() + "?db=1",
		loginURL(secure, ":hunter2") + "?ca=" + secure.CAFile(),
		loginURL(secure, ":hunter2") + "?skip_verify=true",
	} {
		l := openLink(t, url)
		if err := ask(t.Context(), l, "SET", "weir:k", "1"); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if l.clustered() {
			t.Errorf("%s: got a Cluster, want one server", url)
		}
	}
	reply, err := s.Do("ACL", "LOG")
	if all, _ := reply.([]any); err != nil || len(all) != 1 { // CLUSTER SLOTS, each time the same entry
		t.Errorf("got %d refusals in ACL LOG, %v, want 1: %v", len(all), err, reply)
	}
}

func TestConnectToSentinel(t *testing.T) {
	set := redistest.StartSentinel(t)
	addresses := strings.Join(set.Addrs(), ",")
	l := openLink(t, "redis://"+addresses+"?master_set="+set.Name)
	if err := ask(t.Context(), l, "SET", "weir:k", "1"); err != nil || l.clustered() {
		t.Errorf("got %v, clustered %v", err, l.clustered())
	}
	for _, f := range []failure{
		{"name that is not watched", "redis://" + addresses + "?master_set=other", "", verdict{"No such master with that name", "?master_set=NAME", true, false}},
		{"sentinel as a server", set.Sentinels[0].URL(), "", verdict{"a sentinel", "?master_set=NAME", true, false}},
		{"sentinels as a Cluster", "redis://" + addresses, "", verdict{"unknown command", "not a Cluster", true, false}},
		{"server as a sentinel", set.Servers[0].URL() + "?master_set=weir", "", verdict{"unknown command", "no sentinel", true, false}},
		{"replica", set.Servers[1].URL(), setCommand, verdict{"READONLY", "address of its primary", false, false}},
	} {
		f.run(t)
	}
	for _, s := range set.Sentinels {
		mustDo(t, s, "ACL", "SETUSER", "default", "resetpass", ">hunter2")
	}
	url := "redis://" + addresses + "?master_set=" + set.Name
	failure{"no login to the sentinels", url, "", verdict{"NOAUTH", "sentinel_password=PASSWORD", true, false}}.run(t)
	if err := ask(t.Context(), openLink(t, url+"&sentinel_password=hunter2"), "SET", "weir:k", "1"); err != nil {
		t.Error(err)
	}
}

func TestConnectToCluster(t *testing.T) {
	c := redistest.StartCluster(t)
	addresses := strings.Join(c.Addrs()[:3], ",")
	for _, s := range c.Servers {
		mustDo(t, s, "ACL", "SETUSER", "narrow", "on", ">hunter2", "~weir:*", "+set")
	}
	for _, url := range []string{"redis://" + addresses, c.Servers[0].URL(), c.Servers[5].URL()} {
		l := openLink(t, url)
		for i := range 10 {
			if err := ask(t.Context(), l, "SET", fmt.Sprintf("weir:%d", i), "1"); err != nil || !l.clustered() {
				t.Errorf("%s: got %v, clustered %v", url, err, l.clustered())
			}
		}
	}
	single := startServer(t)
	unborn := redistest.Start(t, redistest.Options{Unix: true, Config: []string{"cluster-enabled yes"}})
	for _, f := range []failure{
		{"one server as a Cluster", "redis://" + single.Addr() + "," + single.Addr(), "", verdict{"cluster support disabled", "not a Cluster", true, false}},
		{"db of a Cluster", c.Servers[0].URL() + "/1", "", verdict{"SELECT is not allowed", "db 0 only", true, false}},
		{"user who may not see the Cluster", loginURL(c.Servers[0], "narrow:hunter2"), "SET weir:c 1", verdict{"MOVED", "+cluster|slots", true, false}},
		{"user who may not see the Cluster, several", "redis://narrow:hunter2@" + addresses, "", verdict{"NOPERM", "+cluster|slots", true, false}},
		{"Cluster without slots", unborn.URL(), setCommand, verdict{"slot", "CLUSTER INFO", false, false}},
		{"Cluster without slots, by its socket", "unix://" + unborn.Socket(), setCommand, verdict{"CLUSTERDOWN", "CLUSTER INFO", false, false}},
	} {
		f.run(t)
	}
}

func TestCannotConnect(t *testing.T) {
	plain := redistest.Start(t, redistest.Options{})
	secure := redistest.Start(t, redistest.Options{TLS: true})
	strict := redistest.Start(t, redistest.Options{TLS: true})
	mustDo(t, strict, "CONFIG", "SET", "tls-auth-clients", "yes")
	l := openLink(t, strict.URL()+"?ca="+strict.CAFile()) // TLS 1.3 may or may not tell why
	if err := ask(t.Context(), l); err == nil || !strings.Contains(err.Error(), "?cert=FILE&key=FILE") {
		t.Errorf("without a certificate: got %v, want what to do about it", err)
	}
	mustDo(t, strict, "CONFIG", "SET", "tls-protocols", "TLSv1.2")
	gone := redistest.Start(t, redistest.Options{})
	gone.Kill()
	full := startServer(t, "maxclients 1")
	other, expired := certify(t, time.Now().Add(time.Hour)), certify(t, time.Now().Add(-time.Hour))
	for _, f := range []failure{
		{"nobody listens", gone.URL(), "", verdict{"connection refused", "is the server running", false, false}},
		{"no socket", "unix://" + filepath.Join(t.TempDir(), "s"), "", verdict{"no such file", "is the server running", false, false}},
		{"no such host", "redis://nowhere.invalid", "", verdict{"nowhere.invalid", "name of the host", false, false}},
		{"too many clients", full.URL(), "", verdict{"max number of clients", "maxclients", false, false}},
		{"unknown authority", secure.URL(), "", verdict{"unknown authority", "?ca=FILE", true, false}},
		{"another authority", secure.URL() + "?ca=" + strict.CAFile(), "", verdict{"unknown authority", "?ca=FILE", true, false}},
		{"another name", other.serve(t), "", verdict{"127.0.0.1", "for other names", true, false}},
		{"expired", expired.serve(t), "", verdict{"expired", "renew", true, false}},
		{"TLS to a server without", "rediss://" + plain.Addr() + "?dial_timeout=200ms", "", verdict{"silent", "redis:// instead of rediss://", false, false}},
		{"TLS to what answers in plain", "rediss://" + listen(t, answer("-ERR Protocol error\r\n")), "", verdict{"TLS handshake", "redis:// instead of rediss://", true, false}},
		{"no TLS to a server with", "redis://" + secure.Addr(), "", verdict{"", "rediss://", false, false}},
		{"no certificate", strict.URL() + "?ca=" + strict.CAFile(), "", verdict{"remote error", "?cert=FILE&key=FILE", true, false}},
		{"no Redis", "redis://" + listen(t, answer("HTTP/1.1 400 Bad Request\r\n\r\n")), "", verdict{"unknown message type", "no Redis server", true, false}},
		{"hangs up", "redis://" + listen(t, answer("")), "", verdict{"EOF", "?proxy=twemproxy", false, false}},
		{"silent", "redis://" + listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) + "?dial_timeout=50ms", "", verdict{"silent", "rediss:// instead of redis://", false, false}},
	} {
		f.run(t)
	}
}

// TestDialTimeout holds that a dial that took too long has sent nothing.
func TestDialTimeout(t *testing.T) {
	l := openLink(t, startServer(t).URL())
	l.endpoint.option.Dialer.Timeout = 1
	_, err := l.client(t.Context())
	verdict{"timeout", "firewall", false, false}.check(t, l, err)
	verdict{"timeout", "firewall", false, false}.check(t, l, l.fail(errors.Unwrap(err), true))
}

// listen accepts connections until the test ends, serves each and closes it.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { serve(c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

// answer reads once and writes text.
func answer(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		fmt.Fprint(c, text)
	}
}

// selfSigned is a certificate that signs itself, for other.example.
type selfSigned struct {
	file, key string
	config    *tls.Config
}

// certify makes a certificate that is good until the given time.
func certify(t *testing.T, until time.Time) selfSigned {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"other.example"},
		NotBefore: until.Add(-24 * time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return selfSigned{
		file: writePEM(t, "CERTIFICATE", der), key: writePEM(t, "PRIVATE KEY", secret),
		config: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
	}
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// serve shakes hands with the certificate and returns the URL that trusts it.
func (c selfSigned) serve(t *testing.T) string {
	t.Helper()
	address := listen(t, func(conn net.Conn) { _ = tls.Server(conn, c.config).Handshake() })
	return "rediss://" + address + "?ca=" + c.file
}

// TestServerComesLate holds that a link finds a server that comes up after it,
// and one that comes back.
func TestServerComesLate(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	s.Kill()
	l := openLink(t, s.URL())
	verdict{"refused", "is the server running", false, false}.check(t, l, ask(t.Context(), l, "SET", "k", "1"))
	for range 2 {
		s.Restart(t)
		redistest.Await(t, "the link to find its server", func() error { return ask(t.Context(), l, "SET", "k", "1") })
		s.Kill()
	}
}

// TestNothingIsLeft holds that close ends all goroutines, of a link that has
// connected, of one that has not, and of one in between.
func TestNothingIsLeft(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	gone := redistest.Start(t, redistest.Options{})
	gone.Kill()
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	before := runtime.NumGoroutine()
	var links []*link
	for _, url := range []string{
		s.URL(), "redis://" + s.Addr() + "," + s.Addr(), s.URL() + "?master_set=weir", gone.URL(),
		"redis://" + gone.Addr() + "?master_set=weir", "redis://" + silent + "?dial_timeout=500ms",
	} {
		links = append(links, openLink(t, url))
	}
	var callers sync.WaitGroup
	for _, l := range links {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_ = ask(ctx, l, "SET", "k", "1")
		})
	}
	callers.Wait()
	for _, l := range links {
		l.close()
		l.close()
		if err := ask(t.Context(), l, "SET", "k", "1"); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", l.endpoint.server, err)
		}
	}
	redistest.Await(t, "the goroutines to end", func() error {
		if n := runtime.NumGoroutine(); n > before {
			stacks := make([]byte, 1<<20)
			return fmt.Errorf("%d more than %d:\n%s", n-before, before, stacks[:runtime.Stack(stacks, true)])
		}
		return nil
	})
}

// fakeClient is a client that was made by a test.
type fakeClient struct {
	rueidis.Client

	closed chan struct{}
}

func (f *fakeClient) Close() { close(f.closed) }

// Mode is that of a client which is not asked whether it is at a sentinel.
func (f *fakeClient) Mode() rueidis.ClientMode { return rueidis.ClientModeCluster }

// TestOneAttemptServesAll holds that callers share an attempt, wait for it no
// longer than their contexts, and that it goes on without them.
func TestOneAttemptServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, made := 0, &fakeClient{closed: make(chan struct{})}
		l := newLink(endpoint{server: "h:1"})
		l.open = func(rueidis.ClientOption) (rueidis.Client, error) {
			opened++
			<-time.After(time.Minute)
			return made, nil
		}
		start := time.Now()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				_, err := l.client(impatient)
				verdict{"deadline", "", false, false}.check(t, l, err)
				if d := time.Since(start); d != time.Second || l.clustered() {
					t.Errorf("returned after %v, clustered %v", d, l.clustered())
				}
			})
			callers.Go(func() {
				if c, err := l.client(t.Context()); c != made || err != nil || time.Since(start) != time.Minute {
					t.Errorf("got %v, %v after %v", c, err, time.Since(start))
				}
			})
		}
		callers.Wait()
		if opened != 1 || !l.clustered() {
			t.Errorf("got %d attempts, clustered %v", opened, l.clustered())
		}
		l.close()
		<-made.closed
	})
}

// TestBackoff holds that a server that is away is tried ever less often, up to
// once in 1 to 2 s, and that in between callers get the last error at once.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened []time.Time
		away := errors.New("away")
		l := newLink(endpoint{server: "h:1"})
		l.open = func(rueidis.ClientOption) (rueidis.Client, error) {
			opened = append(opened, time.Now())
			return nil, fmt.Errorf("%w %d", away, len(opened))
		}
		for len(opened) < 12 {
			_, err := l.client(t.Context())
			if want := fmt.Sprintf("away %d", len(opened)); !errors.Is(err, away) || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %s", err, want)
			}
			<-time.After(time.Millisecond)
		}
		for i := range opened[1:] {
			high := min(50*time.Millisecond<<i, maxBackoff)
			if d := opened[i+1].Sub(opened[i]); d < high/2 || d > high+time.Millisecond {
				t.Errorf("failure %d was tried again after %v, want %v to %v", i+1, d, high/2, high)
			}
		}
	})
}

// TestCloseBeforeConnected holds that a client that comes up after close is closed.
func TestCloseBeforeConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := &fakeClient{closed: make(chan struct{})}
		l := newLink(endpoint{server: "h:1"})
		l.open = func(rueidis.ClientOption) (rueidis.Client, error) {
			<-time.After(time.Second)
			return made, nil
		}
		waiting := make(chan error)
		go func() {
			_, err := l.client(t.Context())
			waiting <- err
		}()
		synctest.Wait()
		l.close()
		if err := <-waiting; !errors.Is(err, weir.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		<-made.closed
	})
}

// TestForgottenConnectionsAreClosed holds that close ends what a client has dialled
// and forgets, which rueidis does where a connection comes up while it is closed,
// and lets it dial no more.
func TestForgottenConnectionsAreClosed(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	made := &fakeClient{closed: make(chan struct{})}
	l := openLink(t, s.URL())
	var dial func() (net.Conn, error)
	var forgotten, closed net.Conn
	l.open = func(o rueidis.ClientOption) (_ rueidis.Client, err error) {
		dial = func() (net.Conn, error) { return o.DialCtxFn(t.Context(), s.Addr(), &o.Dialer, nil) }
		if closed, err = dial(); err != nil {
			return nil, err
		}
		if err = closed.Close(); err != nil {
			return nil, err
		}
		forgotten, err = dial()
		return made, err
	}
	if _, err := l.client(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.close()
	<-made.closed
	if _, err := forgotten.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if _, err := dial(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// playedConn is a connection that a test plays: its writes are kept, its reads come
// a byte at a time.
type playedConn struct {
	net.Conn

	written strings.Builder
	replies io.Reader
}

func (s *playedConn) Write(p []byte) (int, error) { return s.written.Write(p) }

func (s *playedConn) Read(p []byte) (int, error) { return s.replies.Read(p[:min(1, len(p))]) }

func TestGreeted(t *testing.T) {
	const auth, ping = "*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n", "*1\r\n$4\r\nPING\r\n"
	const refusal = "-ERR unknown command 'HELLO'\r\n"
	for _, test := range []struct {
		writes         []string
		written        string
		replies, reads string
	}{
		{[]string{string(hello2), ping}, ping, "+PONG\r\n", refusal + "+PONG\r\n"},
		{[]string{auth + string(hello2), ping}, auth + ping, "+OK\r\n+PONG\r\n", "+OK\r\n" + refusal + "+PONG\r\n"},
		{[]string{auth + string(hello2)}, auth, "-ERR invalid password\r\n", "-ERR invalid password\r\n" + refusal},
		{[]string{ping, string(hello2)}, ping + string(hello2), "+PONG\r\n", "+PONG\r\n"},
	} {
		s := &playedConn{replies: strings.NewReader(test.replies)}
		c := &greeted{Conn: s}
		for _, w := range test.writes {
			if n, err := c.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("%q: wrote %d of %d, %v", w, n, len(w), err)
			}
		}
		if s.written.String() != test.written {
			t.Errorf("got %q to the server, want %q", &s.written, test.written)
		}
		if got, err := io.ReadAll(c); string(got) != test.reads || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, test.reads)
		}
	}
}
