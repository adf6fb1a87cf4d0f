package main

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// style is a rendition as terminals number them.
type style string

const (
	plain    style = ""
	bold     style = "1"
	reversed style = "7"
	red      style = "31"
	green    style = "32"
	yellow   style = "33"
)

// page is text of at most width columns, if that is not 0.
type page struct {
	width   int
	styled  bool // emphasis
	colours bool
	lines   []string
}

// add adds a line, without what does not fit.
func (p *page) add(s style, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.width > 0 {
		text = ansi.Truncate(text, p.width, "…")
	}
	colour := s != plain && s[0] == '3'
	if s != plain && (colour && p.colours || !colour && p.styled) {
		text = "\x1b[" + string(s) + "m" + text + "\x1b[m"
	}
	p.lines = append(p.lines, text)
}

// wrap adds text on as many lines as it takes, but at most some.
func (p *page) wrap(s style, most int, text string) {
	if p.width == 0 {
		p.add(s, "%s", text)
		return
	}
	lines := strings.Split(ansi.Wrap(text, p.width, ""), "\n")
	if len(lines) > most {
		lines[most-1] += "…"
		lines = lines[:most]
	}
	for _, line := range lines {
		p.add(s, "%s", line)
	}
}

// String is the first lines of the page, as many as there may be; 0 is all.
func (p *page) String(height int) string {
	lines := p.lines
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	return strings.Join(lines, "\n")
}

// grid is rows of cells below titles. A title that begins with a space is that
// of numbers.
type grid struct {
	titles []string
	rows   [][]string
	styles []style
}

func (t *grid) row(s style, cells ...string) {
	t.rows, t.styles = append(t.rows, cells), append(t.styles, s)
}

// narrowest is how many columns a cell keeps.
const narrowest = 8

// widths are those of the cells: as wide as the widest, unless that is wider than
// the page. Then the widest give.
func (t *grid) widths(width int) []int {
	widths := make([]int, len(t.titles))
	total := 2 * (len(widths) - 1)
	for i, title := range t.titles {
		widths[i] = ansi.StringWidth(strings.TrimSpace(title))
		for _, row := range t.rows {
			widths[i] = max(widths[i], ansi.StringWidth(row[i]))
		}
		total += widths[i]
	}
	for ; width > 0 && total > width; total-- {
		widest := 0
		for i := range widths {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
	}
	return widths
}

// grid adds a grid.
func (p *page) grid(t *grid) {
	widths := t.widths(p.width)
	p.add(bold, "%s", t.line(widths, t.titles))
	for i, row := range t.rows {
		p.add(t.styles[i], "%s", t.line(widths, row))
	}
}

func (t *grid) line(widths []int, cells []string) string {
	var b strings.Builder
	for i, cell := range cells {
		cell = ansi.Truncate(strings.TrimSpace(cell), widths[i], "…")
		space := strings.Repeat(" ", widths[i]-ansi.StringWidth(cell))
		if i > 0 {
			b.WriteString("  ")
		}
		if t.titles[i][0] == ' ' {
			cell, space = space, cell
		}
		b.WriteString(cell + space)
	}
	return strings.TrimRight(b.String(), " ")
}
