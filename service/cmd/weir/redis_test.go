package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// password is that of the users of examples/weir.acl in tests. Nothing may show it.
const password = "hunter2"

// startRedis starts a server that has the users of examples/weir.acl, and lets
// nobody else in.
func startRedis(t *testing.T, config ...string) *redistest.Server {
	t.Helper()
	return redistest.Start(t, redistest.Options{Config: append(append(users(t), "requirepass "+password), config...)})
}

// users returns the lines of examples/weir.acl, with the password.
func users(t *testing.T) []string {
	t.Helper()
	acl, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "weir.acl"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.ReplaceAll(strings.TrimSpace(string(acl)), ">PASSWORD", ">"+password), "\n")
}

// as returns the URL of a server with a user and the password.
func as(user string, s *redistest.Server) string {
	return strings.Replace(s.URL(), "://", "://"+user+":"+password+"@", 1)
}

// noSecret checks that a text does not show the password.
func noSecret(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, password) {
		t.Errorf("the password is shown: %s", text)
	}
}

// process is weir serve in a process that may be killed.
type process struct {
	*background
	dir string
}

// startProcess starts weir serve until the test ends.
func startProcess(t *testing.T, env []string, args ...string) process {
	t.Helper()
	p := process{dir: t.TempDir()}
	var err error
	if p.background, err = begin(p.dir, env, append([]string{"--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		log, err := os.ReadFile(filepath.Join(p.dir, "server.log"))
		if err != nil {
			t.Error(err)
		}
		noSecret(t, string(log))
		if t.Failed() {
			t.Logf("%s", log)
		}
	})
	return p
}

// kill ends the process as a crash does.
func (p process) kill() {
	_ = p.cmd.Process.Kill() // which fails if it has ended
	for range p.done {       // until it has ended
	}
}

// send posts a body and returns the status and the answer.
func send(t *testing.T, url, body string) (status int, answer string) {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	noSecret(t, string(text))
	return response.StatusCode, string(text)
}

func (s *served) url() string { return "http://" + s.doors[0].listener.Addr().String() }

const fiveAMinute = `{"key":"search:alice","limit":"5/minute"}`

// Five in total, however many processes there are, and whatever becomes of them.
func TestProcessesShareLimits(t *testing.T) {
	server := startRedis(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := []func() process{
		func() process {
			return startProcess(t, []string{"WEIR_REDIS_USERNAME=weir", "WEIR_REDIS_PASSWORD=" + password}, "--redis", server.URL())
		},
		func() process {
			return startProcess(t, []string{"WEIR_REDIS=" + strings.Replace(server.URL(), "://", "://weir@", 1)}, "--redis-password-file", secret)
		},
	}
	processes := []process{start[0](), start[1]()}
	var receipt string
	for i := range 5 {
		p := processes[i%2]
		_, answer := send(t, p.http+"/v1/check", fiveAMinute)
		if !strings.Contains(answer, fmt.Sprintf(`"remaining":%d,`, 4-i)) {
			t.Errorf("check %d: %s", i, answer)
		}
		if _, rest, ok := strings.Cut(answer, `"receipt":"`); ok {
			receipt, _, _ = strings.Cut(rest, `"`)
		}
		p.kill()
		processes[i%2] = start[i%2]()
	}
	for _, p := range processes {
		if d := post(t, p.http+"/v1/check", fiveAMinute); d.Allowed || d.RetryAfter == 0 {
			t.Errorf("a sixth was allowed: %+v", d)
		}
	}
	if _, answer := send(t, processes[1].http+"/v1/refund", `{"receipt":"`+receipt+`"}`); answer != `{"refunded":1}`+"\n" {
		t.Errorf("a refund elsewhere: %s", answer)
	}
	if _, answer := send(t, processes[0].http+"/v1/count", `{"key":"search:alice","limit":"5/minute","last":"1m"}`); answer != `{"count":4}`+"\n" {
		t.Errorf("after the refund: %s", answer)
	}
}

// Every call of every algorithm needs no right that examples/weir.acl lacks.
func TestSmallestRights(t *testing.T) {
	server := startRedis(t)
	for user, args := range map[string][]string{
		"weir": nil, "weir-sorted-set": {"--redis-layout", "sorted-set"}, "weir-plain": {"--redis-mode", "plain"},
	} {
		t.Run(user, func(t *testing.T) {
			s := serve(t, net.Listen, append([]string{"--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--redis", as(user, server)}, args...)...)
			admin := "http://" + s.doors[1].listener.Addr().String()
			request := `{"key":"a","limit":"5/minute","algorithm":"%s","cost":2}`
			algorithms := []string{"sliding-log", "sliding-buckets", "sliding-counter", "fixed-window", "token-bucket"}
			calls := []string{"/v1/check", "/v1/check", "/v1/check", "/v1/charge", "/v1/refund"}
			if user == "weir-plain" {
				algorithms, calls = algorithms[3:4], calls[:3]
			}
			for _, a := range algorithms {
				body := fmt.Sprintf(request, a)
				for _, call := range calls {
					if status, answer := send(t, s.url()+call, body); status != http.StatusOK {
						t.Errorf("%s %s: status %d, %s", call, a, status, answer)
					}
				}
				if status, answer := send(t, admin+"/v1/reset", body); status != http.StatusOK || answer != `{"reset":1}`+"\n" {
					t.Errorf("/v1/reset %s: status %d, %s", a, status, answer)
				}
			}
			reply := server.Must(t, "ACL", "LOG")
			entries, _ := reply.([]any)
			for _, e := range entries {
				if fields, _ := e.([]any); !slices.Contains(fields, any("cluster|slots")) { // which every connection tries
					t.Errorf("a right was missing: %v", e)
				}
			}
			noSecret(t, stopLog(t, s))
		})
	}
}

// stopLog stops a server and returns what it has logged.
func stopLog(t *testing.T, s *served) string {
	t.Helper()
	if err := s.stopped(); err != nil {
		t.Error(err)
	}
	return s.output.String()
}

func TestFlushedScriptsLoseNothing(t *testing.T) {
	server := startRedis(t)
	const clients, calls, most = 8, 50, 300
	var urls []string
	for range 2 {
		urls = append(urls, serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", as("weir", server)).url())
	}
	var allowed atomic.Int64
	var load sync.WaitGroup
	for i := range clients {
		load.Go(func() {
			for range calls {
				if post(t, urls[i%2]+"/v1/check", `{"key":"hot","limit":"300/hour"}`).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { load.Wait(); close(ended) }()
	flushed := 0
	for running := true; running; flushed++ {
		server.Must(t, "SCRIPT", "FLUSH")
		select {
		case <-ended:
			running = false
		default:
		}
	}
	if allowed.Load() != most || flushed < 10 {
		t.Errorf("%d of %d were allowed, want %d, with %d flushes", allowed.Load(), clients*calls, most, flushed)
	}
}

// What can only be a mistake in the settings ends the program with 2 and the
// sentence that corrects it.
func TestMistakesInTheSettings(t *testing.T) {
	server := startRedis(t)
	replica := startRedis(t, "replicaof 127.0.0.1 1")
	scriptless := startRedis(t, `rename-command EVAL ""`)
	secure := redistest.Start(t, redistest.Options{TLS: true})
	server.Must(t, "ACL", "SETUSER", "poor", "on", ">"+password, "~weir:*", "+ping", "+eval", "+evalsha", "+time", "+set")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	login := "redis://:" + password + "@"
	for name, test := range map[string]struct {
		args []string
		env  string // of WEIR_REDIS_PASSWORD
		want string
	}{
		"malformed":               {[]string{"--redis", login + "h/x/y"}, "", `weir: redis URL "redis://***@h:6379`},
		"no URL":                  {[]string{"--redis", "10.0.0.7:6379"}, "", "want a URL that begins with redis://"},
		"password as it is":       {[]string{"--redis", login + "@h"}, "", "@ is %40"},
		"an argument":             {[]string{login + "h"}, "", "serve takes flags only"},
		"wrong password":          {[]string{"--redis", "redis://weir@" + server.Addr()}, password + "2", server.Addr() + ": WRONGPASS"},
		"no password":             {[]string{"--redis", server.URL()}, "", "same time: give the password, as in redis://"},
		"missing rights":          {[]string{"--redis", as("poor", server)}, "", "allow the user these commands: +append +del +get +"},
		"keys of another prefix":  {[]string{"--redis", as("weir", server), "--redis-prefix", "limits"}, "", "keys that begin with weir's prefix"},
		"one server as a Cluster": {[]string{"--redis", login + server.Addr() + "," + server.Addr()}, "", "the server is not a Cluster"},
		"replica":                 {[]string{"--redis", as("weir", replica)}, "", "give the address of its primary"},
		"no scripts":              {[]string{"--redis", as("weir", scriptless)}, "", "use plain mode"},
		"unknown authority":       {[]string{"--redis", "rediss://:" + password + "@" + secure.Addr()}, "", "?ca=FILE"},
		"no such db":              {[]string{"--redis", login + server.Addr() + "/99"}, "", "choose a lower db"},
		"prefix with a hash tag":  {[]string{"--redis", as("weir", server), "--redis-prefix", "{x}"}, "", `redis prefix "{x}": want letters`},
		"no password file":        {[]string{"--redis", server.URL(), "--redis-password-file", "nowhere"}, "", "the file of the redis password cannot be read: open nowhere"},
		"empty key secret":        {[]string{"--redis", server.URL(), "--redis-key-secret-file", empty}, "", "is empty"},
		"unknown mode":            {[]string{"--redis", server.URL(), "--redis-mode", "lua"}, "", `--redis-mode "lua": want scripts or plain`},
		"unknown layout":          {[]string{"--redis", server.URL(), "--redis-layout", "zset"}, "", `--redis-layout "zset": want packed or sorted-set`},
		"plain sorted sets":       {[]string{"--redis", server.URL(), "--redis-mode", "plain", "--redis-layout", "sorted-set"}, "", "needs scripts"},
		"no server":               {nil, password, "there are settings for Redis, but no server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WEIR_REDIS_PASSWORD", test.env)
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // what starts all the same stops at once
			var out, errs bytes.Buffer
			code := run(ctx, append([]string{"serve", "--http", "127.0.0.1:0", "--admin", "off"}, test.args...), nil, &out, &errs)
			if last := lastLine(errs.String()); code != 2 || !strings.HasPrefix(last, "weir: ") || !strings.Contains(last, test.want) {
				t.Errorf("exit %d, %q, want 2 and %q", code, errs.String(), test.want)
			}
			noSecret(t, out.String()+errs.String())
		})
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}

// Without its store the service starts, says so, and answers as soon as it can.
func TestStartWithoutTheStore(t *testing.T) {
	server := startRedis(t)
	server.Kill()
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", as("weir", server))
	redistest.Await(t, "the service to serve", func() error {
		return readyzSays(s, `{"ready":true,"detail":"serving; store unavailable: is the server running, and is this its address?"}`)
	})
	for range 3 {
		status, answer := send(t, s.url()+"/v1/check", fiveAMinute)
		if status != http.StatusServiceUnavailable || !strings.Contains(answer, "the store is unavailable") || strings.Contains(answer, server.Addr()) {
			t.Errorf("status %d, %s", status, answer)
		}
	}
	server.Restart(t)
	redistest.Await(t, "the store to be found", func() error { return readyzSays(s, `{"ready":true,"detail":"serving"}`) })
	if d := post(t, s.url()+"/v1/check", fiveAMinute); !d.Allowed || d.Remaining != 4 {
		t.Errorf("got %+v, want the first of five", d)
	}
	log := stopLog(t, s)
	noSecret(t, log)
	for what, times := range map[string]int{
		"WARN the store is unavailable":                                    1,
		"WARN a request failed":                                            1,
		"INFO the store is ready server=" + server.Addr():                  1,
		`error="weir: store ` + server.Addr() + `: dial tcp`:               2,
		"connection refused: is the server running, and is this its addre": 2,
	} {
		if got := strings.Count(log, what); got != times {
			t.Errorf("the log says %d times %q, want %d: %s", got, what, times, log)
		}
	}
}

// readyzSays returns nil if /readyz answers 200 and this.
func readyzSays(s *served, want string) error {
	response, err := http.Get(s.url() + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if got := strings.TrimSpace(string(text)); err != nil || got != want || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s %w", response.Status, got, err)
	}
	return nil
}

// What the store refuses while it serves is answered, logged, and over once the
// cause is.
func TestWhatTheStoreRefuses(t *testing.T) {
	server := startRedis(t)
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", as("weir", server))
	url := s.url() + "/v1/check"
	post(t, url, `{"key":"bob","limit":"5/minute"}`)
	keys, _ := server.Must(t, "KEYS", "weir:*bob").([]any)
	if len(keys) != 1 {
		t.Fatalf("keys %v", keys)
	}
	bob := fmt.Sprint(keys[0])
	user := strings.Fields(users(t)[0])[1:]
	const unavailable = "the store is unavailable"
	tests := []struct {
		name, answer, logged string
		breaks, ends         []string
	}{
		{"a key of another type", unavailable, "weir did not write this key", []string{"RENAME", "other", bob}, []string{"DEL", bob}},
		{"a key of other content", unavailable, "weir did not write this key", []string{"SET", bob, "x"}, []string{"DEL", bob}},
		{"no memory", unavailable, "has reached its maxmemory", []string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
		{"a replica", unavailable, "the server is a replica", []string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}},
		{"a lost right", unavailable, "+evalsha", []string{"ACL", "SETUSER", "weir", "-evalsha"}, []string{"ACL", "SETUSER", "weir", "+evalsha"}},
		{"a lost user", unavailable, "the right user and password", []string{"ACL", "DELUSER", "weir"}, append([]string{"ACL", "SETUSER"}, user...)},
	}
	server.Must(t, "LPUSH", "other", "x")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server.Must(t, test.breaks...)
			awaitAnswer(t, url, http.StatusServiceUnavailable, test.answer)
			server.Must(t, test.ends...)
			awaitAnswer(t, url, http.StatusOK, `"allowed"`)
		})
	}
	log := stopLog(t, s)
	noSecret(t, log)
	for _, test := range tests {
		if !strings.Contains(log, test.logged) {
			t.Errorf("%s: the log does not say %q: %s", test.name, test.logged, log)
		}
	}
}

// awaitAnswer waits until a check of bob is answered with a status and a text.
func awaitAnswer(t *testing.T, url string, status int, text string) {
	t.Helper()
	redistest.Await(t, "an answer that says "+text, func() error {
		if got, answer := send(t, url, `{"key":"bob","limit":"5/minute"}`); got != status || !strings.Contains(answer, text) {
			return fmt.Errorf("status %d, %s", got, answer)
		}
		return nil
	})
}

func TestPlainMode(t *testing.T) {
	server := startRedis(t, `rename-command EVAL ""`, `rename-command EVALSHA ""`)
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", as("weir-plain", server), "--redis-mode", "plain")
	for i := range 7 {
		if d := post(t, s.url()+"/v1/check", `{"key":"a","limit":"5/minute","algorithm":"fixed-window"}`); d.Allowed != (i < 5) {
			t.Errorf("check %d: %+v", i, d)
		}
	}
	if status, answer := send(t, s.url()+"/v1/check", fiveAMinute); status != http.StatusBadRequest || !strings.Contains(answer, "plain mode") {
		t.Errorf("a sliding-log: status %d, %s", status, answer)
	}
}

// With a secret, keys tell nobody whom they are about.
func TestKeySecret(t *testing.T) {
	server := startRedis(t)
	t.Setenv("WEIR_REDIS_KEY_SECRET", "k3y")
	p := startProcess(t, nil, "--redis", as("weir", server), "--redis-prefix", "weir:eu")
	post(t, p.http+"/v1/check", fiveAMinute)
	keys, _ := server.Must(t, "KEYS", "*").([]any)
	if text := fmt.Sprint(keys); len(keys) != 1 || !strings.HasPrefix(text, "[weir:eu:") || strings.Contains(text, "alice") {
		t.Errorf("keys %s", text)
	}
}

func TestHelpShowsNoSecret(t *testing.T) {
	t.Setenv("WEIR_REDIS", "redis://:"+password+"@h")
	t.Setenv("WEIR_REDIS_PASSWORD", password)
	var out bytes.Buffer
	if code := run(t.Context(), []string{"serve", "--help"}, nil, &out, &out); code != 0 {
		t.Errorf("exit %d", code)
	}
	noSecret(t, out.String())
}

// A store that is away does not fill the log.
func TestFailuresAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := newLog(&out, "info", "text")
		if err != nil {
			t.Fatal(err)
		}
		f, start := newFailures(log), time.Now()
		refused := &weir.StoreError{Server: "h:1", Hint: "is it up?", Err: errors.New("refused")}
		full := &weir.StoreError{Server: "h:1", Hint: "raise maxmemory", Err: errors.New("OOM")}
		for _, at := range []struct {
			second, times int
			err           error
		}{{0, 100, refused}, {1, 100, full}, {9, 1, refused}, {12, 1, refused}, {40, 1, full}} {
			<-time.After(time.Until(start.Add(time.Duration(at.second) * time.Second)))
			for range at.times {
				f.add(at.err)
			}
		}
		<-time.After(time.Hour)
		synctest.Wait()
		want := `00Z WARN a request failed error="weir: store h:1: refused: is it up?"
01Z WARN a request failed error="weir: store h:1: OOM: raise maxmemory"
10Z WARN requests failed times=100 error="weir: store h:1: refused: is it up?"
11Z WARN requests failed times=99 error="weir: store h:1: OOM: raise maxmemory"
20Z WARN requests failed times=1 error="weir: store h:1: refused: is it up?"
40Z WARN a request failed error="weir: store h:1: OOM: raise maxmemory"
`
		if got := strings.ReplaceAll(out.String(), start.UTC().Format("2006-01-02T15:04:"), ""); got != want {
			t.Errorf("the log says\n%swant\n%s", got, want)
		}
	})
}
