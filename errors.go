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

// StoreError says that a store could not answer, so that nothing is known of
// the request but what Unknown says. What it unwraps to is the cause, such as
// context.DeadlineExceeded.
type StoreError struct {
	// Server is the address of the server that was asked, without its secrets.
	Server string
	// Hint is what to do about it, in a few words; empty if waiting may help.
	Hint string
	// Settings says that the cause can only be a mistake in the settings: it
	// does not pass by waiting.
	Settings bool
	// Unknown says that the request had been sent, so it may have been charged
	// or given back. It must not be sent again.
	Unknown bool
	// Err is the cause.
	Err error
}

// Error reads: weir: store 10.0.0.7:6379: WRONGPASS invalid password: set the right user and password.
func (e *StoreError) Error() string {
	text := "weir: store"
	if e.Server != "" {
		text += " " + e.Server
	}
	text += ": " + e.Err.Error()
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap returns Err.
func (e *StoreError) Unwrap() error { return e.Err }
