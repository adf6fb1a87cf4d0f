// Package wire is JSON over HTTP as every door of the service speaks it: strict
// requests, answers, errors as application/problem+json, and who may not ask.
package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxBody is the largest body of most calls, in bytes.
const MaxBody = 1 << 20

// Readiness is the answer of /readyz.
type Readiness struct {
	// Ready makes it a 200 rather than a 503.
	Ready bool `json:"ready"`
	// Detail says in a few words why.
	Detail string `json:"detail"`
	// Store is "ok" or, while decisions are made without it, "unavailable".
	Store string `json:"store"`
	// Degraded is how many have been, since the service started.
	Degraded int64 `json:"degraded_decisions"`
}

// Healthz answers that the process is alive.
func Healthz() http.Handler {
	return Only("GET, HEAD", func(w http.ResponseWriter, _ *http.Request) {
		Write(w, http.StatusOK, map[string]bool{"alive": true})
	})
}

// Readyz answers what ready tells; nil means always ready.
func Readyz(ready func() Readiness) http.Handler {
	return Only("GET, HEAD", func(w http.ResponseWriter, _ *http.Request) {
		r := Readiness{Ready: true, Detail: "serving", Store: "ok"}
		if ready != nil {
			r = ready()
		}
		status := http.StatusOK
		if !r.Ready {
			status = http.StatusServiceUnavailable
		}
		Write(w, status, r)
	})
}

// Post serves a call that takes JSON, of at most so many bytes, and returns it.
func Post(most int64, call func(ctx context.Context, body []byte) (any, error)) http.Handler {
	return Only(http.MethodPost, func(w http.ResponseWriter, r *http.Request) {
		body, err := Body(w, r, most, Lax...)
		var result any
		if err == nil {
			result, err = call(r.Context(), body)
		}
		if err != nil {
			ProblemOf(err).Write(w)
			return
		}
		Write(w, http.StatusOK, result)
	})
}

// Lax are the kinds of body that callers may send. What a form sends is what
// curl -d sends; it is read as JSON, and SameOrigin keeps forms of foreign pages
// out.
var Lax = []string{"", "application/json", "application/x-www-form-urlencoded"}

// Body returns the body of a request if it is UTF-8 of at most so many bytes, and
// its Content-Type one of kinds; the kind "" is that of a request that does not
// say.
func Body(w http.ResponseWriter, r *http.Request, most int64, kinds ...string) ([]byte, error) {
	header := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(header)
	if err != nil && header != "" || !slices.Contains(kinds, kind) {
		w.Header().Set("Accept", "application/json")
		return nil, NewProblem(http.StatusUnsupportedMediaType, "", "Content-Type: want application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, NewProblem(http.StatusRequestEntityTooLarge, "", fmt.Sprintf("the body is larger than %d MiB: send less at once", most>>20))
	case err != nil:
		return nil, NewProblem(http.StatusBadRequest, "", "the body could not be read: it ended early or came too slowly")
	case !utf8.Valid(body) || !paired(body):
		return nil, NewProblem(http.StatusBadRequest, "", `the body is not valid UTF-8: send a key of other bytes as key_base64, such as "YWxpY2U="`)
	}
	return body, nil
}

// Only answers other methods than those listed with 405.
func Only(methods string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(strings.Split(methods, ", "), r.Method) {
			next(w, r)
			return
		}
		w.Header().Set("Allow", methods)
		NewProblem(http.StatusMethodNotAllowed, "", "the method "+strconv.Quote(r.Method)+" is not served here: use "+methods).Write(w)
	})
}

// SameOrigin refuses what a browser sends on behalf of another site's page,
// except at paths, patterns of http.ServeMux, where a browser's headers are about
// a request to somebody else.
func SameOrigin(next http.Handler, except ...string) http.Handler {
	protection := http.NewCrossOriginProtection()
	for _, pattern := range except {
		protection.AddInsecureBypassPattern(pattern)
	}
	protection.SetDenyHandler(ProblemHandler(http.StatusForbidden, "a web page of another origin may not ask: send the request from a server"))
	return protection.Handler(next)
}

// Write sends v as JSON.
func Write(w http.ResponseWriter, status int, v any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // fails only if the caller has gone
}

// Milliseconds rounds up: who waits that long has waited long enough.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Window is in milliseconds too, and exact below one.
func Window(d time.Duration) float64 {
	if d < time.Millisecond {
		return float64(d.Microseconds()) / 1000
	}
	return float64(Milliseconds(d))
}
