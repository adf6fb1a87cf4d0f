package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// verdict is what fail makes of an error.
type verdict struct {
	says     string // part of the cause
	hint     string // part of the hint; "" for none
	settings bool
	unknown  bool
}

// check holds that err is a StoreError as v says, and tells no secret.
func (v verdict) check(t *testing.T, l *link, err error) {
	t.Helper()
	var e *weir.StoreError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a StoreError", err)
	}
	if e.Server != l.endpoint.server || !strings.Contains(e.Err.Error(), strings.TrimPrefix(v.says, "ERR ")) {
		t.Errorf("got %v, want %s: ... %s", err, l.endpoint.server, v.says)
	}
	if !strings.Contains(e.Hint, v.hint) || v.hint == "" && e.Hint != "" {
		t.Errorf("got the hint %q, want %q", e.Hint, v.hint)
	}
	if e.Settings != v.settings || e.Unknown != v.unknown {
		t.Errorf("got settings %v, unknown %v, want %v, %v: %v", e.Settings, e.Unknown, v.settings, v.unknown, err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is shown: %v", err)
	}
}

// failure is a command that fails; without one connecting does.
type failure struct {
	name, url, command string
	verdict
}

func (f failure) run(t *testing.T) {
	t.Run(f.name, func(t *testing.T) {
		l := openLink(t, f.url)
		f.check(t, l, ask(t.Context(), l, strings.Fields(f.command)...))
	})
}

// openLink returns the link to a URL; it is closed when the test ends.
func openLink(t *testing.T, url string) *link {
	t.Helper()
	e, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(e)
	t.Cleanup(l.close)
	return l
}

// ask sends a command, or none, and returns what fail makes of its error.
func ask(ctx context.Context, l *link, words ...string) error {
	c, err := l.client(ctx)
	if err != nil || len(words) == 0 {
		return l.fail(err, false)
	}
	command := c.B().Arbitrary(words[0])
	if len(words) > 1 {
		command = command.Keys(words[1]).Args(words[2:]...)
	}
	return l.fail(c.Do(ctx, command.Build()).Error(), true)
}

// mustDo sends a command with all rights that must succeed.
func mustDo(t *testing.T, s *redistest.Server, words ...string) {
	t.Helper()
	if _, err := s.Do(words...); err != nil {
		t.Fatal(err)
	}
}

func startServer(t *testing.T, config ...string) *redistest.Server {
	t.Helper()
	return redistest.Start(t, redistest.Options{Config: config})
}

// loginURL returns the URL of the server with a user and a password.
func loginURL(s *redistest.Server, login string) string {
	return strings.Replace(s.URL(), "://", "://"+login+"@", 1)
}

const setCommand = "SET weir:k 1"

func TestRefusedRights(t *testing.T) {
	locked := startServer(t, "requirepass hunter2", "user none on >hunter2 ~weir:* +set", "user some on >hunter2 ~weir:* +eval +set")
	unlocked := startServer(t)
	for _, f := range []failure{
		{"no password", locked.URL(), "", verdict{"NOAUTH", "give the password", true, false}},
		{"wrong password", loginURL(locked, ":hunter22"), "", verdict{"WRONGPASS", "right user and password", true, false}},
		{"wrong user", loginURL(locked, "nobody:hunter2"), "", verdict{"WRONGPASS", "right user and password", true, false}},
		{"user that is not there", loginURL(unlocked, "weir:hunter2"), "", verdict{"WRONGPASS", "right user and password", true, false}},
		{"command", loginURL(locked, "none:hunter2"), "EVALSHA 1 0", verdict{"NOPERM", "+evalsha", true, false}},
		{"key", loginURL(locked, "none:hunter2"), "SET other 1", verdict{"NOPERM", "~weir:*", true, false}},
		{"command in a script", loginURL(locked, "some:hunter2"), "EVAL return(redis.call('GET','weir:k')) 0", verdict{"can't run this command", "ACL LOG", true, false}},
		{"key in a script", loginURL(locked, "some:hunter2"), "EVAL return(redis.call('SET','other','1')) 0", verdict{"can't access", "~weir:*", true, false}},
		{"no such db", unlocked.URL() + "/99", "", verdict{"DB index is out of range", "fewer databases", true, false}},
	} {
		f.run(t)
	}
}

func TestRefusedCommand(t *testing.T) {
	full := startServer(t, "maxmemory 1")
	alone := startServer(t, "min-replicas-to-write 1")
	replica := startServer(t, "replicaof 127.0.0.1 1")
	stale := startServer(t)
	mustDo(t, stale, "CONFIG", "SET", "replica-serve-stale-data", "no")
	mustDo(t, stale, "REPLICAOF", "127.0.0.1", "1")
	other := startServer(t)
	mustDo(t, other, "LPUSH", "weir:k", "1")
	scriptless := startServer(t, `rename-command EVALSHA ""`)
	for _, f := range []failure{
		{"full", full.URL(), setCommand, verdict{"OOM", "maxmemory", false, false}},
		{"full, in a script", full.URL(), "EVAL return(redis.call('SET','k','1')) 0", verdict{"OOM", "maxmemory", false, false}},
		{"too few replicas", alone.URL(), setCommand, verdict{"NOREPLICAS", "min-replicas-to-write", false, false}},
		{"replica", replica.URL(), setCommand, verdict{"READONLY", "address of its primary", false, false}},
		{"replica, in a script", replica.URL(), "EVAL return(redis.call('SET','k','1')) 0", verdict{"READONLY", "address of its primary", false, false}},
		{"replica without its primary", stale.URL(), "GET weir:k", verdict{"MASTERDOWN", "has lost its primary", false, false}},
		{"cannot save", unsaved(t).URL(), setCommand, verdict{"MISCONF", "cannot save", false, false}},
		{"another's key", other.URL(), "GET weir:k", verdict{"WRONGTYPE", "another prefix or db", true, false}},
		{"another's key, in a script", other.URL(), "EVAL return(redis.call('GET','weir:k')) 0", verdict{"WRONGTYPE", "another prefix or db", true, false}},
		{"no scripts", scriptless.URL(), "EVALSHA 1 0", verdict{"unknown command", "plain mode", true, false}},
		{"no such command", scriptless.URL(), "FOO", verdict{"unknown command", "lacks a command", true, false}},
		{"unknown script", other.URL(), "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0", verdict{"NOSCRIPT", "EVAL for a key", false, false}},
		{"script in error", other.URL(), "EVAL return(nil+1) 0", verdict{"arithmetic", "", false, true}},
	} {
		f.run(t)
	}
}

// unsaved starts a server that fails to save, since a directory has the name of
// its file.
func unsaved(t *testing.T) *redistest.Server {
	t.Helper()
	s := startServer(t, "save 3600 1000000", "dbfilename taken")
	reply, err := s.Do("CONFIG", "GET", "dir")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(reply.([]any)[1].(string), "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	mustDo(t, s, "SET", "k", "1")
	mustDo(t, s, "BGSAVE")
	redistest.Await(t, "the save to fail", func() error {
		if info, err := s.Info("persistence"); err != nil || info["rdb_last_bgsave_status"] != "err" {
			return fmt.Errorf("%w: %v", err, info)
		}
		return nil
	})
	return s
}

func TestBusy(t *testing.T) {
	s := startServer(t, "busy-reply-threshold 1")
	l := openLink(t, s.URL())
	if err := ask(t.Context(), l, "GET", "k"); err != nil && !strings.Contains(err.Error(), "nil message") {
		t.Fatal(err)
	}
	ended := make(chan error)
	busy := openLink(t, s.URL())
	go func() { ended <- ask(t.Context(), busy, "EVAL", "while true do end", "0") }()
	var err error
	redistest.Await(t, "the server to be busy", func() error {
		if err = ask(t.Context(), l, "SET", "k", "1"); err == nil {
			return errors.New("it is not")
		}
		return nil
	})
	verdict{"BUSY", "SCRIPT KILL", false, false}.check(t, l, err)
	mustDo(t, s, "SCRIPT", "KILL")
	verdict{"killed", "", false, true}.check(t, busy, <-ended)
}

// TestReplyTexts has replies that a server gives too rarely, and those of older
// ones and proxies: a script makes a server give them.
func TestReplyTexts(t *testing.T) {
	l := openLink(t, startServer(t).URL())
	c, err := l.client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const redis6 = "ERR Error running script (call to f_5d): @user_script:1: @user_script: 1: -"
	for _, v := range []verdict{
		{"LOADING Redis is loading the dataset in memory", "", false, false},
		{"TRYAGAIN Multiple keys request during rehashing of slot", "", false, false},
		{"CLUSTERDOWN The cluster is down", "CLUSTER INFO", false, false},
		{"ASK 1 127.0.0.1:1", "a node of a Cluster", true, false},
		{"DENIED Redis is running in protected mode", "protected-mode no", true, false},
		{"ERR invalid password", "right password", true, false},
		{"ERR Client sent AUTH, but no password is set", "leave it out", true, false},
		{"ERR AUTH <password> called without any password configured for the default user.", "leave it out", true, false},
		{"NOPERM User weir has no permissions to run the 'get' command", "+get", true, false},
		{redis6 + "READONLY You can't write against a read only replica.", "address of its primary", false, false},
		{redis6 + "OOM command not allowed when used memory > 'maxmemory'.", "maxmemory", false, false},
		{redis6[:len(redis6)-1] + "The user executing the script can't run this command or subcommand", "ACL LOG", true, false},
		{redis6 + "WRONGTYPE Operation against a key", "another prefix", true, false},
		{"ERR unknown command `EVALSHA`, with args beginning with: `OOM `", "plain mode", true, false},
		{"ERR max number of clients reached", "maxclients", false, false},
		{"ERR Connection timed out", "", false, true}, // twemproxy lost the server
	} {
		command := c.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(v.says)
		v.check(t, l, l.fail(c.Do(t.Context(), command.Build()).Error(), true))
	}
}

// TestUnknownOutcome holds that an answer that does not come leaves open what
// has been done, and that the cause can be found.
func TestUnknownOutcome(t *testing.T) {
	s := startServer(t)
	l := openLink(t, s.URL())
	if err := ask(t.Context(), l, "SET", "k", "1"); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := l.fail(ended.Err(), false)
	verdict{"canceled", "", false, false}.check(t, l, err)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not context.Canceled", err)
	}

	mustDo(t, s, "CLIENT", "PAUSE", "60000", "WRITE")
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = ask(soon, l, "SET", "k", "1")
	verdict{"deadline", "", false, true}.check(t, l, err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not context.DeadlineExceeded", err)
	}

	got := make(chan error)
	go func() { got <- ask(t.Context(), l, "SET", "k", "1") }()
	redistest.Await(t, "the command to wait in the server", func() error {
		if info, err := s.Info("clients"); err != nil || info["blocked_clients"] == "0" {
			return fmt.Errorf("%w: %v", err, info)
		}
		return nil
	})
	s.Kill()
	err = <-got
	verdict{"", "", false, true}.check(t, l, err)
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v is not io.EOF", err)
	}
	redistest.Await(t, "the client to see that nobody listens", func() error {
		var e *weir.StoreError
		if err = ask(t.Context(), l, "SET", "k", "1"); !errors.As(err, &e) || e.Unknown {
			return err
		}
		return nil
	})
	verdict{"connection refused", "is the server running", false, false}.check(t, l, err)
}

// TestNoSecretOfReplies holds that a server's words are not shown if they repeat
// a password.
func TestNoSecretOfReplies(t *testing.T) {
	s := startServer(t, "user x on >hunter2 +eval")
	failure{"AUTH", loginURL(s, "x:hunter2"), "EVAL return{err='ERR-AUTH:x,hunter2'} 0", verdict{"AUTH:x,***", "", false, true}}.run(t)
}

func TestFailKeepsWhatIsTyped(t *testing.T) {
	l := openLink(t, "redis://h")
	typed := &weir.StoreError{Server: "other", Err: io.EOF}
	for _, err := range []error{nil, weir.ErrClosed, typed} {
		if got := l.fail(err, true); !errors.Is(got, err) {
			t.Errorf("got %v, want %v", got, err)
		}
	}
}
