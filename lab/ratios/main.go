// Command ratios reads what go test -bench prints and writes, for each
// benchmark, the median of its times and their ratio to the floor of the same
// run: the benchmark of its group that is called "floor", else the group's
// first. A time says something about a machine; a ratio, about the code.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
)

func main() {
	if err := ratios(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(2)
	}
}

// benchmark is one benchmark on one number of processors.
type benchmark struct {
	name, cpu string
	ns        []float64 // an operation, of each time it ran
	group     *group
}

// group is the benchmarks that differ in the last part of their name only.
type group struct{ floor *benchmark }

func ratios(in io.Reader, out io.Writer) error {
	all, err := read(in)
	if err != nil {
		return err
	}
	width := 0
	for _, b := range all {
		width = max(width, len(b.name))
	}
	for _, b := range all {
		ns, floor := median(b.ns), b.group.floor
		if _, err := fmt.Fprintf(out, "%-*s  cpu %s %12.1f ns/op %8.2f x %s\n",
			width, b.name, b.cpu, ns, ns/median(floor.ns), path.Base(floor.name)); err != nil {
			return err
		}
	}
	return nil
}

// result is a line such as "BenchmarkAllow/keys=1/floor-2  100  12.3 ns/op".
// go test leaves the number of processors out if it is 1.
var result = regexp.MustCompile(`^(Benchmark\S+?)(?:-(\d+))?\s+\d+\s+(\S+) ns/op`)

// read returns the benchmarks in the order of their first results.
func read(in io.Reader) (all []*benchmark, err error) {
	known := make(map[string]*benchmark)
	groups := make(map[string]*group)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		m := result.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		ns, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		name, cpu := m[1], cmp.Or(m[2], "1")
		b := known[name+" "+cpu]
		if b == nil {
			b = &benchmark{name: name, cpu: cpu}
			known[name+" "+cpu] = b
			b.join(groups)
			all = append(all, b)
		}
		b.ns = append(b.ns, ns)
	}
	if len(all) == 0 && lines.Err() == nil {
		return nil, errors.New("no results; pipe in what go test -bench=. prints")
	}
	return all, lines.Err()
}

func (b *benchmark) join(groups map[string]*group) {
	name := path.Dir(b.name) + " " + b.cpu
	if groups[name] == nil {
		groups[name] = &group{floor: b}
	}
	b.group = groups[name]
	if path.Base(b.name) == "floor" {
		b.group.floor = b
	}
}

func median(ns []float64) float64 {
	slices.Sort(ns)
	mid := len(ns) / 2
	if len(ns)%2 == 1 {
		return ns[mid]
	}
	return (ns[mid-1] + ns[mid]) / 2
}
