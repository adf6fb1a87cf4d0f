package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// awaitKeys waits until a snapshot holds so many keys.
func awaitKeys(t *testing.T, file string, want int64) {
	t.Helper()
	redistest.Await(t, "the snapshot", func() error {
		memory, err := readSnapshot(file)
		if err != nil {
			return err
		}
		if got := memory.Stats().Keys; got != want {
			return fmt.Errorf("it has %d keys, want %d", got, want)
		}
		return nil
	})
}

// take takes one unit of five an hour and checks how many are left.
func take(t *testing.T, p process, key string, left int64) {
	t.Helper()
	if d := post(t, p.http+"/v1/check", `{"key":"`+key+`","limit":"5/hour"}`); d.Remaining != left || !d.Allowed {
		t.Errorf("%s: %+v, want %d left", key, d, left)
	}
}

// TestACrashForgetsWhatIsNotYetWritten: after kill -9 what a snapshot holds is
// still used, and after a stop everything.
func TestACrashForgetsWhatIsNotYetWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.snapshot")
	p := startProcess(t, nil, "--snapshot", file, "--snapshot-every", "1s")
	take(t, p, "a", 4)
	awaitKeys(t, file, 1)
	p.kill()

	p = startProcess(t, nil, "--snapshot", file, "--snapshot-every", "1h")
	take(t, p, "a", 3)
	take(t, p, "b", 4)
	if err := p.interrupt(); err != nil {
		t.Fatal(err)
	}

	p = startProcess(t, []string{"WEIR_SNAPSHOT=" + file}, "--snapshot-every", "1h")
	take(t, p, "a", 2)
	take(t, p, "b", 3)
	p.kill()

	p = startProcess(t, nil, "--snapshot", file)
	take(t, p, "a", 2) // the third was within the interval
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("others can read who is limited: mode %v", info.Mode())
	}
	alone(t, file)
}

// alone checks what is beside a snapshot, and returns what has been put aside.
func alone(t *testing.T, file string) (aside []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, filepath.Base(file)+".refused-"):
			aside = append(aside, filepath.Join(filepath.Dir(file), name))
		case name != filepath.Base(file):
			t.Errorf("%s is left over", name)
		}
	}
	return aside
}

// TestARefusedSnapshotIsKept: it is put aside, with every one before it, and
// the service starts with none.
func TestARefusedSnapshotIsKept(t *testing.T) {
	var good bytes.Buffer
	if err := weir.NewMemory(weir.MemoryOptions{}).Snapshot(&good); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"foreign":   {"domain: web\n", "this is no snapshot"},
		"truncated": {good.String()[:good.Len()-1], "truncated"},
		"corrupt":   {strings.Replace(good.String(), "\n", "\nx", 1), "corrupt"},
		"newer":     {"weir snapshot 2\n", "newer format"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where time stands still: their names would be the same
				file := filepath.Join(t.TempDir(), "limits.snapshot")
				for n := 1; n <= 3; n++ {
					if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
						t.Fatal(err)
					}
					s := serve(t, pipes{}.listen, "--snapshot", file)
					log := stopLog(t, s)
					kept := regexp.MustCompile(`WARN the snapshot is refused, .* kept=(\S+) `).FindStringSubmatch(log)
					if kept == nil || !strings.Contains(log, test.want) {
						t.Fatalf("the log does not say so: %s", log)
					}
					if text, err := os.ReadFile(kept[1]); err != nil || string(text) != test.text {
						t.Errorf("%s holds %q, %v", kept[1], text, err)
					}
					if aside := alone(t, file); len(aside) != n {
						t.Errorf("put aside are %q, want %d", aside, n)
					}
					if _, err := readSnapshot(file); err != nil {
						t.Errorf("the stop has not written a good one: %v", err)
					}
				}
			})
		})
	}
}

// TestAFailureToWriteIsLoggedOnce: each kind once, until it works again.
func TestAFailureToWriteIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		file := filepath.Join(dir, "limits.snapshot")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s := serve(t, pipes{}.listen, "--snapshot", file, "--snapshot-every", "1s")
		change := func(name string, do func() error) {
			if err := do(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			<-time.After(5*time.Second + time.Millisecond)
		}
		change("a directory less", func() error { return os.RemoveAll(dir) })
		change("a file in its place", func() error { return os.WriteFile(dir, nil, 0o600) })
		change("a directory again", func() error { return errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)) })
		if _, err := os.Stat(file); err != nil {
			t.Errorf("nothing has been written since: %v", err)
		}
		change("a directory less again", func() error { return os.RemoveAll(dir) })
		log := stopLog(t, s)
		for want, times := range map[string]int{
			"WARN the snapshot cannot be written": 3, "no such file or directory": 3, "not a directory": 1,
			"INFO snapshots can be written again": 1, "WARN the last snapshot is not written": 1,
		} {
			if got := strings.Count(log, want); got != times {
				t.Errorf("the log says %q %d times, want %d: %s", want, got, times, log)
			}
		}
	})
}

// TestReadSnapshotOfWhatIsNoFile: what would have to be waited for is not read.
func TestReadSnapshotOfWhatIsNoFile(t *testing.T) {
	if _, err := readSnapshot(os.DevNull); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a device: %v", err)
	}
	if _, err := readSnapshot(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
