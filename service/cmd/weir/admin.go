package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir/service/adminapi"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/dashboard"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/telemetry"
)

// overAdmin returns what serves the admin address.
func (s *server) overAdmin(engine *decide.Engine, set settings) (*http.Server, error) {
	var err error
	if s.tokens, err = openTokens(s.log, set.AdminToken, set.AdminTokensFile); err != nil {
		return nil, err
	}
	stopping, stop := context.WithCancel(context.Background())
	o := adminapi.Options{
		Engine: engine, Log: s.log, Level: s.level, RedactKeys: set.RedactKeys,
		Ready: s.ready, State: s.snapshot, Stopping: stopping.Done(), Overrides: s.overrides,
		Metrics: s.telemetry.Handler(), Dashboard: dashboard.Handler(),
	}
	if s.tokens != nil {
		o.Tokens = s.tokens.current
	}
	if r := s.reloader; r != nil {
		o.Config = r.shown
		if r.watcher != nil {
			o.Reload = r.reload
		}
	}
	served := s.overHTTP(adminapi.New(o))
	served.RegisterOnShutdown(stop)
	return served, nil
}

// sharedTable is where overrides are that other processes share; nil if none do.
// Without scripts a server keeps no tables.
func (s *server) sharedTable(mode string) table {
	if s.store == nil || mode == "plain" {
		return nil
	}
	return s.store.Table("overrides")
}

// snapshot tells how things are.
func (s *server) snapshot() any {
	st := s.telemetry.Snapshot()
	st.Ready = telemetry.Readiness(s.ready())
	st.Store.Kind, st.Store.Status, st.Store.Detail = s.storeState()
	if s.reloader != nil {
		st.Config.Files = append(st.Config.Files, s.reloader.force.Load().files...)
	}
	return st
}

// storeState is how the store is, in few words and in plain ones.
func (s *server) storeState() (kind, status, detail string) {
	if s.store == nil {
		return "memory", "ok", "limits are kept in the memory of this process"
	}
	if lack, _ := s.outage.status(); lack != "" {
		return "redis", "unavailable", "the server does not answer: each process decides by its share, unless on_failure of a rule says otherwise; " + lack
	}
	return "redis", "ok", "the server answers"
}

// shown is the config in force, and how that on disk differs.
func (r *reloader) shown() adminapi.Config {
	f := r.force.Load()
	text, err := config.Text(f.policy)
	if err != nil {
		text = "# it cannot be shown: " + err.Error()
	}
	c := adminapi.Config{Rules: text, Files: f.files}
	if r.watcher == nil {
		return c
	}
	loaded, _, err := r.read()
	if err != nil {
		c.Diff = []string{"the config on disk is refused: " + firstOf(err)}
		return c
	}
	c.Diff = changeLines(config.Diff(f.policy, loaded.Policy))
	return c
}

// reload puts what is on disk in force.
func (r *reloader) reload() ([]string, error) {
	changes, err := r.load()
	if err != nil {
		return nil, errors.New("the config on disk is refused, and what was loaded before it stays in force: " + firstOf(err))
	}
	return changeLines(changes), nil
}

func changeLines(changes []config.Change) []string {
	lines := make([]string, len(changes))
	for i, c := range changes {
		lines[i] = c.String()
	}
	return lines
}

// tokens are those that let operators in: one of the settings, and those of a
// file as it was when it last was right.
type tokens struct {
	log     *slog.Logger
	path    string
	own     []adminapi.Token
	watcher *config.Watcher // nil if the file can be read only once
	force   atomic.Pointer[[]adminapi.Token]
}

// openTokens returns nil if there are none.
func openTokens(log *slog.Logger, own, path string) (*tokens, error) {
	if own == "" && path == "" {
		return nil, nil //nolint:nilnil // no tokens are no error
	}
	t := &tokens{log: log, path: path}
	if own != "" {
		t.own = []adminapi.Token{adminapi.NewToken("admin", own)}
	}
	t.force.Store(&t.own)
	if path == "" {
		return t, nil
	}
	watcher, once := config.NewWatcher([]string{path})
	if err := t.read(); err != nil {
		return nil, err
	}
	if once != nil {
		log.Warn("the file of admin tokens is not read again when it changes", "because", once)
	}
	t.watcher = watcher
	return t, nil
}

func (t *tokens) current() []adminapi.Token { return *t.force.Load() }

func (t *tokens) read() error {
	text, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("the file of admin tokens cannot be read: %w", err)
	}
	listed, err := adminapi.ParseTokens(string(text))
	if err != nil {
		return fmt.Errorf("the file of admin tokens, %s, is refused: %w", t.path, err)
	}
	all := slices.Concat(t.own, listed)
	t.force.Store(&all)
	return nil
}

// start reads the file when it changes, until ctx ends.
func (t *tokens) start(ctx context.Context) {
	if t.watcher == nil {
		return
	}
	go t.watcher.Run(ctx, config.WatchOptions{Load: func() { // nobody waits for it: a slow disk may hold it up
		if err := t.read(); err != nil {
			t.log.Error("admin tokens stay as they were", "error", err)
			return
		}
		t.log.Info("the file of admin tokens is read again", "tokens", len(t.current()))
	}})
}
