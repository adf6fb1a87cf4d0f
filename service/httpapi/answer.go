package httpapi

import (
	"unicode/utf8"

	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

// decision is an answer on the wire; its members stay in this order.
type decision struct {
	Allowed    bool   `json:"allowed"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"`
	ResetAfter int64  `json:"reset_after_ms"`
	Reason     string `json:"reason"`
	Rules      []rule `json:"rules"`
	Receipt    string `json:"receipt,omitempty"`
}

// rule is a row on the wire. It has a name, or else the key that was checked.
type rule struct {
	Name       string  `json:"name,omitempty"`
	Key        *string `json:"key,omitempty"`
	KeyBase64  []byte  `json:"key_base64,omitempty"`
	Allowed    bool    `json:"allowed"`
	Limit      int64   `json:"limit"`
	Window     float64 `json:"window_ms"`
	Remaining  int64   `json:"remaining"`
	RetryAfter int64   `json:"retry_after_ms"`
	ResetAfter int64   `json:"reset_after_ms"`
	Shadow     bool    `json:"shadow,omitempty"`
}

func encode(a *decide.Answer) *decision {
	d := &decision{
		Allowed:    a.Allowed,
		Limit:      a.Limit,
		Remaining:  a.Remaining,
		RetryAfter: wire.Milliseconds(a.RetryAfter),
		ResetAfter: wire.Milliseconds(a.ResetAfter),
		Reason:     a.Reason.String(),
		Rules:      make([]rule, len(a.Rows)),
		Receipt:    wire.JoinReceipts(a.Receipts()),
	}
	for i := range a.Rows {
		d.Rules[i] = encodeRow(&a.Rows[i])
	}
	return d
}

func encodeRow(row *decide.Row) rule {
	r := rule{
		Name:       row.Name,
		Allowed:    row.Allowed,
		Limit:      row.Limit,
		Window:     wire.Window(row.Window),
		Remaining:  row.Remaining,
		RetryAfter: wire.Milliseconds(row.RetryAfter),
		ResetAfter: wire.Milliseconds(row.ResetAfter),
		Shadow:     row.Shadow,
	}
	switch {
	case row.Name != "":
	case utf8.ValidString(row.Key):
		r.Key = &row.Key
	default:
		r.KeyBase64 = []byte(row.Key)
	}
	return r
}
