//go:build long

package faults

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// BenchmarkFaults prints what callers see of each fault, and fails for those in
// which 1 call of 100 takes 5 ms longer than its deadline.
func BenchmarkFaults(b *testing.B) {
	var results []result
	note := func(b *testing.B, r result) {
		if late := r.p99 - deadline; late > 5*time.Millisecond {
			b.Errorf("%s: 1 call of 100 takes %v longer than its deadline, want at most 5ms", r.name, late)
		}
		results = append(results, r)
	}
	for _, f := range slices.Concat(first, others, cold) {
		b.Run(f.name, func(b *testing.B) { note(b, f.run(b)) })
	}
	for _, name := range slices.Sorted(maps.Keys(topologies)) {
		b.Run(name, func(b *testing.B) { note(b, topologies[name](b, name)) })
	}
	fmt.Println(header)
	for _, r := range results {
		fmt.Println(r)
	}
}
