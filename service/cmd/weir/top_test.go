package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/weirlimit/weir/internal/redistest"
)

// aState is what GET /api/state may answer.
const aState = `{"version":"1.2.3","started":"2026-11-21T10:00:00.000Z","now":"2026-11-21T12:03:20.000Z",
"ready":{"ready":true,"detail":"serving","store":"ok","degraded_decisions":0},
"store":{"kind":"redis","status":"ok","detail":"redis 7.0.15 at 10.0.0.7:6379","latency_ms":{"p50":0.1,"p90":0.2,"p99":0.4},"in_flight":1,"errors":0},
"config":{"files":["shop.yaml"],"loaded":"2026-11-21T10:00:00.000Z","refused":"","domains":1,"rules":3},
"totals":{"allowed":12345,"denied":678,"degraded":0,"errors":0,"allowed_per_s":12.5,"denied_per_s":0.4},
"latency_ms":{"p50":0.01,"p90":0.02,"p99":0.09},
"rules":[
 {"domain":"shop","rule":"everyone","limit":"1000/1m","shadow":false,"allowed":12000,"denied":0,"allowed_per_s":12.5,"denied_per_s":0},
 {"domain":"shop","rule":"search","limit":"5/10s","shadow":false,"allowed":300,"denied":600,"allowed_per_s":0.5,"denied_per_s":0.3},
 {"domain":"shop","rule":"trial","limit":"1/1m","shadow":true,"allowed":45,"denied":78,"allowed_per_s":0,"denied_per_s":0.1}],
"hot":[
 {"domain":"shop","rule":"search","key":"user=mallory","redacted":false,"allowed":40,"denied":600,"allowed_error":1,"denied_error":0,"attributes":{"user":"mallory"}},
 {"domain":"shop","rule":"search","key":"user=\u001b[31mbob","redacted":false,"allowed":200,"denied":3,"allowed_error":1,"denied_error":0,"attributes":{"user":"bob"}},
 {"domain":"shop","rule":"everyone","key":"all","redacted":false,"allowed":12000,"denied":0,"allowed_error":1,"denied_error":0,"attributes":{}},
 {"domain":"","rule":"","key":"inline:carol","redacted":false,"allowed":2,"denied":1,"allowed_error":0,"denied_error":0,"attributes":{}}],
"hot_error":"counts may be too high by at most *_error"}`

// aWindow is what POST /api/inspect may answer; %s stands for parts.
const aWindow = `{"keys":[
 {"domain":"shop","rule":"everyone","key":"","limit":"1000/1m","algorithm":"token-bucket","window_ms":60000,"capacity":1000,"used":250,"remaining":750,
  "next_free_ms":0,"reset_after_ms":15000,"countable":false,"timeline":[]},
 {"domain":"shop","rule":"search","key":"user=mallory","limit":"5/10s","algorithm":"sliding-log","window_ms":10000,"capacity":5,"used":5,"remaining":0,
  "next_free_ms":100,"reset_after_ms":9000,"countable":true,"timeline":[%s]}]}`

// parts are a window of 10 s in 100 parts, 2 units in the oldest and 3 taken 1 s ago.
func parts() string {
	list := make([]string, 100)
	for i := range list {
		list[i] = fmt.Sprintf(`{"from_ms":%d,"to_ms":%d,"units":%d}`, i*100, i*100+100, map[int]int{10: 3, 99: 2}[i])
	}
	return strings.Join(list, ",")
}

// admin is a service's admin API.
type admin struct {
	*adminClient
	state  atomic.Pointer[string]
	broken atomic.Bool
	asked  atomic.Pointer[string] // the last body of an inspect
}

func newAdmin(t *testing.T, token string) *admin {
	a := &admin{}
	text := aState
	a.state.Store(&text)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/state", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, *a.state.Load()) })
	mux.HandleFunc("POST /api/inspect", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text := r.Header.Get("Content-Type") + " " + string(body)
		a.asked.Store(&text)
		fmt.Fprintf(w, aWindow, parts())
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case a.broken.Load():
			panic(http.ErrAbortHandler)
		case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"the token is wrong"}`)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	var err error
	if a.adminClient, err = (&adminFlags{url: server.URL}).client(); err != nil {
		t.Fatal(err)
	}
	return a
}

// session is a user before a terminal, without its loop: what the model asks for
// is done at once, and time passes when the test says so.
type session struct {
	*top
	t       *testing.T
	seconds int64
}

func newSession(t *testing.T, a *admin) *session {
	m := newTop(t.Context(), a.adminClient, false)
	m.address = "here"
	s := &session{top: m, t: t}
	m.now = func() time.Time { return time.Unix(s.seconds, 0) }
	s.send(m.ask())
	return s
}

// send sends a message, and what the model then asks for.
func (s *session) send(msg tea.Msg) {
	s.t.Helper()
	if _, passes := msg.(tickMsg); passes {
		s.seconds++
	}
	_, cmd := s.Update(msg)
	if _, answered := msg.(stateMsg); answered {
		if cmd == nil {
			s.t.Error("it never asks again")
		}
		return // a tick, which takes a second
	}
	s.do(cmd)
}

func (s *session) do(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			s.do(c)
		}
	default:
		s.send(msg)
	}
}

// press presses keys: names such as enter, or characters.
func (s *session) press(keys ...string) {
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "backspace": tea.KeyBackspace}
	for _, k := range keys {
		if code, ok := codes[k]; ok {
			s.send(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range k {
			s.send(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// wants checks that the screen has texts in this order, and fits.
func (s *session) wants(texts ...string) {
	s.t.Helper()
	shown := ansi.Strip(s.screen())
	lines := strings.Split(shown, "\n")
	if len(lines) > s.height {
		s.t.Errorf("%d lines do not fit into %d", len(lines), s.height)
	}
	for _, line := range lines {
		if w := ansi.StringWidth(line); w > s.width {
			s.t.Errorf("%d columns do not fit into %d: %s", w, s.width, line)
		}
	}
	rest := shown
	for _, text := range texts {
		_, after, ok := strings.Cut(rest, text)
		if !ok {
			s.t.Errorf("there is no %q, or not in this order, in\n%s", text, shown)
			return
		}
		rest = after
	}
}

func (s *session) wantsNo(text string) {
	s.t.Helper()
	if shown := ansi.Strip(s.screen()); strings.Contains(shown, text) {
		s.t.Errorf("there is %q in\n%s", text, shown)
	}
}

func TestTopOverview(t *testing.T) {
	s := newSession(t, newAdmin(t, ""))
	s.wants("weir 1.2.3 at here, up 2h3m", "allowed 12.5/s, denied 0.4/s; in all 12.3k and 678; p50 0.01 ms, p99 0.09 ms",
		"store: redis, ok: redis 7.0.15 at 10.0.0.7:6379 (p50 0.1 ms, p99 0.4 ms)",
		"RULE", "shop/search          5/10s          0.5       0.3      300     600", "shop/trial (shadow)", "shop/everyone",
		"KEY", "user=mallory        shop/search    5/10s       600       40", `"user=\x1b[31mbob"`, "inline:carol        (no rule)", "all",
		"q quit  / filter  s sort: denied")
	s.press("s")
	s.wants("KEY", "all", "bob", "mallory", "carol", "sort: allowed")
	s.press("s")
	s.wants("KEY", "all", "inline:carol", "mallory", "sort: key")
	s.press("s")
	s.wants("sort: denied")
}

func TestTopFilters(t *testing.T) {
	s := newSession(t, newAdmin(t, ""))
	s.press("/", "SEARxq", "backspace", "backspace")
	s.wants("filter: SEAR▏")
	s.press("enter")
	s.wants("KEY", "mallory", "bob", "/ filter: SEAR")
	s.wantsNo("carol")
	s.press("/")
	s.send(tea.PasteMsg{Content: "zzz"})
	s.press("enter")
	s.wants("KEY", "none")
	s.press("enter", "down", "esc")
	s.wants("mallory", "carol", "/ filter  s")
	s.press("/", "mal", "esc")
	s.wants("carol")
}

func TestTopShowsAWindow(t *testing.T) {
	a := newAdmin(t, "")
	s := newSession(t, a)
	s.press("enter")
	space := func(n int) string { return strings.Repeat(" ", n) }
	want := []string{
		"user=mallory", "",
		"shop/search: 5/10s, sliding-log",
		"5 of 5 used, 0 left; one more in 100ms; unused again in 9s",
		"    3 | " + space(62) + "#" + space(7),
		"      |#" + space(62) + "#" + space(7),
		"      |#" + space(62) + "#" + space(7),
		"      +" + strings.Repeat("-", 71),
		"       10s ago, about to count no more" + space(37) + "now", "",
		"shop/everyone: 1000/1m, token-bucket",
		"250 of 1000 used, 750 left; unused again in 15s",
		"[###################" + space(57) + "]", "",
	}
	s.wants(strings.Join(want, "\n"), "esc back")
	if got, want := *a.asked.Load(), `application/json {"attributes":{"user":"mallory"},"domain":"shop"}`; got != want {
		t.Errorf("it asked for %s, want %s", got, want)
	}
	s.press("esc", "down", "enter")
	s.wants(`"user=\x1b[31mbob"`)
	s.press("s", "/") // which are for the list
	s.wants("esc back")
	s.press("esc", "down", "down", "enter")
	s.wants("all")
	s.press("esc", "up", "enter")
	s.wants("inline:carol", "Its limit came with the request")
}

// TestTopKeepsTheMarkedKey holds that a key stays marked where the order changes.
func TestTopKeepsTheMarkedKey(t *testing.T) {
	s := newSession(t, newAdmin(t, ""))
	s.press("down", "down", "s", "s")
	s.press("enter")
	s.wants(`"user=\x1b[31mbob"`)
}

func TestTopReconnects(t *testing.T) {
	a := newAdmin(t, "")
	s := newSession(t, a)
	a.broken.Store(true)
	s.send(tickMsg{})
	s.wants("weir 1.2.3", "no answer for 0s, trying again each second: cannot reach http://127.0.0.1:", "KEY", "mallory")
	s.send(tickMsg{})
	s.send(tickMsg{})
	s.wants("no answer for 2s")
	a.broken.Store(false)
	s.send(tickMsg{})
	s.wantsNo("no answer")
	s.wants("KEY", "mallory")
}

func TestTopPauses(t *testing.T) {
	a := newAdmin(t, "")
	s := newSession(t, a)
	s.press("p")
	s.wants("PAUSED", "p go on")
	later := strings.ReplaceAll(aState, "mallory", "trudy")
	a.state.Store(&later)
	if _, cmd := s.Update(tickMsg{}); cmd == nil {
		t.Error("it never goes on")
	}
	s.wants("mallory")
	s.press("p")
	s.send(tickMsg{})
	s.wants("trudy")
}

func TestTopSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ is, instead, want string }{
		"shadow":  {`"rule":"search","limit":"5/10s","shadow":false`, `"rule":"search","limit":"5/10s","shadow":true`, "user=mallory        shop/search (shadow)  5/10s"},
		"failing": {`"in_flight":1,"errors":0`, `"in_flight":1,"errors":5`, "errors: 5"},
		"store":   {`"status":"ok","detail":"redis 7.0.15 at 10.0.0.7:6379"`, `"status":"unavailable","detail":"connection refused"`, "store: redis, unavailable: connection refused"},
		"local":   {`"degraded_decisions":0`, `"degraded_decisions":12`, "decided without it: 12"},
		"config":  {`"refused":""`, `"refused":"shop.yaml:3:1: limit"`, "the config on disk is refused: shop.yaml:3:1: limit"},
		"ready":   {`{"ready":true,"detail":"serving"`, `{"ready":false,"detail":"stopping"`, "not ready: stopping"},
		"errors":  {`"errors":0,"allowed_per_s":12.5`, `"errors":7,"allowed_per_s":12.5`, "errors 7"},
		"no time": {`"latency_ms":{"p50":0.01,"p90":0.02,"p99":0.09}`, `"latency_ms":null`, "in all 12.3k and 678\n"},
	} {
		if strings.Count(aState, c.is) != 1 {
			t.Fatalf("%s: %q is not there once", name, c.is)
		}
		a := newAdmin(t, "")
		text := strings.Replace(aState, c.is, c.instead, 1)
		a.state.Store(&text)
		newSession(t, a).wants(c.want)
	}
}

// TestTopFits shows all at every size, with more than fits.
func TestTopFits(t *testing.T) {
	a := newAdmin(t, "")
	s := newSession(t, a)
	for i := range 50 {
		s.state.Rules = append(s.state.Rules, liveRule{Domain: "many", Rule: strings.Repeat("x", i), Limit: "1/s"})
		s.state.Hot = append(s.state.Hot, hotKey{Domain: "many", Rule: "x", Key: strings.Repeat("🌊", i)})
	}
	for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 12}, {20, 6}, {1, 1}, {3, 3}, {80, 5}} {
		s.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		s.wants()
		s.press("enter")
		s.wants()
		s.press("esc", "down")
	}
	s.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	s.wants("RULE", "and 47 more", "KEY", "many/x", "🌊", "q quit")
	for range 100 {
		s.press("down")
	}
	s.press("enter")
	s.wants(strings.Repeat("🌊", 39) + "…")
}

// TestTopInATerminal runs the program itself.
func TestTopInATerminal(t *testing.T) {
	colour := func(s string) bool { return strings.Contains(s, "\x1b[32m") || strings.Contains(s, "\x1b[33m") }
	for name, c := range map[string]struct {
		colours bool
		env     []string
		want    bool
	}{
		"colours":      {true, []string{"TERM=xterm-256color", "TTY_FORCE=1"}, true},
		"NO_COLOR":     {false, []string{"TERM=xterm-256color", "TTY_FORCE=1"}, false},
		"not terminal": {true, []string{"TERM=xterm-256color"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAdmin(t, "")
			keys, hand := io.Pipe()
			defer func() { _ = hand.Close() }()
			out := new(written)
			p := tea.NewProgram(newTop(t.Context(), a.adminClient, c.colours), tea.WithContext(t.Context()), tea.WithInput(keys), tea.WithOutput(out), tea.WithEnvironment(c.env), tea.WithWindowSize(80, 24))
			done := make(chan error, 1)
			go func() {
				_, err := p.Run()
				done <- err
			}()
			redistest.Await(t, "the first screen", func() error {
				if !strings.Contains(out.String(), "mallory") {
					return errors.New("there is none yet")
				}
				return nil
			})
			if _, err := io.WriteString(hand, "q"); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if got := colour(out.String()); got != c.want {
				t.Errorf("colours: %v, want %v", got, c.want)
			}
		})
	}
}

func TestTopOnce(t *testing.T) {
	a, guarded := newAdmin(t, ""), newAdmin(t, "sesame")
	t.Setenv("WEIR_ADMIN_TOKEN", "")
	file := t.TempDir() + "/token"
	wrong := file + ".wrong"
	for name, text := range map[string]string{file: "sesame\n", wrong: "hush-hush"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args      []string
		code      int
		out, errs string
	}{
		"text":    {[]string{"--once", "--admin", a.base}, 0, "shop/search", ""},
		"json":    {[]string{"--once", "--json", "--admin", a.base + "/"}, 0, aState + "\n", ""},
		"token":   {[]string{"--once", "--admin", guarded.base, "--token-file", file}, 0, "mallory", ""},
		"missing": {[]string{"--once", "--admin", guarded.base}, 2, "", "weir: " + guarded.base + " wants a token: name the file that has it with --token-file, or set $WEIR_ADMIN_TOKEN\n"},
		"wrong":   {[]string{"--once", "--admin", guarded.base, "--token-file", wrong}, 2, "", "weir: " + guarded.base + " refused the token of --token-file or $WEIR_ADMIN_TOKEN: the token is wrong\n"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), append([]string{"top"}, c.args...), strings.NewReader(""), &out, &errs)
		if code != c.code || !strings.Contains(out.String(), c.out) || errs.String() != c.errs {
			t.Errorf("%s: exit %d, %s%s", name, code, &out, &errs)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: there are escapes in %q", name, &out)
		}
	}
}
