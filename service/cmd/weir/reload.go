package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/decide"
)

// mostChanges is how many changed rules the log names at once.
const mostChanges = 20

// readConfig loads what is configured and puts the settings together.
func readConfig(flags *pflag.FlagSet, env getenv) (*config.Config, settings, error) {
	loaded := &config.Config{}
	if paths := configPaths(flags, env); len(paths) > 0 {
		var err error
		if loaded, err = config.Load(paths); err != nil {
			return nil, settings{}, err
		}
	}
	set, err := resolve(flags, env, loaded.Server)
	if err == nil && set.demo {
		err = addDemo(loaded, &set)
	}
	return loaded, set, err
}

// reloader puts the rules on disk in force when they change.
type reloader struct {
	log     *slog.Logger
	watcher *config.Watcher // nil if it can be read only once
	read    func() (*config.Config, settings, error)
	engine  *decide.Engine
	told    func(p *policy.Policy, at time.Time, err error) // of each load
	started settings                                        // in force until a restart
	disk    atomic.Pointer[disk]
	force   atomic.Pointer[force]
	loading sync.Mutex // held while force is replaced
}

// force is what is in force, since when.
type force struct {
	policy *policy.Policy
	files  []string
	since  time.Time
}

// disk is how the config on disk fared when it was last loaded.
type disk struct {
	successful bool      // config_last_reload_successful
	since      time.Time // of the first load that went so
	wrong      string    // the first thing that is wrong, on a line
}

// newReloader puts what was loaded in force. Without a watcher it stays so.
func newReloader(log *slog.Logger, watcher *config.Watcher, engine *decide.Engine, told func(*policy.Policy, time.Time, error), loaded *config.Config, set settings) *reloader {
	r := &reloader{log: log, watcher: watcher, engine: engine, told: told, started: set}
	r.note(&disk{successful: true})
	r.enforce(loaded)
	return r
}

func (r *reloader) enforce(loaded *config.Config) {
	now := time.Now()
	r.told(loaded.Policy, now, nil)
	r.engine.Load(loaded.Policy, r.started.inline())
	r.force.Store(&force{loaded.Policy, loaded.Files, now})
}

// start reloads what changes, and on SIGHUP whatever is there, until ctx ends.
func (r *reloader) start(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	o := config.WatchOptions{Load: func() { _, _ = r.load() }, Now: hangup, Unnotified: func(err error) {
		r.log.Warn("the system does not notify of changed config files, so they are looked at each second; it may have reached a limit such as fs.inotify.max_user_watches", "error", err)
	}}
	go func() { // nobody waits for it: a slow disk may hold it up
		defer signal.Stop(hangup)
		r.watcher.Run(ctx, o)
	}()
}

// load puts what is on disk in force, unless the service would not start with
// it, and returns what that changed.
func (r *reloader) load() ([]config.Change, error) {
	r.loading.Lock()
	defer r.loading.Unlock()
	loaded, set, err := r.read()
	if err != nil {
		r.log.Error("the config on disk is refused, and what was loaded before it stays in force", "error", err)
		r.told(nil, time.Now(), errors.New(firstOf(err)))
		r.note(&disk{wrong: firstOf(err)})
		return nil, err
	}
	changes := config.Diff(r.force.Load().policy, loaded.Policy)
	r.enforce(loaded)
	r.note(&disk{successful: true})
	announce(r.log, "the config is loaded again", loaded, r.started, "changes", len(changes))
	for i, c := range changes {
		if i == mostChanges {
			r.log.Info(fmt.Sprintf("and %d more", len(changes)-i))
			break
		}
		r.log.Info("a rule is "+c.Kind, "rule", c.Rule, "is", c.Text)
	}
	if keys := r.started.Changed(set.Server); len(keys) > 0 {
		r.log.Warn("server settings differ on disk, which takes a restart", "settings", strings.Join(keys, " "))
	}
	return changes, nil
}

func (r *reloader) note(d *disk) {
	d.since = time.Now()
	if last := r.disk.Load(); last != nil && last.successful == d.successful {
		d.since = last.since
	}
	r.disk.Store(d)
}

// status is what to say after "serving" of a config on disk that is refused.
func (r *reloader) status() string {
	d := r.disk.Load()
	if d.successful {
		return ""
	}
	return fmt.Sprintf("; the config on disk has been refused for %s: %s", time.Since(d.since).Truncate(time.Second), d.wrong)
}

// firstOf is the first of several errors, without the line of the file that it
// shows, and how many more there are.
func firstOf(err error) string {
	more := 0
	if wrong, ok := errors.AsType[config.Errors](err); ok {
		err, more = wrong[0], len(wrong)-1
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	if more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// announce tells of rules that are now in force.
func announce(log *slog.Logger, message string, loaded *config.Config, set settings, more ...any) {
	domains, rules := loaded.Policy.Domains(), 0
	for _, d := range domains {
		rules += len(d.Rules)
	}
	log.Info(message, append([]any{"files", strings.Join(loaded.Files, " "), "domains", len(domains), "rules", rules}, more...)...)
	if len(domains) == 0 && !set.inline() {
		log.Warn("the config has no domains, and limits sent with a request are not served beside it, so every request is refused: add domains, or server: {inline: true}")
	}
}
