package wire

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
)

// Problem is an error as RFC 9457 writes it.
type Problem struct {
	Type   string `json:"type"`   // about:blank
	Title  string `json:"title"`  // what the Status is called
	Status int    `json:"status"` // of the answer, 400 to 599
	Detail string `json:"detail"` // what is wrong, and what to do
	// Field is the path of the member that it is about, or empty.
	Field string `json:"field,omitempty"`
}

// NewProblem returns a Problem whose detail begins with its field, if it has one.
func NewProblem(status int, field, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Field: field}
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// In returns p as a Problem of what is at path.
func (p *Problem) In(path string) *Problem {
	q := *p
	q.Field = member(path, p.Field)
	if rest, ok := strings.CutPrefix(p.Detail, p.Field); ok && p.Field != "" {
		q.Detail = q.Field + rest
	}
	return &q
}

// Write answers with p.
func (p *Problem) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	Write(w, p.Status, p)
}

// ProblemHandler answers every request with a Problem.
func ProblemHandler(status int, detail string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		NewProblem(status, "", detail).Write(w)
	})
}

// ProblemOf says what a caller is to know of err: everything if it is the
// caller's, and of the store only whether it may have done what was asked.
func ProblemOf(err error) *Problem {
	var (
		p       *Problem
		invalid *weir.InvalidError
		unknown *decide.UnknownDomainError
		store   *weir.StoreError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &invalid):
		return NewProblem(http.StatusBadRequest, invalid.Field, strings.TrimPrefix(invalid.Error(), "weir: "))
	case errors.As(err, &unknown):
		return NewProblem(http.StatusNotFound, "domain", unknown.Error())
	case errors.Is(err, decide.ErrInline):
		return NewProblem(http.StatusForbidden, "", err.Error()+": ask a domain, or allow them with server: {inline: true} in the config")
	case errors.Is(err, weir.ErrClosed), errors.Is(err, context.Canceled):
		return NewProblem(http.StatusServiceUnavailable, "", "the service is stopping: ask again elsewhere")
	case errors.As(err, &store) && !store.Unknown:
		return NewProblem(http.StatusServiceUnavailable, "", "the store is unavailable: ask again later; the log of the service says why")
	}
	return NewProblem(http.StatusServiceUnavailable, "", "the store did not answer, so what it charged or gave back is unknown; the log of the service says why")
}
