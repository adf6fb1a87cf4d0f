package spell_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/service/spell"
)

func TestNearest(t *testing.T) {
	words := []string{"limit", "Shadow", "overrides", "when", "by"}
	for wrong, want := range map[string]string{
		"limit": "limit", "limt": "limit", "lmiit": "limit", "LIMITS": "limit", "shadwo": "Shadow", "overide": "overrides",
		"hwen": "when", "b": "", "": "", "something": "", strings.Repeat("limit", 1000): "",
	} {
		if got := spell.Nearest(wrong, words); got != want {
			t.Errorf("%.20q: got %q, want %q", wrong, got, want)
		}
	}
}
