package httplimit

import (
	"errors"
	"log"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Options configures Middleware; Rules is required.
type Options struct {
	// Limiter decides; nil means one in memory, of this Middleware alone. Around
	// a store on a server put a layer.Fallback, so that no request waits for it
	// long, and each is decided while it is away.
	Limiter *weir.Limiter
	// Rules returns what a request is held to, all of it or nothing: none means
	// that it is not limited. It is called once for each request, before the
	// handler, and must be safe for concurrent use. If it is nil or returns a
	// limit that is not valid, the request is answered with 500.
	Rules func(r *http.Request) []Rule
	// Fields writes the header fields, on admitted and denied requests alike.
	Fields Fields
	// Deny answers a request that was denied, when the header fields have been
	// set. Of the rows each is a rule that enforces. Nil means WriteDenial with
	// 429, or 503 if the store could not be asked (weir.StoreDenied).
	Deny func(w http.ResponseWriter, r *http.Request, verdict *weir.Decision, rows []Row)
	// Errors is told what went wrong: with a rule, or with the store when it was
	// asked, or when a request was settled. Nil means that it is logged where the
	// http.Server logs.
	Errors func(r *http.Request, err error)
}

// Rule is one of the limits that a request is held to.
type Rule struct {
	// Name tells clients which limit it is: of printable ASCII, such as
	// "per-user"; empty means "default".
	Name string
	// Request is what is asked for. If the store fails, and no layer.Fallback is
	// around it, the request passes if OnFailure of each rule that enforces is
	// weir.OnFailureAllow, and is denied otherwise.
	weir.Request
	// Settle says what is charged in the end; the zero value means Cost.
	Settle Settlement
}

// Middleware limits the requests to a handler. An admitted request reaches it
// unchanged, unless a rule is to be settled; a denied one is answered by Deny.
// One whose client has left before the Limiter was asked is neither charged nor
// served.
//
// Settled is when the handler has returned, also if the client has left or the
// handler panics, and before the end of the response is sent: whoever has read
// all of it finds it charged.
//
// Of several Middlewares around a handler, the innermost one's header fields
// are sent; rules that belong together are best in one.
func Middleware(o Options) func(http.Handler) http.Handler {
	if o.Limiter == nil {
		o.Limiter = weir.New(weir.Options{})
	}
	if o.Deny == nil {
		o.Deny = deny
	}
	if o.Errors == nil {
		o.Errors = logError
	}
	return func(next http.Handler) http.Handler { return &limited{o, next} }
}

type limited struct {
	Options

	next http.Handler
}

// ServeHTTP implements http.Handler.
func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.Rules == nil {
		l.wrong(w, r, &weir.InvalidError{Field: "httplimit.Options.Rules", Value: "nil", Want: `a function such as httplimit.Clients{}.Limit("site", weir.PerMinute(60))`})
		return
	}
	rules := l.Rules(r)
	if len(rules) == 0 {
		l.next.ServeHTTP(w, r)
		return
	}
	requests := make([]weir.Request, len(rules))
	for i := range rules {
		requests[i] = rules[i].Request
	}
	held, err := l.Limiter.Reserve(r.Context(), requests...)
	var invalid *weir.InvalidError
	switch {
	case err == nil:
		l.answer(w, r, rules, &held.Decision, held)
	case errors.As(err, &invalid):
		l.wrong(w, r, err)
	case r.Context().Err() != nil:
		refuse(w, http.StatusServiceUnavailable, "the request ended before it was decided")
	default:
		l.Errors(r, err)
		l.answer(w, r, rules, Undecided(requests, err), nil)
	}
}

// answer serves a request that was admitted, or denies it.
func (l *limited) answer(w http.ResponseWriter, r *http.Request, rules []Rule, verdict *weir.Decision, held *weir.Reservation) {
	rows := enforced(rules, verdict.Rows)
	l.Fields.Write(w.Header(), verdict, rows)
	if !verdict.Allowed {
		l.Deny(w, r, verdict, rows)
		return
	}
	l.serve(w, r, rules, held)
}

// enforced returns the rows that have a say in the verdict.
func enforced(rules []Rule, decisions []weir.Decision) (rows []Row) {
	for i := range rules {
		if rule := &rules[i]; rule.Mode == weir.Enforce {
			rows = append(rows, Row{Decision: decisions[i], Name: rule.Name, Window: rule.Limit.Window})
		}
	}
	return rows
}

// tryAgain is how long a request that could not be decided is told to wait.
const tryAgain = time.Second

// Undecided is the verdict on requests that a store failed to decide with err, where
// no layer.Fallback is around it: they pass if OnFailure of each that enforces is
// weir.OnFailureAllow, and are denied otherwise. A mistake in the store's settings,
// and a closed store, let nobody in, as that may last until somebody looks. It has
// a row for each request.
func Undecided(requests []weir.Request, err error) *weir.Decision {
	var store *weir.StoreError
	lasting := errors.Is(err, weir.ErrClosed) || errors.As(err, &store) && store.Settings
	denies := func(r weir.Request) bool {
		return r.Mode == weir.Enforce && (lasting || r.OnFailure != weir.OnFailureAllow)
	}
	d := weir.Decision{Allowed: true, Reason: weir.StoreAllowed}
	if slices.ContainsFunc(requests, denies) {
		d = weir.Decision{Reason: weir.StoreDenied, RetryAfter: tryAgain}
	}
	rows := make([]weir.Decision, len(requests))
	for i := range requests {
		rows[i] = d
		rows[i].Limit = requests[i].Limit.Capacity()
	}
	list := weir.List{Requests: requests, Rows: rows}
	d = list.Decide()
	d.Rows = rows
	return &d
}

// wrong answers a request that only a change of the program can help.
func (l *limited) wrong(w http.ResponseWriter, r *http.Request, err error) {
	l.Errors(r, err)
	refuse(w, http.StatusInternalServerError, "the limits of this request are set up wrong; the log of the server says how")
}

// logError logs where net/http does.
func logError(r *http.Request, err error) {
	to := log.Default()
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.ErrorLog != nil {
		to = s.ErrorLog
	}
	to.Printf("httplimit: %v", err)
}
