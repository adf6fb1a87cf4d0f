package weir

import (
	"math/bits"

	"github.com/weirlimit/weir/internal/algo"
)

// table is an extendible hash table: a directory, indexed by the leading bits
// of a hash, of segments of slots. A full segment is split in two, so that the
// table grows without ever rehashing more than one segment. No slot holds a
// pointer, so the garbage collector does not look at them.
type table struct {
	dir   []*segment // 1<<depth entries; a segment of less depth fills several
	depth uint8
	cells arena
	seg   int // where reclaim looks next: a directory entry,
	pos   int // and a slot in its segment
}

const (
	segmentSlots = 127                  // and a header of their size make 8 KB
	segmentFull  = segmentSlots * 7 / 8 // probes stay short below it
)

type segment struct {
	depth uint8 // leading bits that all its hashes share
	n     int   // slots in use
	_     [48]byte
	slots [segmentSlots]slot
}

// ident is the identity of a state: two independent hashes of the key, and the
// rest packed into kind, which is never 0.
type ident struct{ a, b, kind uint64 }

// slot is one state: one cache line.
type slot struct {
	ident
	// meta is when the state stops mattering (39 bits), how much was used (5),
	// and the number of its life (20), by which receipts know it.
	meta       uint64
	t, n, r, v int64 // algo.State; for algorithms with cells v is their blockRef
}

const (
	birthBits = 20
	usedBits  = 5
	exhausted = 1<<usedBits - 1
	// A state is kept up to 2^tickBits microseconds, 131 ms, too long. The
	// ticks reach from year 1, which is the zero of time.Time, to 2284.
	tickBits = 17
	year1    = -62_135_596_800_000_000
)

// until is the first tick at which the state is as good as unused.
func (p *slot) until() uint64 { return p.meta >> (birthBits + usedBits) }

func (p *slot) used() uint64 { return p.meta >> birthBits & exhausted }

func (p *slot) birth() int64 { return int64(p.meta & (1<<birthBits - 1)) }

// ticks counts the whole ticks until a time.
func ticks(at int64) uint64 { return min(uint64(max(0, at-year1))>>tickBits, 1<<39-1) }

func (p *slot) algorithm() algo.Kind { return algo.Kind(p.kind >> 1 & 7) }

// at returns the directory entry of a hash.
func (t *table) at(a uint64) int { return int(a >> (64 - t.depth)) }

// find returns the slot of an identity, or nil. It is valid until the next
// insert or remove.
func (t *table) find(id *ident) *slot {
	if len(t.dir) == 0 {
		return nil
	}
	return t.dir[t.at(id.a)].find(id)
}

func (g *segment) find(id *ident) *slot {
	for i := id.a % segmentSlots; ; i = (i + 1) % segmentSlots {
		p := &g.slots[i]
		if p.ident == *id {
			return p
		}
		if p.kind == 0 {
			return nil
		}
	}
}

// load reads the state in a slot into a zero State; its Cells are the slot's.
func (t *table) load(p *slot, s *algo.State) {
	s.T, s.N, s.R, s.V = p.t, p.n, p.r, p.v
	switch kind := p.algorithm(); {
	case kind.HasCells():
		s.V, s.Cells = 0, t.cells.get(blockRef(p.v))
	case kind == algo.TokenBucket:
		s.N, s.M = int64(uint64(p.n)>>backBits), p.n&(1<<backBits-1)
	}
}

// backBits is the room for M beside the 33 bits of what a token bucket owes.
const backBits = 31

// save writes a row's state to its slot. The state's Cells must be those that
// load or makeRoom gave it.
func (t *table) save(p *slot, w *row) {
	s := &w.state
	p.t, p.n, p.r = s.T, s.N, s.R
	switch kind := w.limit.Kind; {
	case kind.HasCells():
		p.v = int64(blockRef(p.v).withLen(len(s.Cells)))
	case kind == algo.TokenBucket:
		p.n, p.v = s.N<<backBits|s.M, s.V
	default:
		p.v = s.V
	}
}

// expect notes how much is used and when the state will be as good as unused.
func (p *slot) expect(l *algo.Limit, o algo.Outcome, now int64) {
	used := uint64(exhausted)
	if o.Remaining > 0 {
		used = uint64((l.Burst - o.Remaining) * (exhausted - 1) / l.Burst)
	}
	const wholeTick = 1<<tickBits - 1
	p.meta = ticks(now+o.Reset+wholeTick)<<(birthBits+usedBits) | used<<birthBits | uint64(p.birth())
}

// makeRoom sees to it that a charge can append a cell without allocating, and
// returns the row's slot, which may have moved.
func (m *Memory) makeRoom(w *row, p *slot, now int64, keep []row) *slot {
	s, state := &m.shards[w.shard], &w.state
	if len(state.Cells) < cap(state.Cells) || !algo.AddsCell(&w.limit, state, now) {
		return p
	}
	algo.Compact(&w.limit, state)
	old := blockRef(p.v)
	class := classFor(2*len(state.Cells) + 1)
	if old.size() > 0 && (class == old.class() || class+1 == old.class()) {
		return p
	}
	if m.cells.Add(int64(minBlock<<class-old.size())) > m.maxCells {
		m.evictCells(s, w, keep)
		p = s.find(&w.id)
	}
	ref := s.cells.alloc(class).withLen(len(state.Cells))
	cells := s.cells.get(ref)
	copy(cells, state.Cells)
	s.cells.free(old)
	state.Cells, p.v = cells, int64(ref)
	return p
}

// evictCells drops states with cells, the least used of each segment it comes
// by, until what the store holds of them is within bounds. It spares w.
func (m *Memory) evictCells(s *shard, w *row, keep []row) {
	for range 2 * len(s.dir) {
		g := s.dir[s.seg]
		s.pos = 0
		s.nextSegment(g)
		best := g.leastUsed(0, func(p *slot) bool {
			return p.algorithm().HasCells() && blockRef(p.v) != 0 && p.ident != w.id && !kept(keep, p.ident)
		})
		if best >= 0 {
			m.dropAt(s, g, best)
			m.evicted.Add(1)
		}
		if m.cells.Load() <= m.maxCells {
			return
		}
	}
}

// drop empties a slot and closes the gap in its probe sequence.
func (t *table) drop(g *segment, i int) {
	if p := &g.slots[i]; p.algorithm().HasCells() {
		t.cells.free(blockRef(p.v))
	}
	g.n--
	for j := i; ; {
		j = (j + 1) % segmentSlots
		p := &g.slots[j]
		if p.kind == 0 {
			break
		}
		// Move p into the gap unless its home lies cyclically in (i, j].
		home := int(p.a % segmentSlots)
		if (j-home+segmentSlots)%segmentSlots >= (j-i+segmentSlots)%segmentSlots {
			g.slots[i] = *p
			i = j
		}
	}
	g.slots[i] = slot{}
}

// split makes two segments of one by the next bit of their hashes.
func (t *table) split(g *segment) {
	if g.depth == t.depth {
		dir := make([]*segment, 2*len(t.dir))
		for i, g := range t.dir {
			dir[2*i], dir[2*i+1] = g, g
		}
		t.dir = dir
		t.depth++
		t.seg *= 2
	}
	halves := [2]*segment{{depth: g.depth + 1}, {depth: g.depth + 1}}
	var first uint64 // a hash in g, to find g in the directory by
	for i := range g.slots {
		if p := &g.slots[i]; p.kind != 0 {
			first = p.a
			halves[p.a>>(63-g.depth)&1].put(p)
		}
	}
	span := 1 << (t.depth - g.depth)
	start := t.at(first) &^ (span - 1)
	for i := range span {
		t.dir[start+i] = halves[i*2/span]
	}
}

// put places a slot into a segment with room and returns its place.
func (g *segment) put(p *slot) *slot {
	i := p.a % segmentSlots
	for g.slots[i].kind != 0 {
		i = (i + 1) % segmentSlots
	}
	g.slots[i] = *p
	g.n++
	return &g.slots[i]
}

// insert returns the empty slot of a new identity, reclaiming expired slots on
// the way and, above MaxKeys, evicting one. keep are rows whose slots must stay.
func (m *Memory) insert(s *shard, id *ident, now int64, keep []row) *slot {
	if len(s.dir) == 0 {
		s.dir = []*segment{new(segment)}
	}
	m.reclaim(s, now, keep)
	g := s.dir[s.at(id.a)]
	if m.keys.Add(1) > m.maxKeys {
		m.expire(s, g, now, keep)
		m.makeSpace(s, now, keep)
	}
	if m.keys.Load() > m.maxKeys {
		m.evict(s, g, id.b, keep)
	}
	if g.n >= segmentFull {
		m.expire(s, g, now, keep)
		// Splitting while some room is left spares the next inserts this walk.
		for g.n > segmentFull-segmentSlots/8 {
			s.split(g)
			g = s.dir[s.at(id.a)]
		}
	}
	s.births++
	return g.put(&slot{ident: *id, meta: s.births % (1 << birthBits)})
}

// makeSpace looks for expired slots in a few more segments, so that a full
// store seldom evicts a live state while an expired one is left.
func (m *Memory) makeSpace(s *shard, now int64, keep []row) {
	for range 4 {
		if m.keys.Load() <= m.maxKeys {
			return
		}
		g := s.dir[s.seg]
		s.pos = 0
		s.nextSegment(g)
		m.expire(s, g, now, keep)
	}
}

// nextSegment moves on to the segment after g, which seg is at.
func (t *table) nextSegment(g *segment) {
	t.seg = (t.seg + 1<<(t.depth-g.depth)) % len(t.dir)
}

// reclaimStep is how many slots each insert looks at for expired ones: enough
// that a table in steady churn holds at most a quarter more than is live.
const reclaimStep = 4

// reclaim drops expired slots among the next few of the shard.
func (m *Memory) reclaim(s *shard, now int64, keep []row) {
	for range reclaimStep {
		g := s.dir[s.seg]
		if p := &g.slots[s.pos]; p.kind != 0 && p.until() <= ticks(now) && !kept(keep, p.ident) {
			m.dropAt(s, g, s.pos) // and look again at what moved here
			continue
		}
		if s.pos++; s.pos == segmentSlots {
			s.pos = 0
			s.nextSegment(g)
		}
	}
}

// expire drops the expired slots of one segment.
func (m *Memory) expire(s *shard, g *segment, now int64, keep []row) {
	for i := 0; i < segmentSlots; {
		if p := &g.slots[i]; p.kind != 0 && p.until() <= ticks(now) && !kept(keep, p.ident) {
			m.dropAt(s, g, i)
			continue
		}
		i++
	}
}

// evictSample is how many slots are compared for eviction.
const evictSample = 8

// evict drops the least used of a few slots, or, if all are exhausted, the one
// that resets first. It looks in g first, then in the rest of the shard.
func (m *Memory) evict(s *shard, g *segment, random uint64, keep []row) {
	for i := range len(s.dir) + 1 {
		best := g.leastUsed(int(random%segmentSlots), func(p *slot) bool { return !kept(keep, p.ident) })
		if best >= 0 {
			m.dropAt(s, g, best)
			m.evicted.Add(1)
			return
		}
		g = s.dir[i%len(s.dir)]
	}
}

// leastUsed returns the least used of a few slots that may go, or -1.
func (g *segment) leastUsed(start int, may func(*slot) bool) int {
	best, seen := -1, 0
	for k := 0; k < segmentSlots && seen < evictSample; k++ {
		i := (start + k) % segmentSlots
		p := &g.slots[i]
		if p.kind == 0 || !may(p) {
			continue
		}
		seen++
		if best < 0 {
			best = i
			continue
		}
		b := &g.slots[best]
		if p.used() < b.used() || p.used() == exhausted && b.used() == exhausted && p.until() < b.until() {
			best = i
		}
	}
	return best
}

func (m *Memory) dropAt(s *shard, g *segment, i int) {
	if p := &g.slots[i]; p.algorithm().HasCells() {
		m.cells.Add(-int64(blockRef(p.v).size()))
	}
	s.drop(g, i)
	m.keys.Add(-1)
}

// remove drops the slot of an identity that is there.
func (m *Memory) remove(s *shard, p *slot) {
	g := s.dir[s.at(p.a)]
	for i := range g.slots {
		if &g.slots[i] == p {
			m.dropAt(s, g, i)
			return
		}
	}
}

func kept(keep []row, id ident) bool {
	for i := range keep {
		if keep[i].id == id {
			return true
		}
	}
	return false
}

// arena hands out blocks of cells in powers of two, cut from chunks, so that a
// log costs no allocation and holds no pointer of its own.
type arena struct {
	chunks [blockClasses][][]algo.Cell
	spare  [blockClasses][]uint32
	next   [blockClasses]uint32
}

const (
	minBlock     = 4  // cells in a block of class 0
	blockClasses = 20 // up to 2,097,152 cells, twice what a log of 100,000 can remember
	chunkCells   = 1024
)

// blockRef names a block and how many of its cells are in use: 32 bits of
// index, 22 of length, then the class plus 1. 0 is no block.
type blockRef int64

func (b blockRef) class() int { return int(b>>54) - 1 }
func (b blockRef) len() int   { return int(b >> 32 & (1<<22 - 1)) }

// size is the number of cells there is room for.
func (b blockRef) size() int {
	if b == 0 {
		return 0
	}
	return minBlock << b.class()
}

func (b blockRef) withLen(n int) blockRef {
	return b&^((1<<22-1)<<32) | blockRef(n)<<32
}

// classFor returns the least class with room for n cells.
func classFor(n int) int { return max(0, bits.Len(uint(n-1))-2) }

// get returns the cells of a block, with its room as their capacity.
func (a *arena) get(b blockRef) []algo.Cell {
	if b == 0 {
		return nil
	}
	size := b.size()
	per := max(1, chunkCells/size)
	i := int(uint32(b))
	chunk := a.chunks[b.class()][i/per]
	start := i % per * size
	return chunk[start : start+b.len() : start+size]
}

func (a *arena) alloc(class int) blockRef {
	ref := blockRef(class+1) << 54
	size := minBlock << class
	per := max(1, chunkCells/size)
	if spare := a.spare[class]; len(spare) > 0 {
		i := spare[len(spare)-1]
		a.spare[class] = spare[:len(spare)-1]
		if per == 1 {
			a.chunks[class][i] = make([]algo.Cell, size)
		}
		return ref | blockRef(i)
	}
	i := a.next[class]
	if int(i)%per == 0 {
		a.chunks[class] = append(a.chunks[class], make([]algo.Cell, per*size))
	}
	a.next[class]++
	return ref | blockRef(i)
}

// free takes a block back. A large one, which is a chunk of its own, goes back
// to the garbage collector.
func (a *arena) free(b blockRef) {
	if b == 0 {
		return
	}
	a.spare[b.class()] = append(a.spare[b.class()], uint32(b))
	if b.size() >= chunkCells {
		a.chunks[b.class()][uint32(b)] = nil
	}
}
