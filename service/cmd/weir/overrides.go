package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirlimit/weir/service/decide"
)

const (
	// pollTime is how often overrides are read, a tenth more or less, lest all
	// instances ask at once; and how long that may take.
	pollTime = time.Second
	// changeTime is how long one may take to be stored or removed.
	changeTime = 3 * time.Second
)

// overrides keeps those of others in force here, and puts those that it is told
// of in force at once.
type overrides struct {
	decide.Overrides

	log     *slog.Logger
	engine  *decide.Engine
	reading sync.Mutex // held until what was read is in force
	failing bool       // as the log has it; guarded by reading
}

// newOverrides keeps them in the table, or without one in memory.
func newOverrides(log *slog.Logger, engine *decide.Engine, t table) *overrides {
	o := &overrides{Overrides: decide.NewOverrides(), log: log, engine: engine}
	if t != nil {
		o.Overrides = &sharedOverrides{table: t, log: log}
	}
	return o
}

// Put implements decide.Overrides. The override is in force when it returns.
func (o *overrides) Put(ctx context.Context, made decide.Override) error {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	if err := o.Overrides.Put(ctx, made); err != nil {
		return err
	}
	return o.read(ctx)
}

// Remove implements decide.Overrides.
func (o *overrides) Remove(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	found, err := o.Overrides.Remove(ctx, id)
	if err != nil {
		return false, err
	}
	return found, o.read(ctx)
}

// read puts what is kept in force.
func (o *overrides) read(ctx context.Context) error {
	o.reading.Lock()
	defer o.reading.Unlock()
	list, err := o.List(ctx)
	if err != nil {
		return err
	}
	o.engine.SetOverrides(list)
	return nil
}

// run reads until ctx ends.
func (o *overrides) run(ctx context.Context) {
	for {
		o.poll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollTime*9/10 + rand.N(pollTime/5)):
		}
	}
}

// poll reads, and logs the first error of several and their end.
func (o *overrides) poll(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	err := o.read(limited)
	switch failed := err != nil; {
	case ctx.Err() != nil, failed == o.failing:
		return
	case failed:
		o.log.Warn("overrides cannot be read, so those known here stay in force until they end", "error", err)
	default:
		o.log.Info("overrides can be read again")
	}
	o.failing = err != nil
}

// table keeps texts, each until a time, for all processes that share it.
type table interface {
	Put(ctx context.Context, id, text string, until time.Time) error
	Remove(ctx context.Context, id string) (bool, error)
	All(ctx context.Context) (map[string]string, error)
}

// sharedOverrides keeps overrides as JSON.
type sharedOverrides struct {
	table table
	log   *slog.Logger

	mu   sync.Mutex
	told map[string]bool // the unreadable that the log has
}

// List implements decide.Overrides. What it cannot read it leaves out.
func (s *sharedOverrides) List(ctx context.Context) ([]decide.Override, error) {
	texts, err := s.table.All(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	list := make([]decide.Override, 0, len(texts))
	wrong := make(map[string]error)
	for id, text := range texts {
		var o decide.Override
		err := json.Unmarshal([]byte(text), &o)
		if err == nil && o.ID != id {
			err = errors.New("it names another id")
		}
		if err != nil {
			wrong[id] = err
		} else if now.Before(o.Until) {
			list = append(list, o)
		}
	}
	s.tell(wrong)
	return list, nil
}

// tell logs what is wrong, each once.
func (s *sharedOverrides) tell(wrong map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := make(map[string]bool)
	for id, err := range wrong {
		told[id] = true
		if !s.told[id] {
			s.log.Warn("an override in the store cannot be read and does not hold; it may be of another version: DELETE /api/overrides/{id} removes it", "id", id, "error", err)
		}
	}
	s.told = told
}

// Put implements decide.Overrides.
func (s *sharedOverrides) Put(ctx context.Context, o decide.Override) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.table.Put(ctx, o.ID, string(text), o.Until)
}

// Remove implements decide.Overrides.
func (s *sharedOverrides) Remove(ctx context.Context, id string) (bool, error) {
	return s.table.Remove(ctx, id)
}
