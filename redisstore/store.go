package redisstore

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// Options configures a Store; URL is required.
type Options struct {
	// URL names the server, the sentinels or the nodes of a Cluster:
	//
	//	redis://user:password@host:6379/0           rediss:// for TLS
	//	redis://host1:6379,host2:6379               a Cluster; one address is asked whether it is one
	//	redis://host1:26379,host2:26379?master_set=NAME   Sentinel
	//	unix:///run/redis.sock?db=0
	//
	// It may end in ?ca=FILE, cert=FILE&key=FILE, skip_verify=true,
	// dial_timeout=2s, write_timeout=2s, sentinel_user, sentinel_password, and
	// proxy=twemproxy.
	URL string
	// Username and Password win over those of the URL.
	Username, Password string
	// Prefix begins the name of every key; "" means "weir".
	Prefix string
	// KeySecret, if not empty, replaces what is limited in the names of keys by
	// its HMAC. All stores that share limits must have the same.
	KeySecret string
	// SortedSet keeps a sliding-log as a sorted set, for people to inspect with
	// ZRANGE: a member a charge, "total:units", scored by its stamp in
	// microseconds. It takes more time and memory.
	SortedSet bool
	// Plain uses no scripts but MULTI, for servers that have none. It has
	// fixed-window only, of whole milliseconds, and no lists; see docs/redis.md.
	Plain bool
	// Verify makes each decision twice, here and on the server, and fails
	// where they differ. It is for tests.
	Verify bool
	// Now is a clock instead of the server's, for tests. Keys then live an hour
	// longer than they matter.
	Now func() time.Time
}

// Store is a weir.Store on Redis or Valkey. Each list is decided by one script,
// by the server's clock; on a Cluster each Group of a list is, see Take. It is
// safe for concurrent use. Its errors are *weir.StoreError.
type Store struct {
	link    *link
	keys    keys
	scripts *scripts
	options Options
	ids     atomic.Uint64
}

// Open returns a store. It does not wait for the server, see Ready: until that
// can be reached, every call fails. The error is a *weir.InvalidError.
func Open(o Options) (*Store, error) {
	e, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	e.login(o.Username, o.Password)
	if o.Prefix == "" {
		o.Prefix = "weir"
	}
	if bad := badPrefix(o.Prefix); bad {
		return nil, &weir.InvalidError{Field: "redis prefix", Value: o.Prefix, Want: "letters, digits and the signs . _ - / : such as weir"}
	}
	s := &Store{link: newLink(e), keys: keys{prefix: o.Prefix}, scripts: newScripts(), options: o}
	if o.KeySecret != "" {
		s.keys.secret = []byte(o.KeySecret)
	}
	s.ids.Store(rand.Uint64()>>1 | 1<<62) // never 0, which means no charge in particular
	return s, nil
}

// badPrefix reports whether a prefix could put a hash tag of its own into keys.
func badPrefix(p string) bool {
	for _, c := range []byte(p) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-', c == '/', c == ':':
		default:
			return true
		}
	}
	return false
}

// Close ends the connections; later calls fail with weir.ErrClosed.
func (s *Store) Close() error {
	s.link.close()
	return nil
}

// layout returns how the state of a limit is stored.
func (s *Store) layout(l weir.Limit) layout {
	switch {
	case s.options.Plain:
		return plainWindow
	case s.options.SortedSet && l.Algorithm == weir.SlidingLog:
		return sortedSet
	}
	return layout(l.Algorithm)
}

// now is the first argument of every script.
func (s *Store) now() string {
	if s.options.Now == nil {
		return ""
	}
	return strconv.FormatInt(s.options.Now().UnixMicro(), 10)
}

// clock tells the time by which a Table is given its ends.
func (s *Store) clock() time.Time {
	if s.options.Now == nil {
		return time.Now()
	}
	return s.options.Now()
}

// Take implements weir.Store. On a Cluster, a list of several Groups is decided
// Group by Group; see groups.go.
func (s *Store) Take(ctx context.Context, lists []weir.List) {
	client, err := s.link.client(ctx)
	if err != nil {
		for i := range lists {
			lists[i].Err = err
		}
		return
	}
	if s.options.Plain {
		s.takePlain(ctx, client, lists)
		return
	}
	plans := make([]plan, 0, len(lists))
	var several []across
	for i := range lists {
		l := &lists[i]
		if len(l.Requests) > 1 && s.link.clustered() {
			if a := split(l); len(a.parts) > 1 {
				several = append(several, a)
				continue
			}
		}
		if len(l.Requests) > 0 {
			plans = append(plans, s.plan(l, false))
		}
	}
	s.trip(ctx, client, plans)
	if len(several) > 0 {
		s.takeAcross(ctx, client, several)
	}
}

// trip runs plans and fills in the rows or the errors of their lists.
func (s *Store) trip(ctx context.Context, client rueidis.Client, plans []plan) {
	calls := make([]call, len(plans))
	for i := range plans {
		calls[i] = plans[i].call
	}
	for i, result := range s.link.run(ctx, client, calls) {
		plans[i].list.Err = s.read(&plans[i], result)
	}
}

// plan is a list on its way through a script.
type plan struct {
	list *weir.List
	rows []row
	of   []int // the row of each request
	call call
}

// plan sums up the requests of one state and mode, and writes the call; peek
// asks only how it would be decided.
func (s *Store) plan(l *weir.List, peek bool) plan {
	p := plan{list: l, rows: make([]row, 0, len(l.Requests)), of: make([]int, len(l.Requests))}
	for i := range l.Requests {
		r := &l.Requests[i]
		kind := s.layout(r.Limit)
		w := row{key: s.keys.state(kind, r), layout: kind, mode: r.Mode, limit: limitOf(r.Limit), cost: r.Cost}
		p.of[i] = p.add(w)
	}
	for i := range p.rows {
		if peek {
			p.rows[i].mode = weir.Peek
		}
	}
	p.call.keys = make([]string, len(p.rows))
	p.call.args = make([]string, 1, len(p.rows)+2)
	p.call.args[0] = s.now()
	if len(p.rows) == 1 && !s.options.Verify {
		w := &p.rows[0]
		p.call.script, p.call.keys[0] = s.scripts.one[w.layout], w.key
		p.call.args = append(p.call.args, w.text(uint8(w.mode), w.cost))
		return p
	}
	if p.few() && !s.options.Verify {
		p.sort()
		of := make([]layout, len(p.rows))
		for i := range p.rows {
			w := &p.rows[i]
			of[i], p.call.keys[i] = w.layout, w.key
			p.call.args = append(p.call.args, w.text(uint8(w.mode), w.cost))
		}
		p.call.script = s.scripts.nested(of)
		return p
	}
	set := uint(0)
	for i := range p.rows {
		w := &p.rows[i]
		set |= 1 << w.layout
		p.call.keys[i] = w.key
		p.call.args = append(p.call.args, w.text(uint8(w.mode), w.cost)+string(rune(w.layout)))
	}
	if s.options.Verify {
		p.call.args = append(p.call.args, "verify")
	}
	p.call.script = s.scripts.list(set)
	return p
}

// add adds a request's row, or its cost to the one of its state and mode, and
// returns which that is.
func (p *plan) add(w row) int {
	for i := range p.rows {
		if p.rows[i].key == w.key && p.rows[i].mode == w.mode {
			p.rows[i].cost += w.cost
			return i
		}
	}
	p.rows = append(p.rows, w)
	return len(p.rows) - 1
}

// few reports whether the rows have a script of their own: a few Enforce rows,
// which are of different states.
func (p *plan) few() bool {
	for i := range p.rows {
		if p.rows[i].mode != weir.Enforce {
			return false
		}
	}
	return len(p.rows) <= maxNested
}

// sort puts the rows in the order of their layouts, so that there are few scripts.
func (p *plan) sort() {
	order := make([]int, len(p.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.rows[a].layout, p.rows[b].layout) })
	rows, place := make([]row, len(order)), make([]int, len(order))
	for i, from := range order {
		rows[i], place[from] = p.rows[from], i
	}
	p.rows = rows
	for i := range p.of {
		p.of[i] = place[p.of[i]]
	}
}

// read fills in the rows of a list from a script's reply.
func (s *Store) read(p *plan, result rueidis.RedisResult) error {
	text, err := result.ToString()
	if err != nil {
		return s.link.fail(err, true)
	}
	reply := reader{b: text}
	told := make([]told, len(p.rows))
	for i := range p.rows {
		told[i] = p.rows[i].tell(&reply)
		if s.options.Verify && !reply.bad {
			if err := p.rows[i].verify(&told[i], &reply, s.options.Now != nil); err != nil {
				return s.link.fail(err, false)
			}
		}
	}
	if reply.bad || reply.b != "" {
		return s.link.fail(errReply, false)
	}
	for i := range p.list.Requests {
		w, t := &p.rows[p.of[i]], &told[p.of[i]]
		d := w.decide(t)
		if t.charged {
			d.Receipt = s.receipt(&p.list.Requests[i], w, t)
		}
		p.list.Rows[i] = d
	}
	return nil
}

// receipt returns the proof of a charge, of an ID that no other has.
func (s *Store) receipt(r *weir.Request, w *row, t *told) weir.Receipt {
	m := algo.Last(&w.limit, &t.state)
	return weir.Receipt{
		Request: weir.Request{Key: r.Key, Limit: r.Limit, Cost: r.Cost, Group: r.Group},
		Units:   r.Cost,
		Stamp:   m.Stamp, Level: m.Level, Place: m.Place, Back: m.Back, Birth: t.birth,
		ID: s.ids.Add(1),
	}
}

// each runs a script of one key for each of n requests, and adds up what their
// results count for. The error is the first that one met; the others hold.
func (s *Store) each(ctx context.Context, calls []call, count func(i int, result rueidis.RedisResult) (int64, error)) (total int64, err error) {
	client, err := s.link.client(ctx)
	if err != nil {
		return 0, err
	}
	for i, result := range s.link.run(ctx, client, calls) {
		n, failed := count(i, result)
		total += n
		if err == nil {
			err = s.link.fail(failed, true)
		}
	}
	return total, err
}

// single returns a row for a request that is not part of a list.
func (s *Store) single(r *weir.Request) row {
	kind := s.layout(r.Limit)
	return row{key: s.keys.state(kind, r), layout: kind, limit: limitOf(r.Limit), cost: r.Cost}
}

// Refund implements weir.Store. In a log it takes a write of all that was
// charged since, or of the whole log when nothing is left of a charge.
func (s *Store) Refund(ctx context.Context, receipts []weir.Receipt) (int64, error) {
	if s.options.Plain {
		return 0, &weir.InvalidError{Field: "refund", Value: strconv.Itoa(len(receipts)), Want: plainWant}
	}
	calls := make([]call, 0, len(receipts))
	for i := range receipts {
		r := &receipts[i]
		w := s.single(&r.Request)
		mode, proof := uint8(0), make([]byte, 0, 35)
		if r.ID == 0 {
			mode = 1
		}
		for _, n := range [...]int64{r.Stamp, r.Level, r.Place, r.Back, r.Birth} {
			if n < 0 || n >= 1<<53 {
				n = 0 // no state of this store has such a mark
			}
			proof = appendInt(proof, n, 7)
		}
		calls = append(calls, call{s.scripts.refund[w.layout], []string{w.key}, []string{s.now(), w.text(mode, r.Units), string(proof)}})
	}
	return s.each(ctx, calls, func(_ int, result rueidis.RedisResult) (int64, error) { return result.AsInt64() })
}

// Count implements weir.Store.
func (s *Store) Count(ctx context.Context, r weir.Request, d time.Duration) (int64, error) {
	if s.options.Plain {
		return 0, &weir.InvalidError{Field: "count", Value: r.Limit.String(), Want: plainWant}
	}
	w := s.single(&r)
	calls := []call{{s.scripts.count[w.layout], []string{w.key}, []string{s.now(), w.text(0, d.Microseconds())}}}
	n, err := s.each(ctx, calls, func(_ int, result rueidis.RedisResult) (int64, error) { return result.AsInt64() })
	return min(n, 2*r.Limit.Max), err
}

// Reset implements weir.Store.
func (s *Store) Reset(ctx context.Context, requests []weir.Request) (int64, error) {
	if s.options.Plain {
		return s.resetPlain(ctx, requests)
	}
	rows := make([]row, len(requests))
	calls := make([]call, len(requests))
	for i := range requests {
		rows[i] = s.single(&requests[i])
		calls[i] = call{s.scripts.reset[rows[i].layout], []string{rows[i].key}, []string{s.now(), rows[i].text(0, 1)}}
	}
	return s.each(ctx, calls, func(i int, result rueidis.RedisResult) (int64, error) {
		text, err := result.ToString()
		if err != nil {
			return 0, err
		}
		t := rows[i].tell(&reader{b: text})
		if rows[i].decide(&t).ResetAfter > 0 {
			return 1, nil
		}
		return 0, nil
	})
}
