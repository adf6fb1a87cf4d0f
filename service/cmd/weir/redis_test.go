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

// patient lets a test be about something else than a busy machine.
const patient = "--deadline=10s"

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
			return startProcess(t, []string{"WEIR_REDIS_USERNAME=weir", "WEIR_REDIS_PASSWORD=" + password}, "--redis", server.URL(), patient)
		},
		func() process {
			return startProcess(t, []string{"WEIR_REDIS=" + strings.Replace(server.URL(), "://", "://weir@", 1)}, "--redis-password-file", secret, patient)
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
			s := serve(t, net.Listen, append([]string{"--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--redis", as(user, server), patient}, args...)...)
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
		urls = append(urls, serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", as("weir", server), patient).url())
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
		"replicas of no server":   {[]string{"--replicas", "2"}, "", "there are settings for Redis, but no server"},
		"a deadline of no server": {[]string{patient}, "", "there are settings for Redis, but no server"},
		"no replicas":             {[]string{"--redis", server.URL(), "--replicas", "0"}, "", `--replicas "0": want how many processes share the server, 1 to 100000, such as 3`},
		"too many replicas":       {[]string{"--redis", server.URL(), "--replicas", "100001"}, "", "1 to 100000"},
		"half a replica":          {[]string{"--redis", server.URL(), "--replicas", "1.5"}, "", "1 to 100000"},
		"a deadline too short":    {[]string{"--redis", server.URL(), "--deadline", "999us"}, "", `--deadline "999us": want how long the store may take to answer, 1ms to 10s, such as 50ms`},
		"a deadline too long":     {[]string{"--redis", server.URL(), "--deadline", "10001ms"}, "", "1ms to 10s"},
		"a deadline of no unit":   {[]string{"--redis", server.URL(), "--deadline", "50"}, "", "1ms to 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WEIR_REDIS_PASSWORD", test.env)
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // what starts all the same stops at once
			var out, errs bytes.Buffer
			code := run(ctx, append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "off", "--admin", "off"}, test.args...), nil, &out, &errs)
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

// What the store refuses while it serves is decided without it and logged, until
// the cause is over.
func TestWhatTheStoreRefuses(t *testing.T) {
	server := startRedis(t)
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", as("weir", server), patient)
	url := s.url() + "/v1/check"
	post(t, url, bob)
	keys, _ := server.Must(t, "KEYS", "weir:*bob").([]any)
	if len(keys) != 1 {
		t.Fatalf("keys %v", keys)
	}
	key := fmt.Sprint(keys[0])
	user := strings.Fields(users(t)[0])[1:]
	tests := []struct {
		name, logged string
		breaks, ends []string
	}{
		{"a key of another type", "weir did not write this key", []string{"RENAME", "other", key}, []string{"DEL", key}},
		{"a key of other content", "weir did not write this key", []string{"SET", key, "x"}, []string{"DEL", key}},
		{"no memory", "has reached its maxmemory", []string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
		{"a replica", "the server is a replica", []string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}},
		{"a lost right", "+evalsha", []string{"ACL", "SETUSER", "weir", "-evalsha"}, []string{"ACL", "SETUSER", "weir", "+evalsha"}},
		{"a lost user", "the right user and password", []string{"ACL", "DELUSER", "weir"}, append([]string{"ACL", "SETUSER"}, user...)},
	}
	server.Must(t, "LPUSH", "other", "x")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server.Must(t, test.breaks...)
			awaitReason(t, url, bob, "store_unavailable_local")
			redistest.Await(t, "the log to say "+test.logged, func() error { // who finds his connection closed learns no more than that
				if post(t, url, bob); !strings.Contains(s.output.String(), test.logged) {
					return errors.New("it does not")
				}
				return nil
			})
			server.Must(t, test.ends...)
			awaitReason(t, url, bob, "ok")
		})
	}
	log := stopLog(t, s)
	noSecret(t, log)
	if !strings.Contains(log, "WARN without --replicas this process takes itself for the only one") {
		t.Errorf("the log does not miss the number of replicas: %s", log)
	}
}

const bob = `{"key":"bob","limit":"5000/minute"}`

// awaitReason waits until a check is answered for a reason.
func awaitReason(t *testing.T, url, body, reason string) {
	t.Helper()
	redistest.Await(t, "an answer that is "+reason, func() error {
		if status, answer := send(t, url, body); status != http.StatusOK || !strings.Contains(answer, `"reason":"`+reason+`"`) {
			return fmt.Errorf("status %d, %s", status, answer)
		}
		return nil
	})
}

func TestPlainMode(t *testing.T) {
	server := startRedis(t, `rename-command EVAL ""`, `rename-command EVALSHA ""`)
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", as("weir-plain", server), "--redis-mode", "plain", patient)
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
	p := startProcess(t, nil, "--redis", as("weir", server), "--redis-prefix", "weir:eu", patient)
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
