// Package dashboard drives the dashboard in a real browser, against an admin API
// whose state the tests steer.
package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/service/dashboard"
)

// What the admin API says, as far as the dashboard shows it.
type (
	state struct {
		Version   string     `json:"version"`
		Started   string     `json:"started"`
		Now       string     `json:"now"`
		Ready     readiness  `json:"ready"`
		Store     storeState `json:"store"`
		Config    config     `json:"config"`
		Totals    totals     `json:"totals"`
		LatencyMS *latency   `json:"latency_ms"`
		Rules     []rule     `json:"rules"`
		Hot       []hotKey   `json:"hot"`
	}
	readiness struct {
		Ready    bool   `json:"ready"`
		Detail   string `json:"detail"`
		Store    string `json:"store"`
		Degraded int64  `json:"degraded_decisions"`
	}
	storeState struct {
		Kind      string   `json:"kind"`
		Status    string   `json:"status"`
		Detail    string   `json:"detail"`
		LatencyMS *latency `json:"latency_ms"`
		InFlight  int64    `json:"in_flight"`
		Errors    int64    `json:"errors"`
	}
	config struct {
		Files   []string `json:"files"`
		Loaded  string   `json:"loaded"`
		Refused string   `json:"refused"`
		Domains int      `json:"domains"`
		Rules   int      `json:"rules"`
	}
	latency struct {
		P50 float64 `json:"p50"`
		P90 float64 `json:"p90"`
		P99 float64 `json:"p99"`
	}
	totals struct {
		Allowed  int64   `json:"allowed"`
		Denied   int64   `json:"denied"`
		Degraded int64   `json:"degraded"`
		Errors   int64   `json:"errors"`
		AllowedS float64 `json:"allowed_per_s"`
		DeniedS  float64 `json:"denied_per_s"`
	}
	rule struct {
		Domain   string  `json:"domain"`
		Rule     string  `json:"rule"`
		Limit    string  `json:"limit"`
		Shadow   bool    `json:"shadow"`
		Allowed  int64   `json:"allowed"`
		Denied   int64   `json:"denied"`
		AllowedS float64 `json:"allowed_per_s"`
		DeniedS  float64 `json:"denied_per_s"`
	}
	hotKey struct {
		Domain       string            `json:"domain"`
		Rule         string            `json:"rule"`
		Key          string            `json:"key"`
		Redacted     bool              `json:"redacted"`
		Allowed      float64           `json:"allowed"`
		Denied       float64           `json:"denied"`
		AllowedError float64           `json:"allowed_error"`
		DeniedError  float64           `json:"denied_error"`
		Attributes   map[string]string `json:"attributes"`
	}
	keyState struct {
		Domain       string `json:"domain"`
		Rule         string `json:"rule"`
		Key          string `json:"key"`
		Limit        string `json:"limit"`
		Algorithm    string `json:"algorithm"`
		WindowMS     int64  `json:"window_ms"`
		Capacity     int64  `json:"capacity"`
		Used         int64  `json:"used"`
		Remaining    int64  `json:"remaining"`
		NextFreeMS   int64  `json:"next_free_ms"`
		ResetAfterMS int64  `json:"reset_after_ms"`
		Countable    bool   `json:"countable"`
		Timeline     []part `json:"timeline"`
	}
	part struct {
		FromMS int64 `json:"from_ms"`
		ToMS   int64 `json:"to_ms"`
		Units  int64 `json:"units"`
	}
	override struct {
		ID         string            `json:"id"`
		Domain     string            `json:"domain"`
		Rule       string            `json:"rule"`
		Attributes map[string]string `json:"attributes"`
		Limit      string            `json:"limit"`
		Deny       bool              `json:"deny"`
		Until      string            `json:"until"`
		By         string            `json:"by"`
		Why        string            `json:"why"`
		Created    string            `json:"created"`
	}
)

// server is an admin API that says what it is told to. Each state that it sends
// is a second later than the one before.
type server struct {
	*httptest.Server

	pace      time.Duration // of events; 0 means pace
	mu        sync.Mutex
	state     state
	now       time.Time
	keys      []keyState // what inspect finds
	explained any
	overrides []override
	token     string
	down      bool
	calls     []string // method, path and body of each that is no look at the state
	change    func(*state, int)
	sent      int
}

// pace is how often a state is sent, so that tests need not wait for seconds.
const pace = 20 * time.Millisecond

func serve(t *testing.T) *server {
	s := &server{state: calm(), overrides: []override{}, now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	api := http.NewServeMux()
	api.Handle("GET /", dashboard.Handler())
	for pattern, call := range map[string]func(*server, []byte) (any, error){
		"POST /api/inspect":          func(s *server, _ []byte) (any, error) { return map[string]any{"keys": s.keys}, nil },
		"POST /api/explain":          func(s *server, _ []byte) (any, error) { return s.explained, nil },
		"POST /api/reset":            func(*server, []byte) (any, error) { return map[string]int{"reset": 1}, nil },
		"GET /api/overrides":         func(s *server, _ []byte) (any, error) { return map[string]any{"overrides": s.overrides}, nil },
		"POST /api/overrides":        (*server).put,
		"DELETE /api/overrides/{id}": (*server).remove,
	} {
		api.HandleFunc(pattern, s.guarded(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			s.mu.Lock()
			defer s.mu.Unlock()
			if r.URL.Path != "/api/overrides" || r.Method != http.MethodGet {
				s.calls = append(s.calls, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
			}
			if r.Method == http.MethodDelete {
				body = []byte(r.PathValue("id"))
			}
			answer, err := call(s, body)
			if err != nil {
				problem(w, http.StatusBadRequest, err.Error())
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer) // the browser may be gone
		}))
	}
	api.HandleFunc("GET /api/events", s.guarded(s.events))
	s.Server = httptest.NewServer(api)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// guarded refuses who has no token, and everybody while the server is down.
func (s *server) guarded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		down, token := s.down, s.token
		s.mu.Unlock()
		switch {
		case down:
			panic(http.ErrAbortHandler)
		case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
			problem(w, http.StatusUnauthorized, "the token is not known here")
		default:
			next(w, r)
		}
	}
}

func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "detail": detail}) // the browser may be gone
}

func (s *server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(cmp.Or(s.pace, pace))
	defer tick.Stop()
	for {
		text, down := s.next()
		if down {
			panic(http.ErrAbortHandler)
		}
		if _, err := fmt.Fprintf(w, "event: state\ndata: %s\n\n", text); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// next returns the next state to send.
func (s *server) next() (text []byte, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(time.Second)
	s.state.Now = s.now.Format("2006-01-02T15:04:05.000Z")
	if s.sent++; s.change != nil {
		s.change(&s.state, s.sent)
	}
	text, _ = json.Marshal(s.state)
	return text, s.down
}

func (s *server) put(body []byte) (any, error) {
	var asked struct {
		override
		For string `json:"for"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	length, err := time.ParseDuration(asked.For)
	if err != nil {
		return nil, fmt.Errorf("for is %q, want a duration such as 2h", asked.For)
	}
	o := asked.override
	o.ID, o.By = fmt.Sprintf("o%d", len(s.calls)), "admin"
	o.Created, o.Until = s.now.Format(time.RFC3339), s.now.Add(length).Format(time.RFC3339)
	s.overrides = append(s.overrides, o)
	return o, nil
}

func (s *server) remove(id []byte) (any, error) {
	before := len(s.overrides)
	s.overrides = slices.DeleteFunc(s.overrides, func(o override) bool { return o.ID == string(id) })
	return map[string]bool{"removed": len(s.overrides) < before}, nil
}

// steer changes what the server is like.
func (s *server) steer(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// called reports whether a call was made: its method, path and body.
func (s *server) called(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.calls, call) {
		return fmt.Errorf("%q was not called, but %q", call, s.calls)
	}
	return nil
}

// calm is a server that is well, with a domain of three rules and a few keys.
func calm() state {
	return state{
		Version: "v1.2.3", Started: "2026-11-21T09:12:00.000Z",
		Ready:  readiness{Ready: true, Detail: "serving", Store: "ok"},
		Store:  storeState{Kind: "redis", Status: "ok", Detail: "ok", LatencyMS: &latency{0.21, 0.4, 0.93}, InFlight: 3},
		Config: config{Files: []string{"slack.yaml"}, Loaded: "2026-11-21T09:12:00.000Z", Domains: 1, Rules: 3},
		Totals: totals{Allowed: 181204, Denied: 9120, AllowedS: 118.4, DeniedS: 12.5}, LatencyMS: &latency{0.24, 0.5, 1.1},
		Rules: []rule{
			{Domain: "slack", Rule: "global", Limit: "10000/30m", Allowed: 181204, Denied: 12, AllowedS: 118.4},
			{Domain: "slack", Rule: "per-category", Limit: "10/30m", Allowed: 120110, Denied: 8400, AllowedS: 82.2, DeniedS: 11.1},
			{Domain: "slack", Rule: "search", Limit: "5/1m", Shadow: true, Allowed: 61094, Denied: 708, AllowedS: 36.2, DeniedS: 1.4},
		},
		Hot: []hotKey{
			{Domain: "slack", Rule: "per-category", Key: "category=errors", Allowed: 340, Denied: 8210, DeniedError: 3, Attributes: map[string]string{"category": "errors"}},
			{Domain: "slack", Rule: "search", Key: "user=mallory", Allowed: 310, Denied: 690, Attributes: map[string]string{"user": "mallory"}},
			{Domain: "slack", Rule: "per-category", Key: "category=deploys", Allowed: 900, Denied: 190, Attributes: map[string]string{"category": "deploys"}},
			{Domain: "slack", Rule: "search", Key: "user=alice", Allowed: 410, Denied: 18, Attributes: map[string]string{"user": "alice"}},
			{Key: "login:198.51.100.7", Allowed: 12, Denied: 4},
			{Domain: "slack", Rule: "global", Key: "all requests", Allowed: 181204, Denied: 12, Attributes: map[string]string{}},
			{Domain: "slack", Rule: "search", Key: "user=bob", Allowed: 120, Attributes: map[string]string{"user": "bob"}},
		},
	}
}

// windows are what inspect finds of category=errors: an algorithm each.
func windows() []keyState {
	parts := make([]part, 0, 100)
	for i := range int64(100) {
		units := map[int64]int64{3: 1, 11: 2, 12: 1, 30: 1, 47: 2, 71: 1, 93: 2}[i]
		parts = append(parts, part{i * 18000, (i + 1) * 18000, units})
	}
	return []keyState{
		{Domain: "slack", Rule: "global", Key: "", Limit: "10000/30m", Algorithm: "sliding-log", WindowMS: 1800000, Capacity: 10000, Used: 6100, Remaining: 3900, ResetAfterMS: 1795000, Countable: true, Timeline: []part{{0, 18000, 900}, {360000, 378000, 2200}, {900000, 918000, 3000}}},
		{Domain: "slack", Rule: "per-category", Key: "category=errors", Limit: "10/30m", Algorithm: "sliding-log", WindowMS: 1800000, Capacity: 10, Used: 10, NextFreeMS: 112000, ResetAfterMS: 1737000, Countable: true, Timeline: parts},
		{Domain: "slack", Rule: "burst", Key: "category=errors", Limit: "2/1s burst=20", Algorithm: "token-bucket", WindowMS: 1000, Capacity: 20, Used: 14, Remaining: 6, ResetAfterMS: 7000, Timeline: []part{}},
		{Domain: "slack", Rule: "hourly", Key: "category=errors", Limit: "100/1h fixed-window", Algorithm: "fixed-window", WindowMS: 3600000, Capacity: 100, Used: 100, NextFreeMS: 1500000, ResetAfterMS: 1500000, Timeline: []part{}},
	}
}
