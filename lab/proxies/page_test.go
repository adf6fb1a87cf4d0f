// Package proxies runs the pages of docs/proxies: the service, and the proxies
// as they are told to be set up there.
package proxies

import (
	"regexp"
	"testing"

	"github.com/weirlimit/weir/internal/docs"
)

// page is one of docs/proxies.
type page struct {
	files map[string]string // by the name that their first line has
	diffs []string          // what to change to let requests pass while weir is down
}

var title = regexp.MustCompile(`^(?:#|--) (\S+)\n`)

func read(t *testing.T, name string) page {
	t.Helper()
	p := page{files: make(map[string]string)}
	for _, b := range docs.Blocks(docs.Read(t, "docs/proxies/"+name+".md")) {
		switch named := title.FindStringSubmatch(b.Body); {
		case b.Kind == "diff":
			p.diffs = append(p.diffs, b.Body)
		case named != nil:
			p.files[named[1]] = b.Body
		}
	}
	return p
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
			docs.Patch(t, p.files[want.file], diff)
		}
	}
}
