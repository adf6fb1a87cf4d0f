package faults

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/lab/check"
)

// slack is how much longer than promised anything may take.
func slack() time.Duration {
	if raced {
		return time.Second
	}
	return 25 * time.Millisecond
}

// percentile returns what p percent of the durations do not exceed.
func percentile(p int, all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, len(all)*p/100)]
}

// checkReasons checks that each call was decided as its strictest rule says if it
// was decided without the store, and never failed.
func checkReasons(t testing.TB, ops []check.Op) {
	t.Helper()
	bad := 0
	for i := range ops {
		if o := &ops[i]; !decidedWell(o) {
			if bad++; bad <= 5 {
				t.Errorf("not decided as its rules say: %s", o)
			}
		}
	}
	if bad > 5 {
		t.Errorf("and %d more", bad-5)
	}
}

func decidedWell(o *check.Op) bool {
	order := []weir.OnFailure{weir.OnFailureAllow, weir.OnFailureLocal, weir.OnFailureDeny}
	strictest := 0
	for _, r := range o.Requests {
		strictest = max(strictest, slices.Index(order, r.OnFailure))
	}
	for _, d := range o.Rows {
		want := []weir.Reason{weir.StoreAllowed, weir.StoreLocal, weir.StoreDenied}[strictest]
		if !o.Degraded() {
			want = weir.OverLimit
			if d.Allowed {
				want = weir.OK
			}
		}
		allowed := want == weir.OK || want == weir.StoreAllowed || want == weir.StoreLocal && d.Allowed
		if d.Reason != want || d.Allowed != allowed || allowed != (d.RetryAfter == 0) {
			return false
		}
	}
	return o.Err == nil
}

// loss is a time within which a store lost data, or had two primaries.
type loss struct{ from, until time.Time }

// checkBounds checks what was admitted: by the store no more than its limits, and
// once more for each loss within a window; by the share of a node no more than
// that; lists as a whole.
func (f *fleet) checkBounds(t testing.TB, ops []check.Op, losses ...loss) {
	t.Helper()
	if err := check.AllOrNothing(ops); err != nil {
		t.Error(err)
	}
	stored := make([]check.Op, 0, len(ops))
	shared := make([][]check.Op, len(f.nodes))
	for _, o := range ops {
		if decidedBy(&o) == byStore {
			stored = append(stored, o)
			continue
		}
		o.Requests = slices.Clone(o.Requests)
		for i := range o.Requests {
			o.Requests[i].Limit.Max = max(1, o.Requests[i].Limit.Max/int64(len(f.nodes)))
		}
		at := f.nodeOf(o.Client)
		shared[at] = append(shared[at], o)
	}
	extra := func(limit weir.Limit, from, to time.Time) (n int64) {
		for _, l := range losses {
			if !from.After(l.until) && !to.Before(l.from) {
				n += limit.Capacity()
			}
		}
		return n
	}
	if err := check.Windows(stored, extra); err != nil {
		t.Errorf("by the store, %d losses: %v", len(losses), err)
	}
	for at := range shared {
		if err := check.Windows(shared[at], nil); err != nil {
			t.Errorf("by the share of node %d: %v", at, err)
		}
	}
}

// recovery returns how long after a time the last of all nodes and keys was
// decided by the store for the first time.
func (f *fleet) recovery(t testing.TB, ops []check.Op, since time.Time) (last time.Duration) {
	t.Helper()
	first := make([]map[string]time.Duration, len(f.nodes))
	for at := range first {
		first[at] = make(map[string]time.Duration)
	}
	for i := range ops {
		o := &ops[i]
		if o.Call.Before(since) || decidedBy(o) == withoutStore {
			continue
		}
		for _, r := range o.Requests {
			own, d := first[f.nodeOf(o.Client)], o.Return.Sub(since)
			if before, ok := own[r.Key]; !ok || d < before {
				own[r.Key] = d
			}
		}
	}
	for at := range first {
		if len(first[at]) < len(rules) {
			t.Errorf("node %d: only %v were decided by the store again", at, first[at])
		}
		for _, d := range first[at] {
			last = max(last, d)
		}
	}
	return last
}

// between returns the calls that were sent between two times.
func between(ops []check.Op, from, to time.Time) (some []check.Op) {
	for _, o := range ops {
		if !o.Call.Before(from) && o.Call.Before(to) {
			some = append(some, o)
		}
	}
	return some
}

// degraded returns how many calls were decided without the store.
func degraded(ops []check.Op) (n int) {
	for i := range ops {
		if decidedBy(&ops[i]) == withoutStore {
			n++
		}
	}
	return n
}

// checkLeaks waits until nothing is left of closed stores: no goroutine of theirs
// here, and no client at the servers.
func checkLeaks(t testing.TB, servers ...*redistest.Server) {
	t.Helper()
	redistest.Await(t, "the end of all goroutines of a closed store", func() error {
		stacks := make([]byte, 1<<22)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if strings.Contains(stack, "redis/rueidis") || strings.Contains(stack, "weir/layer") || strings.Contains(stack, "weir/redisstore") {
				return fmt.Errorf("%s", stack)
			}
		}
		return nil
	})
	for _, s := range servers {
		redistest.Await(t, "the end of all connections", func() error {
			list, err := s.Do("CLIENT", "LIST", "TYPE", "NORMAL")
			others := 0
			for line := range strings.Lines(fmt.Sprint(list)) {
				if strings.Contains(line, " user=default ") && !strings.Contains(line, " name=sentinel-") {
					others++
				}
			}
			if err == nil && others > 0 {
				err = fmt.Errorf("%s has %d clients: %v", s.Addr(), others, list)
			}
			return err
		})
	}
}
