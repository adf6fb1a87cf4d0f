package docs

import (
	"reflect"
	"strings"
	"testing"
)

const sample = "# Page\n\n## Keys\n\n| key | default |\n|---|---|\n| `a`, `b` | `c` |\n| none | |\n\n```go\nx := 1\n```\n\n" +
	"## More\n\n| `d` | |\n\n```console\n$ true\n```\n\n<!-- begin: written by go test -update -->\n\nold\n\n<!-- end -->\n"

func TestBlocks(t *testing.T) {
	want := []Block{{"go", "x := 1\n"}, {"console", "$ true\n"}}
	if got := Blocks(sample); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNames(t *testing.T) {
	if got := Names(sample); !reflect.DeepEqual(got, []string{"a", "b", "d"}) {
		t.Errorf("got %q", got)
	}
}

func TestDifferences(t *testing.T) {
	for _, c := range []struct{ page, code, want string }{
		{"a b", "b a", ""},
		{"a", "a b", "does not explain b"},
		{"a b", "a", "explains b, which the code does not have"},
		{"a a", "a", "explains a twice"},
		{"", "", "is compared with nothing"},
	} {
		if got := strings.Join(differences(strings.Fields(c.page), strings.Fields(c.code)), "; "); got != c.want {
			t.Errorf("page %q, code %q: got %q, want %q", c.page, c.code, got, c.want)
		}
	}
}

func TestReplace(t *testing.T) {
	got, err := replace(sample, "new\n")
	if want := strings.Replace(sample, "old", "new", 1); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if again, err := replace(got, "new\n"); err != nil || again != got {
		t.Errorf("the second time gives %q, %v", again, err)
	}
	for _, bad := range []string{"", sample + sample} {
		if _, err := replace(bad, "new\n"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
