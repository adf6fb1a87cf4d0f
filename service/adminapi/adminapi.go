// Package adminapi is what operators see and do over HTTP: state, keys,
// overrides, config, logs and profiles, as JSON on the admin address. It lets in
// who has a token, and the log tells what they did.
package adminapi

import (
	"log/slog"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

// Options configures New.
type Options struct {
	// Engine is asked and changed; it is required.
	Engine *decide.Engine
	// Tokens, if not nil, returns those that let in, at least one of which must
	// come with every request for more than /healthz and the dashboard. If it is
	// nil, only requests are answered whose Host is localhost or a loopback IP
	// address.
	Tokens func() []Token
	// Log gets a line for each action that changes something or shows keys. Nil
	// drops them.
	Log *slog.Logger
	// RedactKeys keeps out of those lines who is limited.
	RedactKeys bool

	// Ready tells what /readyz answers. Nil means always ready.
	Ready func() wire.Readiness
	// State tells how things are, as JSON encodes it; it is required.
	State func() any
	// Stopping ends what goes on until somebody hangs up. Nil never does.
	Stopping <-chan struct{}
	// Overrides keeps overrides; what it has been told is in force when it
	// returns. Nil keeps none.
	Overrides decide.Overrides
	// Config tells what is in force. Nil means that there is no config.
	Config func() Config
	// Reload puts the config on disk in force and returns what that changed, a
	// line each. Its error may be shown. Nil means that there is no config.
	Reload func() ([]string, error)
	// Level is that of the log. Nil means that it cannot be changed.
	Level *slog.LevelVar

	// Metrics serves /metrics, and Dashboard whatever has no other handler, which
	// needs no token. What is nil is not found.
	Metrics, Dashboard http.Handler
}

// Config is what GET /api/config answers.
type Config struct {
	// Rules are those in force, as a config file says them.
	Rules string `json:"rules"`
	// Files are the paths they were read from.
	Files []string `json:"files"`
	// Diff has a line for each rule that is another on disk.
	Diff []string `json:"diff"`
}

type api struct {
	Options
	lines    *weir.Limiter // which are due
	watchers chan struct{} // holds one for each
}

// New returns the handler of the admin address.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Overrides == nil {
		o.Overrides = none{}
	}
	a := &api{Options: o, lines: weir.New(weir.Options{}), watchers: make(chan struct{}, mostWatchers)}
	mux := http.NewServeMux()
	mux.Handle("/healthz", wire.Healthz())
	mux.Handle("/", found(o.Dashboard))
	for path, methods := range a.routes() {
		mux.Handle(path, a.guard(methods))
	}
	if o.Tokens == nil {
		return wire.SameOrigin(thisHost(mux))
	}
	return wire.SameOrigin(mux)
}

// methods are those that a path has. That of the name "" is for all others.
type methods map[string]route

// route is what a method does.
type route struct {
	action string // for the log; empty if nobody needs to know
	serve  func(w http.ResponseWriter, r *http.Request, e *entry)
}

func (a *api) routes() map[string]methods {
	reset := route{"reset", lax(a.reset)}
	nowhere := methods{"": {"", plain(found(nil))}}
	return map[string]methods{
		"/v1/reset":           {"POST": reset},
		"/readyz":             {"": {"", plain(wire.Readyz(a.Ready))}},
		"/metrics":            {"GET": {"", plain(found(a.Metrics))}},
		"/api/state":          {"GET": {"state", show(a.state)}},
		"/api/events":         {"GET": {"watch", a.events}},
		"/api/inspect":        {"POST": {"inspect", strict(a.inspect)}},
		"/api/explain":        {"POST": {"explain", strict(a.explain)}},
		"/api/reset":          {"POST": {"reset", strict(a.reset)}},
		"/api/overrides":      {"GET": {"list overrides", show(a.listOverrides)}, "POST": {"override", strict(a.addOverride)}},
		"/api/overrides/{id}": {"DELETE": {"remove override", show(a.removeOverride)}},
		"/api/config":         {"GET": {"config", show(a.config)}},
		"/api/reload":         {"POST": {"reload", show(a.reload)}},
		"/api/log-level":      {"GET": {"", show(a.level)}, "PUT": {"log level", strict(a.setLevel)}},
		"/debug/pprof/":       {"GET": {"profile", profile}},
		"/api/":               nowhere,
		"/v1/":                nowhere,
		"/debug/":             nowhere,
	}
}

// call does what is asked, and says in e what the log is to tell of it.
type call func(r *http.Request, body []byte, e *entry) (any, error)

// strict serves a call whose body says that it is JSON: a page of another site
// cannot send that unasked.
func strict(do call) func(http.ResponseWriter, *http.Request, *entry) {
	return withBody(do, "application/json")
}

func lax(do call) func(http.ResponseWriter, *http.Request, *entry) {
	return withBody(do, wire.Lax...)
}

func withBody(do call, kinds ...string) func(http.ResponseWriter, *http.Request, *entry) {
	return func(w http.ResponseWriter, r *http.Request, e *entry) {
		body, err := wire.Body(w, r, wire.MaxBody, kinds...)
		var result any
		if err == nil {
			result, err = do(r, body, e)
		}
		answer(w, result, err)
	}
}

// show serves a call that has no body.
func show(do func(r *http.Request, e *entry) (any, error)) func(http.ResponseWriter, *http.Request, *entry) {
	return func(w http.ResponseWriter, r *http.Request, e *entry) {
		result, err := do(r, e)
		answer(w, result, err)
	}
}

func answer(w http.ResponseWriter, result any, err error) {
	if err != nil {
		wire.ProblemOf(err).Write(w)
		return
	}
	wire.Write(w, http.StatusOK, result)
}

// plain serves what knows nothing of the log.
func plain(h http.Handler) func(http.ResponseWriter, *http.Request, *entry) {
	return func(w http.ResponseWriter, r *http.Request, _ *entry) { h.ServeHTTP(w, r) }
}

func found(h http.Handler) http.Handler {
	if h == nil {
		return wire.ProblemHandler(http.StatusNotFound, "there is nothing at this path of the admin address; to see how things are, GET /api/state")
	}
	return h
}

func (a *api) reset(r *http.Request, body []byte, e *entry) (any, error) {
	q, err := wire.ReadQuery(body, "")
	if err != nil {
		return nil, err
	}
	e.about(&q)
	n, err := a.Engine.Reset(r.Context(), q)
	return map[string]int64{"reset": n}, err
}

func (a *api) config(*http.Request, *entry) (any, error) {
	c := Config{}
	if a.Config != nil {
		c = a.Config()
	}
	c.Files, c.Diff = list(c.Files), list(c.Diff)
	return c, nil
}

// list is never null in JSON.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

func (a *api) reload(_ *http.Request, e *entry) (any, error) {
	if a.Reload == nil {
		return nil, wire.NewProblem(http.StatusConflict, "", "there is no config that can be loaded again: start weir serve with --config FILE")
	}
	changes, err := a.Reload()
	if err != nil {
		return nil, wire.NewProblem(http.StatusUnprocessableEntity, "", err.Error())
	}
	e.note("changes", len(changes))
	return map[string]any{"changes": list(changes)}, nil
}
