// Package proxies runs the pages of docs/proxies: the service, and the proxies
// as they are told to be set up there.
package proxies

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is one of docs/proxies.
type page struct {
	files map[string]string // by the name that their first line has
	diffs []string          // what to change to let requests pass while weir is down
}

var (
	block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	title = regexp.MustCompile(`^(?:#|--) (\S+)\n`)
)

func read(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "proxies", name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	p := page{files: make(map[string]string)}
	for _, b := range block.FindAllStringSubmatch(string(text), -1) {
		switch named := title.FindStringSubmatch(b[2]); {
		case b[1] == "diff":
			p.diffs = append(p.diffs, b[2])
		case named != nil:
			p.files[named[1]] = b[2]
		}
	}
	return p
}

// patch applies a diff of one hunk, whose lines must be in text once.
func patch(text, diff string) (string, error) {
	var before, after strings.Builder
	for line := range strings.Lines(diff) {
		if line[0] != '+' {
			before.WriteString(line[1:])
		}
		if line[0] != '-' {
			after.WriteString(line[1:])
		}
	}
	if n := strings.Count(text, before.String()); n != 1 {
		return "", fmt.Errorf("what a diff changes is there %d times:\n%s", n, before.String())
	}
	return strings.Replace(text, before.String(), after.String(), 1), nil
}

// TestPages holds that every page has what it takes to set a proxy up.
func TestPages(t *testing.T) {
	for name, want := range map[string]struct {
		file  string
		diffs int
	}{
		"nginx": {"nginx.conf", 1}, "caddy": {"Caddyfile", 1}, "haproxy": {"haproxy.cfg", 1}, "traefik": {"dynamic.yaml", 0}, "envoy": {"envoy.yaml", 0},
	} {
		p := read(t, name)
		if p.files["weir.yaml"] == "" || p.files[want.file] == "" || len(p.diffs) != want.diffs {
			t.Errorf("%s: %d files, %d diffs, want weir.yaml, %s and %d diffs", name, len(p.files), len(p.diffs), want.file, want.diffs)
		}
		for _, diff := range p.diffs {
			if _, err := patch(p.files[want.file], diff); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
