package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// realLog names the 10,000 lines beside the repository, or the extract of 300
// that is part of it.
func realLog(t *testing.T) (name string, lines int64) {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	name = filepath.Join(root, "..", "shared", "data", "access.log")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(root, "sim", "testdata", "access-extract.log"), 300
	}
	return name, 10_000
}

// simulate runs the command and returns what it prints as JSON.
func simulate(t *testing.T, args ...string) simulation {
	t.Helper()
	var out bytes.Buffer
	cmd := simulateCmd()
	cmd.SetArgs(append(args, "--json"))
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	var s simulation
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	return s
}

// naive counts what the definition of max in any window admits of a log for
// each address, without any of the code under test.
func naive(t *testing.T, name string, most int, window time.Duration) (requests, admitted int64) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type request struct {
		ip string
		at time.Time
	}
	var all []request
	whole := regexp.MustCompile(`^(\S+) \S+ \S+ \[([^]]+)\] "[^"]*" \d+ \S+ "[^"]*" "[^"]*"$`)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := whole.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		at, err := time.Parse("2/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, request{m[1], at})
	}
	slices.SortStableFunc(all, func(a, b request) int { return a.at.Compare(b.at) })
	taken := make(map[string][]time.Time)
	for _, r := range all {
		recent := 0
		for _, at := range taken[r.ip] {
			if r.at.Sub(at) < window {
				recent++
			}
		}
		if recent < most {
			taken[r.ip] = append(taken[r.ip], r.at)
			admitted++
		}
	}
	return int64(len(all)), admitted
}

func TestSimulateAdmitsWhatTheDefinitionAdmits(t *testing.T) {
	log, lines := realLog(t)
	for _, test := range []struct {
		limit  string
		most   int
		window time.Duration
	}{
		{"20/minute", 20, time.Minute},
		{"7/20s", 7, 20 * time.Second},
	} {
		t.Run(test.limit, func(t *testing.T) {
			rules := filepath.Join(t.TempDir(), "rules.yaml")
			text := "domain: web\nrules: [{name: per-ip, by: [ip], algorithm: sliding-log, limit: " + test.limit + "}]\n"
			if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			requests, admitted := naive(t, log, test.most, test.window)
			if requests != lines-1 || admitted >= requests {
				t.Fatalf("the definition admits %d of %d requests in %d lines", admitted, requests, lines)
			}
			got := simulate(t, "--config", rules, log)
			if got.Requests != requests || got.Admitted != admitted || got.Denied != requests-admitted || got.Rules[0].Admitted != admitted {
				t.Errorf("%d of %d admitted, the definition admits %d of %d", got.Admitted, got.Requests, admitted, requests)
			}
		})
	}
}

func TestSimulateTheWebsiteExample(t *testing.T) {
	log, lines := realLog(t)
	got := simulate(t, "--config", filepath.Join("..", "..", "..", "examples", "website.yaml"), log)
	held := got.Logs[0]
	if held.Lines != lines || held.Requests != lines-1 || held.Unparsed != 1 || got.Requests != lines-1 {
		t.Errorf("%+v, want %d lines, all but one of them requests", held, lines)
	}
	if got.Denied == 0 || got.Admitted+got.Denied != got.Requests {
		t.Errorf("%d admitted, %d denied of %d", got.Admitted, got.Denied, got.Requests)
	}
	if lines == 10_000 && held.UnparsedLines[0].Line != 8899 {
		t.Errorf("unparsed %+v, want line 8899", held.UnparsedLines)
	}
	if len(got.Rules) != 3 {
		t.Fatalf("%d rules, want 3", len(got.Rules))
	}
	for _, r := range got.Rules {
		if r.Seen != lines-1 || r.Admitted+r.Denied != r.Seen || len(r.Algorithms) != 5 || r.Algorithms[0].Denied == 0 {
			t.Errorf("%+v, want every request seen, and some denied if it were alone", r)
		}
	}
}

func TestProgressIsForTerminalsOnly(t *testing.T) {
	if p := newProgress(new(bytes.Buffer)); p.w != nil {
		t.Error("progress is shown to a buffer")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if p := newProgress(file); p.w != nil {
		t.Error("progress is shown to a file")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if p := newProgress(null); p.w == nil {
		t.Error("progress is not shown to a character device")
	}
}

func TestProgressIsShownWhenDueAndCleared(t *testing.T) {
	var out strings.Builder
	p := progress{w: &out, next: time.Now().Add(time.Hour)}
	for range 2000 {
		p.step("read")
	}
	p.clear()
	if out.String() != "" {
		t.Errorf("%q before it was due", &out)
	}
	p.next = time.Time{}
	for range 1999 {
		p.step("read")
	}
	p.clear()
	if want := "\r\x1b[Kread 3,000 lines\r\x1b[K"; out.String() != want {
		t.Errorf("progress %q, want %q", &out, want)
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"web:per-ip:2001%3Adb8": "web:per-ip:2001%3Adb8",
		"übung /ok":             "übung /ok",
		"\x1b[31mred":           `"\x1b[31mred"`,
		"a\nb":                  `"a\nb"`,
		"\xff":                  `"\xff"`,
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestCommas(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		if got := commas(n); got != want {
			t.Errorf("commas(%d) = %s, want %s", n, got, want)
		}
	}
}
