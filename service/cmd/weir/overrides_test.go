package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
)

// shelf is a table in memory that can fail.
type shelf struct {
	mu    sync.Mutex
	texts map[string]string
	err   error
	asked []time.Time
}

func (s *shelf) Put(_ context.Context, id, text string, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.texts[id] = text
	}
	return s.err
}

func (s *shelf) Remove(_ context.Context, id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.texts[id]
	delete(s.texts, id)
	return found, s.err
}

func (s *shelf) All(context.Context) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	return maps.Clone(s.texts), s.err
}

// fail makes the table fail, or not.
func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// instance is one of those that share a table.
type instance struct {
	*overrides

	engine *decide.Engine
	log    written
}

func newInstance(t *testing.T, s *shelf) *instance {
	t.Helper()
	p, err := policy.Compile([]policy.Domain{{Name: "web", Rules: []policy.Rule{{Name: "all", Limit: weir.PerMinute(1_000_000)}}}})
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{engine: decide.New(decide.Options{Limiter: weir.New(weir.Options{})})}
	i.engine.Load(p, false)
	i.overrides = newOverrides(slog.New(newLines(&i.log, slog.LevelInfo)), i.engine, s)
	return i
}

func (i *instance) allows(t *testing.T) bool {
	t.Helper()
	a, err := i.engine.Check(t.Context(), decide.Query{Domain: "web", Attributes: map[string]string{"user": "alice"}, Cost: 1})
	if err != nil {
		t.Error(err)
	}
	return a.Allowed
}

// block is an override that denies alice for an hour.
func block() decide.Override {
	return decide.Override{
		ID: "0123456789ab", Domain: "web", Attributes: map[string]string{"user": "alice"}, Deny: true,
		Created: time.Now(), Until: time.Now().Add(time.Hour), By: "bob",
	}
}

func TestAllInstancesObey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &shelf{texts: map[string]string{}}
		here, there := newInstance(t, table), newInstance(t, table)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go there.run(ctx)
		synctest.Wait()
		o := block()
		if err := here.Put(ctx, o); err != nil {
			t.Fatal(err)
		}
		if here.allows(t) || !there.allows(t) {
			t.Error("it is not in force at once where it was made, or before its time elsewhere")
		}
		<-time.After(pollTime * 11 / 10)
		if there.allows(t) {
			t.Error("it is not in force elsewhere after a second")
		}
		for n := 1; n < len(table.asked); n++ {
			if apart := table.asked[n].Sub(table.asked[n-1]); n > 1 && (apart < pollTime*9/10 || apart > pollTime*11/10) {
				t.Errorf("it was asked after %v", apart)
			}
		}
		if found, err := here.Remove(ctx, o.ID); !found || err != nil || !here.allows(t) {
			t.Errorf("it is not removed at once: %v, %v", found, err)
		}
		<-time.After(pollTime * 11 / 10)
		if !there.allows(t) {
			t.Error("it is still in force elsewhere")
		}
		if err := here.Put(ctx, o); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		if !here.allows(t) || !there.allows(t) {
			t.Error("it is in force after its end")
		}
		if got := here.log.String() + there.log.String(); got != "" {
			t.Errorf("the log has %s", got)
		}
	})
}

func TestOverridesOutliveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &shelf{texts: map[string]string{}}
		i := newInstance(t, table)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := i.Put(ctx, block()); err != nil {
			t.Fatal(err)
		}
		away := errors.New("it is away")
		table.fail(away)
		go i.run(ctx)
		<-time.After(10 * time.Second)
		if i.allows(t) {
			t.Error("an outage ends it")
		}
		if err := i.Put(ctx, block()); !errors.Is(err, away) {
			t.Errorf("got %v", err)
		}
		table.fail(nil)
		<-time.After(10 * time.Second)
		got := i.log.String()
		if strings.Count(got, "WARN overrides cannot be read") != 1 || strings.Count(got, "INFO overrides can be read again") != 1 || strings.Count(got, "\n") != 2 {
			t.Errorf("the log has\n%s", got)
		}
	})
}

func TestWhatCannotBeReadDoesNotHold(t *testing.T) {
	table := &shelf{texts: map[string]string{"a": `{`, "b": `{"id":"c","deny":true}`, "d": `{"id":"d","deny":true,"until":"2026-01-01T00:00:00Z"}`}}
	i := newInstance(t, table)
	if err := i.Put(t.Context(), block()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		list, err := i.List(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != block().ID {
			t.Errorf("got %+v, %v", list, err)
		}
	}
	got := i.log.String()
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, `id=a`) || !strings.Contains(got, `id=b error="it names another id"`) {
		t.Errorf("the log has\n%s", got)
	}
}

func TestOverridesInMemory(t *testing.T) {
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", off)
	o := block()
	if err := s.overrides.Put(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if list, err := s.overrides.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != o.ID {
		t.Errorf("got %+v, %v", list, err)
	}
}
