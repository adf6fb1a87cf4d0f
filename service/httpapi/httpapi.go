// Package httpapi is the HTTP and JSON front end of the service: it parses
// requests into queries and writes their answers. What it accepts is strict,
// and whatever it refuses is answered as application/problem+json.
package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir/service/decide"
)

const (
	// maxBody is the largest body read, in bytes, and maxRefund that of a
	// refund, whose receipt holds the keys in base64.
	maxBody, maxRefund = 1 << 20, 2 << 20
	// maxBatch is the largest number of requests in a batch, and maxChecks of
	// checks in a request.
	maxBatch, maxChecks = 1000, 1000
)

// Options configures New and Admin.
type Options struct {
	// Engine answers; it is required.
	Engine *decide.Engine
	// Ready tells what /readyz answers. Nil means always ready.
	Ready func() Readiness
	// Token, if not empty, must come as a bearer token with every request to
	// the Admin handler but /healthz. If it is empty, the Admin handler answers
	// only requests whose Host is localhost or a loopback IP address.
	Token string
	// Auth is for the handler of New.
	Auth Auth
}

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

type api struct{ Options }

// New returns the handler for callers: /v1/check, /v1/batch, /v1/charge,
// /v1/refund, /v1/count, /v1/auth/{domain}, /healthz and /readyz.
func New(o Options) http.Handler {
	o.Auth.normalize()
	a := &api{o}
	mux := a.mux()
	mux.Handle("/v1/check", a.post(maxBody, a.check))
	mux.Handle("/v1/batch", a.post(maxBody, a.batch))
	mux.Handle("/v1/charge", a.post(maxBody, a.charge))
	mux.Handle("/v1/refund", a.post(maxRefund, a.refund))
	mux.Handle("/v1/count", a.post(maxBody, a.count))
	mux.HandleFunc(authPath, a.auth)
	return sameOrigin(mux)
}

// Admin returns the handler for operators: /v1/reset, /healthz and /readyz.
func Admin(o Options) http.Handler {
	a := &api{o}
	mux := a.mux()
	mux.Handle("/v1/reset", a.post(maxBody, a.reset))
	if o.Token == "" {
		return sameOrigin(thisHost(mux))
	}
	return sameOrigin(bearer(o.Token, mux))
}

// mux has what both handlers serve.
func (a *api) mux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/", problemHandler(http.StatusNotFound, "there is nothing at this path; to check a limit, POST to /v1/check"))
	mux.Handle("/healthz", only("GET, HEAD", http.HandlerFunc(healthz)))
	mux.Handle("/readyz", only("GET, HEAD", http.HandlerFunc(a.readyz)))
	return mux
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]bool{"alive": true})
}

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	r := Readiness{Ready: true, Detail: "serving", Store: "ok"}
	if a.Ready != nil {
		r = a.Ready()
	}
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	write(w, status, r)
}

func (a *api) check(ctx context.Context, body []byte) (any, error) {
	q, err := readQuery(body, "")
	if err != nil {
		return nil, err
	}
	answer, err := a.Engine.Check(ctx, q)
	return encode(&answer), err
}

func (a *api) charge(ctx context.Context, body []byte) (any, error) {
	q, err := readQuery(body, "")
	if err != nil {
		return nil, err
	}
	answer, err := a.Engine.Charge(ctx, q)
	return encode(&answer), err
}

// batch answers a bad entry in its place: the others are decided all the same.
func (a *api) batch(ctx context.Context, body []byte) (any, error) {
	entries, err := readBatch(body)
	if err != nil {
		return nil, err
	}
	decisions := make([]any, len(entries))
	var queries []decide.Query
	var places []int
	for i, entry := range entries {
		q, err := readQuery(entry, index("requests", i))
		if err != nil {
			decisions[i] = failure{problemOf(err)}
			continue
		}
		queries, places = append(queries, q), append(places, i)
	}
	answers := a.Engine.CheckEach(ctx, queries)
	for j := range answers {
		i := places[j]
		if err := answers[j].Err; err != nil {
			decisions[i] = failure{problemOf(err).in(index("requests", i))}
			continue
		}
		decisions[i] = encode(&answers[j])
	}
	return map[string]any{"decisions": decisions}, nil
}

func (a *api) refund(ctx context.Context, body []byte) (any, error) {
	f, err := read(body, "", refundMembers)
	if err != nil {
		return nil, err
	}
	var n int64
	if f.given["receipt"] {
		n, err = a.Engine.Refund(ctx, f.parts()...)
	} else {
		n, err = a.Engine.RefundOldest(ctx, f.query())
	}
	return map[string]int64{"refunded": n}, err
}

func (a *api) count(ctx context.Context, body []byte) (any, error) {
	f, err := read(body, "", countMembers)
	if err != nil {
		return nil, err
	}
	n, err := a.Engine.Count(ctx, f.query(), f.last)
	return map[string]int64{"count": n}, err
}

func (a *api) reset(ctx context.Context, body []byte) (any, error) {
	q, err := readQuery(body, "")
	if err != nil {
		return nil, err
	}
	n, err := a.Engine.Reset(ctx, q)
	return map[string]int64{"reset": n}, err
}

// post serves a call that takes JSON, of at most so many bytes, and returns it.
func (a *api) post(most int64, call func(ctx context.Context, body []byte) (any, error)) http.Handler {
	return only(http.MethodPost, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r, most)
		var result any
		if err == nil {
			result, err = call(r.Context(), body)
		}
		if err != nil {
			problemOf(err).write(w)
			return
		}
		write(w, http.StatusOK, result)
	}))
}

// readBody returns the body of a request that says it is JSON, or does not say
// what it is. What a form sends is what curl -d sends; it is read as JSON, and
// sameOrigin keeps forms of foreign pages out.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if header := r.Header.Get("Content-Type"); header != "" {
		switch kind, _, err := mime.ParseMediaType(header); {
		case err != nil, kind != "application/json" && kind != "application/x-www-form-urlencoded":
			w.Header().Set("Accept", "application/json")
			return nil, newProblem(http.StatusUnsupportedMediaType, "", "Content-Type: want application/json")
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, newProblem(http.StatusRequestEntityTooLarge, "", fmt.Sprintf("the body is larger than %d MiB: send less at once", most>>20))
	case err != nil:
		return nil, newProblem(http.StatusBadRequest, "", "the body could not be read: it ended early or came too slowly")
	case !utf8.Valid(body) || !paired(body):
		return nil, newProblem(http.StatusBadRequest, "", `the body is not valid UTF-8: send a key of other bytes as key_base64, such as "YWxpY2U="`)
	}
	return body, nil
}

// only answers other methods than those listed with 405.
func only(methods string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(strings.Split(methods, ", "), r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Allow", methods)
		newProblem(http.StatusMethodNotAllowed, "", "the method "+strconv.Quote(r.Method)+" is not served here: use "+methods).write(w)
	})
}

// sameOrigin refuses what a browser sends on behalf of another site's page. At
// authPath a browser's headers are about a request to somebody else.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.AddInsecureBypassPattern(authPath)
	protection.SetDenyHandler(problemHandler(http.StatusForbidden, "a web page of another origin may not ask: send the request from a server"))
	return protection.Handler(next)
}

// thisHost refuses requests to a name that need not be this machine's: a web
// page can point its own name here, and then its origin is the same.
func thisHost(next http.Handler) http.Handler {
	refuse := problemHandler(http.StatusForbidden, "without an admin token only requests to localhost or 127.0.0.1 are answered: use such a URL, or set an admin token")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := (&url.URL{Host: r.Host}).Hostname()
		if !strings.EqualFold(name, "localhost") && !net.ParseIP(name).IsLoopback() {
			refuse.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer lets only requests with the token pass; /healthz needs none.
func bearer(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given))
		if r.URL.Path != "/healthz" && (!strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) == 0) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			newProblem(http.StatusUnauthorized, "", "the admin token is missing or wrong: send it as the header Authorization: Bearer TOKEN").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// write sends v as JSON.
func write(w http.ResponseWriter, status int, v any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // fails only if the caller has gone
}
