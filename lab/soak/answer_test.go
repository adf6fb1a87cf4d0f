package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// replicas is how many processes serve.
	replicas = 2
	// patience is how long an answer is waited for.
	patience = 5 * time.Second
	// deadline is how long an answer may take: the store's 50 ms, and 100 ms for
	// all else.
	deadline = 150 * time.Millisecond
	// skew is by how much the clocks of processes here may differ.
	skew = 10 * time.Millisecond
)

// decision is an answer to a check, or to one of a batch.
type decision struct {
	Allowed bool
	Reason  string
	Receipt string
	Error   *struct{ Detail string }
}

// degraded begins the reasons of decisions without the store.
const degraded = "store_unavailable_"

// isShare reports whether a receipt is for a share: the highest bit of the ID
// of layer's receipts says so.
func isShare(r weir.Receipt) bool { return r.ID>>63 == 1 }

// answered is how a request was answered.
type answered struct {
	*process
	sent, got time.Time
	ok        bool
}

// call sends a request to one of the processes, and reads the answer into v.
func (w *worker) call(path string, body, v any) (a answered) {
	if a.process = w.running(w.IntN(replicas)); a.process == nil {
		return a
	}
	a.sent = time.Now()
	status, text, err := w.post(a.url+path, encode(body))
	a.got = time.Now()
	phase := w.faults.phase(a.sent, a.got)
	stalled := w.stalls[a.place].during(span{a.sent, a.got})
	w.answer(phase, a.got.Sub(a.sent))
	switch {
	case err != nil:
		w.failure(phase, "no answer")
		if phase == calm && !stalled {
			w.violation("no answer", "%s: %v", path, err)
		}
		return a
	case status == http.StatusServiceUnavailable:
		w.failure(phase, path+" status 503")
	case status != http.StatusOK:
		w.violation("status", "%s %s: status %d, %s", path, encode(body), status, text)
	default:
		err = json.Unmarshal(text, v)
		a.ok = err == nil
	}
	switch took := a.got.Sub(a.sent); {
	case err != nil:
		w.violation("answer", "%s: %v: %s", path, err, text)
	case took <= deadline:
	case *duration < judged, stalled:
		w.failure(phase, "late, as this machine was")
	default:
		w.violation("late", "%s took %v at %v, %s", path, took, a.sent.Sub(w.began).Round(time.Millisecond), phase)
	}
	return a
}

func (s *soak) post(url string, body []byte) (status int, text []byte, err error) {
	response, err := s.client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

// judge checks a decision, and returns what it charged.
func (w *worker) judge(a answered, q question, d *decision) []weir.Receipt {
	phase := w.faults.phase(a.sent, a.got)
	if d.Error != nil {
		w.failure(phase, "entry of a batch")
		w.violation("entry of a batch", "%s: %s", encode(q.body), d.Error.Detail)
		return nil
	}
	local := d.Reason == degraded+"local"
	w.decision(phase, d.Reason)
	if d.Reason == "ok" || d.Reason == "over_limit" {
		w.faults.asked(a)
	}
	if err := q.sound(d); err != nil {
		w.violation("reason", "%s: allowed %v, %s: %v", encode(q.body), d.Allowed, d.Reason, err)
	}
	receipts, err := parseReceipts(d.Receipt)
	if err == nil {
		err = q.proven(d, receipts)
	}
	if err != nil {
		w.violation("receipt", "%s: allowed %v, %s: %v", encode(q.body), d.Allowed, d.Reason, err)
		return nil
	}
	if strings.HasPrefix(d.Reason, degraded) { // the store may have charged it, or do so yet
		for i := range q.rows {
			w.living.touch(&q.rows[i], a.got.Add(maxPause+lifetime(q.rows[i].Limit)))
		}
	}
	for _, r := range receipts {
		w.record(a, r, local)
	}
	return receipts
}

// record notes a charge.
func (w *worker) record(a answered, r weir.Receipt, local bool) {
	e := event{at: r.Stamp, units: r.Units, receipt: r}
	windowed := r.Request.Limit.Algorithm == weir.FixedWindow || r.Request.Limit.Algorithm == weir.SlidingCounter
	early := a.sent.Add(-skew)
	if windowed { // the stamp is the start of the window
		e.at = a.got.UnixMicro()
		early = early.Add(-r.Request.Limit.Window)
	}
	if local {
		e.life = a.life
	} else {
		w.living.touch(&r.Request, expiry(&r))
	}
	if r.Stamp < early.UnixMicro() || r.Stamp > a.got.Add(skew).UnixMicro() {
		w.violation("stamp", "%q was charged at %v, not between %v and %v", r.Request.Key, time.UnixMicro(r.Stamp), early, a.got)
	}
	w.ledger.add(e)
}

// sound checks that the reason of a decision is one that its question can have.
func (q *question) sound(d *decision) error {
	never := q.domain == "" && len(q.rows) == 1 && q.rows[0].Cost > q.rows[0].Limit.Capacity()
	switch d.Reason {
	case "ok":
		if d.Allowed && !never {
			return nil
		}
	case "over_limit":
		if !d.Allowed && !never {
			return nil
		}
	case "never":
		if !d.Allowed && never {
			return nil
		}
	case degraded + "allowed":
		if d.Allowed && q.domain == "open" {
			return nil
		}
	case degraded + "denied":
		if !d.Allowed && q.domain != "open" {
			return nil
		}
	case degraded + "local":
		if q.domain != "open" && q.domain != "closed" {
			return nil
		}
	}
	return errors.New("that cannot be")
}

func parseReceipts(text string) ([]weir.Receipt, error) {
	var receipts []weir.Receipt
	for part := range strings.SplitSeq(text, ".") {
		var r weir.Receipt
		if err := r.UnmarshalText([]byte(part)); err != nil {
			return nil, err
		}
		if !r.IsZero() {
			receipts = append(receipts, r)
		}
	}
	return receipts, nil
}

// proven checks that a decision has charged all rows, each as it was asked to,
// if it admits; and none otherwise.
func (q *question) proven(d *decision, receipts []weir.Receipt) error {
	want := q.rows
	if !d.Allowed || d.Reason == degraded+"allowed" || q.rows[0].Mode == weir.Peek {
		want = nil
	}
	if len(receipts) != len(want) {
		return fmt.Errorf("%d rows were charged, not %d", len(receipts), len(want))
	}
	for i, r := range receipts {
		limit := want[i].Limit
		if d.Reason == degraded+"local" {
			limit = share(limit)
		}
		if isShare(r) != (d.Reason == degraded+"local") || r.Request.Limit != limit || r.Units != want[i].Cost {
			return fmt.Errorf("row %d was charged %d of %s, not %d of %s", i, r.Units, r.Request.Limit, want[i].Cost, limit)
		}
		if want[i].Key != "" && want[i].Key != r.Request.Key {
			return fmt.Errorf("row %d has charged %q", i, r.Request.Key)
		}
	}
	return nil
}

// share is what a process has of a limit.
func share(l weir.Limit) weir.Limit {
	l.Max = max(1, l.Max/replicas)
	if l.Burst > 0 {
		l.Burst = max(1, l.Burst/replicas)
	}
	return l
}
