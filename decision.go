package weir

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"time"
)

// Decision answers one Request, or a list of them with a row for each. A
// denial is a Decision, never an error.
type Decision struct {
	// Allowed says whether the units were admitted. In a row it says whether
	// the row alone would pass, whatever the rest of its list did.
	Allowed bool
	// Reason says why; a degraded answer always says so here.
	Reason Reason
	// Limit is the capacity that decided: Burst of a token bucket, else Max.
	Limit int64
	// Remaining is how many units of cost 1 would pass right after this.
	Remaining int64
	// RetryAfter is the least wait, to the microsecond, after which the same
	// request passes if nobody else takes; 0 if it was allowed or never passes.
	RetryAfter time.Duration
	// ResetAfter is the wait after which the key is as good as unused.
	ResetAfter time.Duration
	// Receipt gives back what was charged; zero if nothing was. A list's
	// receipts are in its rows, see Receipts.
	Receipt Receipt
	// Rows holds a Decision for each Request of a list, in order; nil for one.
	Rows []Decision
}

// Receipts returns what was charged by this decision and its rows, for Refund.
func (d Decision) Receipts() []Receipt {
	var rs []Receipt
	if !d.Receipt.IsZero() {
		rs = append(rs, d.Receipt)
	}
	for _, row := range d.Rows {
		rs = append(rs, row.Receipts()...)
	}
	return rs
}

// Reason says why a Decision is what it is.
type Reason uint8

// The reasons. Everything from StoreAllowed on is a degraded answer.
const (
	// OK is an admission that the store decided.
	OK Reason = iota
	// OverLimit is a denial that RetryAfter ends.
	OverLimit
	// Never is a denial of a cost above the capacity, or by a rule that denies.
	Never
	// NoRule is an admission because no rule matched.
	NoRule
	// StoreAllowed is an admission because the store could not be asked.
	StoreAllowed
	// StoreDenied is a denial because the store could not be asked.
	StoreDenied
	// StoreLocal is decided by this process' share because the store could not be asked.
	StoreLocal
	// CachedDenial is a denial remembered from an earlier one.
	CachedDenial
	// Leased is an admission from units taken ahead.
	Leased
)

var reasonNames = [...]string{
	"ok", "over_limit", "never", "no_rule", "store_unavailable_allowed", "store_unavailable_denied",
	"store_unavailable_local", "denied_by_cache", "leased",
}

// String returns the name used on the wire, such as "over_limit".
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

// Receipt proves a charge, so that exactly its units can be given back. It is
// a value: keep it, or send it elsewhere as text. Callers treat it as opaque;
// its fields are for authors of Stores.
type Receipt struct {
	// Request is what was charged: a normal Limit and a Cost of at least 1.
	Request Request
	// Units is how many of them Refund shall give back; see Part.
	Units int64
	// Stamp, Level, Place and Back say where in the state the units are, and
	// Birth in which of the states that the key has had.
	Stamp, Level, Place, Back, Birth int64
	// ID tells receipts of one process apart. 0 stands for no charge in
	// particular: the oldest live units are given back.
	ID uint64
}

// IsZero reports whether r is no receipt: nothing was charged.
func (r Receipt) IsZero() bool { return r.Request.Cost == 0 }

// Part returns a receipt for n of the units of r, to keep the rest; for all of
// them if n is larger, and the zero Receipt if n is not positive.
func (r Receipt) Part(n int64) Receipt {
	if n <= 0 {
		return Receipt{}
	}
	r.Units = min(r.Units, n)
	return r
}

// normalize fills in the defaults of a receipt made by hand.
func (r *Receipt) normalize() error {
	if r.Request.Cost < 1 || r.Units < 1 || r.Units > r.Request.Cost {
		return invalid("units", strconv.FormatInt(r.Units, 10), "1 to the cost that was charged; a decision's receipt has them")
	}
	return r.Request.normalize()
}

// receiptVersion is the first byte of a receipt's text form.
const receiptVersion = 1

// MarshalText writes r as URL-safe text, the zero Receipt as none. It never fails.
func (r Receipt) MarshalText() ([]byte, error) {
	if r.IsZero() {
		return []byte{}, nil
	}
	l := r.Request.Limit
	epoch := uint64(0)
	if l.Epoch {
		epoch = 1
	}
	b := []byte{receiptVersion}
	for _, s := range [...]string{r.Request.Key, r.Request.Group} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, n := range [...]uint64{
		uint64(l.Max), uint64(l.Window / time.Microsecond), uint64(l.Algorithm), uint64(l.Burst), uint64(l.Buckets), epoch,
		uint64(r.Request.Cost), uint64(r.Units), uint64(r.Level), uint64(r.Place), uint64(r.Back), uint64(r.Birth), r.ID,
	} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendVarint(b, r.Stamp)
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText reads what MarshalText wrote; anything else is an *InvalidError.
func (r *Receipt) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Receipt{}
		return nil
	}
	bad := invalid("receipt", string(text), "the text of a receipt, as a decision carries it")
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || len(b) == 0 || b[0] != receiptVersion {
		return bad
	}
	b = b[1:]
	var strs [2]string
	for i := range strs {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return bad
		}
		strs[i], b = string(b[used:used+int(n)]), b[used+int(n):]
	}
	var nums [13]uint64
	for i := range nums {
		n, used := binary.Uvarint(b)
		// Every number but the ID is far below 2^53.
		if used <= 0 || i < len(nums)-1 && n >= 1<<53 {
			return bad
		}
		nums[i], b = n, b[used:]
	}
	stamp, used := binary.Varint(b)
	// The widest clock is that of time.Time's zero, at -2^56.
	if used <= 0 || used != len(b) || stamp < -1<<57 || stamp > 1<<57 || nums[1] > uint64(MaxWindow/time.Microsecond) || nums[2] == 0 || nums[2] > uint64(TokenBucket) ||
		nums[5] > 1 || nums[6] == 0 || nums[6] > MaxUnits || nums[7] == 0 || nums[7] > nums[6] {
		return bad
	}
	limit, err := Limit{
		Max: int64(nums[0]), Window: time.Duration(nums[1]) * time.Microsecond, Algorithm: Algorithm(nums[2]),
		Burst: int64(nums[3]), Buckets: int(nums[4]), Epoch: nums[5] == 1,
	}.Normal()
	if err != nil {
		return bad
	}
	*r = Receipt{
		Request: Request{Key: strs[0], Group: strs[1], Limit: limit, Cost: int64(nums[6])},
		Units:   int64(nums[7]), Stamp: stamp, Level: int64(nums[8]), Place: int64(nums[9]), Back: int64(nums[10]), Birth: int64(nums[11]), ID: nums[12],
	}
	return nil
}
