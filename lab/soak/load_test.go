package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// rules are the files that the service is started with, and limits what each
// domain asks of a request, in order.
var rules = map[string]string{
	"shop": `domain: shop
rules:
  - {name: everyone, limit: 1000/10s, algorithm: sliding-buckets}
  - {name: tenant, by: tenant, limit: 40/1s, algorithm: sliding-log}
  - {name: user, by: [tenant, user], limit: 10/10s burst=20, algorithm: token-bucket}
server: {inline: true}
`,
	"open": `domain: open
rules:
  - {name: user, by: user, limit: 10/1s, algorithm: fixed-window, on_failure: allow}
`,
	"closed": `domain: closed
rules:
  - {name: user, by: user, limit: 30/1m, algorithm: sliding-counter, on_failure: deny}
`,
}

var limits = map[string][]weir.Limit{
	"shop": {
		normal(weir.Limit{Max: 1000, Window: 10 * time.Second, Algorithm: weir.SlidingBuckets}),
		normal(weir.Limit{Max: 40, Window: time.Second, Algorithm: weir.SlidingLog}),
		normal(weir.Limit{Max: 10, Window: 10 * time.Second, Burst: 20, Algorithm: weir.TokenBucket}),
	},
	"open":   {normal(weir.Limit{Max: 10, Window: time.Second, Algorithm: weir.FixedWindow})},
	"closed": {normal(weir.Limit{Max: 30, Window: time.Minute, Algorithm: weir.SlidingCounter})},
}

// normal returns a limit that is valid with its defaults filled in.
func normal(l weir.Limit) weir.Limit {
	l, err := l.Normal()
	if err != nil {
		panic(err)
	}
	return l
}

// limitOf draws a limit for the n-th key: each of the algorithms, windows and
// sizes comes with each of the others.
func limitOf(n uint64) weir.Limit {
	windows := [...]time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}
	sizes := [...]int64{3, 10, 40, 100}
	return normal(weir.Limit{Algorithm: weir.Algorithm(1 + n%5), Window: windows[n/5%4], Max: sizes[n/20%4]})
}

// question is a request for one decision, and what its rows are to be. The keys
// of rules are not known.
type question struct {
	body   map[string]any
	domain string
	rows   []weir.Request
}

// worker sends requests, one at a time.
type worker struct {
	*soak
	*rand.Rand
	name    int
	popular *rand.Zipf
	made    uint64 // keys that nobody has used before
	kept    []kept
}

// kept is what can be given back of a decision, and the life of the process
// that made it.
type kept struct {
	receipts []weir.Receipt
	life     int
}

func newWorker(s *soak, name int) *worker {
	r := rand.New(rand.NewPCG(s.seed, uint64(name)))
	return &worker{soak: s, Rand: r, name: name, popular: rand.NewZipf(r, 1.1, 1, 500)}
}

// run sends one request in each pace, on average, until ctx ends.
func (w *worker) run(ctx context.Context, pace time.Duration) {
	next := time.NewTimer(0)
	for {
		next.Reset(time.Duration(w.Int64N(int64(2 * pace))))
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			w.act()
		}
	}
}

func (w *worker) act() {
	switch n := w.IntN(100); {
	case n < 40:
		w.check(w.one())
	case n < 55:
		w.check(w.list())
	case n < 70:
		w.check(w.domain())
	case n < 80:
		w.batch()
	case n < 94:
		w.refund()
	default:
		w.count()
	}
}

// key returns a key that many ask for, or one that few do, if anybody else.
func (w *worker) key() weir.Request {
	if w.IntN(2) == 0 {
		n := w.popular.Uint64()
		return weir.Request{Key: fmt.Sprintf(":popular:%d", n), Limit: limitOf(n), Cost: 1}
	}
	if w.made == 0 || w.IntN(4) == 0 {
		w.made++
	}
	return weir.Request{Key: fmt.Sprintf(":new:%d:%d", w.name, w.made), Limit: limitOf(w.made + uint64(w.name)), Cost: 1}
}

// one asks for a key, for some more than one unit, some for none (which charges
// nothing) and some for more than can ever be.
func (w *worker) one() question {
	r := w.key()
	switch n := w.IntN(40); {
	case n < 4:
		r.Cost = 2 + w.Int64N(2)
	case n == 4:
		r.Cost = r.Limit.Max + 1
	case n == 5:
		r.Cost, r.Mode = 0, weir.Peek
	}
	return question{body: object(r), rows: []weir.Request{r}}
}

// list asks for several keys at once.
func (w *worker) list() question {
	rows := []weir.Request{
		{Key: ":all", Limit: normal(weir.Per(500, time.Second)), Cost: 1 + w.Int64N(2)},
		{Key: fmt.Sprintf(":group:%d", w.IntN(20)), Limit: normal(weir.Limit{Max: 20, Window: 500 * time.Millisecond, Algorithm: weir.TokenBucket}), Cost: 1},
		w.key(),
	}
	var checks []any
	for _, r := range rows {
		checks = append(checks, object(r))
	}
	return question{body: map[string]any{"checks": checks}, rows: rows}
}

func (w *worker) domain() question {
	name := [...]string{"shop", "shop", "shop", "open", "closed"}[w.IntN(5)]
	q := question{domain: name, body: map[string]any{"domain": name, "attributes": map[string]string{
		"tenant": fmt.Sprintf("t%d", w.popular.Uint64()%20), "user": fmt.Sprintf("u%d", w.popular.Uint64()),
	}}}
	for _, l := range limits[name] {
		q.rows = append(q.rows, weir.Request{Limit: l, Cost: 1})
	}
	return q
}

// object is a request as JSON has it. The service puts the colon before keys that
// come with their limit, apart from those of rules.
func object(r weir.Request) map[string]any {
	return map[string]any{"key": r.Key[1:], "limit": r.Limit.String(), "cost": r.Cost}
}

func (w *worker) check(q question) {
	var d decision
	if a := w.call("/v1/check", q.body, &d); a.ok {
		w.keep(a, w.judge(a, q, &d))
	}
}

func (w *worker) batch() {
	var questions []question
	var bodies []any
	for range 10 {
		q := w.one()
		questions, bodies = append(questions, q), append(bodies, q.body)
	}
	var answer struct{ Decisions []decision }
	a := w.call("/v1/batch", map[string]any{"requests": bodies}, &answer)
	if !a.ok {
		return
	}
	if len(answer.Decisions) != len(questions) {
		w.violation("batch", "a batch of %d has %d decisions", len(questions), len(answer.Decisions))
		return
	}
	for i, q := range questions {
		w.keep(a, w.judge(a, q, &answer.Decisions[i]))
	}
}

// maxKept is how many decisions a worker may return.
const maxKept = 50

// keep keeps a decision to return it some time, and forgets the oldest.
func (w *worker) keep(a answered, receipts []weir.Receipt) {
	if len(receipts) == 0 {
		return
	}
	if len(w.kept) == maxKept {
		w.kept = append(w.kept[:0], w.kept[1:]...)
	}
	w.kept = append(w.kept, kept{receipts, a.life})
}

// refund returns what a decision of this worker has charged, once. What is
// unknown of it is taken for having been given back.
func (w *worker) refund() {
	if len(w.kept) == 0 {
		w.check(w.one())
		return
	}
	i := w.IntN(len(w.kept))
	k := w.kept[i]
	w.kept = append(w.kept[:i], w.kept[i+1:]...)
	var units int64
	var parts []string
	for _, r := range k.receipts {
		part, _ := r.MarshalText() // never fails
		parts = append(parts, string(part))
		units += r.Units
	}
	answer := struct{ Refunded int64 }{-1}
	a := w.call("/v1/refund", map[string]any{"receipt": strings.Join(parts, ".")}, &answer)
	if answer.Refunded > units {
		w.violation("refund", "%d units were given back of %d", answer.Refunded, units)
	}
	for _, r := range k.receipts {
		e := event{at: max(r.Stamp+1, a.sent.UnixMicro()), units: -r.Units, receipt: r}
		if isShare(r) {
			e.life = k.life
		}
		if answer.Refunded != 0 && (e.life == 0 || e.life == a.life) {
			w.ledger.add(e)
		}
	}
}

// count charges a key that nobody else uses, and counts it over longer and
// longer times.
func (w *worker) count() {
	r := weir.Request{Key: fmt.Sprintf(":counted:%d", w.name), Limit: normal(weir.Per(200, time.Minute)), Cost: 1}
	var d decision
	first := w.call("/v1/check", object(r), &d)
	if !first.ok {
		return
	}
	w.judge(first, question{rows: []weir.Request{r}}, &d)
	body := object(r)
	delete(body, "cost")
	var counts []int64
	for _, last := range []string{"1s", "10s", "30s", "60s"} {
		body["last"] = last
		var answer struct{ Count int64 }
		if !w.call("/v1/count", body, &answer).ok {
			return
		}
		counts = append(counts, answer.Count)
		if n := len(counts); n > 1 && counts[n-1] < counts[n-2] && !w.lostSince(first.sent) {
			w.violation("count", "counts over 1 s, 10 s, 30 s and 60 s of %s are %d", r.Key, counts)
		}
	}
}

// encode returns v as JSON.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
