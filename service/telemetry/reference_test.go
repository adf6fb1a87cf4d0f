package telemetry

import (
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/docs"
)

// TestReference holds the page to the metrics that there are.
func TestReference(t *testing.T) {
	r, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan *prometheus.Desc, 100)
	for _, c := range []prometheus.Collector{scraped{r}, r.decision, r.store} {
		c.Describe(all)
	}
	close(all)
	var names []string
	for d := range all {
		names = append(names, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	docs.Same(t, "metrics", docs.Names(docs.Section(t, "docs/operating.md", "## Metrics")), names)
}
