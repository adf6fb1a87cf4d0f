package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/layer"
)

const (
	// busy is what a busy machine adds to any time.
	busy = 3 * time.Second
	// hangs, in a URL, lets nothing but the deadline end a call before that.
	hangs = "?dial_timeout=20s&write_timeout=20s"
	// slow is how long a check may take.
	slow = 50*time.Millisecond + busy
	// back is how soon a store that is back is used.
	back = 2*time.Second + busy
)

// readyz asks /readyz, which must answer 200.
func readyz(t *testing.T, p process) string {
	t.Helper()
	response, err := http.Get(p.http + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %s %s %v", response.Status, text, err)
	}
	noSecret(t, string(text))
	return strings.TrimSpace(string(text))
}

// awaitReadyz waits until /readyz answers as a pattern says.
func awaitReadyz(t *testing.T, p process, pattern string) {
	t.Helper()
	want := regexp.MustCompile("^" + pattern + "$")
	redistest.Await(t, "/readyz to say "+pattern, func() error {
		if got := readyz(t, p); !want.MatchString(got) {
			return errors.New(got)
		}
		return nil
	})
}

const (
	serves    = `{"ready":true,"detail":"serving","store":"ok","degraded_decisions":[1-9]\d*}`
	storeless = `{"ready":true,"detail":"serving; store unavailable for \d+s: is the server running, and is this its address\?; \d+ decisions without it","store":"unavailable","degraded_decisions":\d+}`
)

// told returns what a process logs until it has been asked to stop.
func told(t *testing.T, p process) string {
	t.Helper()
	if err := p.interrupt(); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(filepath.Join(p.dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// answered is what the tests of an outage read of an answer.
type answered struct {
	Allowed bool   `json:"allowed"`
	Limit   int64  `json:"limit"`
	Retry   int64  `json:"retry_after_ms"`
	Reason  string `json:"reason"`
	Receipt string `json:"receipt"`
}

// inTime asks once, and fails if that takes too long.
func inTime(t *testing.T, url, body string) (v answered) {
	t.Helper()
	start := time.Now()
	status, answer := send(t, url+"/v1/check", body)
	if took := time.Since(start); took > slow {
		t.Errorf("a check took %v", took)
	}
	if err := json.Unmarshal([]byte(answer), &v); err != nil || status != http.StatusOK {
		t.Errorf("status %d, %s", status, answer)
	}
	return v
}

// Without its store the service starts and decides by its share, and uses the
// store soon after that has come up.
func TestStartWithoutTheStore(t *testing.T) {
	server := startRedis(t)
	server.Kill()
	p := startProcess(t, []string{"WEIR_REPLICAS=2"}, "--redis", as("weir", server))
	var receipt string
	for i := range 3 {
		v := inTime(t, p.http, fiveAMinute)
		if v.Reason != "store_unavailable_local" || v.Limit != 2 || v.Allowed != (i < 2) {
			t.Errorf("check %d: %+v", i, v)
		}
		receipt += v.Receipt
	}
	awaitReadyz(t, p, storeless)
	for call, body := range map[string]string{
		p.http + "/v1/refund": fiveAMinute, p.http + "/v1/count": `{"key":"search:alice","limit":"5/minute","last":"1m"}`, p.admin + "/v1/reset": fiveAMinute,
	} {
		response, err := http.Post(call, "", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
		if h := response.Header; response.StatusCode != http.StatusServiceUnavailable || h.Get("Retry-After") != "1" || h.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s %v", call, response.Status, h)
		}
	}
	server.Restart(t)
	start := time.Now()
	redistest.Await(t, "the store to be used", func() error {
		if v := inTime(t, p.http, fiveAMinute); v.Reason != "ok" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if took := time.Since(start); took > back {
		t.Errorf("the store was used %v after it had come up", took)
	}
	awaitReadyz(t, p, serves)
	log := told(t, p)
	refused := fmt.Sprintf(`, by 1/2 of each limit unless on_failure of a rule says otherwise error="weir: store %[1]s: dial tcp %[1]s: connect: connection refused: is the server running, and is this its address?" for=`, server.Addr())
	for what, times := range map[string]int{
		"WARN the store is unavailable: until it is back this process decides by itself" + refused: 1,
		"INFO the store is used again after=":                                                      1,
		"--replicas":                                                                               0,
	} {
		if got := strings.Count(log, what); got != times {
			t.Errorf("the log says %d times %q, want %d", got, what, times)
		}
	}
}

// traffic asks a process the same again and again, and counts the answers.
type traffic struct {
	mu      sync.Mutex
	reasons map[string]int
	allowed map[string]int // by reason
	clients sync.WaitGroup
	stop    chan struct{}
}

func startTraffic(t *testing.T, p process) *traffic {
	t.Helper()
	l := &traffic{reasons: make(map[string]int), allowed: make(map[string]int), stop: make(chan struct{})}
	for range 2 {
		l.clients.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-l.stop:
					return
				case <-pace.C:
					l.add(inTime(t, p.http, fiveAMinute))
				}
			}
		})
	}
	return l
}

func (l *traffic) add(v answered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reasons[v.Reason]++
	if v.Allowed {
		l.allowed[v.Reason]++
	}
}

func (l *traffic) count(counts map[string]int, reason string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return counts[reason]
}

// Two processes whose server is killed admit, in a window, what it had admitted
// and their shares, and no check waits for it.
func TestTheStoreIsKilledUnderTraffic(t *testing.T) {
	server := startRedis(t, "appendonly yes", "appendfsync always")
	var processes []process
	var load []*traffic
	for range 2 {
		p := startProcess(t, nil, "--redis", as("weir", server)+hangs, "--replicas", "2", "--deadline", "200ms")
		processes, load = append(processes, p), append(load, startTraffic(t, p))
	}
	await := func(what string, ok func(l *traffic) bool) {
		t.Helper()
		redistest.Await(t, what, func() error {
			for _, l := range load {
				if !ok(l) {
					return errors.New("not yet")
				}
			}
			return nil
		})
	}
	await("denials by the store", func(l *traffic) bool { return l.count(l.reasons, "over_limit") > 0 })
	server.Kill()
	await("shares to be used up", func(l *traffic) bool { return l.count(l.allowed, "store_unavailable_local") == 2 })
	for _, p := range processes {
		awaitReadyz(t, p, storeless)
	}
	before := make(map[*traffic]int)
	for _, l := range load {
		before[l] = l.count(l.reasons, "over_limit")
	}
	server.Restart(t)
	start := time.Now()
	await("the store to be used", func(l *traffic) bool { return l.count(l.reasons, "over_limit") > before[l] })
	if took := time.Since(start); took > back {
		t.Errorf("the store was used %v after it had come up", took)
	}
	for _, p := range processes {
		awaitReadyz(t, p, serves)
	}
	byStore := 0
	for i, l := range load {
		close(l.stop)
		l.clients.Wait()
		byStore += l.allowed["ok"]
		if l.allowed["store_unavailable_local"] != 2 || len(l.allowed) > 2 {
			t.Errorf("process %d admitted %v", i, l.allowed)
		}
		log := told(t, processes[i])
		if lines := strings.Count(log, "WARN the store is unavailable"); lines == 0 || lines > 4 || !strings.Contains(log, "INFO the store is used again") {
			t.Errorf("the log of process %d has %d warnings for %v", i, lines, l.reasons)
		}
	}
	if byStore == 0 || byStore > 5 { // fewer if it has charged for one that it answered too late
		t.Errorf("the store admitted %d, want 5", byStore)
	}
}

// A store that is back is found without callers, so that one who comes then is
// not answered without it.
func TestTheStoreIsFoundWithoutCallers(t *testing.T) {
	for name, test := range map[string]struct{ leave, come func(*redistest.Server) }{
		"killed": {(*redistest.Server).Kill, func(s *redistest.Server) { s.Restart(t) }},
		"frozen": {
			func(s *redistest.Server) { s.Signal(t, syscall.SIGSTOP) },
			func(s *redistest.Server) { s.Signal(t, syscall.SIGCONT) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := startRedis(t)
			p := startProcess(t, nil, "--redis", as("weir", server)+hangs, "--replicas", "2")
			test.leave(server)
			for range 25 {
				if v := inTime(t, p.http, fiveAMinute); v.Reason != "store_unavailable_local" {
					t.Errorf("without the store: %+v", v)
				}
			}
			test.come(server)
			start := time.Now()
			awaitReadyz(t, p, serves)
			if took := time.Since(start); took > back {
				t.Errorf("the store was found %v after it had come back", took)
			}
			if v := inTime(t, p.http, bob); v.Reason != "ok" {
				t.Errorf("with the store: %+v", v)
			}
		})
	}
}

// A rule says what becomes of its requests while the store is away.
func TestOnFailure(t *testing.T) {
	server := startRedis(t)
	server.Kill()
	example, err := filepath.Abs(filepath.Join("..", "..", "..", "examples", "failure.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, nil, "--config", example, "--redis", as("weir", server), "--replicas", "3")
	for _, test := range []struct {
		attributes string
		times      int // after which it is denied
		limit      int64
		reason     string
	}{
		{`{"path":"/login","user":"alice"}`, 0, 5, "store_unavailable_denied"},
		{`{"path":"/search","user":"alice"}`, 10, 10, "store_unavailable_local"},
		{`{"path":"/search","user":"bob"}`, 10, 10, "store_unavailable_local"},
		{`{"path":"/help","user":"alice"}`, 200, 100, "store_unavailable_allowed"},
	} {
		for i := range test.times + 1 {
			want := answered{Allowed: i < test.times || test.times == 200, Limit: test.limit, Reason: test.reason}
			got := inTime(t, p.http, `{"domain":"shop","attributes":`+test.attributes+`}`)
			if !want.Allowed != (got.Retry > 0) {
				t.Errorf("%s, check %d: retry after %d ms", test.attributes, i, got.Retry)
			}
			if got.Retry, got.Receipt = 0, ""; got != want {
				t.Errorf("%s, check %d: got %+v, want %+v", test.attributes, i, got, want)
			}
		}
	}
}

// A password that is changed while the service runs is nobody's way around a
// limit, also where its rule admits without the store.
func TestAChangedPasswordNeverFailsOpen(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: web\nrules:\n- {name: all, limit: 5/hour, on_failure: allow}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, nil, "--config", rules, "--redis", server.URL(), "--replicas", "1", patient)
	if v := inTime(t, p.http, `{"domain":"web"}`); v.Reason != "ok" {
		t.Errorf("before: %+v", v)
	}
	server.Must(t, "CONFIG", "SET", "requirepass", password)
	server.Must(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	awaitReason(t, p.http+"/v1/check", `{"domain":"web"}`, "store_unavailable_local")
	for range 4 { // and one that was awaited
		if v := inTime(t, p.http, `{"domain":"web"}`); !v.Allowed || v.Reason != "store_unavailable_local" {
			t.Errorf("within the share: %+v", v)
		}
	}
	for range 20 {
		if v := inTime(t, p.http, `{"domain":"web"}`); v.Allowed || v.Reason != "store_unavailable_local" {
			t.Errorf("beyond the share: %+v", v)
		}
	}
	awaitReadyz(t, p, `.*"detail":"serving; store unavailable for \d+s: give the password, .*`)
	server.Must(t, "CONFIG", "SET", "requirepass", "")
	server.Must(t, "ACL", "SETUSER", "default", "nopass")
	awaitReason(t, p.http+"/v1/check", `{"domain":"web"}`, "ok")
	if log := told(t, p); !strings.Contains(log, "ERROR the store is unavailable") || !strings.Contains(log, "NOAUTH") {
		t.Errorf("the log does not say what is wrong")
	}
}

// An outage does not fill the log, and no decision is missing in it.
func TestOutagesInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, _, err := newLog(&out, "info", "text")
		if err != nil {
			t.Fatal(err)
		}
		o, start := newOutage(log, 3), time.Now()
		failed := func(hint string, settings bool) func() {
			return func() {
				o.observe(layer.Event{Took: 1, Lists: 2, Degraded: 1, Err: &weir.StoreError{Server: "h:1", Hint: hint, Settings: settings, Err: errors.New("no")}})
			}
		}
		refused, wrong := failed("is it up?", false), failed("give the password", true)
		notAsked := func() { o.observe(layer.Event{Lists: 1, Degraded: 1, Err: errors.New("not asked")}) }
		says := func(want string) {
			t.Helper()
			if got, _ := o.status(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		says("")
		o.observe(layer.Event{Took: 1, Lists: 1})
		for _, at := range []struct {
			second, times int
			do            func()
		}{
			{0, 100, refused}, {5, 900, notAsked}, {11, 1, refused}, {15, 1, o.end}, // an outage
			{16, 1, refused}, {17, 1, o.end}, {18, 1, notAsked}, // too short for a line
			{21, 1, refused}, {22, 1, o.end},
			{32, 1, refused}, {33, 10, wrong}, {41, 1, wrong}, {50, 1, o.end},
		} {
			<-time.After(time.Until(start.Add(time.Duration(at.second) * time.Second)))
			for range at.times {
				at.do()
			}
			if at.second == 11 {
				says("store unavailable for 11s: is it up?; 1001 decisions without it")
			}
		}
		says("")
		const line = " the store is unavailable: until it is back this process decides by itself, by 1/3 of each limit unless on_failure of a rule says otherwise error="
		want := `00Z WARN` + line + `"weir: store h:1: no: is it up?" for=0s decisions=1
11Z WARN` + line + `"weir: store h:1: no: is it up?" for=11s decisions=1001
15Z INFO the store is used again after=15s decisions=1001
21Z WARN` + line + `"weir: store h:1: no: is it up?" for=0s decisions=3
22Z INFO the store is used again after=1s decisions=3
32Z WARN` + line + `"weir: store h:1: no: is it up?" for=0s decisions=1
33Z ERROR` + line + `"weir: store h:1: no: give the password" for=1s decisions=2
50Z INFO the store is used again after=18s decisions=12
`
		if got := strings.ReplaceAll(out.String(), start.UTC().Format("2006-01-02T15:04:"), ""); got != want {
			t.Errorf("the log says\n%swant\n%s", got, want)
		}
	})
}
