package decide

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/spell"
)

// Override changes for a time what a rule holds some requests to, or denies
// them whatever the rules say: an operator's word, not the config's.
type Override struct {
	// ID tells it apart from the others.
	ID string
	// Domain is whose requests it is for, and Rule of which rule; without a Rule
	// it denies a request as such.
	Domain, Rule string
	// Attributes are what a request has to have, each exactly; 1 to 16. A missing
	// one counts as the empty value. A Descriptor has its entries.
	Attributes map[string]string
	// Limit holds in place of that of the rule, also of one that denies or lifts
	// any limit; or Deny denies. In a domain with a Tree it is kept as all limits
	// of the tree unless it names an algorithm, or implies one. A rule that is a
	// shadow stays one.
	Limit weir.Limit
	Deny  bool
	// Until is when it ends, at most 366 days from now.
	Until time.Time
	// By says who made it, Why for what reason, and Created when: up to 1000
	// bytes each.
	By, Why string
	Created time.Time
}

// Overrides keeps overrides, for one process or for all that share it. What has
// ended is left out. An error is the store's.
type Overrides interface {
	// List returns them in no particular order.
	List(ctx context.Context) ([]Override, error)
	// Put adds one, or replaces the one with its ID. There may be 10,000; one
	// more is a *weir.InvalidError.
	Put(ctx context.Context, o Override) error
	// Remove reports whether there was one of that ID.
	Remove(ctx context.Context, id string) (bool, error)
}

// maxOverrides is how many there may be at a time.
const maxOverrides = 10_000

// NewOverrides returns Overrides that this process keeps in memory.
func NewOverrides() Overrides { return &memoryOverrides{kept: make(map[string]Override)} }

type memoryOverrides struct {
	mu   sync.Mutex
	kept map[string]Override
}

func (m *memoryOverrides) List(context.Context) ([]Override, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prune()
	return slices.Collect(maps.Values(m.kept)), nil
}

// prune forgets what has ended.
func (m *memoryOverrides) prune() {
	now := time.Now()
	maps.DeleteFunc(m.kept, func(_ string, o Override) bool { return !now.Before(o.Until) })
}

func (m *memoryOverrides) Put(_ context.Context, o Override) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.kept) >= maxOverrides {
		m.prune()
	}
	if _, known := m.kept[o.ID]; !known && len(m.kept) >= maxOverrides {
		return &weir.InvalidError{Field: "override", Value: o.ID, Want: "at most 10000 at a time: remove one first"}
	}
	m.kept[o.ID] = o
	return nil
}

func (m *memoryOverrides) Remove(_ context.Context, id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, found := m.kept[id]
	delete(m.kept, id)
	return found && time.Now().Before(o.Until), nil
}

// CheckOverride returns an *weir.InvalidError if an override is not such as the
// rules in force have a use for.
func (e *Engine) CheckOverride(o *Override) error {
	r := e.rules.Load()
	now, domains, names := time.Now(), r.domains(), r.policy.Names(o.Domain)
	wrong := func(field, value, want string) error {
		return &weir.InvalidError{Field: field, Value: value, Want: want}
	}
	switch {
	case !slices.Contains(domains, o.Domain):
		return wrong("domain", o.Domain, meant(o.Domain, domains, "that of a config; none is loaded"))
	case o.Rule == "" && !o.Deny:
		return wrong("rule", "", "the rule whose limit it replaces: "+meant("", names, "the domain has none")+"; without a rule it can only deny")
	case o.Rule != "" && !slices.Contains(names, o.Rule):
		return wrong("rule", o.Rule, meant(o.Rule, names, "none, since the domain has none"))
	case len(o.Attributes) == 0:
		return wrong("attributes", "{}", `at least one that a request has to have, such as {"user": "alice"}`)
	case o.Deny && o.Limit != weir.Limit{}:
		return wrong("limit", o.Limit.String(), "either a limit or to deny: leave one of them out")
	case !o.Deny && o.Limit == weir.Limit{}:
		return wrong("limit", "", "a limit such as 1000/minute, or to deny")
	case !o.Until.After(now), o.Until.Sub(now) > weir.MaxWindow:
		return wrong("for", o.Until.Sub(now).Round(time.Second).String(), "more than nothing and at most 366 days, such as 2h")
	}
	if err := o.bounded(); err != nil || o.Deny {
		return err
	}
	if err := o.Limit.Validate(); err != nil {
		return err
	}
	_, _, err := r.held(o.Domain, o.Limit)
	return err
}

// bounded returns an error if an override is larger than any need be.
func (o *Override) bounded() error {
	const most, longest = 16, 1000
	if len(o.Attributes) > most {
		return &weir.InvalidError{Field: "attributes", Value: strconv.Itoa(len(o.Attributes)), Want: "at most 16"}
	}
	bad := func(field, text string) error {
		if len(text) <= longest && utf8.ValidString(text) {
			return nil
		}
		return &weir.InvalidError{Field: field, Value: text, Want: "UTF-8 text of at most 1000 bytes"}
	}
	for name, value := range o.Attributes {
		if name == "" {
			return &weir.InvalidError{Field: "attributes", Value: "", Want: "the name of an attribute, such as user"}
		}
		if err := cmp.Or(bad("attributes", name), bad("attributes."+clip(name), value)); err != nil {
			return err
		}
	}
	return cmp.Or(bad("by", o.By), bad("why", o.Why))
}

// meant says what to write for a name that is wrong: the nearest known one, or
// all that there are, or none.
func meant(wrong string, known []string, none string) string {
	if near := spell.Nearest(wrong, known); near != "" {
		return near
	}
	if len(known) == 0 {
		return none
	}
	return clip(strings.Join(known, " or "))
}

// String reads: deny until 2026-01-02T15:04:05Z, by "alice": "spam".
func (o *Override) String() string {
	what := "deny"
	if !o.Deny {
		what = o.Limit.String()
	}
	text := what + " until " + o.Until.UTC().Format(time.RFC3339) + ", by " + strconv.Quote(o.By)
	if o.Why != "" {
		text += ": " + strconv.Quote(o.Why)
	}
	return text
}

// overrideText is how an Override is written.
type overrideText struct {
	ID         string            `json:"id"`
	Domain     string            `json:"domain"`
	Rule       string            `json:"rule"`
	Attributes map[string]string `json:"attributes"`
	Limit      string            `json:"limit"`
	Deny       bool              `json:"deny"`
	Until      time.Time         `json:"until"`
	By         string            `json:"by"`
	Why        string            `json:"why"`
	Created    time.Time         `json:"created"`
}

// MarshalJSON writes the limit as text, empty if there is none. The text names
// an algorithm if, and only if, the limit does.
func (o Override) MarshalJSON() ([]byte, error) {
	limit := ""
	if o.Limit != (weir.Limit{}) {
		limit = o.Limit.String()
		if name := o.Limit.Algorithm.String(); o.Limit.Algorithm != 0 && !strings.HasSuffix(limit, name) {
			limit += " " + name
		}
	}
	return json.Marshal(overrideText{o.ID, o.Domain, o.Rule, o.Attributes, limit, o.Deny, o.Until, o.By, o.Why, o.Created})
}

// UnmarshalJSON reads what MarshalJSON writes, or returns an error, which may be
// the *weir.InvalidError of the limit. Members that it does not know are those of
// a later version, whose meaning would be lost, so it refuses them.
func (o *Override) UnmarshalJSON(text []byte) error {
	var t overrideText
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return err
	}
	var limit weir.Limit
	if t.Limit != "" {
		var err error
		if limit, err = weir.ParseLimit(t.Limit); err != nil {
			return err
		}
	}
	*o = Override{t.ID, t.Domain, t.Rule, t.Attributes, limit, t.Deny, t.Until, t.By, t.Why, t.Created}
	return nil
}
