package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
)

// problem is an error as RFC 9457 writes it, and the member it is about.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"`
}

// failure stands in a batch for a request that could not be decided.
type failure struct {
	Error *problem `json:"error"`
}

func newProblem(status int, field, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Field: field}
}

// Error returns the detail.
func (p *problem) Error() string { return p.Detail }

// in returns p as a problem of what is at path; a detail begins with its field.
func (p *problem) in(path string) *problem {
	q := *p
	q.Field = member(path, p.Field)
	if rest, ok := strings.CutPrefix(p.Detail, p.Field); ok && p.Field != "" {
		q.Detail = q.Field + rest
	}
	return &q
}

func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	write(w, p.Status, p)
}

func problemHandler(status int, detail string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		newProblem(status, "", detail).write(w)
	})
}

// problemOf says what a caller is to know of err: everything if it is the
// caller's, and of the store only whether it may have done what was asked.
func problemOf(err error) *problem {
	var (
		p       *problem
		invalid *weir.InvalidError
		unknown *decide.UnknownDomainError
		store   *weir.StoreError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &invalid):
		return newProblem(http.StatusBadRequest, invalid.Field, strings.TrimPrefix(invalid.Error(), "weir: "))
	case errors.As(err, &unknown):
		return newProblem(http.StatusNotFound, "domain", unknown.Error())
	case errors.Is(err, decide.ErrInline):
		return newProblem(http.StatusForbidden, "", err.Error()+": ask a domain, or allow them with server: {inline: true} in the config")
	case errors.Is(err, weir.ErrClosed), errors.Is(err, context.Canceled):
		return newProblem(http.StatusServiceUnavailable, "", "the service is stopping: ask again elsewhere")
	case errors.As(err, &store) && !store.Unknown:
		return newProblem(http.StatusServiceUnavailable, "", "the store is unavailable: ask again later; the log of the service says why")
	}
	return newProblem(http.StatusServiceUnavailable, "", "the store did not answer, so what it charged or gave back is unknown; the log of the service says why")
}
