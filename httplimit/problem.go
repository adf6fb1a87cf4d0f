package httplimit

import (
	"encoding/json"
	"net/http"

	"github.com/weirlimit/weir"
)

// problem is an error as RFC 9457 writes it.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitzero"` //nolint:tagliatelle // the draft's name
}

// WriteDenial answers a denied request with the status, usually 429, and a body
// of type application/problem+json: the problem type quota-exceeded of
// draft-ietf-httpapi-ratelimit-headers-10, whose violated-policies are the
// names of the rows that denied. Fields.Write comes before it.
func WriteDenial(w http.ResponseWriter, status int, verdict *weir.Decision, rows []Row) {
	p := problem{
		Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Quota Exceeded", Status: status,
		Detail: "more was asked for than a limit admits: wait as long as the header Retry-After says", Violated: []string{},
	}
	if verdict.RetryAfter == 0 {
		p.Detail = "this is not admitted, now or later"
	}
	for i := range rows {
		if r := &rows[i]; !r.Allowed {
			p.Violated = append(p.Violated, r.name())
		}
	}
	p.write(w)
}

// deny is the default of Options.Deny.
func deny(w http.ResponseWriter, _ *http.Request, verdict *weir.Decision, rows []Row) {
	if verdict.Reason == weir.StoreDenied {
		refuse(w, http.StatusServiceUnavailable, "whether a limit admits this is not known at the moment: wait as long as the header Retry-After says")
		return
	}
	WriteDenial(w, http.StatusTooManyRequests, verdict, rows)
}

// refuse answers with a problem that is no denial.
func refuse(w http.ResponseWriter, status int, detail string) {
	p := problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
	p.write(w)
}

func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(p) // fails only if the caller has gone
}
