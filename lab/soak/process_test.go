package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// build builds the service and returns the path of the program.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "weir")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/weir")
	cmd.Dir = filepath.Join("..", "..", "service")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return program
}

// process is one life of a process of the service.
type process struct {
	place int // which of the processes it is
	life  int // counted over all of them, from 1
	url   string
	cmd   *exec.Cmd
	ended chan struct{}
}

var listening = regexp.MustCompile(`listening door=http address=(\S+)`)

// start starts a process and waits until it serves. Its log goes to log.
func start(t testing.TB, log io.Writer, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(context.Background(), program, args...), ended: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(io.TeeReader(stderr, log))
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			p.url = "http://" + m[1]
		}
		if strings.HasSuffix(lines.Text(), " serving") {
			go func() {
				defer close(p.ended)
				for lines.Scan() { // to its end, for the log
				}
				_ = p.cmd.Wait() // it is killed, so it always fails
			}()
			return p
		}
	}
	t.Fatalf("%v did not come up: %v", p.cmd.Args, p.cmd.Wait())
	return nil
}

// kill ends the process as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // which fails if it has ended
	<-p.ended
}

// usage is what a process has of the machine; zero where there is no /proc.
type usage struct {
	rss                  float64 // KiB
	threads, descriptors int
}

var statusLine = regexp.MustCompile(`(?m)^(VmRSS|Threads):\s+(\d+)`)

func usageOf(pid int) (u usage) {
	dir := fmt.Sprintf("/proc/%d", pid)
	text, _ := os.ReadFile(filepath.Join(dir, "status"))
	for _, m := range statusLine.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[2]) // the pattern takes digits only
		if m[1] == "VmRSS" {
			u.rss = float64(n)
		} else {
			u.threads = n
		}
	}
	open, _ := os.ReadDir(filepath.Join(dir, "fd"))
	u.descriptors = len(open)
	return u
}
