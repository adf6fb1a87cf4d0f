package adminapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

// stamp is written to the millisecond.
type stamp struct{ time.Time }

// MarshalJSON writes RFC 3339 in UTC, such as "2026-11-21T10:00:00.000Z".
func (t stamp) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z07:00"`)), nil
}

// override is a decide.Override on the wire.
type override struct {
	ID         string            `json:"id"`
	Domain     string            `json:"domain"`
	Rule       string            `json:"rule"`
	Attributes map[string]string `json:"attributes"`
	Limit      string            `json:"limit"` // empty if it denies
	Deny       bool              `json:"deny"`
	Until      stamp             `json:"until"`
	By         string            `json:"by"`
	Why        string            `json:"why"`
	Created    stamp             `json:"created"`
}

func encodeOverride(o *decide.Override) override {
	w := override{
		ID: o.ID, Domain: o.Domain, Rule: o.Rule, Attributes: o.Attributes, Deny: o.Deny,
		Until: stamp{o.Until}, By: o.By, Why: o.Why, Created: stamp{o.Created},
	}
	if !o.Deny {
		w.Limit = spellLimit(o.Limit)
	}
	return w
}

// spellLimit names the algorithm if it was named, also where that is the default:
// an override of a domain that has another is to keep it.
func spellLimit(l weir.Limit) string {
	text := l.String()
	if back, err := weir.ParseLimit(text); err != nil || back != l {
		text += " " + l.Algorithm.String()
	}
	return text
}

// MarshalOverride returns the text of an override, which is the JSON that
// operators see.
func MarshalOverride(o *decide.Override) (string, error) {
	text, err := json.Marshal(encodeOverride(o))
	return string(text), err
}

// UnmarshalOverride reads the text of an override. Members that it does not know
// are those of a later version, whose meaning would be lost, so it refuses them.
func UnmarshalOverride(text string) (o decide.Override, err error) {
	var w override
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&w); err != nil {
		return o, err
	}
	o = decide.Override{
		ID: w.ID, Domain: w.Domain, Rule: w.Rule, Attributes: w.Attributes, Deny: w.Deny,
		Until: w.Until.Time, By: w.By, Why: w.Why, Created: w.Created.Time,
	}
	if !w.Deny {
		o.Limit, err = weir.ParseLimit(w.Limit)
	}
	return o, err
}

func (a *api) listOverrides(r *http.Request, _ *entry) (any, error) {
	all, err := a.Overrides.List(r.Context())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y decide.Override) int {
		return cmp.Or(y.Created.Compare(x.Created), strings.Compare(x.ID, y.ID))
	})
	overrides := make([]override, 0, len(all))
	for i := range all {
		overrides = append(overrides, encodeOverride(&all[i]))
	}
	return map[string]any{"overrides": overrides}, nil
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
	return encodeOverride(&o), nil
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
