package weir

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc64"
	"io"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/siphash"
)

// A snapshot is a line of text, then numbers of 64 bits, little-endian:
//
//	"weir snapshot 1\n"
//	the two numbers of the secret that keys are hashed with
//	when it was written, in microseconds
//	of each state: kind, a and b of its ident; meta, t, n, r and v of its slot.
//	    For algorithms with cells v is their number; T and Sum of each follow.
//	0, the number of states, and the CRC-64 (ECMA) of all that stands before it
const (
	snapshotMagic   = "weir snapshot "
	snapshotVersion = 1
	snapshotPiece   = 1 << 16 // bytes that are written at a time, or a little more
	maxHeadLine     = 32
)

// What no state that was saved exceeds, so that a forged one cannot overflow.
const (
	maxStamp      = 1 << 57 // the widest clock is that of time.Time's zero, at -2^56
	maxTotal      = 1 << 62
	maxCounted    = 1 << 32
	maxLine       = 1 << 52
	maxSavedCells = 1<<20 - 1 // twice that, and one, fits the largest block
)

var snapshotTable = crc64.MakeTable(crc64.ECMA)

// SnapshotError says why RestoreMemory refuses what it read. Read once more, it
// would be refused again.
type SnapshotError uint8

// The reasons.
const (
	// SnapshotTruncated is a snapshot that ends too early.
	SnapshotTruncated SnapshotError = 1 + iota
	// SnapshotCorrupt is a snapshot that has been changed since it was written.
	SnapshotCorrupt
	// SnapshotForeign is no snapshot.
	SnapshotForeign
	// SnapshotNewer is a snapshot of a format that this version does not know.
	SnapshotNewer
)

var snapshotFaults = [...]string{
	SnapshotTruncated: "the snapshot is truncated: its end is missing",
	SnapshotCorrupt:   "the snapshot is corrupt: it has been changed since it was written",
	SnapshotForeign:   "this is no snapshot: want what Memory.Snapshot writes",
	SnapshotNewer:     "the snapshot is of a newer format: restore it with the version that wrote it",
}

// Error reads, for example: weir: the snapshot is truncated: its end is missing.
func (e SnapshotError) Error() string {
	if int(e) < len(snapshotFaults) && e > 0 {
		return "weir: " + snapshotFaults[e]
	}
	return "weir: the snapshot is refused"
}

// Snapshot writes what is remembered, so that RestoreMemory can read it back: 64
// bytes a state, and 16 for each further stamp of a log. Who can read it can
// tell whether a key that he guesses is in it.
//
// Decisions go on meanwhile: each state is written as it is at one moment, but
// not all at the same, so that of a list decided meanwhile the charges of some
// rows may be in it and those of others not. The error is ErrClosed, or that of w.
func (m *Memory) Snapshot(w io.Writer) error {
	sum := crc64.New(snapshotTable)
	out := io.MultiWriter(w, sum)
	now := m.clock()
	buf := []byte(snapshotMagic + strconv.Itoa(snapshotVersion) + "\n")
	buf = appendNumbers(buf, m.secret[0], m.secret[1], uint64(now))
	states := 0
	for i := range m.shards {
		s := &m.shards[i]
		for hash, first := uint64(0), true; first || hash != 0; first = false {
			var n int
			s.mu.Lock()
			buf, n, hash = s.appendSegment(buf, hash, ticks(now))
			s.mu.Unlock()
			states += n
			if len(buf) < snapshotPiece {
				continue
			}
			if _, err := out.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if m.closed.Load() {
		return ErrClosed
	}
	if _, err := out.Write(appendNumbers(buf, 0, uint64(states))); err != nil {
		return err
	}
	_, err := w.Write(appendNumbers(nil, sum.Sum64()))
	return err
}

// appendSegment writes the states, and how many they are, of the segment of a
// hash, leaving out those that have expired, and returns the first hash of the
// next segment, 0 after the last. A segment that is split between two calls is
// the next of a shorter one.
func (t *table) appendSegment(buf []byte, hash, now uint64) (_ []byte, states int, next uint64) {
	if len(t.dir) == 0 {
		return buf, 0, 0
	}
	g := t.dir[t.at(hash)]
	for i := range g.slots {
		if p := &g.slots[i]; p.kind != 0 && p.until() > now {
			buf = t.appendState(buf, p)
			states++
		}
	}
	return buf, states, hash + 1<<(64-g.depth)
}

func (t *table) appendState(buf []byte, p *slot) []byte {
	v, cells := p.v, []algo.Cell(nil)
	if p.algorithm().HasCells() {
		cells = t.cells.get(blockRef(p.v))
		v = int64(len(cells))
	}
	buf = appendNumbers(buf, p.kind, p.a, p.b, p.meta, uint64(p.t), uint64(p.n), uint64(p.r), uint64(v))
	for _, c := range cells {
		buf = appendNumbers(buf, uint64(c.T), uint64(c.Sum))
	}
	return buf
}

func appendNumbers(buf []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		buf = binary.LittleEndian.AppendUint64(buf, n)
	}
	return buf
}

// RestoreMemory returns a store that goes on where a Snapshot, which r has from
// here to its end, was written. States that have expired since are left out, as
// are the least used of those above MaxKeys. To a clock that is elsewhere now than
// it would be had it gone on, the time between is a step of the clock.
//
// Receipts from before give back what they would have. Those given out after
// the Snapshot was written have been forgotten with their charges: they give
// back nothing, or, where the state is older than they are, at most what has
// been taken from it otherwise.
//
// r is read twice, so that nothing is made of a Snapshot before all of it is
// known to be whole. The error is a SnapshotError, or that of r.
func RestoreMemory(o MemoryOptions, r io.ReadSeeker) (*Memory, error) {
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	whole, err := readSnapshot(r, func(*slot, []algo.Cell) bool { return true })
	if err != nil {
		return nil, err
	}
	if _, err := r.Seek(start, io.SeekStart); err != nil {
		return nil, err
	}
	m := NewMemory(o)
	m.secret, m.restored = whole.secret, time.UnixMicro(whole.written)
	now := m.clock()
	_, err = readSnapshot(r, func(p *slot, cells []algo.Cell) bool {
		return p.until() <= ticks(now) || m.adopt(p, cells, now, whole.states)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Restored returns when the snapshot was written that m has been restored from,
// by the clock of then; the zero time if it has not been.
func (m *Memory) Restored() time.Time { return m.restored }

// adopt takes in one of so many states. It reports whether it could: no other has
// its identity, nor are its hash and those of others too much alike.
func (m *Memory) adopt(saved *slot, cells []algo.Cell, now int64, states uint64) bool {
	w := row{id: saved.ident}
	s := &m.shards[m.shardOf(&w.id)]
	if s.find(&w.id) != nil || s.crowded(w.id.a, states) {
		return false
	}
	p := m.insert(s, &w.id, now, nil)
	*p = *saved
	if !p.algorithm().HasCells() {
		return true
	}
	p.v = 0
	if len(cells) == 0 {
		return true
	}
	class := classFor(len(cells))
	if m.cells.Add(minBlock<<class) > m.maxCells {
		m.evictCells(s, &w, nil)
		p = s.find(&w.id)
	}
	ref := s.cells.alloc(class).withLen(len(cells))
	copy(s.cells.get(ref), cells)
	p.v = int64(ref)
	return true
}

// crowded reports whether the segment of a hash is full of such as begin like it,
// which are too many to be random hashes of so many states. Splitting it would
// not part them, and the directory would grow beyond all bounds.
func (t *table) crowded(a, states uint64) bool {
	if len(t.dir) == 0 || t.dir[t.at(a)].n < segmentFull {
		return false
	}
	g, n := t.dir[t.at(a)], 0
	for i := range g.slots {
		if p := &g.slots[i]; p.kind != 0 && bits.LeadingZeros64(p.a^a) >= bits.Len64(states) {
			n++
		}
	}
	return n > segmentSlots/2
}

// snapshotReader reads a snapshot from its head to its end.
type snapshotReader struct {
	secret  siphash.Key
	written int64  // in microseconds
	states  uint64 // that have been read

	r     *bufio.Reader
	sum   uint64      // the checksum of what has been read
	cells []algo.Cell // those of the last state
	bytes [8 * 8]byte
	words [8]uint64
}

// readSnapshot hands each state to keep, which reports whether it can be. Its
// arguments are valid until it returns.
func readSnapshot(r io.Reader, keep func(*slot, []algo.Cell) bool) (*snapshotReader, error) {
	in := &snapshotReader{r: bufio.NewReaderSize(r, snapshotPiece)}
	if err := in.head(); err != nil {
		return nil, err
	}
	words, err := in.numbers(3)
	if err != nil {
		return nil, err
	}
	in.secret, in.written = siphash.Key(words[:2]), int64(words[2])
	for ; ; in.states++ {
		p, err := in.state()
		switch {
		case err != nil:
			return nil, err
		case p.kind == 0:
			return in, in.end()
		case !keep(&p, in.cells):
			return nil, SnapshotCorrupt
		}
	}
}

// head reads the line of text.
func (in *snapshotReader) head() error {
	var line []byte
	for len(line) < maxHeadLine && !strings.HasSuffix(string(line), "\n") {
		b, err := in.r.ReadByte()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		line = append(line, b)
	}
	in.sum = crc64.Update(0, snapshotTable, line)
	version, ok := strings.CutPrefix(string(line), snapshotMagic)
	digits, whole := strings.CutSuffix(version, "\n")
	switch n, err := strconv.ParseUint(digits, 10, 64); {
	case !ok && !strings.HasPrefix(snapshotMagic, string(line)):
		return SnapshotForeign
	case !ok || !whole && len(line) < maxHeadLine && (digits == "" || err == nil):
		return SnapshotTruncated
	case err != nil || !whole || n < snapshotVersion:
		return SnapshotForeign
	case n > snapshotVersion:
		return SnapshotNewer
	}
	return nil
}

// numbers reads up to 8 of them, which stay valid until the next call.
func (in *snapshotReader) numbers(n int) ([]uint64, error) {
	b := in.bytes[:8*n]
	if _, err := io.ReadFull(in.r, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = SnapshotTruncated
		}
		return nil, err
	}
	in.sum = crc64.Update(in.sum, snapshotTable, b)
	for i := range n {
		in.words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return in.words[:n], nil
}

// state reads the next state and its cells. After the last its kind is 0.
func (in *snapshotReader) state() (p slot, err error) {
	words, err := in.numbers(1)
	if err != nil || words[0] == 0 {
		return p, err
	}
	p.kind = words[0]
	if words, err = in.numbers(7); err != nil {
		return p, err
	}
	p.a, p.b, p.meta = words[0], words[1], words[2]
	p.t, p.n, p.r, p.v = int64(words[3]), int64(words[4]), int64(words[5]), int64(words[6])
	l, ok := unpackKind(p.kind)
	if !ok || !p.sound(&l) {
		return p, SnapshotCorrupt
	}
	if l.Kind.HasCells() {
		err = in.readCells(&p)
	}
	return p, err
}

// readCells reads the p.v cells of p. Its room grows with what is there.
func (in *snapshotReader) readCells(p *slot) error {
	in.cells = in.cells[:0]
	last := algo.Cell{T: -maxStamp}
	for range p.v {
		words, err := in.numbers(2)
		if err != nil {
			return err
		}
		c := algo.Cell{T: int64(words[0]), Sum: int64(words[1])}
		if c.T < last.T || c.T > p.t || c.Sum < last.Sum || c.Sum > p.n {
			return SnapshotCorrupt
		}
		in.cells = append(in.cells, c)
		last = c
	}
	return nil
}

// end reads what follows the last state.
func (in *snapshotReader) end() error {
	words, err := in.numbers(1)
	if err != nil {
		return err
	}
	counted, sum := words[0], in.sum
	if words, err = in.numbers(1); err != nil {
		return err
	}
	_, err = in.r.ReadByte()
	if counted != in.states || words[0] != sum || err == nil {
		return SnapshotCorrupt
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// unpackKind returns the limit, of whatever Max, that has a kind of state.
func unpackKind(kind uint64) (algo.Limit, bool) {
	l := Limit{
		Max: 1, Window: time.Duration(kind>>18) * time.Microsecond,
		Algorithm: Algorithm(kind >> 1 & 7), Buckets: int(kind >> 4 & (1<<14 - 1)), Epoch: kind&1 == 1,
	}
	if l.Algorithm == TokenBucket {
		l.Burst = 1
	}
	l, err := l.Normal()
	if err != nil || packKind(&l) != kind {
		return algo.Limit{}, false
	}
	return l.algo(), true
}

// sound reports whether the numbers of a saved state are such as states have.
func (p *slot) sound(l *algo.Limit) bool {
	if !within(p.t, -maxStamp, maxStamp) {
		return false
	}
	switch l.Kind {
	case algo.SlidingLog, algo.SlidingBuckets:
		return within(p.n, 0, maxTotal) && within(p.r, 0, p.n) && within(p.v, 0, maxSavedCells)
	case algo.TokenBucket:
		return uint64(p.n)>>backBits <= maxCounted && within(p.r, 0, l.Window-1) && within(p.v, 0, maxLine-1)
	default:
		return within(p.n, 0, maxCounted) && within(p.r, 0, maxCounted) && within(p.v, -maxStamp, maxStamp)
	}
}

func within(n, least, most int64) bool { return least <= n && n <= most }
