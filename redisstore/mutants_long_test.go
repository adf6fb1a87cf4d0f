//go:build long

package redisstore

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/storetest"
)

// mutant is a Lua file with one change.
type mutant struct {
	file, line, change string // its name: the text of the line, and what changes there
	text               string // the file so changed
	listed             bool   // as equivalent
	killer             string // the check that noticed, or ""
	how                error  // how it noticed
}

func (m *mutant) name() string { return m.file + ": " + m.line + "\n\t" + m.change }

var luaTokens = regexp.MustCompile(`--.*|'[^']*'|@\w+|[A-Za-z_]\w*|\d+(?:\.\d+)?|\.\.|[<>=~]=|[^\s\w]`)

// swaps are the changes of one token. Integers become their neighbours.
var swaps = map[string]string{
	"+": "-", "-": "+", "*": "+", "/": "*", "%": "+", "^": "*",
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==",
	"and": "or", "or": "and", "true": "false", "false": "true", "not": "", "ceil": "floor", "floor": "ceil",
}

// beforeOperand are the tokens after which an operand stands: a minus there has one only,
// and a call is no statement.
var beforeOperand = strings.Fields("= ( , { [ .. + - * / % ^ # < <= > >= == ~= and or not return")

// mutants returns every mutant of a file.
func mutants(file, text string) []*mutant {
	var all []*mutant
	times := make(map[string]int)
	tokens := luaTokens.FindAllStringIndex(text, -1)
	for i, at := range tokens {
		previous := ""
		if i > 0 {
			previous = text[tokens[i-1][0]:tokens[i-1][1]]
		}
		token, operand := text[at[0]:at[1]], slices.Contains(beforeOperand, previous)
		end := at[1]
		var others []string
		if n, err := strconv.ParseFloat(token, 64); err == nil {
			for _, other := range []float64{n + 1, n - 1} {
				others = append(others, strconv.FormatFloat(other, 'f', -1, 64))
			}
		} else if token == "-" && operand {
			others = []string{""}
		} else if token == "call" && !operand && previous != "local" {
			others, end = []string{""}, endOfCall(text, end)
		} else if other, known := swaps[token]; known {
			others = []string{other}
		}
		for _, other := range others {
			m := &mutant{file: file, line: lineAt(text, at[0]), change: token + " to " + other, text: text[:at[0]] + other + text[end:]}
			if other == "" {
				m.change = "without " + token
			}
			if times[m.name()]++; times[m.name()] > 1 {
				m.change += fmt.Sprintf(" (%d)", times[m.name()])
			}
			all = append(all, m)
		}
	}
	return all
}

// endOfCall returns where the parentheses that open at or after a place close.
func endOfCall(text string, at int) int {
	for depth := 0; ; at++ {
		switch text[at] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
}

// lineAt returns the line around a place, without the spaces at its ends.
func lineAt(text string, at int) string {
	start := strings.LastIndexByte(text[:at], '\n') + 1
	line, _, _ := strings.Cut(text[start:], "\n")
	return strings.TrimSpace(line)
}

// judges are the checks in the order in which they see a mutant, and of how many
// stores that each opens one is a mutant.
var judges = []struct {
	name  string
	every int
}{
	{"large-limits", 1}, {"clock-back", 1}, {"refund-once", 1}, {"model", 1}, {"limit-change", 1}, {"never", 1},
	{"refund-at-capacity", 1}, {"slow-refill", 1}, {"tiny-windows", 1}, {"sub-second", 1},
	{"retry", 12},
}

// ways are the stores that see the mutants of a file. What verify mode does in
// Go, it does to the script for lists only.
func (m *mutant) ways() []Options {
	verified, plain, sorted := Options{Verify: true}, Options{}, Options{Verify: true, SortedSet: true}
	switch m.file {
	case "one.lua", "nested.lua":
		return []Options{plain}
	case "sortedset.lua":
		return []Options{sorted}
	case "list.lua":
		return []Options{verified, plain, sorted}
	}
	return []Options{verified}
}

// run puts a mutant through the vectors and the checks, until one notices.
func (m *mutant) run(t *testing.T, server *redistest.Server, vectors []storetest.Script, checks map[string]storetest.Check) {
	server.Must(t, "FLUSHALL")
	server.Must(t, "SCRIPT", "FLUSH")
	var trials []*trial
	for i, o := range m.ways() {
		o.URL, o.Prefix = "unix://"+server.Socket(), fmt.Sprint("way", i)
		store, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer store.link.close()
		store.scripts = newScriptsFrom(func(name string) string {
			if name == m.file {
				return m.text
			}
			return luaFile(name)
		})
		trials = append(trials, &trial{server: server, store: store, every: 1})
	}
	for _, r := range trials {
		if m.killer == "" {
			m.killer = m.play(r, vectors)
		}
	}
	for _, r := range trials {
		if m.killer == "" && (!m.listed || *whole) {
			m.killer = m.judge(r, checks)
		}
	}
	if _, err := server.Do("PING"); err != nil { // the script does not end
		server.Restart(t)
	}
}

// speaks reports whether a vector asks a script that has the mutant in it.
func (m *mutant) speaks(v *storetest.Script) bool {
	of, own := algorithmsOf[m.file]
	return !own || slices.ContainsFunc(v.Steps, func(s storetest.Step) bool {
		l, _ := s.Limit.Normal() // that of a valid vector
		return s.Verb == "limit" && slices.Contains(of, l.Algorithm.String())
	})
}

// algorithmsOf are those whose scripts alone hold a file.
var algorithmsOf = map[string][]string{
	"log.lua": {"sliding-log", "sliding-buckets"}, "sortedset.lua": {"sliding-log"}, "counter.lua": {"sliding-counter"},
	"window.lua": {"fixed-window"}, "bucket.lua": {"token-bucket"},
}

func (m *mutant) play(r *trial, vectors []storetest.Script) string {
	for _, v := range vectors {
		if !m.speaks(&v) {
			continue
		}
		if m.how = v.Play(r.open); m.how != nil {
			return "vectors"
		}
	}
	return ""
}

func (m *mutant) judge(r *trial, checks map[string]storetest.Check) string {
	for _, own := range []struct {
		name string
		run  func(*trial) error
	}{
		{"server-clock", (*trial).serverClock}, {"ttl", (*trial).lifetimes}, {"wrap", (*trial).wraps},
		{"muldiv", func(r *trial) error { return checkMuldiv(r.server, r.store.scripts.source("muldiv.lua")) }},
	} {
		if m.how = own.run(r); m.how != nil {
			return own.name
		}
	}
	if m.file == "log.lua" || m.file == "sortedset.lua" {
		m.how = checkSteady(r.server, func(now func() time.Time) *Store {
			r.opened++
			s := r.fresh(now).Store
			s.options.Verify = false
			return s
		})
		if m.how != nil {
			return "steady-logs"
		}
		if m.how = checkLogs(r.open); m.how != nil {
			return "large-logs"
		}
	}
	for _, j := range judges {
		r.every = j.every
		if m.how = checks[j.name].Run(r.open); m.how != nil {
			return j.name
		}
	}
	return ""
}

// equivalents reads the mutants that no test can catch, each with its reason: a
// line "FILE: LINE" and below it, indented, "CHANGE, CHANGE: REASON".
func equivalents(t *testing.T) map[string]string {
	text, err := os.ReadFile("testdata/equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	reasons := make(map[string]string)
	line := ""
	for s := range strings.Lines(string(text)) {
		s = strings.TrimRight(s, "\n")
		switch {
		case s == "" || s[0] == '#':
		case s[0] != '\t':
			line = s
		default:
			changes, reason, ok := strings.Cut(s[1:], ": ")
			for change := range strings.SplitSeq(changes, ", ") {
				if name := line + "\n\t" + change; !ok || reasons[name] != "" {
					t.Errorf("testdata/equivalent.txt: %s: no reason, or two", name)
				} else {
					reasons[name] = reason
				}
			}
		}
	}
	return reasons
}

var whole = flag.Bool("whole", false, "put the mutants of testdata/equivalent.txt through every check")

// TestLongMutants changes each Lua file in one place after another, and holds
// that the vectors or the checks notice every change but those of
// testdata/equivalent.txt. Those go through the vectors only: that no check
// notices them either is what go test -tags long -run TestLongMutants -whole
// shows, within half an hour.
func TestLongMutants(t *testing.T) {
	vectors, err := storetest.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	checks := make(map[string]storetest.Check)
	for _, c := range storetest.Checks() {
		checks[c.Name] = c
	}
	files, err := lua.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	servers := []*redistest.Server{redistest.Start(t, redistest.Options{Unix: true}), redistest.Start(t, redistest.Options{Unix: true})}
	reasons := equivalents(t)
	var table strings.Builder
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "file\tmutants\tcaught by vectors\tby checks\tequivalent")
	for _, file := range []string{"each.lua", "one.lua", "sortedset.lua"} { // each of the ways in which run opens a store
		m := mutant{file: file, text: luaFile(file)}
		if m.run(t, servers[0], vectors, checks); m.killer != "" {
			t.Fatalf("%s finds fault with %s as it is: %v", m.killer, file, m.how)
		}
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			all := mutants(f.Name(), luaFile(f.Name()))
			todo := make(chan *mutant, len(all))
			for _, m := range all {
				m.listed = reasons[m.name()] != ""
				todo <- m
			}
			close(todo)
			t.Run("run", func(t *testing.T) {
				for _, server := range servers {
					t.Run(server.Addr(), func(t *testing.T) {
						t.Parallel()
						for m := range todo {
							m.run(t, server, vectors, checks)
						}
					})
				}
			})
			summarize(t, columns, all, reasons)
		})
	}
	if err := columns.Flush(); err != nil {
		t.Error(err)
	}
	t.Log("\n" + table.String())
}

// summarize writes a row of the table for the mutants of a file.
func summarize(t *testing.T, w *tabwriter.Writer, all []*mutant, reasons map[string]string) {
	killed := make(map[string]int)
	names := make(map[string]bool)
	for _, m := range all {
		killed[m.killer]++
		names[m.name()] = true
		switch reason := reasons[m.name()]; {
		case m.killer == "" && reason == "":
			t.Errorf("not noticed: %s", m.name())
		case m.killer != "" && reason != "":
			t.Errorf("%s notices what testdata/equivalent.txt lists: %s", m.killer, m.name())
		}
	}
	for name := range reasons {
		if strings.HasPrefix(name, all[0].file+": ") && !names[name] {
			t.Errorf("testdata/equivalent.txt lists what is not there: %s", name)
		}
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", all[0].file, len(all), killed["vectors"], len(all)-killed["vectors"]-killed[""], killed[""])
	t.Log(killed)
}
