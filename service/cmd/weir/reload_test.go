package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// inForce is how soon a change acts.
const inForce = 2*time.Second + busy

// place puts text under a name as a careful program does: whole, or not at all.
func place(t *testing.T, name, text string) {
	t.Helper()
	temp := filepath.Join(filepath.Dir(name), ".new")
	if err := errors.Join(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, name)); err != nil {
		t.Fatal(err)
	}
}

// search is a domain whose users have a limit.
func search(limit string) string {
	return "domain: slack\nrules:\n  - name: search\n    by: [user]\n    limit: " + limit + "\n"
}

const searchAlice = `{"domain":"slack","attributes":{"user":"alice"},"cost":%d}`

// awaitLimit waits until alice has a limit and has used some of it.
func awaitLimit(t *testing.T, p process, limit, used int64) {
	t.Helper()
	start := time.Now()
	redistest.Await(t, fmt.Sprintf("a limit of %d", limit), func() error {
		status, answer := send(t, p.http+"/v1/check", fmt.Sprintf(searchAlice, 0))
		var a struct{ Limit, Remaining int64 }
		if err := json.Unmarshal([]byte(answer), &a); err != nil || status != http.StatusOK || a.Limit != limit {
			return errors.New(answer)
		}
		if a.Remaining != limit-used {
			t.Errorf("%s: want %d to have been used", answer, used)
		}
		return nil
	})
	if took := time.Since(start); took > inForce {
		t.Errorf("it took %v", took)
	}
}

// hangUp sends the signal that asks for a reload.
func (p process) hangUp(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// awaitLog waits until the log says something so many times.
func awaitLog(t *testing.T, p process, what string, times int) {
	t.Helper()
	redistest.Await(t, "the log to say "+what, func() error {
		log, err := os.ReadFile(filepath.Join(p.dir, "server.log"))
		if n := strings.Count(string(log), what); err != nil || n != times {
			return fmt.Errorf("%d times of %d, %v", n, times, err)
		}
		return nil
	})
}

// A change acts, in whatever way it comes, and what has been used stays used.
func TestReload(t *testing.T) {
	for name, test := range map[string]struct {
		config        string
		first, change func(t *testing.T, dir string)
	}{
		"a file": {
			"slack.yaml",
			func(t *testing.T, dir string) { place(t, filepath.Join(dir, "slack.yaml"), search("5/m")) },
			func(t *testing.T, dir string) {
				if err := os.WriteFile(filepath.Join(dir, "slack.yaml"), []byte(search("10/m")), 0o600); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a directory": {
			"",
			func(t *testing.T, dir string) { place(t, filepath.Join(dir, "slack.yaml"), search("5/m")) },
			func(t *testing.T, dir string) {
				place(t, filepath.Join(dir, "new.yaml"), search("10/m"))
				if err := os.Remove(filepath.Join(dir, "slack.yaml")); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a mounted volume": {
			"slack.yaml",
			func(t *testing.T, dir string) {
				mount(t, dir, "..1", search("5/m"))
				if err := os.Symlink(filepath.Join("..data", "slack.yaml"), filepath.Join(dir, "slack.yaml")); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, dir string) {
				mount(t, dir, "..2", search("10/m"))
				if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			test.first(t, dir)
			p := startProcess(t, nil, "--config", filepath.Join(dir, test.config))
			send(t, p.http+"/v1/check", fmt.Sprintf(searchAlice, 3))
			awaitLimit(t, p, 5, 3)
			test.change(t, dir)
			awaitLimit(t, p, 10, 3)
			awaitLog(t, p, `INFO a rule is changed rule=slack/search is="5/1m -> 10/1m"`, 1)
		})
	}
}

// mount makes ..data lead to a new folder, in one step.
func mount(t *testing.T, dir, name, text string) {
	t.Helper()
	link := filepath.Join(dir, "..data")
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	place(t, filepath.Join(dir, name, "slack.yaml"), text)
	if err := errors.Join(os.Symlink(name, link+"_tmp"), os.Rename(link+"_tmp", link)); err != nil {
		t.Fatal(err)
	}
}

func TestReloadOnHangup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slack.yaml")
	place(t, file, search("5/m"))
	p := startProcess(t, nil, "--config", file)
	p.hangUp(t)
	awaitLog(t, p, "INFO the config is loaded again files="+file+" domains=1 rules=1 changes=0\n", 1)
	place(t, file, search("10/m"))
	p.hangUp(t)
	awaitLimit(t, p, 10, 0)
}

// What is wrong changes nothing, and is told until it is put right.
func TestReloadOfABadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slack.yaml")
	place(t, file, search("5/m"))
	p := startProcess(t, nil, "--config", file, "--admin-token", password)
	at := regexp.QuoteMeta(file)
	detail := func(wrong string) string {
		return `{"ready":true,"detail":"serving; the config on disk has been refused for \d+s: ` + at + wrong + `","store":"ok","degraded_decisions":0}`
	}
	const serves = `{"ready":true,"detail":"serving","store":"ok","degraded_decisions":0}`

	place(t, file, search("5/fortnight")+"server: {admin_token: "+password+", deadline: soon}\n")
	awaitReadyz(t, p, detail(`:5:12: rules\[0\].limit: \\"5/fortnight\\": want .*; and 1 more`))
	awaitLimit(t, p, 5, 0)
	awaitLog(t, p, `ERROR the config on disk is refused, and what was loaded before it stays in force error="`+file+`:5:12: rules[0].limit: `, 1)
	awaitLog(t, p, `\n    5 |     limit: 5/fortnight\n`+file+`:6:`, 1)

	place(t, file, search("7/m")+"server: {snapshot: a, redis: \"redis://weir:"+password+"@localhost\"}\n")
	awaitReadyz(t, p, strings.Replace(detail(""), at, "--snapshot a is for limits in memory.*", 1))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	awaitReadyz(t, p, detail(": cannot be read: no such file or directory"))
	awaitLimit(t, p, 5, 0)

	place(t, file, search("5/m")+"server: {log_level: debug, inline: true, admin_token: "+password+password+"}\n")
	awaitReadyz(t, p, regexp.QuoteMeta(serves))
	awaitLog(t, p, "WARN server settings differ on disk, which takes a restart settings=\"inline log_level\"\n", 1)
	if status, answer := send(t, p.http+"/v1/check", fiveAMinute); status != http.StatusForbidden {
		t.Errorf("inline acts without a restart: %s", answer)
	}
	place(t, file, search("10/m"))
	awaitLimit(t, p, 10, 0)
	if got := strings.Count(told(t, p), "settings differ"); got != 1 {
		t.Errorf("it was told %d times that settings differ", got)
	}
}

func TestReloadNamesSomeOfManyChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slack.yaml")
	place(t, file, search("5/m"))
	p := startProcess(t, nil, "--config", file)
	many := search("5/m")
	for i := range 25 {
		many += fmt.Sprintf("  - {name: r%d, limit: 1/s}\n", i)
	}
	place(t, file, many)
	awaitLog(t, p, "INFO and 5 more\n", 1)
	awaitLog(t, p, "INFO a rule is added rule=slack/r", mostChanges)
}

func TestAPipeIsReadOnce(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString(search("5/m")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("/dev/fd/%d", r.Fd())
	s := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", off, "--config", name)
	if s.reloader.watcher != nil {
		t.Error("what can be read only once is to be read again")
	}
}

const (
	clients = 64
	flips   = 100
	few     = 1_000_000_000
	more    = 2_000_000_000
)

// two has rules that agree in how much they allow.
func two(limit int) string {
	return fmt.Sprintf("domain: flip\nrules:\n- {name: one, limit: %[1]d/d fixed-window}\n- {name: two, limit: %[1]d/d fixed-window}\n", limit)
}

// versioned is what the clients read of an answer.
type versioned struct {
	Allowed          bool
	Limit, Remaining int64
	Rules            []struct{ Limit, Remaining int64 }
}

// askFlip returns the limit of the version that has answered, and what is left.
func askFlip(client *http.Client, url string, cost int) (limit, remaining int64, err error) {
	response, err := client.Post(url+"/v1/check", "application/json", strings.NewReader(fmt.Sprintf(`{"domain":"flip","cost":%d}`, cost)))
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	var v versioned
	if err := json.NewDecoder(response.Body).Decode(&v); err != nil {
		return 0, 0, err
	}
	one := func(limit int64) bool { return limit == few || limit == more }
	if response.StatusCode != http.StatusOK || !v.Allowed || len(v.Rules) != 2 || !one(v.Limit) || v.Rules[0].Limit != v.Limit || v.Rules[1].Limit != v.Limit {
		return 0, 0, fmt.Errorf("%s %+v", response.Status, v)
	}
	return v.Limit, v.Remaining, nil
}

// While the file flips between two versions, with one between them that is
// refused, every question is answered by one of the two, and every answer counts.
func TestNoDecisionIsLostWhileTheConfigFlips(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flip.yaml")
	place(t, file, two(few))
	p := startProcess(t, nil, "--config", file)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients + 1}}
	defer client.CloseIdleConnections()
	var asked atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range clients {
		wg.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond) // which leaves other tests their share
			defer pace.Stop()
			for {
				select {
				case <-stop:
					return
				case <-pace.C:
				}
				if _, _, err := askFlip(client, p.http, 1); err != nil {
					t.Error(err)
					return
				}
				asked.Add(1)
			}
		})
	}
	last := int64(few)
	for i := range flips {
		last = flip(t, p, client, file, i, last)
	}
	close(stop)
	wg.Wait()
	limit, remaining, err := askFlip(client, p.http, 0)
	if n := asked.Load(); err != nil || limit != last || remaining != last-n || n < flips {
		t.Errorf("after %d answers %d of %d are left, error %v", n, remaining, limit, err)
	}
}

// flip writes the next version and waits until the process has taken notice,
// most times asking it to; it returns the limit in force then.
func flip(t *testing.T, p process, client *http.Client, file string, i int, last int64) int64 {
	t.Helper()
	bad, next := i%2 == 0, last
	if bad {
		place(t, file, two(0))
	} else {
		next = few + more - last
		place(t, file, two(int(next)))
	}
	if i%10 < 8 { // else it notices by itself
		p.hangUp(t)
	}
	redistest.Await(t, "the next version", func() error {
		if refused := strings.Contains(readyz(t, p), "refused"); refused != bad {
			return fmt.Errorf("refused: %v", refused)
		}
		limit, _, err := askFlip(client, p.http, 0)
		if err == nil && limit != next {
			err = fmt.Errorf("the limit is %d", limit)
		}
		return err
	})
	return next
}
