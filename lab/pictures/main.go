// Command pictures draws what each algorithm makes of the same traffic, as the
// simulator decides it:
//
//	pictures DIR
//
// DIR/sliding-log.svg and the others are for docs/algorithms.md.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

const (
	window = 10 * time.Second
	most   = 10
	length = 30 * time.Second
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "want the folder to write to, as in: pictures docs/pictures")
		os.Exit(2)
	}
	for _, limit := range limits() {
		r, err := replay(limit, traffic())
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], limit.Algorithm.String()+".svg"), []byte(r.svg()), 0o644) //nolint:gosec // a picture is for everybody
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// limits are ten in ten seconds, kept in every way.
func limits() (all []weir.Limit) {
	for a := weir.SlidingLog; a <= weir.TokenBucket; a++ {
		all = append(all, weir.Limit{Max: most, Window: window, Algorithm: a})
	}
	return all
}

// traffic is when requests come: one every one and a half seconds, and a dozen
// more just before, just after and well after the clock shows ten seconds.
func traffic() (all []time.Duration) {
	for t := time.Duration(0); t < length; t += 1500 * time.Millisecond {
		all = append(all, t)
	}
	for _, start := range []float64{8.6, 10.1, 24.1} {
		for i := range 12 {
			all = append(all, time.Duration(1000*start+110*float64(i))*time.Millisecond)
		}
	}
	slices.Sort(all)
	return all
}
