package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watched is a Watcher that runs in a folder of its own, the working directory.
type watched struct {
	t      *testing.T
	loaded chan string // what each Load found
	lack   chan error  // what Unnotified was told
	now    chan os.Signal
}

// watch runs a Watcher until the test ends.
func watch(t *testing.T, every time.Duration, notify func() (*fsnotify.Watcher, error), paths ...string) watched {
	t.Helper()
	w, err := NewWatcher(paths)
	if err != nil {
		t.Fatal(err)
	}
	w.every, w.notify = every, notify
	s := watched{t: t, loaded: make(chan string), lack: make(chan error, 2), now: make(chan os.Signal)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, WatchOptions{
			Load: func() {
				select {
				case s.loaded <- limits(paths):
				case <-ctx.Done():
				}
			},
			Now:        s.now,
			Unnotified: func(err error) { s.lack <- err },
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// limits is what the files say.
func limits(paths []string) string {
	c, err := Load(paths)
	if err != nil {
		return "refused"
	}
	var all []string
	for _, d := range c.Policy.Domains() {
		for _, r := range d.Rules {
			all = append(all, d.Name+"/"+r.Name+" "+r.Limit.String())
		}
	}
	return strings.Join(all, ", ")
}

// await waits until what was loaded is this; on the way there it may be anything.
func (w watched) await(want string) {
	w.t.Helper()
	last, patience := "nothing", time.After(20*time.Second)
	for last != want {
		select {
		case last = <-w.loaded:
		case <-patience:
			w.t.Fatalf("waited for %q, the last was %q", want, last)
		}
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
}

// of is a domain with one rule.
func of(domain, limit string) string {
	return "domain: " + domain + "\nrules: [{name: r, limit: " + limit + "}]\n"
}

// version fills the folder mount as Kubernetes does: the files are in one with a
// name of its own, to which one link leads.
func version(t *testing.T, name, text string) {
	t.Helper()
	const mount = "mount"
	put(t, filepath.Join(mount, name, "a.yaml"), text)
	link := filepath.Join(mount, "..data")
	old, _ := os.Readlink(link)
	must(t, os.Symlink(name, link+"_tmp"), os.Rename(link+"_tmp", link))
	if old == "" {
		must(t, os.Symlink(filepath.Join("..data", "a.yaml"), filepath.Join(mount, "a.yaml")))
		return
	}
	must(t, os.RemoveAll(filepath.Join(mount, old)))
}

const hour = time.Hour // for as long as a test takes

// silent says that changes here are not notified.
const silent = true

var changes = map[string]struct {
	paths  []string
	first  func(t *testing.T)
	silent bool
	then   func(t *testing.T, w watched)
}{
	"a file that is written, and written again": {
		[]string{"a.yaml"},
		func(t *testing.T) { put(t, "a.yaml", of("a", "1/s")) }, !silent,
		func(t *testing.T, w watched) {
			put(t, "a.yaml", of("a", "2/s"))
			w.await("a/r 2/1s")
			put(t, "a.yaml", "domain: a\n")
			w.await("refused")
			put(t, "a.yaml", of("a", "3/s"))
			w.await("a/r 3/1s")
		},
	},
	"a file that is replaced": {
		[]string{"a.yaml"},
		func(t *testing.T) { put(t, "a.yaml", of("a", "1/s")) }, !silent,
		func(t *testing.T, w watched) {
			put(t, ".a.yaml.swp", of("a", "2/s"))
			must(t, os.Rename(".a.yaml.swp", "a.yaml"))
			w.await("a/r 2/1s")
			must(t, os.Rename("a.yaml", "a.yaml~"))
			put(t, "a.yaml", of("a", "3/s"))
			w.await("a/r 3/1s")
		},
	},
	"a file that vanishes and is back": {
		[]string{"conf/a.yaml"},
		func(t *testing.T) { put(t, "conf/a.yaml", of("a", "1/s")) }, !silent,
		func(t *testing.T, w watched) {
			must(t, os.Remove("conf/a.yaml"))
			w.await("refused")
			put(t, "conf/a.yaml", of("a", "1/s"))
			w.await("a/r 1/1s")
		},
	},
	"a folder whose files come and go": {
		[]string{"conf/"},
		func(t *testing.T) { put(t, "conf/a.yaml", of("a", "1/s")) }, !silent,
		func(t *testing.T, w watched) {
			put(t, "conf/b.yml", of("b", "2/s"))
			w.await("a/r 1/1s, b/r 2/1s")
			must(t, os.Remove("conf/a.yaml"))
			w.await("b/r 2/1s")
			must(t, os.Remove("conf/b.yml"))
			w.await("refused")
		},
	},
	"several paths": {
		[]string{"one/a.yaml", "two"},
		func(t *testing.T) { put(t, "one/a.yaml", of("a", "1/s")); put(t, "two/b.yaml", of("b", "1/s")) }, !silent,
		func(t *testing.T, w watched) {
			put(t, "two/b.yaml", of("b", "2/s"))
			w.await("a/r 1/1s, b/r 2/1s")
			put(t, "one/a.yaml", of("a", "2/s"))
			w.await("a/r 2/1s, b/r 2/1s")
		},
	},
	"a folder that Kubernetes mounts": {
		[]string{"mount"},
		func(t *testing.T) { version(t, "..1", of("a", "1/s")) }, !silent,
		func(t *testing.T, w watched) {
			version(t, "..2", of("a", "2/s"))
			w.await("a/r 2/1s")
			version(t, "..3", of("a", "3/s"))
			w.await("a/r 3/1s")
		},
	},
	"a file of such a folder": {
		[]string{"mount/a.yaml"},
		func(t *testing.T) { version(t, "..1", of("a", "1/s")) }, !silent,
		func(t *testing.T, w watched) {
			version(t, "..2", of("a", "2/s"))
			w.await("a/r 2/1s")
			version(t, "..3", of("a", "3/s"))
			w.await("a/r 3/1s")
		},
	},
	"a link to a file that is written where it is": {
		[]string{"a.yaml"},
		func(t *testing.T) {
			put(t, "else/where.txt", of("a", "1/s"))
			must(t, os.Symlink("else/where.txt", "a.yaml"))
		}, !silent,
		func(t *testing.T, w watched) {
			put(t, "else/where.txt", of("a", "2/s"))
			w.await("a/r 2/1s")
		},
	},
	"a link to a folder that is made to point elsewhere": {
		[]string{"current"},
		func(t *testing.T) { put(t, "1/a.yaml", of("a", "1/s")); must(t, os.Symlink("1", "current")) }, !silent,
		func(t *testing.T, w watched) {
			put(t, "2/a.yaml", of("a", "2/s"))
			must(t, os.Symlink("2", "next"), os.Rename("next", "current"))
			w.await("a/r 2/1s")
			put(t, "2/a.yaml", of("a", "3/s"))
			w.await("a/r 3/1s")
		},
	},
	"a link further up": {
		[]string{"current/a.yaml"},
		func(t *testing.T) { put(t, "1/a.yaml", of("a", "1/s")); must(t, os.Symlink("1", "current")) }, silent,
		func(t *testing.T, w watched) {
			put(t, "2/a.yaml", of("a", "2/s"))
			must(t, os.Symlink("2", "next"), os.Rename("next", "current"))
			w.await("a/r 2/1s")
		},
	},
	"a folder that is moved away": {
		[]string{"etc/conf"},
		func(t *testing.T) { put(t, "etc/conf/a.yaml", of("a", "1/s")) }, silent,
		func(t *testing.T, w watched) {
			must(t, os.Rename("etc", "old"))
			w.await("refused")
			put(t, "etc/conf/a.yaml", of("a", "2/s"))
			w.await("a/r 2/1s")
		},
	},
}

func TestChangesAreNotified(t *testing.T) {
	for name, c := range changes {
		if c.silent {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			c.first(t)
			c.then(t, watch(t, hour, fsnotify.NewWatcher, c.paths...))
		})
	}
}

// no refuses as a system at its limits does.
func no() (*fsnotify.Watcher, error) { return nil, errors.New("no more") }

func TestChangesAreSeenWithoutBeingNotified(t *testing.T) {
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			c.first(t)
			w := watch(t, 10*time.Millisecond, no, c.paths...)
			if err := <-w.lack; err.Error() != "no more" {
				t.Errorf("got %v", err)
			}
			c.then(t, w)
			if len(w.lack) > 0 {
				t.Error("it was told twice that nothing is notified")
			}
		})
	}
}

func TestChangesBeforeRunAreSeen(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "a.yaml", of("a", "1/s"))
	late := func() (*fsnotify.Watcher, error) {
		put(t, "a.yaml", of("a", "2/s"))
		return fsnotify.NewWatcher()
	}
	watch(t, hour, late, "a.yaml").await("a/r 2/1s")
}

func TestLostNotificationsAreMadeUpFor(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "1/a.yaml", of("a", "1/s"))
	must(t, os.Symlink("1", "current"))
	n, err := fsnotify.NewWatcher()
	must(t, err)
	w := watch(t, hour, func() (*fsnotify.Watcher, error) { return n, nil }, "current/a.yaml")
	w.now <- os.Interrupt
	w.await("a/r 1/1s")
	put(t, "2/a.yaml", of("a", "2/s"))
	must(t, os.Symlink("2", "next"), os.Rename("next", "current"))
	n.Errors <- fsnotify.ErrEventOverflow
	w.await("a/r 2/1s")
}

func TestWhatIsTheSameIsLoadedOnlyWhenAsked(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "conf/a.yaml", of("a", "1/s"))
	w := watch(t, 10*time.Millisecond, fsnotify.NewWatcher, "conf")
	w.now <- os.Interrupt
	w.await("a/r 1/1s")
	put(t, "conf/notes.txt", "not ours")
	put(t, "new", of("a", "1/s"))
	must(t, os.Rename("new", "conf/a.yaml"))
	select {
	case got := <-w.loaded:
		t.Errorf("loaded %q", got)
	case <-time.After(3 * quiet):
	}
}

func TestChangesSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling()
		defer s.timer.Stop()
		start := time.Now()
		for range 3 {
			s.touch()
			<-time.After(quiet / 2)
		}
		<-s.timer.C
		if took := time.Since(start); took != 2*quiet {
			t.Errorf("three changes settled after %v", took)
		}
		s.due, start = time.Time{}, time.Now()
		for fired := false; !fired; {
			s.touch()
			select {
			case <-s.timer.C:
				fired = true
			case <-time.After(quiet / 2):
			}
		}
		if took := time.Since(start); took != busy {
			t.Errorf("changes that do not end were waited for %v", took)
		}
	})
}

func TestWhatCanBeReadOnceIsNotWatched(t *testing.T) {
	if _, err := NewWatcher([]string{os.DevNull}); err == nil || err.Error() != os.DevNull+" is no regular file" {
		t.Errorf("got %v", err)
	}
}
