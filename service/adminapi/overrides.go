package adminapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

func (a *api) listOverrides(r *http.Request, _ *entry) (any, error) {
	all, err := a.Overrides.List(r.Context())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y decide.Override) int {
		return cmp.Or(y.Created.Compare(x.Created), strings.Compare(x.ID, y.ID))
	})
	return map[string]any{"overrides": append([]decide.Override{}, all...)}, nil
}

func (a *api) addOverride(r *http.Request, body []byte, e *entry) (any, error) {
	now := time.Now().Truncate(time.Millisecond)
	o, err := readOverride(body, now)
	if err != nil {
		return nil, err
	}
	e.about(&decide.Query{Domain: o.Domain, Attributes: o.Attributes})
	e.rule = o.Rule
	o.ID, o.By, o.Created = newID(), e.who, now
	if err := a.Engine.CheckOverride(&o); err != nil {
		return nil, err
	}
	if err := a.Overrides.Put(r.Context(), o); err != nil {
		return nil, err
	}
	e.note("id", o.ID)
	e.note("override", o.String())
	return o, nil
}

func (a *api) removeOverride(r *http.Request, e *entry) (any, error) {
	id := r.PathValue("id")
	e.note("id", clip(id))
	removed, err := a.Overrides.Remove(r.Context(), id)
	return map[string]bool{"removed": removed}, err
}

// newID is too long to meet another and short enough to read aloud.
func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

const overrideExample = `{"domain":"slack","rule":"search","attributes":{"user":"alice"},"limit":"1000/minute","for":"2h","why":"a migration"}`

var overrideMembers = []string{"domain", "rule", "attributes", "limit", "deny", "for", "why"}

// readOverride reads what POST /api/overrides is sent. What it means,
// CheckOverride judges.
func readOverride(body []byte, now time.Time) (o decide.Override, err error) {
	d := wire.NewDecoder(body)
	var last time.Duration
	given, err := d.Object("", overrideExample, func(name, path string) (err error) {
		switch name {
		case "domain":
			o.Domain, err = d.Text(path, "slack")
		case "rule":
			o.Rule, err = d.Text(path, "search")
		case "attributes":
			o.Attributes, err = wire.ReadAttributes(d, path)
		case "limit":
			o.Limit, err = wire.ReadText(d, path, "1000/minute", weir.ParseLimit)
		case "deny":
			o.Deny, err = d.Bool(path)
		case "for":
			last, err = wire.ReadText(d, path, "2h", wire.ParseDuration)
		case "why":
			o.Why, err = d.Text(path, "a migration")
		default:
			err = wire.UnknownMember(path, overrideMembers)
		}
		return err
	})
	if err == nil {
		err = d.End()
	}
	if err != nil {
		return o, err
	}
	for _, name := range []string{"domain", "attributes", "for"} {
		if !given[name] {
			return o, wire.Missing("", name, overrideExample)
		}
	}
	if !given["limit"] && !o.Deny {
		return o, wire.NewProblem(http.StatusBadRequest, "limit", `limit is missing: write "limit":"1000/minute", or "deny":true to block`)
	}
	o.Until = now.Add(last)
	return o, nil
}

// none keeps no overrides.
type none struct{}

var errNone = wire.NewProblem(http.StatusNotFound, "", "overrides are not kept here")

func (none) List(context.Context) ([]decide.Override, error) { return nil, nil }
func (none) Put(context.Context, decide.Override) error      { return errNone }
func (none) Remove(context.Context, string) (bool, error)    { return false, errNone }
