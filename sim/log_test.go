package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirlimit/weir/sim"
)

// line is a line of a common log, sec seconds into 2015.
func line(ip string, sec int) string {
	at := time.Date(2015, 1, 1, 0, 0, sec, 0, time.UTC)
	return fmt.Sprintf("%s - - [%s] \"GET / HTTP/1.1\" 200 1\n", ip, at.Format("02/Jan/2006:15:04:05 -0700"))
}

// read returns what ReadLog makes of a log.
func read(t *testing.T, r io.Reader) (sim.Log, []sim.Event) {
	t.Helper()
	var events []sim.Event
	log, err := sim.ReadLog(r, func(e sim.Event) error {
		events = append(events, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(events)) != log.Requests || log.Lines != log.Requests+log.Unparsed {
		t.Fatalf("%d events from %+v", len(events), log)
	}
	return log, events
}

func TestReadLogCountsEveryLine(t *testing.T) {
	text := line("a", 3) + "\n" + line("b", 1) + "garbage\n" + line("c", 2) + line("d", 2) + strings.TrimSpace(line("e", 1))
	log, _ := read(t, iotest.OneByteReader(strings.NewReader(text)))
	if log.Lines != 7 || log.Requests != 5 || log.Unparsed != 2 || log.Disordered != 2 {
		t.Errorf("%+v, want 7 lines, 5 requests, 2 unparsed, 2 disordered", log)
	}
	want := []sim.UnparsedLine{
		{Line: 2, Reason: "host: missing, the line ends before it"},
		{Line: 4, Reason: "identity: missing, the line ends before it"},
	}
	if !slices.Equal(log.UnparsedLines, want) {
		t.Errorf("unparsed %v, want %v", log.UnparsedLines, want)
	}
}

func TestReadLogShowsTheFirstUnparsedLines(t *testing.T) {
	log, _ := read(t, strings.NewReader(strings.Repeat("x\n", 1000)))
	if log.Unparsed != 1000 || len(log.UnparsedLines) != sim.MaxUnparsed {
		t.Errorf("%d unparsed, %d shown; want 1000 and %d", log.Unparsed, len(log.UnparsedLines), sim.MaxUnparsed)
	}
}

func TestReadLogBoundsALine(t *testing.T) {
	long := strings.TrimSuffix(line("a", 1), "\n") + ` "-" "` + strings.Repeat("x", 1<<20) + "\"\n"
	log, events := read(t, strings.NewReader(long+line("b", 1)))
	if log.Lines != 2 || log.Unparsed != 1 || events[0].Attributes["ip"] != "b" {
		t.Errorf("%+v %v, want the second line only", log, events)
	}
	if got := log.UnparsedLines[0].Reason; got != "longer than 1048576 bytes" {
		t.Errorf("reason %q", got)
	}
}

func TestReadLogStopsAtErrors(t *testing.T) {
	broken := errors.New("broken")
	text := line("a", 1) + line("b", 2)
	log, err := sim.ReadLog(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), func(sim.Event) error { return nil })
	if !errors.Is(err, broken) || err.Error() != "after line 2: broken" || log.Requests != 2 {
		t.Errorf("reader: %v after %d requests", err, log.Requests)
	}
	log, err = sim.ReadLog(strings.NewReader(text), func(sim.Event) error { return broken })
	if !errors.Is(err, broken) || err.Error() != "line 1: broken" || log.Lines != 1 {
		t.Errorf("each: %v after %d lines", err, log.Lines)
	}
}

func TestSortIsStable(t *testing.T) {
	_, events := read(t, strings.NewReader(line("a", 3)+line("b", 1)+line("c", 2)+line("d", 1)+line("e", 3)))
	sim.Sort(events)
	var order bytes.Buffer
	for _, e := range events {
		order.WriteString(e.Attributes["ip"])
	}
	if order.String() != "bdcae" {
		t.Errorf("order %s, want bdcae", &order)
	}
}
