//go:build long

package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/lab/debian"
)

var programs = debian.Packages{
	Name: "prometheus", Names: []string{"prometheus"},
	Programs: map[string]string{"prometheus": "usr/bin/prometheus", "promtool": "usr/bin/promtool"},
}

// TestLongAlerts holds that the alert rules are well formed, and fire and keep
// quiet as testdata/alerts.yaml says.
func TestLongAlerts(t *testing.T) {
	promtool := programs.Find(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", deployed("prometheus", "weir-alerts.yaml")},
		{"test", "rules", filepath.Join("testdata", "alerts.yaml")},
	} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// TestLongPanels holds that every panel of the dashboard shows something once a
// service has decided, been asked nonsense and lost its store.
func TestLongPanels(t *testing.T) {
	store := redistest.Start(t, redistest.Options{})
	weir := serve(t, "--config", filepath.Join("testdata", "weir.yaml"), "--redis", store.URL(), "--replicas", "1")
	p := scrape(t, weir.admin)
	load(t, weir.http)
	redistest.Await(t, "what shadow rules deny", func() error { return p.has(`weir_decisions_total{result="shadow_denied"} > 0`) })
	store.Kill()
	panels, variables := dashboard(t)
	for _, panel := range panels {
		for _, target := range panel.Targets {
			query := chosen.Replace(target.Expr)
			redistest.Await(t, panel.Title+" to show something: "+query, func() error { return p.has(query) })
		}
	}
	for query, want := range map[string]string{
		`max(weir_breaker_open)`:                                       "1",
		`min(weir_config_reload_success)`:                              "1",
		`count(weir_build_info)`:                                       "1",
		`sum(rate(weir_degraded_decisions_total[1m])) > bool 0`:        "1",
		`sum(rate(weir_store_errors_total[1m])) > bool 0`:              "1",
		`sum(rate(weir_requests_total{result="denied"}[1m])) > bool 0`: "1",
	} {
		redistest.Await(t, query, func() error {
			if got, err := p.query(query); err != nil || len(got) != 1 || got[0] != want {
				return fmt.Errorf("got %v, %w, want %s", got, err, want)
			}
			return nil
		})
	}
	for name, definition := range variables {
		if m := labelValues.FindStringSubmatch(definition); m != nil {
			if err := p.has(chosen.Replace(m[1])); err != nil {
				t.Errorf("$%s: %v", name, err)
			}
		}
	}
	p.rulesWork(t)
}

// chosen is what Grafana fills in.
var chosen = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")

var labelValues = regexp.MustCompile(`^label_values\((.*), \w+\)$`)

// load asks the service until the test ends, some 200 times a second.
func load(t *testing.T, base string) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	wg.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			domain := "web"
			if i%10 == 0 {
				domain = "unknown"
			}
			body := fmt.Sprintf(`{"domain":"%s","attributes":{"user":"user%d"}}`, domain, i%3)
			if response, err := http.Post(base+"/v1/check", "application/json", strings.NewReader(body)); err == nil {
				_ = response.Body.Close()
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
}

// prometheus is a server that scrapes.
type prometheus struct{ base string }

// scrape starts a Prometheus that scrapes the address and follows the alert rules.
func scrape(t *testing.T, target string) *prometheus {
	t.Helper()
	rules, err := filepath.Abs(deployed("prometheus", "weir-alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf(`global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: weir
    static_configs: [{targets: [%q]}]
`, rules, target)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := unused(t)
	start(t, dir, programs.Find(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	p := &prometheus{"http://" + address}
	redistest.Await(t, "Prometheus to scrape", func() error { return p.has(`up{job="weir"} == 1`) })
	return p
}

// get reads what the API has at a path.
func (p *prometheus) get(path string, data any) error {
	response, err := http.Get(p.base + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || body.Status != "success" {
		return fmt.Errorf("status %d, %v %s", response.StatusCode, err, body.Error)
	}
	return json.Unmarshal(body.Data, data)
}

// query returns the values of a query that are numbers.
func (p *prometheus) query(query string) (values []string, err error) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(query), &data); err != nil {
		return nil, err
	}
	for _, r := range data.Result {
		if text, ok := r.Value[1].(string); ok && text != "NaN" {
			values = append(values, text)
		}
	}
	return values, nil
}

func (p *prometheus) has(query string) error {
	values, err := p.query(query)
	if err == nil && len(values) == 0 {
		err = errors.New("there is nothing")
	}
	return err
}

// rulesWork holds that the server has evaluated every alert rule.
func (p *prometheus) rulesWork(t *testing.T) {
	t.Helper()
	redistest.Await(t, "the alert rules", func() error {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := p.get("/api/v1/rules", &data); err != nil {
			return err
		}
		n := 0
		for _, group := range data.Groups {
			for _, rule := range group.Rules {
				if n++; rule.Health != "ok" {
					return fmt.Errorf("%s: %s %s", rule.Name, rule.Health, rule.LastError)
				}
			}
		}
		if n < 6 {
			return errors.New("there are " + strconv.Itoa(n))
		}
		return nil
	})
}
