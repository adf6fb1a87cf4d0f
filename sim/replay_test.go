package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/sim"
)

const window20s = 20 * time.Second

// replay runs events against the rules of one domain.
func replay(t *testing.T, events []sim.Event, rules ...policy.Rule) sim.Report {
	t.Helper()
	r, err := sim.NewReplay(sim.Options{Policy: compile(t, rules...), Domain: "web"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := r.Add(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	return r.Report()
}

func compile(t *testing.T, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile([]policy.Domain{{Name: "web", Rules: rules}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// perIP is a rule for each address.
func perIP(limit weir.Limit) policy.Rule {
	return policy.Rule{Name: "per-ip", By: []string{"ip"}, Limit: limit}
}

// at is a request from an address, sec seconds into 2015; more attributes
// follow as pairs.
func at(sec float64, ip string, more ...string) sim.Event {
	e := sim.Event{
		Time:       time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(sec * float64(time.Second))),
		Attributes: map[string]string{"ip": ip},
	}
	for i := 0; i < len(more); i += 2 {
		e.Attributes[more[i]] = more[i+1]
	}
	return e
}

// naive counts what the definition of an exact limit admits of sorted events:
// those with less than limit.Max admitted of their address in (t-Window, t].
func naive(events []sim.Event, limit weir.Limit) int64 {
	admitted := make(map[string][]time.Time)
	total := int64(0)
	for _, e := range events {
		ip, recent := e.Attributes["ip"], int64(0)
		for _, earlier := range admitted[ip] {
			if earlier.After(e.Time.Add(-limit.Window)) {
				recent++
			}
		}
		if recent < limit.Max {
			admitted[ip] = append(admitted[ip], e.Time)
			total++
		}
	}
	return total
}

// accessLog opens the 10,000 lines beside the repository, or the extract of
// 300 that is part of it.
func accessLog(t *testing.T) (f *os.File, lines int64) {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.work")); missing == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	lines = 10_000
	if f, err = os.Open(filepath.Join(dir, "..", "shared", "data", "access.log")); errors.Is(err, fs.ErrNotExist) {
		lines = 300
		f, err = os.Open(filepath.Join("testdata", "access-extract.log"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, lines
}

func TestAdmittedIsWhatTheDefinitionAdmits(t *testing.T) {
	f, lines := accessLog(t)
	log, events := read(t, f)
	if log.Lines != lines || log.Unparsed != 1 {
		t.Fatalf("%+v, want %d lines and one unparsed", log, lines)
	}
	if cut := log.UnparsedLines[0]; lines == 10_000 && cut.Line != 8899 || !strings.Contains(cut.Reason, "cut short") {
		t.Errorf("unparsed %+v, want the line that is cut short", cut)
	}
	if log.Disordered < lines/3 {
		t.Errorf("%d lines out of order, want about half", log.Disordered)
	}
	sim.Sort(events)
	for _, limit := range []weir.Limit{weir.PerMinute(20), weir.Per(7, window20s)} {
		report := replay(t, events, perIP(limit))
		want := naive(events, limit)
		if report.Admitted != want || report.Rules[0].Admitted != want || want == lines-1 {
			t.Errorf("%s: %d admitted, the definition admits %d of %d", limit, report.Admitted, want, lines-1)
		}
		if report.Evicted+report.Clamped+report.Unmatched != 0 || report.Denied != lines-1-want {
			t.Errorf("%s: %+v", limit, report)
		}
	}
}

func TestAllOrNothing(t *testing.T) {
	global := policy.Rule{Name: "global", Limit: weir.PerMinute(3)}
	report := replay(t, []sim.Event{
		at(0, "a"), at(1, "a"), at(2, "a"), // a's third is denied and not charged to global
		at(3, "b"), at(4, "b"), // b's second is denied by global
	}, global, perIP(weir.PerMinute(2)))
	if report.Requests != 5 || report.Admitted != 3 || report.Denied != 2 {
		t.Errorf("%+v, want 3 of 5 admitted", report)
	}
	wantRule(t, report.Rules[0], sim.RuleReport{Name: "global", Limit: "3/1m", Seen: 5, Admitted: 4, Denied: 1, Keys: 1,
		Limited: []sim.LimitedKey{{Key: "web:global", Denied: 1}}})
	wantRule(t, report.Rules[1], sim.RuleReport{Name: "per-ip", Limit: "2/1m", Seen: 5, Admitted: 4, Denied: 1, Keys: 2,
		Limited: []sim.LimitedKey{{Key: "web:per-ip:a", Denied: 1}}})
}

// wantRule compares all but the algorithms.
func wantRule(t *testing.T, got, want sim.RuleReport) {
	t.Helper()
	got.Algorithms = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("rule\n got %+v\nwant %+v", got, want)
	}
}

func TestDenyDeniesAndChargesNothing(t *testing.T) {
	bad := policy.When{"ip": {"bad"}}
	report := replay(t, []sim.Event{at(0, "bad"), at(1, "bad"), at(2, "a"), at(3, "a")},
		policy.Rule{Name: "blocked", When: bad, By: []string{"ip"}, Deny: true},
		policy.Rule{Name: "global", Limit: weir.PerMinute(1)})
	if report.Admitted != 1 || report.Denied != 3 {
		t.Errorf("%+v, want only the first request of a admitted", report)
	}
	wantRule(t, report.Rules[0], sim.RuleReport{Name: "blocked", Seen: 2, Denied: 2, Keys: 1,
		Limited: []sim.LimitedKey{{Key: "web:blocked:bad", Denied: 2}}})
	if n := len(report.Rules[0].Algorithms); n != 0 {
		t.Errorf("%d algorithms compared for a rule that only denies", n)
	}
	// The two requests of bad were looked at, so they passed as far as global goes.
	if global := report.Rules[1]; global.Seen != 4 || global.Admitted != 3 || global.Denied != 1 {
		t.Errorf("global: %+v, want 3 of 4 admitted", global)
	}
}

func TestOverridesAndUnmatched(t *testing.T) {
	rule := perIP(weir.PerMinute(1))
	rule.When = policy.When{"path": {"/api/*"}}
	rule.Overrides = []policy.Override{
		{When: policy.When{"ip": {"vip"}}, Limit: weir.PerMinute(2)},
		{When: policy.When{"ip": {"bad"}}, Deny: true},
	}
	var events []sim.Event
	for _, ip := range []string{"a", "vip", "bad"} {
		for range 3 {
			events = append(events, at(0, ip, "path", "/api/x"))
		}
	}
	events = append(events, at(0, "bad", "path", "/"))
	report := replay(t, events, rule)
	if report.Admitted != 4 || report.Denied != 6 || report.Unmatched != 1 {
		t.Errorf("%+v, want 1 of a, 2 of vip and the unmatched one admitted", report)
	}
	wantRule(t, report.Rules[0], sim.RuleReport{Name: "per-ip", Limit: "1/1m", Overrides: 2, Seen: 9, Admitted: 3, Denied: 6, Keys: 3,
		Limited: []sim.LimitedKey{{Key: "web:per-ip:bad", Denied: 3}, {Key: "web:per-ip:a", Denied: 2}, {Key: "web:per-ip:vip", Denied: 1}}})
	if exact := report.Rules[0].Algorithms[0]; exact.Admitted != 3 || exact.Denied != 3 {
		t.Errorf("exact: %+v, want overrides obeyed and denials by rule left out", exact)
	}
}

func TestShadowDeniesNothing(t *testing.T) {
	limit := perIP(weir.PerMinute(1))
	limit.Shadow = true
	block := policy.Rule{Name: "blocked", Deny: true, Shadow: true}
	report := replay(t, []sim.Event{at(0, "a"), at(1, "a"), at(2, "a")}, limit, block)
	if report.Admitted != 3 || report.Denied != 0 {
		t.Errorf("%+v, want all admitted", report)
	}
	wantRule(t, report.Rules[0], sim.RuleReport{Name: "per-ip", Limit: "1/1m", Shadow: true, Seen: 3, Admitted: 1, Denied: 2, Keys: 1,
		Limited: []sim.LimitedKey{{Key: "web:per-ip:a", Denied: 2}}})
	wantRule(t, report.Rules[1], sim.RuleReport{Name: "blocked", Shadow: true, Seen: 3, Denied: 3, Keys: 1,
		Limited: []sim.LimitedKey{{Key: "web:blocked", Denied: 3}}})
}

func TestLimitedKeysAreTheTenMostDenied(t *testing.T) {
	var events []sim.Event
	for i := range 12 {
		for range 2 + i/2 { // two keys each of 1 to 6 denials
			events = append(events, at(0, fmt.Sprintf("ip%02d", i)))
		}
	}
	limited := replay(t, events, perIP(weir.PerMinute(1))).Rules[0].Limited
	if len(limited) != sim.MaxLimited {
		t.Fatalf("%d keys, want %d", len(limited), sim.MaxLimited)
	}
	for i, want := range []string{"ip10 6", "ip11 6", "ip08 5", "ip09 5", "ip06 4", "ip07 4", "ip04 3", "ip05 3", "ip02 2", "ip03 2"} {
		ip := strings.TrimPrefix(limited[i].Key, "web:per-ip:")
		if got := fmt.Sprint(ip, " ", limited[i].Denied); got != want {
			t.Errorf("place %d is %s, want %s", i, got, want)
		}
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	// The third request counts as of 30s, when the first has not left yet and
	// the one of 61s has come a minute after it.
	report := replay(t, []sim.Event{at(0, "a"), at(30, "b"), at(10, "a"), at(60, "a"), at(59, "a")}, perIP(weir.PerMinute(1)))
	if report.Clamped != 2 || report.Admitted != 3 || report.Denied != 2 {
		t.Errorf("%+v, want 2 clamped, 3 of 5 admitted", report)
	}
	if span := report.Last.Sub(report.First); span != time.Minute {
		t.Errorf("the replay took %s, want a minute", span)
	}
}

func TestReplayOnAnotherStore(t *testing.T) {
	p := compile(t, perIP(weir.PerMinute(5)))
	var memory *weir.Memory
	r, err := sim.NewReplay(sim.Options{Policy: p, Domain: "web", Open: func(now func() time.Time) weir.Store {
		memory = weir.NewMemory(weir.MemoryOptions{Now: now, MaxKeys: 10})
		return memory
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := r.Add(context.Background(), at(0, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if report := r.Report(); report.Evicted != 90 || report.Rules[0].Keys != 100 {
		t.Errorf("%d evicted of %d keys, want 90 of 100", report.Evicted, report.Rules[0].Keys)
	}
	memory.Close()
	if err := r.Add(context.Background(), at(0, "a")); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("on a closed store: %v", err)
	}
}

func TestUnknownDomain(t *testing.T) {
	_, err := sim.NewReplay(sim.Options{Policy: compile(t, perIP(weir.PerMinute(5))), Domain: "wbe"})
	if err == nil || err.Error() != `sim: no domain "wbe" in the policy, only "web"` {
		t.Errorf("error %v", err)
	}
}

// TestReplayOfTheFarFuture has a clock that is nearly as far as ParseLine goes.
func TestReplayOfTheFarFuture(t *testing.T) {
	const ips = 5000
	var text strings.Builder
	for i := range 3 * ips {
		fmt.Fprintf(&text, "10.0.%d.%d - - [31/Dec/2190:23:59:%02d +0000] \"GET / HTTP/1.1\" 200 1\n", i%ips/250, i%250, 57+i/ips)
	}
	_, events := read(t, strings.NewReader(text.String()))
	if got := replay(t, events, perIP(weir.PerMinute(1))); got.Requests != 3*ips || got.Admitted != ips {
		t.Errorf("%d of %d requests admitted, want %d of %d", got.Admitted, got.Requests, ips, 3*ips)
	}
}
