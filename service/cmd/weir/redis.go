package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/service/config"
)

const (
	// readyTime is how long a store may take to say whether it is ready: more
	// than a dial, whose error tells more than a deadline.
	readyTime = 3 * time.Second
	// askAgain is how often one that was not is asked again.
	askAgain = 500 * time.Millisecond
)

// openStore opens the store on Redis, and returns what is wrong with the
// settings as far as that shows without the server.
func openStore(r config.Redis) (*redisstore.Store, error) {
	password, err := reveal(r.Password, "password")
	if err != nil {
		return nil, err
	}
	keySecret, err := reveal(r.KeySecret, "key secret")
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
		return "", fmt.Errorf("the file of the redis %s cannot be read: %w", name, err)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("the file of the redis %s, %s, is empty: write it there, on one line", name, s.File)
	}
	return secret, nil
}

// openLimiter makes the limiter, in memory or on Redis. Its error can only be a
// mistake in the settings: where a server is out of reach the service answers so
// and goes on asking, since a fleet must be able to start without it.
func (s *server) openLimiter(r config.Redis) error {
	if r.URL == "" {
		s.limiter = weir.New(weir.Options{})
		return nil
	}
	store, err := openStore(r)
	if err != nil {
		return err
	}
	s.store, s.limiter = store, weir.New(weir.Options{Store: store})
	err = s.askStore(context.Background())
	var e *weir.StoreError
	switch {
	case err == nil:
	case errors.As(err, &e) && e.Settings:
		return errors.Join(err, s.limiter.Close())
	default:
		s.log.Warn("the store is unavailable: until it is back, checks are answered with status 503", "error", err)
	}
	return nil
}

// askStore asks the store whether it is ready, and notes what is lacking.
func (s *server) askStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	err := s.store.Ready(ctx)
	if err == nil {
		s.log.Info("the store is ready", "server", s.store.Server())
		s.lack.Store(nil)
		return nil
	}
	lack := "store unavailable"
	var e *weir.StoreError
	if errors.As(err, &e) && e.Hint != "" {
		lack += ": " + e.Hint // without its address, which is not for everybody
	}
	s.lack.Store(&lack)
	return err
}

// awaitStore asks a store that was not ready until it is, or ctx ends. The
// store itself sees to it that it does not dial too often.
func (s *server) awaitStore(ctx context.Context) {
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for s.lack.Load() != nil {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			_ = s.askStore(ctx) // which has noted it
		}
	}
}
