package redistest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

// TestKilledTest runs itself in another process, kills that and awaits the end of
// its server.
func TestKilledTest(t *testing.T) {
	const other = "REDISTEST_OTHER_PROCESS"
	if os.Getenv(other) != "" {
		fmt.Println(redistest.Start(t, redistest.Options{}).Addr())
		_, err := io.Copy(io.Discard, os.Stdin) // until killed
		t.Fatal("the process that wanted to kill this one has ended:", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledTest$")
	cmd.Env = append(os.Environ(), other+"=1", "TMPDIR="+t.TempDir()) // which the killed process leaves behind
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if killed := cmd.Process.Kill(); err != nil || killed != nil {
		t.Fatal(line, err, killed)
	}
	redistest.Await(t, "the end of its server", func() error { return refused(strings.TrimSpace(line)) })
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended well, instead of being killed")
	}
}

// TestThreadEnds starts a server from a thread that ends before the test does.
func TestThreadEnds(t *testing.T) {
	started, end, thread := make(chan *redistest.Server, 1), make(chan struct{}), 0
	defer close(end)
	var begin func()
	begin = func() {
		runtime.LockOSThread() // and never unlocked, so the thread ends with the function
		thread = syscall.Gettid()
		if thread == os.Getpid() { // but not the main thread, so another must do
			go begin()
			<-end
			runtime.UnlockOSThread()
			return
		}
		defer close(started)
		started <- redistest.Start(t, redistest.Options{})
	}
	go begin()
	s, ok := <-started
	if !ok {
		return // Start has failed the test
	}
	redistest.Await(t, "the end of the thread", func() error {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(thread))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("thread %d: %v", thread, err)
	})
	want(t, s, "PONG", "PING")
}
