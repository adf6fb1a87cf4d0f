package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
)

// lineTime is how long the log says no more about a store that is away.
const lineTime = 10 * time.Second

// outage is how a shared store fails, for the log and for /readyz.
type outage struct {
	log     *slog.Logger
	message string
	lines   *weir.Limiter // which lines are due

	mu       sync.Mutex
	since    time.Time // of the first failure; zero while the store answers
	cause    error     // the latest
	told     bool      // the log has a line about it
	degraded int64     // decisions without the store, since the start
	before   int64     // those of outages whose end the log has
}

func newOutage(log *slog.Logger, replicas int) *outage {
	share := "each limit"
	if replicas > 1 {
		share = fmt.Sprintf("1/%d of each limit", replicas)
	}
	return &outage{
		log:     log,
		message: "the store is unavailable: until it is back this process decides by itself, by " + share + " unless on_failure of a rule says otherwise",
		lines:   weir.New(weir.Options{}),
	}
}

// observe takes what a Fallback saw.
func (o *outage) observe(e layer.Event) {
	if e.Err == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.degraded += int64(e.Degraded)
	if e.Took > 0 { // else it follows from others that it was not asked
		o.fail(e.Err)
	}
	if !o.since.IsZero() {
		o.tell()
	}
}

// note takes why the store is not ready. The log says so once that matters to a call.
func (o *outage) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(err)
}

func (o *outage) fail(err error) {
	if o.since.IsZero() {
		o.since = time.Now()
	}
	o.cause = err
}

// tell writes a line, at most one in lineTime about causes with the same advice.
func (o *outage) tell() {
	ctx, level, advice := context.Background(), slog.LevelWarn, ""
	if e, ok := errors.AsType[*weir.StoreError](o.cause); ok {
		advice = e.Hint
		if e.Settings {
			level = slog.LevelError
		}
	}
	if d, err := o.lines.Allow(ctx, advice, weir.Per(1, lineTime)); err != nil || !d.Allowed {
		return
	}
	o.told = true
	o.log.Log(ctx, level, o.message, "error", o.cause, "for", o.lasts(), "decisions", o.degraded-o.before)
}

func (o *outage) lasts() string { return time.Since(o.since).Round(10 * time.Millisecond).String() }

// end notes that the store is used again. Decisions that no line has told of
// count for the next.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told {
		o.log.Info("the store is used again", "after", o.lasts(), "decisions", o.degraded-o.before)
		o.before = o.degraded
	}
	o.since, o.cause, o.told = time.Time{}, nil, false
}

func (o *outage) lasting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

// status returns what is wrong, or "" if nothing is, and how many decisions
// have been made without the store. No addresses: they are not for everybody.
func (o *outage) status() (detail string, degraded int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return "", o.degraded
	}
	detail = "store unavailable for " + time.Since(o.since).Truncate(time.Second).String()
	var e *weir.StoreError
	if errors.As(o.cause, &e) && e.Hint != "" {
		detail += ": " + e.Hint
	}
	return fmt.Sprintf("%s; %d decisions without it", detail, o.degraded-o.before), o.degraded
}
