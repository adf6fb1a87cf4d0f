package main

import (
	"strings"
	"testing"
)

func TestRatios(t *testing.T) {
	const printed = `goos: linux
BenchmarkAllow/keys=1/floor         	 100	        10 ns/op	       0 B/op
BenchmarkAllow/keys=1/floor         	 100	        30 ns/op	       0 B/op
BenchmarkAllow/keys=1/floor         	 100	        20 ns/op	       0 B/op
BenchmarkAllow/keys=1/floor-2       	 100	        40 ns/op	       0 B/op
BenchmarkAllow/keys=1/sliding-log   	 100	        50 ns/op	       0 B/op
BenchmarkAllow/keys=1/sliding-log   	 100	        70 ns/op	       0 B/op
BenchmarkAllow/keys=1/sliding-log-2 	 100	        50.4 ns/op	       0 B/op
BenchmarkMatch/rules=10-2           	 100	       200 ns/op
BenchmarkMatch/rules=1000-2         	 100	       210 ns/op
PASS
`
	want := []string{
		"BenchmarkAllow/keys=1/floor cpu 1 20.0 ns/op 1.00 x floor",
		"BenchmarkAllow/keys=1/floor cpu 2 40.0 ns/op 1.00 x floor",
		"BenchmarkAllow/keys=1/sliding-log cpu 1 60.0 ns/op 3.00 x floor",
		"BenchmarkAllow/keys=1/sliding-log cpu 2 50.4 ns/op 1.26 x floor",
		"BenchmarkMatch/rules=10 cpu 2 200.0 ns/op 1.00 x rules=10",
		"BenchmarkMatch/rules=1000 cpu 2 210.0 ns/op 1.05 x rules=10",
	}
	var out strings.Builder
	if err := ratios(strings.NewReader(printed), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), &out)
	}
	for i, line := range lines {
		if got := strings.Join(strings.Fields(line), " "); got != want[i] {
			t.Errorf("line %d is %q, want %q", i+1, got, want[i])
		}
	}
}

func TestNoResults(t *testing.T) {
	if err := ratios(strings.NewReader("FAIL\n"), new(strings.Builder)); err == nil {
		t.Error("a run without results is no error")
	}
}
