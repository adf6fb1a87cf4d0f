package decide_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/decide"
)

// edge has what an envoyproxy/ratelimit file can say.
const edge = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3, name: per-user}
    descriptors:
      - key: path
        rate_limit: {unit: minute, requests_per_unit: 2}
        descriptors:
          - key: method
            value: GET
            rate_limit: {unit: hour, requests_per_unit: 5}
      - key: path
        value: /a*
        rate_limit: {unit: minute, requests_per_unit: 7}
      - key: path
        value: /*a
        rate_limit: {unit: minute, requests_per_unit: 8}
      - key: path
        value: /abc
        rate_limit: {unit: minute, requests_per_unit: 9}
  - key: user
    value: free
  - key: files
    value: "*/pub/*.txt"
    share_threshold: true
    rate_limit: {unit: second, requests_per_unit: 4}
    descriptors:
      - key: user
        rate_limit: {unit: second, requests_per_unit: 2}
  - key: apart
    value: a*
    rate_limit: {unit: second, requests_per_unit: 4}
  - key: banned
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: ban-trial
    rate_limit: {unit: day, requests_per_unit: 0}
    shadow_mode: true
  - key: trial
    rate_limit: {unit: minute, requests_per_unit: 1}
    shadow_mode: true
    metadata: {n: 1}
  - key: vip
    rate_limit: {unlimited: true, name: vip, replaces: [{name: per-user}]}
    metadata: {tier: {name: gold, level: 2, open: true, tags: [a, null, 1.5]}}
  - key: special
    rate_limit: {unit: minute, requests_per_unit: 5, replaces: [{name: per-user}, {name: vip}]}
  - key: pool
    rate_limit: {unit: minute, requests_per_unit: 2}
    quota_mode: true
  - key: pool-ban
    rate_limit: {unit: minute, requests_per_unit: 0}
    quota_mode: true
  - key: s
    rate_limit: {unit: SECOND, requests_per_unit: 4294967295}
  - key: w
    rate_limit: {unit: Week, requests_per_unit: 1}
  - key: m
    rate_limit: {unit: month, requests_per_unit: 1}
  - key: y
    rate_limit: {unit: year, requests_per_unit: 1}
`

const charged = `
domain: edge
charge_on_deny: true
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: trial
    rate_limit: {unit: minute, requests_per_unit: 1}
    shadow_mode: true
  - key: pool
    rate_limit: {unit: minute, requests_per_unit: 1}
    quota_mode: true
  - key: banned
    rate_limit: {unit: minute, requests_per_unit: 0}
`

const native = `
domain: edge
rules:
  - {name: global, limit: 10/h}
  - {name: per-user, by: user, optional: true, limit: 3/minute}
  - {name: trial, when: {path: /trial}, limit: 1/minute, shadow: true}
  - {name: closed, when: {path: /closed}, deny: true}
`

// engineOf decides by a file, under a clock that only the test moves.
func engineOf(t testing.TB, file string, shadow, inline bool) (*decide.Engine, *clock) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "edge.yaml")
	if err := os.WriteFile(name, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{time.Date(2026, 11, 21, 9, 0, 10, 0, time.UTC)}
	store := weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return c.now }})
	e := decide.New(decide.Options{Limiter: weir.New(weir.Options{Store: store}), Shadow: shadow})
	e.Load(loaded.Policy, inline)
	return e, c
}

// described reads descriptors such as "user=al path=/a; pool=x cost=3; w=1 refund=2; u=1 limit=5/minute".
func described(t testing.TB, text string) []decide.Descriptor {
	t.Helper()
	ds := []decide.Descriptor{}
	for part := range strings.SplitSeq(text, ";") {
		d := decide.Descriptor{Cost: 1}
		for field := range strings.FieldsSeq(part) {
			key, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch key {
			case "cost":
				d.Cost = n
			case "refund":
				d.Cost, d.Refund = n, true
			case "limit":
				count, unit, _ := strings.Cut(value, "/")
				l, err := weir.ParseLimit("1/" + unit)
				if err != nil {
					t.Fatal(err)
				}
				l.Max, _ = strconv.ParseInt(count, 10, 64)
				d.Limit = weir.Per(l.Max, l.Window)
			default:
				d.Entries = append(d.Entries, decide.Entry{Key: key, Value: value})
			}
		}
		ds = append(ds, d)
	}
	return ds
}

// statuses writes an answer on one line: the verdict, then what is said of each
// descriptor.
func statuses(a decide.Answer) string {
	parts := []string{word(a.Allowed)}
	for _, s := range a.Statuses {
		text := word(s.Allowed)
		switch {
		case s.Unlimited:
			text += fmt.Sprintf(" unlimited %d", s.Remaining)
		case s.Matched:
			text += fmt.Sprintf(" %d of %d/%s", s.Remaining, s.Stated.Max, s.Stated.Window)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " | ")
}

func word(allowed bool) string {
	if allowed {
		return "OK"
	}
	return "OVER"
}

// said is a request and the answer to it, after a wait.
type said struct {
	wait      time.Duration
	ask, want string
}

func TestDescriptors(t *testing.T) {
	for name, test := range map[string]struct {
		file           string
		shadow, inline bool
		steps          []said
	}{
		"a window by the clock, and denials that cost nothing": {file: edge, steps: []said{
			{0, "user=al", "OK | OK 2 of 3/1m0s"},
			{0, "user=al cost=2", "OK | OK 0 of 3/1m0s"},
			{0, "user=al", "OVER | OVER 0 of 3/1m0s"},
			{0, "user=bob", "OK | OK 2 of 3/1m0s"},
			{49 * time.Second, "user=al", "OVER | OVER 0 of 3/1m0s"},
			{time.Second, "user=al", "OK | OK 2 of 3/1m0s"},
			{0, "user=al cost=4", "OVER | OVER 2 of 3/1m0s"},
			{0, "user=al cost=2147483648", "OVER | OVER 2 of 3/1m0s"},
		}},
		"what a level has for an entry": {file: edge, steps: []said{
			{0, "user=al path=/abc", "OK | OK 8 of 9/1m0s"},
			{0, "user=al path=/aba", "OK | OK 6 of 7/1m0s"},
			{0, "user=al path=/ba", "OK | OK 7 of 8/1m0s"},
			{0, "user=al path=/b", "OK | OK 1 of 2/1m0s"},
			{0, "user=al path=", "OK | OK 1 of 2/1m0s"},
			{0, "user=al path=/b method=GET", "OK | OK 4 of 5/1h0m0s"},
		}},
		"depth must match": {file: edge, steps: []said{
			{0, "user=al path=/b method=PUT", "OK | OK"},
			{0, "user=al path=/abc method=GET", "OK | OK"},
			{0, "user=al path=/b method=GET x=y", "OK | OK"},
			{0, "path=/b", "OK | OK"},
			{0, "user=al method=GET", "OK | OK"},
			{0, "method=GET user=al", "OK | OK"},
			{0, "user=free", "OK | OK"},
			{0, "user=free path=/b", "OK | OK"},
			{0, "", "OK | OK"},
			{0, "user=al; user=free", "OK | OK 2 of 3/1m0s | OK"},
		}},
		"thresholds": {file: edge, steps: []said{
			{0, "files=/pub/a.txt cost=3", "OK | OK 1 of 4/1s"},
			{0, "files=x/pub/b/c.txt", "OK | OK 0 of 4/1s"},
			{0, "files=/pub/.txt", "OVER | OVER 0 of 4/1s"},
			{0, "files=/pub.txt", "OK | OK"},
			{0, "files=/pub/a.txt user=al cost=2", "OK | OK 0 of 2/1s"},
			{0, "files=/pub/b.txt user=al", "OVER | OVER 0 of 2/1s"},
			{0, "files=/pub/b.txt user=bob", "OK | OK 1 of 2/1s"},
			{0, "apart=a cost=4", "OK | OK 0 of 4/1s"},
			{0, "apart=ab", "OK | OK 3 of 4/1s"},
		}},
		"all or nothing": {file: edge, steps: []said{
			{0, "user=al; user=al path=/b", "OK | OK 2 of 3/1m0s | OK 1 of 2/1m0s"},
			{0, "user=al; user=al path=/b cost=2", "OVER | OK 2 of 3/1m0s | OVER 1 of 2/1m0s"},
			{0, "user=al; banned=x", "OVER | OK 2 of 3/1m0s | OVER 0 of 0/24h0m0s"},
			{0, "user=al; user=al", "OK | OK 0 of 3/1m0s | OK 0 of 3/1m0s"},
		}},
		"a peek has a say, and takes nothing": {file: edge, steps: []said{
			{0, "user=al cost=0", "OK | OK 3 of 3/1m0s"},
			{0, "user=al cost=3", "OK | OK 0 of 3/1m0s"},
			{0, "user=al cost=0", "OVER | OVER 0 of 3/1m0s"},
			{0, "user=al cost=0; user=bob cost=2", "OVER | OVER 0 of 3/1m0s | OK 3 of 3/1m0s"},
			{0, "user=bob cost=3", "OK | OK 0 of 3/1m0s"},
			{0, "user=eve path=/b limit=9/hour cost=2", "OK | OK 7 of 9/1h0m0s"},
			{0, "user=al cost=0; user=eve path=/b; user=eve path=/b limit=9/hour", "OVER | OVER 0 of 3/1m0s | OK 2 of 2/1m0s | OK 7 of 9/1h0m0s"},
			{0, "user=al cost=0; trial=1; user=eve; user=eve", "OVER | OVER 0 of 3/1m0s | OK 1 of 1/1m0s | OK 3 of 3/1m0s | OK 3 of 3/1m0s"},
		}},
		"refunds": {file: edge, steps: []said{
			{0, "user=al refund=1", "OK | OK 3 of 3/1m0s"},
			{0, "user=al cost=3; user=bob cost=3", "OK | OK 0 of 3/1m0s | OK 0 of 3/1m0s"},
			{0, "user=al refund=0", "OK | OK 0 of 3/1m0s"},
			{0, "user=al refund=2; user=bob; user=free refund=1", "OVER | OK 2 of 3/1m0s | OVER 0 of 3/1m0s | OK"},
			{0, "user=al refund=100", "OK | OK 3 of 3/1m0s"},
			{0, "banned=x refund=1; user=al", "OK | OK 0 of 0/24h0m0s | OK 2 of 3/1m0s"},
			{0, "user=al", "OK | OK 1 of 3/1m0s"},
			{0, "banned=x refund=1; vip=1 refund=1", "OK | OK 0 of 0/24h0m0s | OK unlimited 4294967295"},
		}},
		"always over, and never": {file: edge, steps: []said{
			{0, "banned=x", "OVER | OVER 0 of 0/24h0m0s"},
			{0, "banned=x cost=0", "OVER | OVER 0 of 0/24h0m0s"},
			{0, "ban-trial=x; user=al", "OK | OK 0 of 0/24h0m0s | OK 2 of 3/1m0s"},
			{0, "vip=1 cost=100", "OK | OK unlimited 4294967295"},
			{0, "s=1", "OK | OK 2147483647 of 4294967295/1s"},
		}},
		"units": {file: edge, steps: []said{
			{0, "w=1; m=1; y=1", "OK | OK 0 of 1/168h0m0s | OK 0 of 1/720h0m0s | OK 0 of 1/8760h0m0s"},
			// Weeks begin on Thursdays at 0:00, as 1970 did.
			{5*24*time.Hour - 9*time.Hour - 11*time.Second, "w=1", "OVER | OVER 0 of 1/168h0m0s"},
			{time.Second, "w=1", "OK | OK 0 of 1/168h0m0s"},
		}},
		"shadows": {file: edge, steps: []said{
			{0, "trial=1; user=al", "OK | OK 0 of 1/1m0s | OK 2 of 3/1m0s"},
			{0, "trial=1; user=al", "OK | OK 0 of 1/1m0s | OK 1 of 3/1m0s"},
			{0, "trial=1 cost=0", "OK | OK 0 of 1/1m0s"},
		}},
		"a shadow over everything": {file: edge, shadow: true, steps: []said{
			{0, "user=al cost=3; banned=x", "OK | OK 0 of 3/1m0s | OVER 0 of 0/24h0m0s"},
			{0, "user=al; user=bob", "OK | OVER 0 of 3/1m0s | OK 2 of 3/1m0s"},
			{0, "user=bob", "OK | OK 1 of 3/1m0s"},
			{0, "pool=a cost=3", "OK | OVER 2 of 2/1m0s"},
		}},
		"limits that replace others": {file: edge, steps: []said{
			{0, "user=al; special=1", "OK | OK | OK 4 of 5/1m0s"},
			{0, "vip=1; user=al", "OK | OK unlimited 4294967295 | OK"},
			{0, "vip=1; special=1; user=al path=/b", "OK | OK unlimited 4294967295 | OK 3 of 5/1m0s | OK 1 of 2/1m0s"},
			{0, "user=al", "OK | OK 2 of 3/1m0s"},
		}},
		"quotas": {file: edge, steps: []said{
			{0, "pool=a cost=2; pool=b", "OK | OK 0 of 2/1m0s | OK 1 of 2/1m0s"},
			{0, "pool=a; pool=b", "OK | OVER 0 of 2/1m0s | OK 0 of 2/1m0s"},
			{0, "pool=a; pool=b; user=al", "OVER | OVER 0 of 2/1m0s | OVER 0 of 2/1m0s | OK 3 of 3/1m0s"},
			{0, "pool=a; user=al", "OVER | OVER 0 of 2/1m0s | OK 3 of 3/1m0s"},
			{0, "pool=a; pool-ban=x; user=al", "OVER | OVER 0 of 2/1m0s | OVER 0 of 0/1m0s | OK 3 of 3/1m0s"},
			{0, "pool=c; pool-ban=x; user=al", "OK | OK 1 of 2/1m0s | OVER 0 of 0/1m0s | OK 2 of 3/1m0s"},
			{0, "pool=c; pool=d; banned=x", "OVER | OK 1 of 2/1m0s | OK 2 of 2/1m0s | OVER 0 of 0/24h0m0s"},
			{0, "pool=c; pool=d; user=al cost=4", "OVER | OK 1 of 2/1m0s | OK 2 of 2/1m0s | OVER 2 of 3/1m0s"},
		}},
		"limits of the request": {file: edge, steps: []said{
			{0, "user=al limit=5/minute", "OK | OK 4 of 5/1m0s"},
			{0, "user=al", "OK | OK 1 of 3/1m0s"},
			{0, "color=red limit=5/30s; color=red limit=5/30s", "OK | OK 3 of 5/30s | OK 3 of 5/30s"},
			{20 * time.Second, "color=red limit=5/30s", "OK | OK 4 of 5/30s"},
			{0, "trial=1 cost=2 limit=1/minute", "OVER | OVER 1 of 1/1m0s"},
			{0, "user=eve limit=0/day", "OVER | OVER 0 of 0/24h0m0s"},
			{0, "user=eve limit=4294967295/day", "OK | OK 2147483647 of 4294967295/24h0m0s"},
		}},
		"a whole file by an exact algorithm": {file: "algorithm: sliding-log" + strings.Replace(edge, "4294967295", "4", 1), steps: []said{
			{0, "user=al cost=3", "OK | OK 0 of 3/1m0s"},
			{59 * time.Second, "user=al", "OVER | OVER 0 of 3/1m0s"},
			{time.Second, "user=al", "OK | OK 2 of 3/1m0s"},
			{0, "color=red limit=1/minute", "OK | OK 0 of 1/1m0s"},
			{59 * time.Second, "color=red limit=1/minute", "OVER | OVER 0 of 1/1m0s"},
		}},
		"denials that are charged": {file: charged, steps: []said{
			{0, "user=al; path=/", "OK | OK 2 of 3/1m0s | OK 0 of 1/1m0s"},
			{0, "user=al; path=/", "OVER | OK 1 of 3/1m0s | OVER 0 of 1/1m0s"},
			{0, "user=al cost=0", "OK | OK 1 of 3/1m0s"},
			{0, "user=al; banned=x", "OVER | OK 0 of 3/1m0s | OVER 0 of 0/1m0s"},
			{0, "user=al", "OVER | OVER 0 of 3/1m0s"},
			{0, "user=al refund=2", "OK | OK 1 of 3/1m0s"},
			{0, "user=bob cost=4", "OVER | OVER 0 of 3/1m0s"},
			{0, "user=bob cost=0", "OVER | OVER 0 of 3/1m0s"},
			{0, "trial=1 cost=2; user=eve", "OK | OK 0 of 1/1m0s | OK 2 of 3/1m0s"},
			{0, "pool=a; pool=b; user=eve", "OK | OK 0 of 1/1m0s | OK 0 of 1/1m0s | OK 1 of 3/1m0s"},
			{0, "pool=a; pool=c; user=eve", "OK | OVER 0 of 1/1m0s | OK 0 of 1/1m0s | OK 0 of 3/1m0s"},
			{0, "pool=a; pool=b; user=joe", "OVER | OVER 0 of 1/1m0s | OVER 0 of 1/1m0s | OK 2 of 3/1m0s"},
			{0, "user=own cost=2 limit=1/minute", "OVER | OVER 0 of 1/1m0s"},
			{0, "user=joe cost=0", "OK | OK 2 of 3/1m0s"},
			{time.Minute, "user=bob", "OK | OK 2 of 3/1m0s"},
		}},
		"rules of our own": {file: native, steps: []said{
			{0, "user=al; user=bob cost=3", "OK | OK 2 of 3/1m0s | OK 0 of 3/1m0s"},
			{0, "user=al; user=bob", "OVER | OK 2 of 3/1m0s | OVER 0 of 3/1m0s"},
			{0, "color=red", "OK | OK 5 of 10/1h0m0s"},
			{0, "path=/trial cost=2", "OK | OK 3 of 10/1h0m0s"},
			{0, "path=/closed; user=al", "OVER | OVER 0 of 0/0s | OK 2 of 3/1m0s"},
			{0, "user=al path=/x refund=1", "OK | OK 3 of 3/1m0s"},
			{0, "user=al limit=1/second cost=1", "OK | OK 0 of 1/1s"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e, c := engineOf(t, test.file, test.shadow, test.inline)
			for i, s := range test.steps {
				c.step(s.wait)
				a, err := e.Check(t.Context(), decide.Query{Domain: "edge", Descriptors: described(t, s.ask)})
				if err != nil {
					t.Fatalf("step %d, %s: %v", i, s.ask, err)
				}
				if got := statuses(a); got != s.want || !a.Allowed && len(a.Receipts()) > 0 && test.file != charged {
					t.Errorf("step %d, %s:\n got %s\nwant %s", i, s.ask, got, s.want)
				}
			}
		})
	}
}

func TestStatusTellsOfItsLimit(t *testing.T) {
	e, _ := engineOf(t, edge, false, false)
	a, err := e.Check(t.Context(), decide.Query{Domain: "edge", Descriptors: described(t, "user=al cost=3; vip=1; trial=1; pool=a; user=al path=/b limit=1/s; nothing=1")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range a.Statuses {
		got = append(got, fmt.Sprintf("%s %q %q %s %s shadow=%t quota=%t %v", s.Reason, s.Name, s.LimitName, s.Key, s.ResetAfter, s.Shadow, s.Quota, s.Metadata))
	}
	want := `no_rule "" ""  0s shadow=false quota=false map[]
ok "vip" "vip"  0s shadow=false quota=false map[tier:map[level:2 name:gold open:true tags:[a <nil> 1.5]]]
ok "trial" "" edge::trial:1 50s shadow=true quota=false map[n:1]
ok "pool" "" edge::pool:a 50s shadow=false quota=true map[]
ok "" "" edge::user:al:path:/b 1s shadow=false quota=false map[]
no_rule "" ""  0s shadow=false quota=false map[]`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if n, ok := a.Statuses[1].Metadata["tier"].(map[string]any)["level"].(float64); !ok || n != 2 {
		t.Errorf("a number in metadata is %v", a.Statuses[1].Metadata)
	}
	if len(a.Rows) != 3 || len(a.Receipts()) != 3 {
		t.Errorf("%d rows and %d receipts, want one for each limit", len(a.Rows), len(a.Receipts()))
	}
}

// TestVerdictOfDescriptors looks at the numbers of the whole.
func TestVerdictOfDescriptors(t *testing.T) {
	e, _ := engineOf(t, edge, false, false)
	for _, s := range []said{
		{0, "user=al; pool=a", "ok ok 1/2"},
		{0, "user=al; user=al path=/b method=GET", "ok ok 1/3"},
		{0, "trial=1", "ok ok 0/1"},
		{0, "trial=1; user=al", "ok ok 0/3"},
		{0, "user=al; user=al path=/b method=GET cost=5", "deny over_limit 4/5 retry 59m50s"},
		{0, "user=al; banned=1", "deny never 0/0"},
		{0, "nothing=1", "ok no_rule 0/0"},
		{0, "vip=1", "ok ok 4294967295/4294967295"},
	} {
		a, err := e.Check(t.Context(), decide.Query{Domain: "edge", Descriptors: described(t, s.ask)})
		if got := verdict(a.Decision, a.Reason.String()); err != nil || got != s.want {
			t.Errorf("%s: got %s, %v, want %s", s.ask, got, err, s.want)
		}
	}
}

func TestDescriptorErrors(t *testing.T) {
	var unknown *decide.UnknownDomainError
	for _, test := range []struct {
		domain, ask string
		inline      bool
		want        string
	}{
		{"other", "user=al", true, `domain "other" is unknown: want edge`},
		{"other", "user=al limit=5/minute", false, `domain "other" is unknown: want edge`},
		{"other", "user=al limit=5/minute; user=bob", true, "OK | OK 4 of 5/1m0s | OK"},
		{"edge", "user=al cost=-1", false, `weir: descriptors[0].cost "-1": want 0 to 2147483648 units, such as 1`},
		{"edge", "user=al; user=al cost=2147483649", false, `weir: descriptors[1].cost "2147483649": want 0 to 2147483648 units, such as 1`},
		{"edge", "user=al limit=-1/day", false, `weir: descriptors[0].limit "-1/24h0m0s": want 0 or more requests per 1us to 366d, such as 5/minute`},
		{"edge", "user=al limit=5/2us", false, "OK | OK 4 of 5/2µs"},
		{"edge", "x=1; user=al; user=al limit=5/minute", false, `weir: descriptors[2].limit "5/1m epoch": want the limit of the other request for the same key and window, 3/1m epoch`},
	} {
		e, _ := engineOf(t, edge, false, test.inline)
		a, err := e.Check(t.Context(), decide.Query{Domain: test.domain, Descriptors: described(t, test.ask)})
		got := statuses(a)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", test.ask, got, test.want)
		}
		if strings.HasPrefix(test.want, "domain") != errors.As(err, &unknown) {
			t.Errorf("%s: %v must be an UnknownDomainError if it is one", test.ask, err)
		}
	}
}

// TestAttributesOfATree has the other front ends ask an envoyproxy/ratelimit
// file.
func TestAttributesOfATree(t *testing.T) {
	e, _ := engineOf(t, edge, false, false)
	for _, test := range []struct {
		attributes map[string]string
		cost       int64
		want       string
	}{
		{map[string]string{"path": "/b", "user": "al"}, 1, "ok ok 1/2 | ok user.path 1/2"},
		{map[string]string{"path": "/b", "user": "al"}, 2, "deny over_limit 1/2 retry 50s | deny user.path 1/2 retry 50s"},
		{map[string]string{"path": "/b"}, 1, "ok no_rule 0/0"},
		{map[string]string{"vip": "1"}, 1, "ok no_rule 0/0"},
		{map[string]string{"banned": "1"}, 1, "deny never 0/0 | deny banned 0/0"},
	} {
		a, err := e.Check(t.Context(), decide.Query{Domain: "edge", Attributes: test.attributes, Cost: test.cost})
		if got := text(a); err != nil || got != test.want {
			t.Errorf("%v: got %s, %v, want %s", test.attributes, got, err, test.want)
		}
	}
	user := decide.Query{Domain: "edge", Descriptors: described(t, "user=al cost=2; pool=a")}
	if _, err := e.Charge(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	wantUnits(t, 3)(e.RefundOldest(t.Context(), user))
	if _, err := e.Charge(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	wantUnits(t, 2)(e.Reset(t.Context(), user))
}

// TestChargedDenialsOfAttributes has each denial delay nothing more, as the
// window ends anyway.
func TestChargedDenialsOfAttributes(t *testing.T) {
	e, _ := engineOf(t, charged, false, false)
	ask := decide.Query{Domain: "edge", Attributes: map[string]string{"user": "al"}, Cost: 2}
	for _, want := range []string{"ok ok 1/3 | ok user 1/3", "deny over_limit 0/3 retry 50s | deny user 0/3 retry 50s"} {
		a, err := e.Check(t.Context(), ask)
		if got := text(a); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	charge, err := e.Charge(t.Context(), ask)
	if got := text(charge); err != nil || got != "ok ok 0/3 | ok user 0/3" {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestFileSaysWhatAFailureDoes has a store that never answers.
func TestFileSaysWhatAFailureDoes(t *testing.T) {
	limits := []policy.Descriptor{
		{Key: "user", RateLimit: &policy.RateLimit{Requests: 9, Unit: policy.Hour}},
		{Key: "trial", Shadow: true, RateLimit: &policy.RateLimit{Requests: 9, Unit: policy.Hour}},
	}
	for _, test := range []struct {
		tree policy.Tree
		want string
		took time.Duration
	}{
		{policy.Tree{}, "OK | OK 2 of 9/1h0m0s | OK 0 of 9/1h0m0s | store_unavailable_local", time.Second},
		{policy.Tree{ChargeOnDeny: true}, "OK | OK 2 of 9/1h0m0s | OK 0 of 9/1h0m0s | store_unavailable_local", time.Second},
		{policy.Tree{OnFailure: weir.OnFailureDeny, Deadline: time.Millisecond}, "OVER | OVER 0 of 9/1h0m0s | OK 0 of 9/1h0m0s | store_unavailable_denied", time.Millisecond},
		{policy.Tree{OnFailure: weir.OnFailureDeny, ChargeOnDeny: true}, "OVER | OVER 0 of 9/1h0m0s | OK 0 of 9/1h0m0s | store_unavailable_denied", time.Second},
		{policy.Tree{OnFailure: weir.OnFailureAllow}, "OK | OK 0 of 9/1h0m0s | OK 0 of 9/1h0m0s | store_unavailable_allowed", time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			test.tree.Descriptors = limits
			p, err := policy.Compile([]policy.Domain{{Name: "edge", Tree: &test.tree}})
			if err != nil {
				t.Fatal(err)
			}
			store := layer.NewFallback(layer.FallbackOptions{Store: hung{}, Deadline: time.Second, Replicas: 3})
			e := decide.New(decide.Options{Limiter: weir.New(weir.Options{Store: store})})
			e.Load(p, false)
			start := time.Now()
			a, err := e.Check(t.Context(), decide.Query{Domain: "edge", Descriptors: described(t, "user=al; trial=1 cost=3")})
			if got := statuses(a) + " | " + a.Reason.String(); err != nil || got != test.want || time.Since(start) != test.took {
				t.Errorf("%+v: got %s after %v, %v, want %s", test.tree, got, time.Since(start), err, test.want)
			}
			<-time.After(time.Second) // the call to the store outlives the answer
		})
	}
}

// Refunds, and what a denial gives back, are the store's to fail.
func TestDescriptorsOfAClosedStore(t *testing.T) {
	limiter := weir.New(weir.Options{})
	e := decide.New(decide.Options{Limiter: limiter})
	p, err := policy.Compile([]policy.Domain{{Name: "edge", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "user", RateLimit: &policy.RateLimit{Requests: 1, Unit: policy.Hour}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	e.Load(p, false)
	if err := limiter.Close(); err != nil {
		t.Fatal(err)
	}
	for _, ask := range []string{"user=al", "user=al refund=1"} {
		if _, err := e.Check(t.Context(), decide.Query{Domain: "edge", Descriptors: described(t, ask)}); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", ask, err)
		}
	}
}
