package redisstore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWhatAProgramBuilds builds examples/httpserver from the modules as released,
// and looks at what comes with it: rueidis and what that needs, and nothing else.
func TestWhatAProgramBuilds(t *testing.T) {
	run := func(args ...string) string {
		c := exec.Command("go", args...)
		c.Dir, c.Env = filepath.Join("..", "examples"), append(os.Environ(), "GOWORK=off")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("build", "-o", filepath.Join(t.TempDir(), "httpserver"), "./httpserver")
	got := strings.Fields(run("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./httpserver"))
	slices.Sort(got)
	got = slices.Compact(got)
	want := []string{"github.com/redis/rueidis", "github.com/weirlimit/weir", "github.com/weirlimit/weir/examples", "github.com/weirlimit/weir/redisstore", "golang.org/x/sys"}
	if !slices.Equal(got, want) {
		t.Errorf("modules %q, want %q", got, want)
	}
}
