//go:build long

package dashboard

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// demo builds the service and runs its demo until the test ends. It returns where
// the dashboard is.
func demo(t *testing.T, args ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "weir")
	build := exec.Command("go", "build", "-o", program, "./cmd/weir")
	build.Dir = filepath.Join("..", "..", "service")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	cmd := exec.Command(program, append([]string{"serve", "--demo", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc", "off"}, args...)...)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // which fails if it has ended
		_ = cmd.Wait()         // it is killed, so it always fails
	})
	lines := bufio.NewScanner(log)
	url := ""
	for lines.Scan() && !strings.Contains(lines.Text(), " serving") {
		if m := regexp.MustCompile(`door=admin address=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			url = "http://" + m[1] + "/"
		}
	}
	if url == "" {
		t.Fatal("the service has not told its address")
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return url
}

// TestLongService looks at the service itself: at who is limited, what a block
// does, and a store that dies and comes back.
func TestLongService(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	url := demo(t, "--redis", redis.URL(), "--replicas", "1")
	started := time.Now()
	b := browse(t, url, look{width: wide.width, height: 1000, expected: "status of 503"}) // of what needs the store
	b.awaitText("#health", "Redis answers")
	b.awaitText("#keys-rows", "user=demo:mallory")
	b.awaitText("#rules-rows", "per-user")
	t.Log("who is limited is seen after", time.Since(started).Round(100*time.Millisecond))
	b.shoot("dashboard")

	b.js(`[...document.querySelectorAll("#keys-rows button")].find(b => b.textContent === "user=demo:mallory").click()`)
	b.awaitText("#key-body", "of 30 used")
	b.shoot("key")
	b.click("#key-block")
	b.fill("#confirm [name=why]", "seven times as often as he may")
	b.agree()
	b.click("#key-close")
	b.awaitText("#overrides-rows", "demo:mallory")

	redis.Kill()
	b.awaitText("#health", "each process decides by its share")
	redis.Restart(t)
	b.awaitText("#health", "Redis answers")
}
