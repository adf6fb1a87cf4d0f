package httpapi

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/docs"
)

// TestReference holds the page to the answers that are written.
func TestReference(t *testing.T) {
	decisions, rows, _ := strings.Cut(docs.Section(t, "docs/reference/http.md", "## A decision"), "Each of `rules` has:")
	docs.Same(t, "A decision", docs.Names(decisions), tags(decision{}))
	docs.Same(t, "rules", docs.Names(rows), tags(rule{}))
}

// tags returns the names that the members of a struct have on the wire.
func tags(of any) (all []string) {
	for field := range reflect.TypeOf(of).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, name)
	}
	return all
}
