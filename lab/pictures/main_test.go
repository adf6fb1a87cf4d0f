package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/docs"
)

func results(t *testing.T) (all []*result) {
	for _, limit := range limits() {
		r, err := replay(limit, traffic())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// TestPictures holds the pictures to what is drawn.
func TestPictures(t *testing.T) {
	for _, r := range results(t) {
		name := "pictures/" + r.algorithm.String() + ".svg"
		got := r.svg()
		if docs.Read(t, "docs/"+name) != got {
			t.Errorf("%s is not what the simulator says: make pictures draws it", name)
		}
		if !strings.Contains(docs.Read(t, "docs/algorithms.md"), "("+name+")") {
			t.Errorf("docs/algorithms.md does not show %s", name)
		}
		if err := wellFormed(got); err != nil || len(got) > 10_000 {
			t.Errorf("%s has %d bytes, error %v", name, len(got), err)
		}
	}
}

func wellFormed(text string) error {
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// TestNumbers holds the table of docs/algorithms.md to the simulator.
func TestNumbers(t *testing.T) {
	text := fmt.Sprintf("| %d requests, 10/10s | admitted | most in any 10 s | denied without need |\n|---|---|---|---|\n", len(traffic()))
	for _, r := range results(t) {
		text += fmt.Sprintf("| `%s` | %d | %d | %d |\n", r.algorithm, len(r.admitted), r.peak(), r.needless())
	}
	docs.Golden(t, "docs/algorithms.md", text)
}

// TestResults holds what the text says of the algorithms.
func TestResults(t *testing.T) {
	for _, r := range results(t) {
		if n := len(r.admitted) + len(r.denied); n != len(traffic()) {
			t.Errorf("%s: %d requests, want %d", r.algorithm, n, len(traffic()))
		}
		peak, needless := r.peak(), r.needless()
		switch r.algorithm {
		case weir.SlidingLog:
			if peak != most || needless != 0 {
				t.Errorf("%s is not exact: %d at once, %d denied without need", r.algorithm, peak, needless)
			}
		case weir.SlidingBuckets:
			if peak > most {
				t.Errorf("%s admits %d", r.algorithm, peak)
			}
		case weir.FixedWindow, weir.TokenBucket:
			if peak <= most || peak > 2*most || needless != 0 {
				t.Errorf("%s: %d in a window, %d denied without need", r.algorithm, peak, needless)
			}
		default:
		}
	}
}

func TestWithin(t *testing.T) {
	r := &result{admitted: []time.Duration{0, 4 * time.Second}, denied: []time.Duration{9 * time.Second}}
	for at, want := range map[time.Duration]int{0: 1, 4 * time.Second: 2, window - 1: 2, window: 1, window + 4*time.Second: 0} {
		if got := r.within(at); got != want {
			t.Errorf("at %v: %d, want %d", at, got, want)
		}
	}
	if want := []time.Duration{0, 4 * time.Second, window, window + 4*time.Second, length}; !slices.Equal(r.changes(), want) {
		t.Errorf("changes %v, want %v", r.changes(), want)
	}
	if r.peak() != 2 || r.needless() != 1 {
		t.Errorf("peak %d, needless %d, want 2 and 1", r.peak(), r.needless())
	}
}
