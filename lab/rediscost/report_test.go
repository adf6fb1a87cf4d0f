package rediscost

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// report writes what was measured as Markdown.
func report(all []*subject) string {
	var out strings.Builder
	table := func(head string, of question, row func(*subject) string) {
		fmt.Fprintf(&out, "%s\n%s\n", head, strings.Repeat("|---", strings.Count(head, "|")-1)+"|")
		for _, s := range all {
			if s.levels == of.levels && s.pace == of.pace {
				fmt.Fprintln(&out, row(s))
			}
		}
		fmt.Fprintln(&out)
	}
	table("| one limit | Max | denied | admitted | bytes a key |", question{levels: 1, pace: 1}, func(s *subject) string {
		return fmt.Sprintf("| %s | %d | %v | %v | %.0f |", s.name, s.max, median(s.deny), median(s.admit), s.bytes)
	})
	table("| three limits at once | Max | denied | admitted |", question{levels: 3, pace: 1}, func(s *subject) string {
		return fmt.Sprintf("| %s | %d | %v | %v |", s.name, s.max, median(s.deny), median(s.admit))
	})
	table("| one limit, its window half full | Max | admitted |", question{levels: 1, pace: 2}, func(s *subject) string {
		return fmt.Sprintf("| %s | %d | %v |", s.name, s.max, median(s.admit))
	})
	out.WriteString("| the packed log, by the sorted set | Max | denied | admitted | bytes a key |\n|---|---|---|---|---|\n")
	for _, s := range all {
		if s.name != logs[0].name {
			continue
		}
		for _, other := range all {
			if other.question == s.question && other.name == logs[1].name {
				denied := ""
				if s.pace == 1 {
					denied = ratio(median(s.deny).script, median(other.deny).script)
				}
				fmt.Fprintf(&out, "| %s | %d | %s | %s | %s |\n", s.kind(), s.max,
					denied, ratio(median(s.admit).script, median(other.admit).script), ratio(s.bytes, other.bytes))
			}
		}
	}
	return out.String()
}

// kind says what a question is about.
func (q question) kind() string {
	switch {
	case q.levels > 1:
		return "three limits at once"
	case q.pace > 1:
		return "one, half full"
	}
	return "one limit"
}

func ratio(a, b float64) string {
	if a == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", a/b)
}

// String is the time in the script and, in brackets, that of the process.
func (c cost) String() string { return fmt.Sprintf("%.1f (%.1f)", c.script, c.processor) }

// The marks between which a page is written by make bench.
const begin, end = "<!-- begin: written by make bench -->\n", "<!-- end: written by make bench -->\n"

// write puts text between the marks of a page.
func write(file, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, began := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !began || !ended {
		return fmt.Errorf("%s: want the lines %q and %q, between which to write", file, begin, end)
	}
	return os.WriteFile(file, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644)
}

func TestWrite(t *testing.T) {
	file := t.TempDir() + "/page.md"
	for _, page := range []struct{ text, want string }{
		{"head\n" + begin + "old\n" + end + "tail\n", "head\n" + begin + "\nnew\n" + end + "tail\n"},
		{"head\n" + begin + end, "head\n" + begin + "\nnew\n" + end},
		{"head\n" + begin, ""},
		{"head\n" + end + begin, ""},
	} {
		if err := os.WriteFile(file, []byte(page.text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := write(file, "new")
		if (err == nil) != (page.want != "") {
			t.Errorf("write to %q: %v", page.text, err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if page.want == "" {
			page.want = page.text
		}
		if string(got) != page.want {
			t.Errorf("%q became %q, want %q", page.text, got, page.want)
		}
	}
}
