package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/service/config"
)

const (
	// readyTime is how long a store may take to say whether it is ready: more
	// than a dial, whose error tells more than a deadline.
	readyTime = 3 * time.Second
	// askAgain is how often one that is not is asked again.
	askAgain = 500 * time.Millisecond
)

// openStore opens the store on Redis, and returns what is wrong with the
// settings as far as that shows without the server.
func openStore(r config.Redis) (*redisstore.Store, error) {
	password, err := reveal(r.Password, "redis password")
	if err != nil {
		return nil, err
	}
	keySecret, err := reveal(r.KeySecret, "redis key secret")
	if err != nil {
		return nil, err
	}
	return redisstore.Open(redisstore.Options{
		URL: r.URL, Username: r.Username, Password: password,
		Prefix: r.Prefix, KeySecret: keySecret,
		SortedSet: r.Layout == "sorted-set", Plain: r.Mode == "plain",
	})
}

// reveal returns a secret. A file that gives none is an error, as it is there
// to give one.
func reveal(s config.Secret, name string) (string, error) {
	if s.File == "" {
		return s.Text, nil
	}
	text, err := os.ReadFile(s.File)
	if err != nil {
		return "", fmt.Errorf("the file of the %s cannot be read: %w", name, err)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("the file of the %s, %s, is empty: write it there, on one line", name, s.File)
	}
	return secret, nil
}

// openLimiter makes the limiter, in memory or on Redis. Its error can only be a
// mistake in the settings: a fleet must be able to start while its server is out
// of reach.
func (s *server) openLimiter(r config.Redis) error {
	if r.URL == "" {
		s.limiter = weir.New(weir.Options{})
		return nil
	}
	store, err := openStore(r)
	if err != nil {
		return err
	}
	s.store, s.outage = store, newOutage(s.log, r.Replicas)
	s.fallback = layer.NewFallback(layer.FallbackOptions{Store: store, Deadline: r.Deadline, Replicas: r.Replicas, Observe: s.called})
	s.limiter = weir.New(weir.Options{Store: s.fallback})
	err = s.askStore(context.Background())
	var e *weir.StoreError
	switch {
	case err == nil:
		s.log.Info("the store is ready", "server", store.Server())
	case errors.As(err, &e) && e.Settings:
		return errors.Join(err, s.limiter.Close())
	default:
		s.outage.observe(layer.Event{Err: err})
	}
	if r.Replicas == 0 {
		s.log.Warn("without --replicas this process takes itself for the only one that uses the store: while that is away, n of them admit up to n times each limit; say how many there are, as in --replicas 3, or --replicas 1")
	}
	return nil
}

// askStore asks the store whether it is ready, and notes what it is not.
func (s *server) askStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	if err := s.store.Ready(ctx); err != nil {
		s.outage.note(err)
		return err
	}
	for s.fallback.Failing() != nil {
		// Once this succeeds the store is asked again, also before somebody calls.
		if _, err := s.limiter.Reset(ctx, "\x00ready", weir.PerMinute(1)); err != nil {
			return err
		}
	}
	s.outage.end()
	return nil
}

// watchStore asks a store that has failed until it answers again, which its
// callers may be too few to find out, until ctx ends.
func (s *server) watchStore(ctx context.Context) {
	if s.store == nil {
		return
	}
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if s.outage.lasting() {
				_ = s.askStore(ctx) // which has noted it
			}
		}
	}
}
