package weir

import (
	"errors"
	"strconv"
)

var (
	// ErrNever is returned by Wait for a cost that no wait can make pass.
	ErrNever = errors.New("weir: the cost is above what the limit can ever admit")
	// ErrDeadline is returned by Wait when the context ends before the wait would.
	ErrDeadline = errors.New("weir: the context's deadline is nearer than the wait")
	// ErrClosed is returned by everything after Close.
	ErrClosed = errors.New("weir: the store is closed")
)

// InvalidError says which argument was wrong and what to write instead. A call
// that returns it has changed nothing.
type InvalidError struct {
	Field string // such as "limit", or "requests[2].cost"
	Value string // what was given
	Want  string // what to write instead
}

// Error reads: weir: limit "5 per minute": want a limit such as "5/minute".
func (e *InvalidError) Error() string {
	return "weir: " + e.Field + " " + strconv.Quote(clip(e.Value)) + ": want " + e.Want
}

func invalid(field, value, want string) error {
	return &InvalidError{Field: field, Value: value, Want: want}
}

// clip keeps an error message short however long the value was.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}
