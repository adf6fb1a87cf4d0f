package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/weirlimit/weir/service/load"
)

// report is what weir bench prints.
type report struct {
	Callers int        `json:"callers"`
	Keys    int64      `json:"keys"`
	CPUs    int        `json:"cpus"`
	Fronts  []measured `json:"fronts"`
}

// measured is a front end, its floor, and how many times that it comes to.
type measured struct {
	Front string   `json:"front"`
	Rate  float64  `json:"rate"` // questions a second for the quantiles
	Weir  figures  `json:"weir"`
	Floor *figures `json:"floor,omitempty"`
	Ratio *figures `json:"ratio,omitempty"`
	// Denied is how many of all questions were.
	Denied int64 `json:"denied"`
}

// figures are 0 where they are not known.
type figures struct {
	PerSecond float64 `json:"per_second"`
	CPU       float64 `json:"cpu_us"`
	P50       float64 `json:"p50_us"`
	P90       float64 `json:"p90_us"`
	P99       float64 `json:"p99_us"`
	P999      float64 `json:"p99_9_us"`
}

// newMeasured sums up what has been seen of weir and, if there is one, the floor.
// Ratios of what was seen in rounds are the medians of those of each round.
func newMeasured(name string, rate float64, sides []*side) measured {
	m := measured{Front: name, Rate: rate, Weir: sides[0].figures(), Denied: sides[0].denied.Load()}
	if len(sides) == 1 {
		return m
	}
	weir, floor := sides[0], sides[1]
	f := floor.figures()
	m.Floor = &f
	m.Ratio = &figures{
		PerSecond: median(ratios(weir.rate, floor.rate)), CPU: median(ratios(weir.cpu, floor.cpu)),
		P50: m.Weir.P50 / f.P50, P90: m.Weir.P90 / f.P90, P99: m.Weir.P99 / f.P99, P999: m.Weir.P999 / f.P999,
	}
	return m
}

func (s *side) figures() figures {
	slices.Sort(s.took)
	f := figures{PerSecond: median(s.rate), CPU: median(s.cpu)}
	for q, to := range map[float64]*float64{0.5: &f.P50, 0.9: &f.P90, 0.99: &f.P99, 0.999: &f.P999} {
		*to = micros(load.Quantile(s.took, q))
	}
	return f
}

func ratios(a, b []float64) []float64 {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]/b[i])
	}
	return all
}

// text sets the report out for people.
func (r *report) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d callers, %s keys, %d processors\n", r.Callers, commas(r.Keys), r.CPUs)
	for i := range r.Fronts {
		b.WriteByte('\n')
		r.Fronts[i].write(&b)
	}
	return b.Bytes()
}

func (m *measured) write(b *bytes.Buffer) {
	at := " at " + commas(int64(m.Rate)) + "/s, us"
	names := []string{"decisions a second", "processor time of one, us", "p50" + at, "p90" + at, "p99" + at, "p99.9" + at}
	rows := [][]string{{m.Front, "weir"}}
	if m.Floor != nil {
		rows[0] = append(rows[0], "floor", "ratio")
	}
	for i, name := range names {
		row := []string{name, number(m.Weir.all()[i])}
		if m.Floor != nil {
			row = append(row, number(m.Floor.all()[i]), strconv.FormatFloat(m.Ratio.all()[i], 'f', 2, 64))
		}
		if m.Weir.all()[i] > 0 {
			rows = append(rows, row)
		}
	}
	writeTable(b, 1, rows)
	if m.Denied > 0 {
		fmt.Fprintf(b, "%s decisions were denials\n", commas(m.Denied))
	}
}

func (f *figures) all() [6]float64 {
	return [...]float64{f.PerSecond, f.CPU, f.P50, f.P90, f.P99, f.P999}
}

// number writes three digits or more.
func number(f float64) string {
	if f < 100 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return commas(int64(f + 0.5))
}
