package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// A stream outlives the times that other requests are held to, and does not hold
// up the stop.
func TestEventsLastUntilTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{}
		s := serve(t, network.listen)
		c := network.dial(t, operators, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		lines := bufio.NewScanner(c)
		events := 0
		for events < 60 && lines.Scan() {
			if strings.HasPrefix(lines.Text(), "event: state") {
				events++
			}
		}
		if events < 60 {
			t.Fatalf("it ends after %d events: %v", events, lines.Err())
		}
		s.cancel()
		start := time.Now()
		rest := make(chan struct{})
		go func() {
			for lines.Scan() {
			}
			close(rest)
		}()
		if err := s.stopped(); err != nil || time.Since(start) > time.Second {
			t.Errorf("stopped after %v: %v", time.Since(start), err)
		}
		<-rest
	})
}

func TestWhoDoesNotReadEventsIsHungUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{}
		serve(t, network.listen)
		c := network.dial(t, operators, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-time.After(time.Minute)
		if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestTokensAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("bob s3cret\n")
	s := serve(t, net.Listen, "--http", off, "--admin", "127.0.0.1:0", "--admin-token", "own", "--admin-tokens-file", path)
	status := func(token string) int {
		t.Helper()
		r, err := http.NewRequest("GET", "http://"+s.doors[0].listener.Addr().String()+"/api/config", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	if own, listed, none := status("own"), status("s3cret"), status("0ther"); own != 200 || listed != 200 || none != 401 {
		t.Errorf("got %d, %d, %d", own, listed, none)
	}
	write("bob 0ther\n")
	redistest.Await(t, "the new token", func() error {
		if got := status("0ther"); got != 200 {
			return fmt.Errorf("it is answered by %d", got)
		}
		return nil
	})
	if own, listed := status("own"), status("s3cret"); own != 200 || listed != 401 {
		t.Errorf("got %d, %d", own, listed)
	}
	write("bob 0ther\nalice\n")
	redistest.Await(t, "a line about the wrong file", func() error {
		if log := s.output.String(); !strings.Contains(log, "ERROR admin tokens stay as they were") {
			return fmt.Errorf("the log is %s", log)
		}
		return nil
	})
	if got := status("0ther"); got != 200 {
		t.Errorf("got %d", got)
	}
	log := s.output.String()
	if !strings.Contains(log, "line 2: there are 1 words") || strings.Contains(log, "0ther") || strings.Contains(log, "s3cret") {
		t.Errorf("the log is %s", log)
	}
}
