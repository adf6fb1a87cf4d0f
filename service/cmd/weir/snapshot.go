package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/config"
)

const (
	// keepEvery is how often a snapshot is written unless the settings say.
	keepEvery = time.Minute
	// keepTime is the part of stopping that the last snapshot may take.
	keepTime = 1500 * time.Millisecond
)

// keeper keeps in a file what a store in memory remembers.
type keeper struct {
	log    *slog.Logger
	memory *weir.Memory
	file   string
	every  time.Duration

	mu      sync.Mutex
	closed  bool                   // the last snapshot has been written
	failing map[syscall.Errno]bool // kinds of failure in the log since one was written
}

// openMemory makes the limiter of what the file holds. Its error can only be a
// mistake in the settings.
func (s *server) openMemory(o config.Snapshot) error {
	k := &keeper{log: s.log, file: o.File, every: cmp.Or(o.Every, keepEvery), failing: make(map[syscall.Errno]bool)}
	if err := k.open(); err != nil {
		return err
	}
	s.keeper, s.limiter = k, weir.New(weir.Options{Store: k.memory})
	return nil
}

// open restores what the file holds. One that is refused is put aside.
func (k *keeper) open() error {
	probe, err := os.CreateTemp(filepath.Dir(k.file), filepath.Base(k.file)+".probe")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		return fmt.Errorf("--snapshot %s cannot be written: %w: name a file in a directory that weir may write to", k.file, err)
	}
	k.memory, err = readSnapshot(k.file)
	var refused weir.SnapshotError
	switch {
	case err == nil:
		k.log.Info("the snapshot is restored", "file", k.file, "keys", k.memory.Stats().Keys, "written", k.memory.Restored().UTC().Format(time.RFC3339))
	case errors.Is(err, fs.ErrNotExist):
		k.log.Info("there is no snapshot yet, so no limit has been used", "file", k.file)
		k.memory = weir.NewMemory(weir.MemoryOptions{})
	case errors.As(err, &refused):
		aside, err := setAside(k.file)
		if err != nil {
			return fmt.Errorf("--snapshot %s is refused (%w) and cannot be put aside: %w", k.file, refused, err)
		}
		k.log.Warn("the snapshot is refused, so it is put aside and no limit has been used", "file", k.file, "kept", aside, "error", refused)
		k.memory = weir.NewMemory(weir.MemoryOptions{})
	default:
		return fmt.Errorf("--snapshot %s cannot be read: %w: name a file that weir may read, or a new one", k.file, err)
	}
	return nil
}

func readSnapshot(file string) (*weir.Memory, error) {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() { // to open a pipe would wait for its writer
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return weir.RestoreMemory(weir.MemoryOptions{}, f)
}

// setAside renames a file to a name of its own, which it returns.
func setAside(file string) (aside string, err error) {
	name := file + ".refused-" + time.Now().UTC().Format("20060102T150405Z")
	aside = name
	for n := 2; ; n++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, os.Rename(file, aside)
		} else if err != nil {
			return "", err
		}
		aside = name + "-" + strconv.Itoa(n)
	}
}

// run writes a snapshot now and then, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	due := time.NewTicker(k.every)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
			k.write()
		}
	}
}

// write writes a snapshot, and logs each kind of failure once until it succeeds.
func (k *keeper) write() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	err := k.replace()
	var kind syscall.Errno
	_ = errors.As(err, &kind) // those without a number are of one kind
	switch {
	case err == nil && len(k.failing) > 0:
		k.log.Info("snapshots can be written again", "file", k.file)
		clear(k.failing)
	case err != nil && !k.failing[kind]:
		k.log.Warn("the snapshot cannot be written: until it can, a crash forgets what has been used since the last one", "file", k.file, "error", err)
		k.failing[kind] = true
	}
}

// last writes the last snapshot, unless that takes longer than there is time.
func (k *keeper) last() {
	done := make(chan error, 1)
	go func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.closed = true
		done <- k.replace()
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(keepTime):
		err = fmt.Errorf("it takes longer than %v", keepTime)
	}
	if err != nil {
		k.log.Warn("the last snapshot is not written: what has been used since the one before is forgotten", "file", k.file, "error", err)
		return
	}
	k.log.Info("the last snapshot is written", "file", k.file)
}

// replace puts a snapshot in the place of the file, which always is a whole one.
func (k *keeper) replace() error {
	temp := k.file + ".tmp" // always this, so that crashes leave one at most
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = k.memory.Snapshot(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, k.file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncDir(filepath.Dir(k.file))
}

// syncDir makes a rename in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
