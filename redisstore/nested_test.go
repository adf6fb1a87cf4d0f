package redisstore

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

// Every script for a few rows is one that a server takes: Lua bounds the
// variables of a function.
func TestNestedScripts(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := newScripts()
	n := 0
	var load func(of []layout)
	load = func(of []layout) {
		if len(of) > 1 {
			n++
			script := s.nested(of)
			if sha, err := server.Do("SCRIPT", "LOAD", script.text); err != nil || sha != script.sha {
				t.Errorf("%v: got %v (%v), want %s", of, sha, err, script.sha)
			}
		}
		for _, l := range scripted {
			if len(of) < maxNested && (len(of) == 0 || l >= of[len(of)-1]) {
				load(append(slices.Clip(of), l))
			}
		}
	}
	load(nil)
	if n != 203 {
		t.Errorf("%d scripts, want 203", n)
	}
}
