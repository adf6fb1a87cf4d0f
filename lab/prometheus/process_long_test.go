//go:build long

package prometheus

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/lab/debian"
)

// start runs a program in dir until the test ends, and returns the name of its log.
func start(t *testing.T, dir, program string, args ...string) (logged string) {
	t.Helper()
	log, err := os.CreateTemp(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = debian.Libraries(program)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // which fails if it has ended
		_ = cmd.Wait()         // it is killed, so it always fails
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s said: %s %v", filepath.Base(program), text, err)
		}
	})
	return log.Name()
}

// service is a weir that runs.
type service struct{ http, admin string }

var listening = regexp.MustCompile(`listening door=(\w+) address=(\S+)`)

// serve builds the service and runs it on free ports.
func serve(t *testing.T, args ...string) (s service) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "weir")
	build := exec.Command("go", "build", "-o", program, "./cmd/weir")
	build.Dir = filepath.Join("..", "..", "service")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	logged := start(t, dir, program, append([]string{"serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc", "off"}, args...)...)
	redistest.Await(t, "weir to serve", func() error {
		text, err := os.ReadFile(logged)
		if err == nil && !strings.Contains(string(text), " serving") {
			err = errors.New("it does not yet")
		}
		for _, m := range listening.FindAllStringSubmatch(string(text), -1) {
			switch m[1] {
			case "http":
				s.http = "http://" + m[2]
			case "admin":
				s.admin = m[2]
			}
		}
		return err
	})
	return s
}

// unused returns an address that nobody listens on.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
