package adminapi

import (
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

// key is a decide.KeyState on the wire.
type key struct {
	Domain     string  `json:"domain"`
	Rule       string  `json:"rule"`
	Key        string  `json:"key"`
	Limit      string  `json:"limit"`
	Algorithm  string  `json:"algorithm"`
	Window     float64 `json:"window_ms"`
	Capacity   int64   `json:"capacity"`
	Used       int64   `json:"used"`
	Remaining  int64   `json:"remaining"`
	NextFree   int64   `json:"next_free_ms"`
	ResetAfter int64   `json:"reset_after_ms"`
	Countable  bool    `json:"countable"`
	Timeline   []part  `json:"timeline"`
}

// part is a decide.Part on the wire.
type part struct {
	From  float64 `json:"from_ms"`
	To    float64 `json:"to_ms"`
	Units int64   `json:"units"`
}

func (a *api) inspect(r *http.Request, body []byte, e *entry) (any, error) {
	q, err := wire.ReadQuery(body, "")
	if err != nil {
		return nil, err
	}
	e.about(&q)
	states, err := a.Engine.Inspect(r.Context(), q)
	if err != nil {
		return nil, err
	}
	keys := make([]key, 0, len(states))
	for i := range states {
		keys = append(keys, encodeKey(&states[i]))
	}
	return map[string]any{"keys": keys}, nil
}

func encodeKey(s *decide.KeyState) key {
	k := key{
		Domain: s.Domain, Rule: s.Rule, Key: s.Key,
		Limit: s.Limit.String(), Algorithm: s.Limit.Algorithm.String(), Window: wire.Window(s.Limit.Window),
		Capacity: s.Limit.Capacity(), Used: s.Used, Remaining: s.Decision.Remaining,
		NextFree: wire.Milliseconds(nextFree(s)), ResetAfter: wire.Milliseconds(s.Decision.ResetAfter),
		Countable: s.Countable, Timeline: make([]part, 0, len(s.Timeline)),
	}
	for _, p := range s.Timeline {
		k.Timeline = append(k.Timeline, part{wire.Window(p.From), wire.Window(p.To), p.Units})
	}
	return k
}

// nextFree is when a unit more can be taken than now: when the oldest that is
// recorded leaves the window, as far as that can be told.
func nextFree(s *decide.KeyState) time.Duration {
	if s.Decision.RetryAfter > 0 {
		return s.Decision.RetryAfter
	}
	var oldest time.Duration
	for _, p := range s.Timeline {
		if p.Units > 0 && p.To > oldest {
			oldest = p.To
		}
	}
	if oldest == 0 {
		return 0
	}
	return max(0, s.Limit.Window-oldest)
}

// explained is a decide.Explained on the wire.
type explained struct {
	Rule     string    `json:"rule"`
	Matches  bool      `json:"matches"`
	Why      string    `json:"why"`
	Limit    string    `json:"limit"`
	Key      string    `json:"key"`
	Group    string    `json:"group"`
	Override string    `json:"override"`
	Decision *decision `json:"decision"`
}

// decision is a row of an answer on the wire.
type decision struct {
	Allowed    bool   `json:"allowed"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"`
	ResetAfter int64  `json:"reset_after_ms"`
	Reason     string `json:"reason"`
}

func (a *api) explain(r *http.Request, body []byte, e *entry) (any, error) {
	q, err := wire.ReadQuery(body, "")
	if err != nil {
		return nil, err
	}
	e.about(&q)
	x, err := a.Engine.Explain(r.Context(), q)
	if err != nil {
		return nil, err
	}
	rules := make([]explained, 0, len(x.Rules))
	for i := range x.Rules {
		rules = append(rules, encodeExplained(&x.Rules[i]))
	}
	return map[string]any{"allowed": x.Answer.Allowed, "reason": x.Answer.Reason.String(), "rules": rules}, nil
}

func encodeExplained(x *decide.Explained) explained {
	out := explained{Matches: x.Matches, Why: x.Why, Limit: x.Limit, Key: x.Key, Group: x.Group, Override: x.Override}
	if x.Rule != nil {
		out.Rule = x.Rule.Name
	}
	if x.Decision != nil {
		out.Decision = encodeDecision(x.Decision)
	}
	return out
}

func encodeDecision(d *weir.Decision) *decision {
	return &decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		RetryAfter: wire.Milliseconds(d.RetryAfter), ResetAfter: wire.Milliseconds(d.ResetAfter), Reason: d.Reason.String(),
	}
}
