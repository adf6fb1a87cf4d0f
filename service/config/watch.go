package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// lookEvery is how often the files are looked at without a notification:
	// network file systems send none, nor do folders further up that move.
	lookEvery = time.Second
	// quiet is how long notifications must have ceased before a change is
	// taken for complete, and busy how long that is waited for at most.
	quiet, busy = 100 * time.Millisecond, time.Second
)

// Watcher notices when the files that Load reads change, come or go, also
// where a symbolic link makes them others.
type Watcher struct {
	paths  []string
	every  time.Duration
	notify func() (*fsnotify.Watcher, error)
	seen   digest
}

// digest is that of all that Load reads.
type digest [sha256.Size]byte

// NewWatcher returns a Watcher of what Load(paths) reads. It notices what
// changes from now on, so call it before Load. The error is about a file that
// can be read only once, such as a pipe.
func NewWatcher(paths []string) (*Watcher, error) {
	for _, name := range new(loader).expand(paths) {
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no regular file", name)
		}
	}
	return &Watcher{paths: paths, every: lookEvery, notify: fsnotify.NewWatcher, seen: look(paths)}, nil
}

// WatchOptions says what a Watcher calls, one call at a time.
type WatchOptions struct {
	// Load is called within 2 s of a change, and at once when Now receives,
	// changed or not. It is required.
	Load func()
	Now  <-chan os.Signal
	// Unnotified, if not nil, is called once if the system does not notify of
	// changes, such as when its limits on that are reached. They are still
	// noticed in time, by looking.
	Unnotified func(error)
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context, o WatchOptions) {
	n, err := w.notify()
	if err == nil {
		defer func() { _ = n.Close() }()
	} else {
		n = new(fsnotify.Watcher) // never notifies
	}
	follow := func() {
		if err == nil {
			err = w.follow(n)
		}
		if err != nil && o.Unnotified != nil {
			o.Unnotified(err)
			o.Unnotified = nil
		}
	}
	load := func() {
		follow()
		if now := look(w.paths); now != w.seen {
			w.seen = now
			o.Load()
		}
	}
	load()
	again := time.NewTicker(w.every)
	defer again.Stop()
	s := newSettling()
	defer s.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.Now:
			w.seen = look(w.paths)
			o.Load()
		case <-n.Events:
			s.touch()
		case err := <-n.Errors:
			if err != nil { // notifications have been lost
				s.touch()
			}
		case <-again.C:
			follow()
			if s.due.IsZero() && look(w.paths) != w.seen {
				s.touch()
			}
		case <-s.timer.C:
			s.due = time.Time{}
			load()
		}
	}
}

// settling waits until changes have come to rest.
type settling struct {
	timer *time.Timer
	due   time.Time // when not to wait any longer; zero without a change
}

func newSettling() settling {
	s := settling{timer: time.NewTimer(busy)}
	s.timer.Stop()
	return s
}

func (s *settling) touch() {
	now := time.Now()
	if s.due.IsZero() {
		s.due = now.Add(busy)
	}
	s.timer.Reset(min(quiet, s.due.Sub(now)))
}

// look reads all that Load reads.
func look(paths []string) (d digest) {
	h, l := sha256.New(), new(loader)
	for _, name := range l.expand(paths) {
		text, err := readAll(name)
		fmt.Fprintf(h, "%q %d %v\n", name, len(text), err)
		_, _ = io.WriteString(h, text) // a hash does not fail
	}
	fmt.Fprint(h, l.errs)
	h.Sum(d[:0])
	return d
}

// follow has the folders watched that the files are in now. A folder may be
// another one under the name of the last, so all are named again.
func (w *Watcher) follow(n *fsnotify.Watcher) error {
	now := folders(w.paths)
	for _, old := range n.WatchList() {
		if !slices.Contains(now, old) {
			_ = n.Remove(old) // which is an error if the folder is gone
		}
	}
	for _, name := range now {
		if err := n.Add(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// folders returns where a change shows: the folders that hold the paths and the
// files, the ones that symbolic links lead to, and those among the paths.
func folders(paths []string) []string {
	var found []string
	add := func(name string) {
		if name, err := filepath.EvalSymlinks(name); err == nil && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	for _, name := range append(slices.Clone(paths), new(loader).expand(paths)...) {
		name = filepath.Clean(name)
		add(filepath.Dir(name))
		target, _ := filepath.EvalSymlinks(name) // empty if it is not there
		if info, err := os.Stat(target); err == nil && info.IsDir() {
			add(target)
		} else if err == nil {
			add(filepath.Dir(target))
		}
	}
	return found
}
