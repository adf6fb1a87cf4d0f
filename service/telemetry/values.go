package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/policy"
)

const (
	mostValues   = 1000 // of a rule; the rest counts as other
	otherValues  = "other"
	longestValue = 128 // bytes of a label
)

// values counts a rule by the values of requests, where the config asks for them.
type values struct {
	shows  []bool // whether the value of each entry is shown
	byText sync.Map
	n      atomic.Int64
}

// byResult is a counter for each result.
type byResult [results]atomic.Uint64

func newValues(shows []bool) *values {
	for _, show := range shows {
		if show {
			return &values{shows: shows}
		}
	}
	return nil
}

// add counts a key of the rule.
func (v *values) add(key string, r result) {
	text := v.text(key)
	found, ok := v.byText.Load(text)
	if !ok && v.n.Add(1) > mostValues {
		v.n.Add(-1)
		text = otherValues
	}
	if !ok {
		found, ok = v.byText.LoadOrStore(text, new(byResult))
		if ok && text != otherValues {
			v.n.Add(-1) // another was faster
		}
	}
	found.(*byResult)[r].Add(1)
}

// text is the label of a key, such as "user=alice,path".
func (v *values) text(key string) string {
	_, _, entries := policy.SplitKey(key)
	var b strings.Builder
	for i := 0; 2*i+1 < len(entries) && i < len(v.shows); i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(entries[2*i])
		if v.shows[i] {
			b.WriteString("=" + entries[2*i+1])
		}
	}
	return label(b.String())
}

// label makes a text fit for a label.
func label(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), longestValue)], "\uFFFD")
}

// valuesShown returns for each rule of a domain of which entries the values are
// shown: none without a Tree.
func valuesShown(d *policy.Domain) [][]bool {
	var all [][]bool
	if d.Tree != nil {
		all = shownBelow(nil, nil, d.Tree.Descriptors)
	}
	return append(all, make([][]bool, len(d.Rules)-len(all))...)
}

// shownBelow appends them in the order of policy.Domain.Rules: a descriptor
// stands before those of the next level.
func shownBelow(all [][]bool, path []bool, ds []policy.Descriptor) [][]bool {
	for i := range ds {
		d := &ds[i]
		here := append(slices.Clip(path), d.ValueToMetric)
		if d.RateLimit != nil && !d.RateLimit.Unlimited {
			all = append(all, shownAt(here, d.DetailedMetric))
		}
		all = shownBelow(all, here, d.Descriptors)
	}
	return all
}

func shownAt(path []bool, detailed bool) []bool {
	shown := make([]bool, len(path))
	for i := range path {
		shown[i] = path[i] || detailed
	}
	return shown
}
