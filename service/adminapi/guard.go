package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

// guard lets those in who may, to a method that there is.
func (a *api) guard(all methods) http.Handler {
	allow := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		do, ok := all[r.Method]
		if !ok {
			do, ok = all[""]
		}
		if !ok {
			do.serve = plain(wire.Only(allow, nil))
		}
		e := &entry{action: do.action}
		out := &audited{ResponseWriter: w, tell: func(status int) { a.tell(r, e, status) }}
		var refused *wire.Problem
		if e.who, refused = a.admit(r); refused != nil {
			e.action = cmp.Or(e.action, r.Method+" "+r.URL.Path)
			out.Header().Set("WWW-Authenticate", "Bearer")
			refused.Write(out)
			return
		}
		do.serve(out, r, e)
	})
}

// thisHost refuses requests to a name that need not be this machine's: a web
// page can point its own name here, and then its origin is the same.
func thisHost(next http.Handler) http.Handler {
	refuse := wire.ProblemHandler(http.StatusForbidden, "without an admin token only requests to localhost or 127.0.0.1 are answered: use such a URL, or set an admin token")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := (&url.URL{Host: r.Host}).Hostname()
		if !strings.EqualFold(name, "localhost") && !net.ParseIP(name).IsLoopback() {
			refuse.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// entry is a line of the log about an action.
type entry struct {
	action, who       string
	domain, rule, key string
	more              []slog.Attr
}

// about notes whose limits are shown or changed.
func (e *entry) about(q *decide.Query) {
	e.domain, e.key = q.Domain, spell(q.Attributes)
	for i := range min(len(q.Checks), 10) {
		e.key = strings.TrimSpace(e.key + " " + strconv.Quote(clip(q.Checks[i].Key)))
	}
}

func (e *entry) note(name string, value any) { e.more = append(e.more, slog.Any(name, value)) }

// spell reads: category=errors user=alice.
func spell(attributes map[string]string) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if text.Len() > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(clip(name) + "=" + clip(attributes[name]))
		if text.Len() > 1000 {
			text.WriteString(" ...")
			break
		}
	}
	return text.String()
}

// clip keeps a line short however long a key is.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

var (
	// refusalLines is how many lines those get who are not let in.
	refusalLines = weir.Per(60, time.Minute)
	// lookLines is how many lines somebody gets who looks at the same again and
	// again, as a dashboard does.
	lookLines = weir.Per(1, time.Minute)
)

// looks are the actions that change nothing.
var looks = []string{"state", "watch", "inspect", "explain", "list overrides", "config"}

// tell writes the line.
func (a *api) tell(r *http.Request, e *entry, status int) {
	ctx, level := context.WithoutCancel(r.Context()), slog.LevelInfo
	switch {
	case e.action == "":
		return
	case status == http.StatusUnauthorized:
		level = slog.LevelWarn
		if d, err := a.lines.Allow(ctx, "", refusalLines); err != nil || !d.Allowed {
			return
		}
	case status == http.StatusOK && slices.Contains(looks, e.action):
		id := fmt.Sprintf("%q %q %q %q", e.who, e.action, e.domain, e.key)
		if d, err := a.lines.Allow(ctx, id, lookLines); err != nil || !d.Allowed {
			return
		}
	}
	if a.RedactKeys && e.key != "" {
		e.key = "redacted"
	}
	attrs := []slog.Attr{
		slog.String("who", e.who), slog.String("action", e.action),
		slog.String("domain", clip(e.domain)), slog.String("rule", clip(e.rule)), slog.String("key", e.key),
	}
	a.Log.LogAttrs(ctx, level, "admin", append(append(attrs, e.more...), slog.Int("outcome", status))...)
}

// audited tells of the status before it is sent.
type audited struct {
	http.ResponseWriter
	tell func(status int) // nil once it was called
}

// Unwrap is for http.ResponseController.
func (w *audited) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *audited) WriteHeader(status int) {
	if w.tell != nil {
		w.tell(status)
		w.tell = nil
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *audited) Write(b []byte) (int, error) {
	if w.tell != nil {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}
