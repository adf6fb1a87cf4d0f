package adminapi

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/service/wire"
)

const wantLevel = `want {"level":"debug"}, or info, warn or error`

var levelNames = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

func (a *api) level(*http.Request, *entry) (any, error) {
	if a.Level == nil {
		return nil, errNoLevel
	}
	return map[string]string{"level": strings.ToLower(a.Level.Level().String())}, nil
}

var errNoLevel = wire.NewProblem(http.StatusNotFound, "", "the log has no level here")

func (a *api) setLevel(r *http.Request, body []byte, e *entry) (any, error) {
	if a.Level == nil {
		return nil, errNoLevel
	}
	d := wire.NewDecoder(body)
	var name string
	given, err := d.Object("", `{"level":"debug"}`, func(member, path string) (err error) {
		if member != "level" {
			return wire.UnknownMember(path, []string{"level"})
		}
		name, err = d.Text(path, "debug")
		return err
	})
	if err == nil {
		err = d.End()
	}
	if err != nil {
		return nil, err
	}
	level, ok := levelNames[name]
	if !given["level"] || !ok {
		return nil, wire.NewProblem(http.StatusBadRequest, "level", "level is "+strconv.Quote(clip(name))+": "+wantLevel)
	}
	a.Level.Set(level)
	e.note("is", name)
	return a.level(r, e)
}

// mostSeconds is how long a profile may be taken.
const mostSeconds = 60

// profile serves /debug/pprof/. It has no cmdline, where a token may be.
func profile(w http.ResponseWriter, r *http.Request, e *entry) {
	name := strings.TrimPrefix(r.URL.Path, "/debug/pprof/")
	e.note("profile", clip(name))
	if text := r.FormValue("seconds"); text != "" {
		if n, err := strconv.Atoi(text); err != nil || n < 1 || n > mostSeconds {
			wire.NewProblem(http.StatusBadRequest, "seconds", "seconds is "+strconv.Quote(clip(text))+": want 1 to 60, as in /debug/pprof/profile?seconds=10").Write(w)
			return
		}
	}
	// A server takes a request that lasts for one that does not end; pprof itself
	// sees to the other deadline.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	switch name {
	case "cmdline":
		wire.NewProblem(http.StatusNotFound, "", "the command line is not shown: it may hold a token").Write(w)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}
