package check

import (
	"fmt"

	"github.com/weirlimit/weir"
)

// AllOrNothing checks what the rows of every Taken say of its list: that its
// Enforce rows were all charged or none of them, Shadow rows at most with them,
// Peek rows never and Record rows always; and that a list was decided with the
// store or without, not partly. That the states agree is for Linearizable.
func AllOrNothing(ops []Op) error {
	for i := range ops {
		o := &ops[i]
		if o.Verb != Taken || o.Err != nil {
			continue
		}
		if err := o.whole(); err != nil {
			return fmt.Errorf("%w: %s", err, o)
		}
	}
	return nil
}

func (o *Op) whole() error {
	admitted, degraded := o.Admitted(), o.Degraded()
	for i, d := range o.Rows {
		if degraded && d.Reason < weir.StoreAllowed && d.Reason != weir.Never {
			return fmt.Errorf("row %d is by the store, another is degraded", i)
		}
		charged, mode := !d.Receipt.IsZero(), o.Requests[i].Mode
		free := d.Reason == weir.StoreAllowed || d.Reason == weir.StoreDenied || degraded && d.Reason == weir.Never
		var want bool
		switch {
		case free:
		case mode == weir.Record:
			want = true
		case mode != weir.Peek:
			want = admitted && d.Allowed
		}
		if charged != want {
			return fmt.Errorf("row %d: charged=%t, want %t, in a list with admitted=%t", i, charged, want, admitted)
		}
		if charged && d.Receipt.Units != o.Requests[i].Cost {
			return fmt.Errorf("row %d: charged %d, want %d", i, d.Receipt.Units, o.Requests[i].Cost)
		}
	}
	return nil
}

// Refunds checks that no Refunded gave back more than its receipts had, nor all
// that named one receipt alone more than was charged for it.
func Refunds(ops []Op) error {
	returned := make(map[uint64]int64)
	for i := range ops {
		o := &ops[i]
		if o.Verb != Refunded || o.Err != nil {
			continue
		}
		var most int64
		for _, r := range o.Receipts {
			most += r.Units
		}
		if o.N < 0 || o.N > most {
			return fmt.Errorf("%d of %d units given back: %s", o.N, most, o)
		}
		if len(o.Receipts) != 1 {
			continue
		}
		r := o.Receipts[0]
		if returned[r.ID] += o.N; returned[r.ID] > r.Request.Cost {
			return fmt.Errorf("%d units of a charge of %d given back in all: %s", returned[r.ID], r.Request.Cost, o)
		}
	}
	return nil
}
