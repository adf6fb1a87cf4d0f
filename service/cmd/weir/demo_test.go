package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
)

// TestDemo holds that within five seconds the abusive user is denied by the rule
// for users, and that the others have their way.
func TestDemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type verdict struct{ denied, allowed int }
		users, by := make(map[string]verdict), make(map[string]int)
		engine := decide.New(decide.Options{Limiter: weir.New(weir.Options{}), Observe: func(e decide.Event) {
			if e.Answer.Err != nil {
				return // it was asked as the time was over
			}
			user := e.Query.Attributes["user"]
			v := users[user]
			if e.Answer.Allowed {
				v.allowed++
			} else {
				v.denied++
			}
			users[user] = v
			for _, row := range e.Answer.Rows {
				if !row.Allowed {
					by[row.Name+" "+user]++
				}
			}
		}})
		p, err := policy.Compile([]policy.Domain{demoRules})
		if err != nil {
			t.Fatal(err)
		}
		engine.Load(p, false)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		(&demo{engine}).run(ctx)
		total := 0
		for user, v := range users {
			total += v.denied + v.allowed
			if !strings.HasPrefix(user, "demo:") || v.allowed == 0 {
				t.Errorf("%s: %+v", user, v)
			}
			if denied := v.denied > 0; denied != (user == "demo:mallory" || user == "demo:dave") {
				t.Errorf("%s was denied %d times", user, v.denied)
			}
		}
		if by["per-user demo:mallory"] < 50 || by["login demo:dave"] < 2 || by["stricter-search demo:mallory"] == 0 || len(by) != 3 {
			t.Errorf("denied by %v", by)
		}
		if total > 200 {
			t.Errorf("%d requests in 5 s, want at most 40 a second", total)
		}
	})
}

func TestServeDemo(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(config, []byte("domain: own\nrules:\n- {name: one, limit: 1/hour}\n---\ndomain: tree\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args  []string
		asked string
	}{
		"alone":        {nil, `{"key":"search:alice","limit":"5/minute"}`},
		"with config":  {[]string{"--config", config}, `{"domain":"own","attributes":{}}`},
		"with a tree":  {[]string{"--config", config}, `{"domain":"tree","attributes":{"a":"x"}}`},
		"demo as well": {[]string{"--config", config}, `{"domain":"demo","attributes":{"user":"me"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, net.Listen, append([]string{"--demo", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, c.args...)...)
			at := func(name string) string {
				return "http://" + s.doors[slices.IndexFunc(s.doors, func(d door) bool { return d.name == name })].listener.Addr().String()
			}
			if d := post(t, at("http")+"/v1/check", c.asked); !d.Allowed {
				t.Errorf("got %+v", d)
			}
			if text := s.output.String(); !strings.Contains(text, "see who is limited, and why, at "+at("admin")+"/") {
				t.Errorf("the log does not say where to look:\n%s", text)
			}
			if err := s.stopped(); err != nil {
				t.Error(err)
			}
		})
	}
}
