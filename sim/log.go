package sim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Log says what an access log held. Lines is Requests plus Unparsed.
type Log struct {
	Lines    int64 `json:"lines"`
	Requests int64 `json:"requests"`
	// Disordered counts the requests earlier than the one before them.
	Disordered int64 `json:"disordered"`
	// Unparsed counts the lines that are no request; the first of them, at
	// most MaxUnparsed, are in UnparsedLines.
	Unparsed      int64          `json:"unparsed"`
	UnparsedLines []UnparsedLine `json:"unparsed_lines"`
}

// UnparsedLine is a line that ParseLine refused, numbered from 1.
type UnparsedLine struct {
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
}

const (
	// MaxUnparsed bounds Log.UnparsedLines.
	MaxUnparsed = 10
	// maxLine bounds a line in bytes, so that no input fills the memory.
	maxLine = 1 << 20
)

// ReadLog reads an access log line by line and hands its requests to each, in
// the order of the log. It stops at the first error of r or each, which it
// returns with the number of lines read, and what it counted until then.
func ReadLog(r io.Reader, each func(Event) error) (Log, error) {
	log := Log{UnparsedLines: []UnparsedLine{}}
	in := bufio.NewReaderSize(r, 1<<16)
	var last time.Time
	var line []byte
	for {
		var err error
		line, err = readLine(in, line[:0])
		switch {
		case errors.Is(err, io.EOF):
			return log, nil
		case err != nil:
			return log, fmt.Errorf("after line %d: %w", log.Lines, err)
		}
		log.Lines++
		e, err := parse(line)
		if err != nil {
			log.refuse(err)
			continue
		}
		log.Requests++
		if e.Time.Before(last) {
			log.Disordered++
		}
		last = e.Time
		if err := each(e); err != nil {
			return log, fmt.Errorf("line %d: %w", log.Lines, err)
		}
	}
}

func (l *Log) refuse(reason error) {
	l.Unparsed++
	if len(l.UnparsedLines) < MaxUnparsed {
		l.UnparsedLines = append(l.UnparsedLines, UnparsedLine{l.Lines, reason.Error()})
	}
}

func parse(line []byte) (Event, error) {
	if len(line) > maxLine {
		return Event{}, fmt.Errorf("longer than %d bytes", maxLine)
	}
	return ParseLine(string(line))
}

// readLine appends the next line to line, of a longer one maxLine+1 bytes.
func readLine(r *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, more, err := r.ReadLine()
		line = append(line, part[:min(len(part), maxLine+1-len(line))]...)
		if err != nil || !more {
			return line, err
		}
	}
}

// Sort sorts events by time; those of one time keep their order.
func Sort(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
}
