// Package redistest starts real servers for tests: a Redis or Valkey server, a
// set with Sentinels, a Cluster, a twemproxy. Each belongs to the test that
// started it: it listens on free ports of the loopback interface only, writes
// nothing but a private directory, and ends with the test or with the test's
// process, however that ends. When the test fails, what the server logged is
// shown.
//
// A test for which there is no redis-server fails; it is not skipped.
package redistest

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Options says how a server differs from redis-server as it comes, but without
// persistence. The zero value is such a server.
type Options struct {
	// Config is more lines of redis.conf, such as "requirepass secret",
	// "maxmemory 3mb" or "user weir on >secret ~weir:* +evalsha".
	Config []string
	// TLS makes the server speak TLS only, with a certificate for 127.0.0.1 and
	// localhost of a certificate authority of its own.
	TLS bool
	// Unix makes the server listen on a Unix socket as well.
	Unix bool
}

// Server is a redis-server that one test has started.
type Server struct {
	program string
	args    []string
	dir     string
	port    int
	token   string // the password of admin
	socket  string
	tls     *tls.Config

	child *child

	mu     sync.Mutex
	client *Client // nil before the first use and after an error
}

// admin is a user that each server has, with all rights and a password that no
// other server knows: who can log in with it talks to the server it has started,
// whatever the test makes of the default user.
const admin = "redistest"

// ports is how many ports are tried before a test gives up: another process can
// take a free port before the server does.
const ports = 10

// Start starts a server and waits until it answers.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	return start(t, o)
}

// start starts redis-server with the arguments behind its configuration file.
func start(t testing.TB, o Options, args ...string) *Server {
	t.Helper()
	s := &Server{program: find(t, "redis-server", "valkey-server"), dir: t.TempDir(), token: rand.Text()}
	s.args = append([]string{"redis.conf"}, args...)
	if o.TLS {
		s.tls = certify(t, s.dir)
	}
	if o.Unix {
		s.socket = filepath.Join(shortDir(t), "redis.sock")
	}
	t.Cleanup(func() {
		s.Kill()
		showLog(t, s.program, s.dir)
	})
	for range ports {
		s.port = freePort(t)
		writeFile(t, filepath.Join(s.dir, "redis.conf"), s.config(o))
		if s.run(t) {
			return s
		}
	}
	t.Fatalf("redistest: %d ports that were free were taken before %s could listen on them", ports, s.program)
	return nil
}

// run starts the process, and reports false if its port was taken.
func (s *Server) run(t testing.TB) bool {
	t.Helper()
	s.child = spawn(t, s.dir, s.program, s.args...)
	return s.child.await(t, func() error {
		_, err := s.Do("PING")
		return err
	})
}

// config returns the text of redis.conf.
func (s *Server) config(o Options) string {
	lines := []string{
		"bind 127.0.0.1",
		"dir " + strconv.Quote(s.dir),
		`save ""`,
		"appendonly no",
		"user " + admin + " on >" + s.token + " ~* &* +@all",
	}
	if o.TLS {
		lines = append(lines, "port 0", fmt.Sprintf("tls-port %d", s.port), "tls-auth-clients no",
			"tls-ca-cert-file "+caFile, "tls-cert-file "+certFile, "tls-key-file "+keyFile)
	} else {
		lines = append(lines, fmt.Sprintf("port %d", s.port))
	}
	if o.Unix {
		lines = append(lines, "unixsocket "+strconv.Quote(s.socket))
	}
	return strings.Join(append(lines, o.Config...), "\n") + "\n"
}

// Addr returns the server's host and port, such as "127.0.0.1:12345".
func (s *Server) Addr() string { return loopback(s.port) }

// URL returns the server's address as "redis://127.0.0.1:12345", or rediss://
// with Options.TLS, without a user or a password.
func (s *Server) URL() string {
	if s.tls != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Socket returns the path of the server's Unix socket. It needs Options.Unix.
func (s *Server) Socket() string { return s.socket }

// CAFile returns the path of a PEM file with the certificate authority of the
// server. It needs Options.TLS.
func (s *Server) CAFile() string { return filepath.Join(s.dir, caFile) }

// TLS returns what a client needs to connect, or nil without Options.TLS.
func (s *Server) TLS() *tls.Config { return s.tls.Clone() }

// PID returns the process of the server, a new one after each Restart.
func (s *Server) PID() int { return s.child.cmd.Process.Pid }

// Kill ends the server as a crash does (kill -9). It does nothing to one that
// has ended.
func (s *Server) Kill() {
	if s.child != nil {
		s.child.kill()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disconnect()
}

// Restart kills the server if it runs, starts it on the same port and waits until
// it answers. Its data are lost unless Config makes it persist them, but not its
// place in a Cluster or a set with Sentinels.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	if !s.run(t) {
		t.Fatalf("redistest: %s: the port was taken before the server could listen on it again", s.Addr())
	}
}

// Signal sends a signal to the server's process, such as syscall.SIGSTOP, which
// freezes it. Kill ends one that is frozen too.
func (s *Server) Signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := s.child.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Do sends a command as a user with all rights and returns the reply as
// Client.Do does. All calls share one connection, which is opened anew after an
// error that is no ReplyError.
func (s *Server) Do(args ...string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		client, err := s.login()
		if err != nil {
			return nil, err
		}
		s.client = client
	}
	reply, err := s.client.Do(args...)
	var replied ReplyError
	if err != nil && !errors.As(err, &replied) {
		s.disconnect()
	}
	return reply, err
}

// Must is Do for a command that can only fail if the test does.
func (s *Server) Must(t testing.TB, args ...string) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%s: %.200q: %v", s.Addr(), args, err)
	}
	return reply
}

func (s *Server) login() (*Client, error) {
	client, err := Dial(s.Addr(), s.tls)
	if err != nil {
		return nil, err
	}
	if _, err := client.Do("AUTH", admin, s.token); err != nil {
		client.Close()
		return nil, fmt.Errorf("not the server that this test has started: %w", err)
	}
	return client, nil
}

func (s *Server) disconnect() {
	if s.client != nil {
		s.client.Close()
	}
	s.client = nil
}

// Info returns the fields of a section of INFO, such as Info("memory")["used_memory"].
func (s *Server) Info(section string) (map[string]string, error) { return s.fields("INFO", section) }

// fields sends a command that answers a field a line, as INFO does.
func (s *Server) fields(args ...string) (map[string]string, error) {
	reply, err := s.Do(args...)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(fmt.Sprint(reply)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

func addrs(servers []*Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.Addr()
	}
	return all
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// shortDir returns a directory for a Unix socket, whose path may have 103 bytes at
// most: t.TempDir, which is named after the test, can have more.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") //nolint:usetesting // as said
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
