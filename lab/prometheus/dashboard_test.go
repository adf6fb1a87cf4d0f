// Package prometheus runs what deploy/ has for Prometheus and Grafana.
package prometheus

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// deployed returns the path of a file of deploy/.
func deployed(elem ...string) string {
	return filepath.Join(append([]string{"..", "..", "deploy"}, elem...)...)
}

// panel is one of the dashboard's.
type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               struct{ UID string }
	Targets                  []struct{ Expr, LegendFormat, RefID string }
}

// dashboard returns the panels of deploy/grafana that show something, and the
// queries of its variables.
func dashboard(t *testing.T) (panels []panel, variables map[string]string) {
	t.Helper()
	text, err := os.ReadFile(deployed("grafana", "weir.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels     []panel
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	variables = make(map[string]string)
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Definition
	}
	return slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" }), variables
}

// TestDashboard holds that every panel says what it shows, of the instances that
// are chosen, and hides no other.
func TestDashboard(t *testing.T) {
	panels, variables := dashboard(t)
	if len(panels) < 15 || variables["job"] == "" || variables["instance"] == "" {
		t.Errorf("%d panels, variables %v", len(panels), variables)
	}
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range panels {
		if p.Title == "" || p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 || ids[p.ID] {
			t.Errorf("panel %d, %q: it wants a title, a description, the variable datasource, queries and an id of its own", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, `{job=~"$job",instance=~"$instance"`) || target.RefID == "" {
				t.Errorf("%s: %s is not about the chosen instances", p.Title, target.Expr)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s is where %q is, or out of sight", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
