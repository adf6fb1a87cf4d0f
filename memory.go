package weir

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/siphash"
)

// Memory is the Store for one process. Its states live in hash tables without
// pointers, split into shards with a lock each; a list locks the shards of all
// its keys in one order, so that it is all-or-nothing. It starts no goroutine:
// expired states are reclaimed by the calls that need their room.
//
// A key is known by 128 bits of hash under a secret drawn at NewMemory, so its
// length costs no memory. Snapshot writes the states down, and RestoreMemory
// reads them back.
type Memory struct {
	clock    func() int64
	maxKeys  int64
	secret   siphash.Key
	restored time.Time
	firstID  uint64 // start of the receipt IDs, so that processes do not share them
	shards   []shard
	maxCells int64
	keys     atomic.Int64
	cells    atomic.Int64 // that states have room for
	evicted  atomic.Int64
	closed   atomic.Bool
}

// MemoryOptions configures a Memory; the zero value is ready for use.
type MemoryOptions struct {
	// Now is the clock; nil means the wall clock at start plus the monotonic
	// time elapsed. It may step either way and must be safe for concurrent use.
	Now func() time.Time
	// MaxKeys bounds the number of states kept; 0 means 1,048,576. A new key
	// above it evicts the least used of a few sampled states, or, if all of
	// those are exhausted, the one that resets first.
	//
	// A state takes 64 bytes, at about two thirds load. Those of sliding-log
	// and sliding-buckets take 16 more for each further stamp they remember,
	// with room to grow. For 16 stamps a key of MaxKeys, and a million more,
	// there is room; beyond it the least used of them are evicted too.
	MaxKeys int
}

const (
	defaultMaxKeys = 1 << 20
	maxShards      = 128
	cellsPerKey    = 16
	minShardKeys   = 1024 // so that a full store finds something to evict in any shard
)

// shard is one lock and the states under it.
type shard struct {
	mu     sync.Mutex
	ids    uint64 // receipts given out
	births uint64 // slots given out
	table
	_ [64]byte // no two locks on one cache line
}

// NewMemory returns an empty store.
func NewMemory(o MemoryOptions) *Memory {
	if o.MaxKeys <= 0 {
		o.MaxKeys = defaultMaxKeys
	}
	n := 1
	for n < maxShards && o.MaxKeys/(2*n) >= minShardKeys {
		n *= 2
	}
	m := &Memory{
		maxKeys:  int64(o.MaxKeys),
		maxCells: 1<<20 + cellsPerKey*min(int64(o.MaxKeys), 1<<40),
		secret:   siphash.Key{rand.Uint64(), rand.Uint64()},
		firstID:  rand.Uint64()>>1 | 1<<62, // never 0, which means no charge in particular
		shards:   make([]shard, n),
	}
	if o.Now != nil {
		m.clock = func() int64 { return o.Now().UnixMicro() }
	} else {
		start := time.Now()
		wall := start.UnixMicro()
		m.clock = func() int64 { return wall + int64(time.Since(start)/time.Microsecond) }
	}
	for i := range m.shards {
		m.shards[i].births = rand.Uint64() // so that receipts of another store match no life of this one
	}
	return m
}

// MemoryStats counts what a Memory holds.
type MemoryStats struct {
	Keys    int64 // states kept, expired ones that no call has needed the room of included
	Stamps  int64 // further stamps that there is room for, 16 bytes each
	Evicted int64 // live states forgotten because of MaxKeys
}

// Stats returns the counts of now.
func (m *Memory) Stats() MemoryStats {
	return MemoryStats{Keys: m.keys.Load(), Stamps: m.cells.Load(), Evicted: m.evicted.Load()}
}

// Close forgets everything; later calls fail with ErrClosed.
func (m *Memory) Close() error {
	m.closed.Store(true)
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.table = table{}
		s.mu.Unlock()
	}
	m.keys.Store(0)
	m.cells.Store(0)
	return nil
}

// row is a Request on its way through a shard.
type row struct {
	id    ident
	shard int
	limit algo.Limit
	state algo.State
	cost  int64 // of all rows of this state and mode
	lead  int   // the first row of the same state and mode
	fits  bool
	out   algo.Outcome // once charged or decided
	taken bool         // charged
	mark  algo.Mark    // where, if so
	birth int64        // and in which life of the slot
}

// fill prepares a zero row for a request.
func (m *Memory) fill(w *row, r *Request) {
	m.ident(&w.id, r)
	w.shard = m.shardOf(&w.id)
	w.limit = r.Limit.algo()
	w.cost = r.Cost
}

func (m *Memory) shardOf(id *ident) int { return int(id.a>>32) & (len(m.shards) - 1) }

// ident hashes a key, and mixes in the rest of its state's identity.
func (m *Memory) ident(id *ident, r *Request) {
	id.kind = packKind(&r.Limit)
	id.a, id.b = siphash.Sum(&m.secret, 1, 3, r.Key)
	const odd = 0x9e3779b97f4a7c15
	id.a ^= id.kind * odd
}

// packKind packs what of a limit is part of its states' identity: 45 bits of
// window, 14 of buckets, 4 of algorithm and alignment. It is never 0.
func packKind(l *Limit) uint64 {
	kind := uint64(l.Window/time.Microsecond)<<18 | uint64(l.Buckets)<<4 | uint64(l.Algorithm)<<1
	if l.Epoch {
		kind |= 1
	}
	return kind
}

// Take implements Store. It does not wait, so it ignores ctx.
func (m *Memory) Take(_ context.Context, lists []List) {
	for i := range lists {
		l := &lists[i]
		switch n := len(l.Requests); {
		case m.closed.Load():
			l.Err = ErrClosed
		case n == 1:
			m.takeOne(&l.Requests[0], &l.Rows[0])
		case int64(n) > m.maxKeys:
			l.Err = invalid("requests", strconv.Itoa(n), "no more requests in a list than MaxKeys, "+strconv.FormatInt(m.maxKeys, 10))
		default:
			m.takeAll(l)
		}
	}
}

// takeOne is takeAll for a list of one, which has no locks to order.
func (m *Memory) takeOne(r *Request, d *Decision) {
	var w row
	m.fill(&w, r)
	s := &m.shards[w.shard]
	s.mu.Lock()
	now := m.clock()
	s.look(&w, now)
	if r.Mode == Record || w.fits && r.Mode != Peek {
		m.charge(&w, now, nil)
	} else {
		w.decide(now)
	}
	m.answer(r, &w, d)
	s.mu.Unlock()
}

var rowPool = sync.Pool{New: func() any { return new([]row) }}

// takeAll decides a list under the locks of all its shards, taken in their
// order. The clock is read under the locks, so that stamps follow their order.
func (m *Memory) takeAll(l *List) {
	pooled := rowPool.Get().(*[]row)
	defer rowPool.Put(pooled)
	rows := m.group(l.Requests, (*pooled)[:0])
	*pooled = rows
	var locks lockSet
	for i := range rows {
		locks[rows[i].shard/64] |= 1 << (rows[i].shard % 64)
	}
	m.lock(&locks)
	defer m.unlock(&locks)
	now := m.clock()
	admitted := true
	for i := range rows {
		if w := &rows[i]; w.lead == i {
			m.shards[w.shard].look(w, now)
			admitted = admitted && (w.fits || l.Requests[i].Mode != Enforce)
		}
	}
	// What is only looked at comes first: it sees the states before the list.
	for _, mode := range [...]Mode{Peek, Enforce, Shadow, Record} {
		m.commit(l.Requests, rows, mode, mode == Record || admitted && mode != Peek, now)
	}
	for i := range rows {
		m.answer(&l.Requests[i], &rows[rows[i].lead], &l.Rows[i])
	}
}

// group prepares the rows of a list and sums those of one state and mode.
func (m *Memory) group(requests []Request, rows []row) []row {
	for i := range requests {
		rows = append(rows, row{lead: i})
		w := &rows[i]
		m.fill(w, &requests[i])
		for j := range i {
			if rows[j].id == w.id && rows[j].lead == j && requests[j].Mode == requests[i].Mode {
				w.lead = j
				rows[j].cost += w.cost
				break
			}
		}
	}
	return rows
}

// commit decides the rows of one mode, and charges those that fit if it may.
// It looks again, since an earlier mode may have charged the same state.
func (m *Memory) commit(requests []Request, rows []row, mode Mode, charge bool, now int64) {
	for i := range rows {
		w := &rows[i]
		if w.lead != i || requests[i].Mode != mode {
			continue
		}
		m.shards[w.shard].look(w, now)
		if charge && (w.fits || mode == Record) {
			m.charge(w, now, rows)
		} else {
			w.decide(now)
		}
	}
}

// look loads the state of a row, settles it, and sees whether the cost fits.
func (s *shard) look(w *row, now int64) {
	w.state = algo.State{}
	if p := s.find(&w.id); p != nil {
		s.load(p, &w.state)
		if algo.Settle(&w.limit, &w.state, now) {
			s.save(p, w)
			p.expect(&w.limit, algo.Decide(&w.limit, &w.state, now, 0), now)
		}
	}
	w.fits = algo.Fits(&w.limit, &w.state, now, w.cost)
}

// charge records a row. keep are the rows whose slots must not be reclaimed.
func (m *Memory) charge(w *row, now int64, keep []row) {
	s := &m.shards[w.shard]
	p := s.find(&w.id)
	if p == nil {
		p = m.insert(s, &w.id, now, keep)
	}
	if w.limit.Kind.HasCells() {
		p = m.makeRoom(w, p, now, keep)
	}
	w.mark = algo.Charge(&w.limit, &w.state, now, w.cost)
	w.out = algo.Decide(&w.limit, &w.state, now, 0)
	w.taken, w.birth = true, p.birth()
	s.save(p, w)
	p.expect(&w.limit, w.out, now)
}

// decide sees what to tell about a row that is not charged.
func (w *row) decide(now int64) {
	cost := w.cost
	if w.fits {
		cost = 0
	}
	w.out = algo.Decide(&w.limit, &w.state, now, cost)
}

// answer tells a request what its row came to.
func (m *Memory) answer(r *Request, w *row, d *Decision) {
	*d = Decision{
		Allowed:    w.fits || w.taken,
		Limit:      w.limit.Burst,
		Remaining:  w.out.Remaining,
		RetryAfter: time.Duration(w.out.Retry) * time.Microsecond,
		ResetAfter: time.Duration(w.out.Reset) * time.Microsecond,
	}
	switch {
	case w.taken:
		d.Receipt = m.receipt(r, w)
	case w.cost > w.limit.Burst:
		d.Reason = Never
	case !w.fits:
		d.Reason = OverLimit
	}
}

// receipt returns the proof of a charge, of an ID that no other has.
func (m *Memory) receipt(r *Request, w *row) Receipt {
	s := &m.shards[w.shard]
	s.ids++
	return Receipt{
		Request: Request{Key: r.Key, Limit: r.Limit, Cost: r.Cost, Group: r.Group},
		Units:   r.Cost,
		Stamp:   w.mark.Stamp, Level: w.mark.Level, Place: w.mark.Place, Back: w.mark.Back, Birth: w.birth,
		ID: m.firstID + s.ids*maxShards + uint64(w.shard),
	}
}

// Refund implements Store.
func (m *Memory) Refund(_ context.Context, receipts []Receipt) (int64, error) {
	var total int64
	for i := range receipts {
		if m.closed.Load() {
			return total, ErrClosed
		}
		r := &receipts[i]
		var w row
		m.fill(&w, &r.Request)
		s := &m.shards[w.shard]
		s.mu.Lock()
		if p := s.find(&w.id); p != nil {
			now := m.clock()
			s.look(&w, now)
			switch {
			case r.ID == 0:
				total += algo.RefundOldest(&w.limit, &w.state, now, r.Units)
			case r.Birth == p.birth():
				total += algo.Refund(&w.limit, &w.state, now, r.Units, algo.Mark{Stamp: r.Stamp, Level: r.Level, Place: r.Place, Back: r.Back})
			}
			// When it expires stays: the receipt's Max may not be today's.
			s.save(p, &w)
		}
		s.mu.Unlock()
	}
	return total, nil
}

// Count implements Store.
func (m *Memory) Count(_ context.Context, r Request, d time.Duration) (int64, error) {
	if m.closed.Load() {
		return 0, ErrClosed
	}
	var w row
	m.fill(&w, &r)
	s := &m.shards[w.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock()
	s.look(&w, now)
	return algo.Count(&w.limit, &w.state, now, d.Microseconds()), nil
}

// Reset implements Store.
func (m *Memory) Reset(_ context.Context, requests []Request) (int64, error) {
	if m.closed.Load() {
		return 0, ErrClosed
	}
	var n int64
	for i := range requests {
		var w row
		m.fill(&w, &requests[i])
		s := &m.shards[w.shard]
		s.mu.Lock()
		if p := s.find(&w.id); p != nil {
			now := m.clock()
			s.look(&w, now)
			if w.decide(now); w.out.Reset > 0 {
				n++
			}
			m.remove(s, p)
		}
		s.mu.Unlock()
	}
	return n, nil
}

// lockSet has a bit for each shard.
type lockSet [maxShards / 64]uint64

func (m *Memory) lock(set *lockSet) {
	for i, word := range set {
		for ; word != 0; word &= word - 1 {
			m.shards[i*64+bits.TrailingZeros64(word)].mu.Lock()
		}
	}
}

func (m *Memory) unlock(set *lockSet) {
	for i, word := range set {
		for ; word != 0; word &= word - 1 {
			m.shards[i*64+bits.TrailingZeros64(word)].mu.Unlock()
		}
	}
}
