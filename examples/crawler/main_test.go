package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// strict is a server that bans whoever calls six times within a second, by its
// own clock, for good.
type strict struct {
	mu     sync.Mutex
	came   []time.Time
	pages  map[string]int // how often each has been served
	banned bool
}

func (s *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = append(s.came, time.Now())
	if n := len(s.came); n >= 6 && s.came[n-1].Sub(s.came[n-6]) < time.Second {
		s.banned = true
	}
	if s.banned {
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	s.pages[r.URL.Path]++
}

// times returns when calls came, since the first.
func (s *strict) times() (at []time.Duration) {
	for _, came := range s.came {
		at = append(at, came.Sub(s.came[0]).Round(time.Millisecond))
	}
	return at
}

func serve(t *testing.T) (*strict, string) {
	s := &strict{pages: make(map[string]int)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

// asCrawler makes the test's own program the crawler.
const asCrawler = "CRAWLER"

func TestMain(m *testing.M) {
	if os.Getenv(asCrawler) != "" {
		main()
		return
	}
	m.Run()
}

// crawler runs a process and returns what it prints.
func crawler(t *testing.T, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCrawler+"=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Four processes, which know of each other by the store alone, fetch all pages
// of a server that bans at six a second, and it never bans them.
func TestCrawlers(t *testing.T) {
	const processes, each = 4, 3
	store := redistest.Start(t, redistest.Options{})
	server, url := serve(t)
	outputs := make([]string, processes)
	var crawlers sync.WaitGroup
	for i := range processes {
		args := []string{"-store", store.URL(), "-limit", "5/s", "-jitter", "1s"} // a busy machine
		for page := range each {
			args = append(args, fmt.Sprintf("%s/%d/%d", url, i, page))
		}
		crawlers.Go(func() {
			var err error
			if outputs[i], err = crawler(t, args...); err != nil {
				t.Errorf("crawler %d: %v\n%s", i, err, outputs[i])
			}
		})
	}
	crawlers.Wait()
	if server.banned || len(server.came) != processes*each || len(server.pages) != processes*each {
		t.Errorf("banned: %t; calls for %d of %d pages came at %v", server.banned, len(server.pages), processes*each, server.times())
	}
	for i, out := range outputs {
		lines := strings.Fields(out)
		for page := range each {
			if !slices.Contains(lines, fmt.Sprintf("%s/%d/%d", url, i, page)) {
				t.Errorf("crawler %d does not tell of page %d:\n%s", i, page, out)
			}
		}
	}
	// Twelve pages at five in 2 s: two windows pass, but for a late first page.
	if took := server.came[len(server.came)-1].Sub(server.came[0]); took < 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// The server does ban, and a crawler that is told another limit fails.
func TestCrawlerIsBanned(t *testing.T) {
	store := redistest.Start(t, redistest.Options{})
	server, url := serve(t)
	args := []string{"-store", store.URL(), "-limit", "100/s"}
	for page := range 10 {
		args = append(args, fmt.Sprintf("%s/%d", url, page))
	}
	out, err := crawler(t, args...)
	if err == nil || !server.banned || !strings.Contains(out, "429") {
		t.Errorf("%v\n%s", err, out)
	}
}

// What is wrong with the arguments is said.
func TestCrawlerRefuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-limit", "5"}, "100/30m"},
		{[]string{"-store", "http://localhost"}, "redis://"},
		{[]string{"-store", "redis://127.0.0.1:1"}, "127.0.0.1:1"},
	} {
		out, err := crawler(t, append(tt.args, "http://127.0.0.1:1/")...)
		if err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %v\n%s", tt.args, err, out)
		}
	}
}
