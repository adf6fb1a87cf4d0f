package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is how long anything may take to happen, on a busy machine too.
const patience = 20 * time.Second

// Await calls ok every 10 ms until it returns nil, and fails the test with its
// last error after 20 s. What is awaited reads on from "waited for".
func Await(t testing.TB, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	step := time.NewTicker(10 * time.Millisecond)
	defer step.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s: %v", patience, what, err)
		}
		<-step.C
	}
}

// child is a running program.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once it has
}

// spawn starts a program in dir, its output appended to the log there.
func spawn(t testing.TB, dir, program string, args ...string) *child {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// The test's context would end it before the test's cleanups run.
	cmd := exec.CommandContext(context.Background(), program, args...) //nolint:gosec // find has chosen the program
	c := &child{cmd: cmd, ended: make(chan struct{})}
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := begin(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // it is killed, so it always fails
	}()
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // which fails if it has ended
	<-c.ended
}

// await waits until answers returns nil. It reports false if the child has ended
// instead because its port was taken, and fails the test if it has for any other
// reason.
func (c *child) await(t testing.TB, answers func() error) bool {
	t.Helper()
	ended := false
	Await(t, c.cmd.Path+" to answer", func() error {
		select {
		case <-c.ended:
			ended = true
			return nil
		default:
			return answers()
		}
	})
	if ended && !strings.Contains(readLog(c.cmd.Dir), "Address already in use") {
		t.Fatalf("redistest: %v ended instead of answering", c.cmd.Args)
	}
	return !ended
}

// showLog shows the end of the log in dir if the test has failed.
func showLog(t testing.TB, program, dir string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	text := readLog(dir)
	const most = 4000
	if len(text) > most {
		text = "..." + text[len(text)-most:]
	}
	t.Logf("%s in %s said:\n%s", program, dir, text)
}

// readLog returns the log in dir, or why it cannot.
func readLog(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// packages says how to install the programs that redistest starts.
var packages = map[string]string{
	"redis-server": "apt-get install redis-server (Debian, Ubuntu), dnf install valkey (Fedora) or brew install redis (or valkey)",
	"nutcracker":   "apt-get install nutcracker (Debian, Ubuntu) or brew install twemproxy",
}

// find returns the path of the first of the programs that is installed.
func find(t testing.TB, programs ...string) string {
	t.Helper()
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("redistest: this test needs %s, which is not on PATH; install it: %s",
		strings.Join(programs, " or "), packages[programs[0]])
	return ""
}

// freePort returns a port that nobody listens on, nor on the one 10,000 above,
// which is a Cluster's bus port. Both are below 32768, where systems take the
// ports of outgoing connections from.
func freePort(t testing.TB) int {
	t.Helper()
	var err error
	for range 1000 {
		port := 10_000 + rand.IntN(12_000)
		if err = listen(port); err == nil {
			err = listen(port + busOffset)
		}
		if err == nil {
			return port
		}
	}
	t.Fatalf("redistest: no free port: %v", err)
	return 0
}

// busOffset is how far above its port a server of a Cluster listens for the others.
const busOffset = 10_000

func listen(port int) error {
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", loopback(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
