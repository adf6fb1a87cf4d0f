package httplimit_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/internal/docs"
)

const page = "docs/reference/headers.md"

// TestReference holds the examples of the page to what is written.
func TestReference(t *testing.T) {
	var text strings.Builder
	for dialect := httplimit.Draft10; dialect.String() != "unknown"; dialect++ {
		fmt.Fprintf(&text, "### %s\n\n```text\n%s```\n\n", dialect, examples(t, dialect))
	}
	docs.Golden(t, page, strings.TrimSuffix(text.String(), "\n"))
}

// TestReferenceOfDialects holds the table of dialects to those that there are.
func TestReferenceOfDialects(t *testing.T) {
	var names []string
	for dialect := httplimit.Draft10; dialect.String() != "unknown"; dialect++ {
		names = append(names, dialect.String())
	}
	_, dialects, _ := strings.Cut(docs.Read(t, page), "| dialect |")
	dialects, _, _ = strings.Cut(dialects, "## Examples")
	docs.Same(t, page, docs.Names(dialects), names)
}

// examples are an answer that allows, one that denies, and both of limits whose
// store is away.
func examples(t *testing.T, dialect httplimit.Dialect) string {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: clock})})
	fields := httplimit.Fields{Dialect: dialect, Now: clock}
	var text strings.Builder
	write := func(title string, reason weir.Reason, cost int64) {
		limits := []weir.Request{{Key: "client", Limit: weir.PerMinute(100), Cost: cost}, {Key: "search", Limit: weir.PerMinute(5), Cost: cost}}
		d, err := lim.AllowAll(context.Background(), limits...)
		if err != nil {
			t.Fatal(err)
		}
		var rows []httplimit.Row
		for i, row := range d.Rows {
			row.Reason = max(row.Reason, reason)
			rows = append(rows, httplimit.Row{Decision: row, Name: "per-" + limits[i].Key, Window: limits[i].Limit.Window})
		}
		d.Reason = max(d.Reason, reason)
		header := make(http.Header)
		fields.Write(header, &d, rows)
		fmt.Fprintf(&text, "# %s\n", title)
		for _, name := range slices.Sorted(maps.Keys(header)) {
			fmt.Fprintf(&text, "%s: %s\n", strings.NewReplacer("Ratelimit", "RateLimit").Replace(name), header.Get(name))
		}
		text.WriteString("\n")
	}
	write("the first request, of cost 3", weir.OK, 3)
	now = now.Add(18500 * time.Millisecond)
	write("the same 18.5 seconds later: denied", weir.OK, 3)
	write("a request of cost 6: never", weir.OK, 6)
	write("of cost 1, by the share of this process", weir.StoreLocal, 1)
	return strings.TrimSuffix(text.String(), "\n")
}
