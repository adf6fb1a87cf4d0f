package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/sim"
)

// text lays a simulation out for people.
func (s *simulation) text() []byte {
	var b bytes.Buffer
	for _, log := range s.Logs {
		writeLog(&b, log)
	}
	fmt.Fprintf(&b, "\ndomain %s\n", s.Domain)
	fmt.Fprintf(&b, "  %s requests: %s admitted, %s denied", commas(s.Requests), commas(s.Admitted), commas(s.Denied))
	if s.Unmatched > 0 {
		fmt.Fprintf(&b, ", %s matched no rule", commas(s.Unmatched))
	}
	if s.Requests > 0 {
		fmt.Fprintf(&b, "\n  from %s to %s UTC", s.First.Format(time.DateTime), s.Last.Format(time.DateTime))
	}
	if s.Clamped > 0 {
		fmt.Fprintf(&b, "\n  %s came earlier than the newest before them and were decided at its time", commas(s.Clamped))
	}
	if s.Evicted > 0 {
		fmt.Fprintf(&b, "\n  %s states were forgotten for want of room: more was admitted than should be", commas(s.Evicted))
	}
	b.WriteString("\n\n")
	writeRules(&b, s.Rules)
	for _, r := range s.Rules {
		writeRule(&b, r)
	}
	return b.Bytes()
}

func writeLog(b *bytes.Buffer, log accessLog) {
	fmt.Fprintf(b, "%s: %s lines, %s requests, %s unparsed, %s out of time order\n",
		printable(log.Name), commas(log.Lines), commas(log.Requests), commas(log.Unparsed), commas(log.Disordered))
	for _, line := range log.UnparsedLines {
		fmt.Fprintf(b, "  line %d: %s\n", line.Line, line.Reason)
	}
	if more := log.Unparsed - int64(len(log.UnparsedLines)); more > 0 {
		fmt.Fprintf(b, "  and %s more\n", commas(more))
	}
}

func writeRules(b *bytes.Buffer, rules []sim.RuleReport) {
	rows := [][]string{{"rule", "limit", "requests", "admitted", "denied", "keys"}}
	for _, r := range rules {
		rows = append(rows, []string{r.Name, limitText(r), commas(r.Seen), commas(r.Admitted), commas(r.Denied), commas(int64(r.Keys))})
	}
	writeTable(b, 2, rows)
}

func limitText(r sim.RuleReport) string {
	text := r.Limit
	if text == "" {
		text = "deny"
	}
	if r.Overrides > 0 {
		text += fmt.Sprintf(", %d overrides", r.Overrides)
	}
	if r.Shadow {
		text += ", shadow"
	}
	return text
}

func writeRule(b *bytes.Buffer, r sim.RuleReport) {
	if len(r.Limited)+len(r.Algorithms) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s: %s\n", r.Name, limitText(r))
	if len(r.Limited) > 0 {
		fmt.Fprintf(b, "%10s  most limited keys\n", "denied")
	}
	for _, l := range r.Limited {
		fmt.Fprintf(b, "%10s  %s\n", commas(l.Denied), printable(l.Key))
	}
	if len(r.Algorithms) > 0 {
		rows := [][]string{{"  algorithm, if alone", "admitted", "denied", "admitted, exact denies", "denied, exact admits"}}
		for _, c := range r.Algorithms {
			rows = append(rows, []string{"  " + algorithmText(c), commas(c.Admitted), commas(c.Denied), commas(c.Over), commas(c.Under)})
		}
		writeTable(b, 1, rows)
	}
}

func algorithmText(c sim.Comparison) string {
	text := c.Algorithm
	if c.Algorithm == "sliding-log" {
		text += ", exact"
	}
	if c.Configured {
		text += ", configured"
	}
	return text
}

// writeTable aligns columns: the first left ones to the left, the others,
// which hold numbers, to the right.
func writeTable(b *bytes.Buffer, left int, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				b.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < left {
				b.WriteString(cell + pad)
			} else {
				b.WriteString(pad + cell)
			}
		}
		b.WriteByte('\n')
	}
}

// commas writes 1234567 as 1,234,567; n is not negative.
func commas(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// printable quotes s if it holds anything that could upset a terminal: logs
// are written by strangers.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}
