package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Path names a place in what was compiled: strings are fields and attributes,
// ints are positions in lists. Field names are those of the configuration.
type Path []any

// String returns the path as text, such as domains[0].rules[2].limit or
// domains[0].rules[2].when["x-api.key"].
func (p Path) String() string {
	var b strings.Builder
	for _, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			if !plain(step) {
				fmt.Fprintf(&b, "[%q]", step)
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// plain reports whether a step needs no quotes.
func plain(step string) bool {
	for _, c := range step {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return step != ""
}

// At returns the path of a place below p.
func (p Path) At(steps ...any) Path { return append(slices.Clip(p), steps...) }

// Error is one thing that is wrong with what was to be compiled.
type Error struct {
	// Path is where it is.
	Path Path
	// Message says what is wrong and what to write instead.
	Message string
	// Other is where the name was given first, if it may not repeat; else nil.
	Other Path
}

// Error reads: domains[0].rules[1].name: "search" is already ... (see domains[0].rules[0].name).
func (e *Error) Error() string {
	text := e.Path.String() + ": " + e.Message
	if e.Other != nil {
		text += " (see " + e.Other.String() + ")"
	}
	return text
}

// Errors is everything that is wrong, in the order of the domains.
type Errors []*Error

// Error has a line for each error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors one by one.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// clip quotes a name for a message, however long it is.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
