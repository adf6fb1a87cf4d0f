package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/sim"
)

// simulation is what `weir simulate --json` prints.
type simulation struct {
	Logs []accessLog `json:"logs"`
	sim.Report
}

// accessLog is what one of the logs held.
type accessLog struct {
	Name string `json:"name"`
	sim.Log
}

// simulator replays logs; its fields are the command's flags and streams.
type simulator struct {
	configs  []string
	domain   string
	json     bool
	in       io.Reader
	out      io.Writer
	progress progress
}

func simulateCmd() *cobra.Command {
	var s simulator
	cmd := &cobra.Command{
		Use:   "simulate --config FILE|DIR [flags] [LOG...]",
		Short: "Replay access logs against a config and show what it would have denied",
		Long: `Replay web access logs, in the combined or the common format, plain or gzip,
against the rules of a config, under the clock of the log.

A request has the attributes ip, method, path (without the query), status,
user_agent and referer; one that the log does not know is missing. Shown are,
for each rule, the requests seen, admitted and denied, the distinct keys, the
ten keys denied most, and what each algorithm would have decided differently
from the exact one if the rule had been alone.

Several files are put together and sorted by time. Standard input, read if
there is no LOG or if it is "-", cannot be sorted: a request earlier than the
newest before it counts as of that one's time.`,
		Example: `  weir simulate --config website.yaml access.log access.log.1.gz
  tail -f access.log | head -1000 | weir simulate --config website.yaml --json`,
		RunE: func(cmd *cobra.Command, logs []string) error {
			s.in, s.out = cmd.InOrStdin(), cmd.OutOrStdout()
			s.progress = newProgress(cmd.ErrOrStderr())
			return s.run(cmd.Context(), logs)
		},
	}
	cmd.Flags().StringArrayVar(&s.configs, "config", nil, "file or directory with the rules; may be repeated")
	cmd.Flags().StringVar(&s.domain, "domain", "", "domain whose rules apply; needed if the config has several")
	cmd.Flags().BoolVar(&s.json, "json", false, "print JSON")
	return cmd
}

func (s *simulator) run(ctx context.Context, logs []string) error {
	if len(s.configs) == 0 {
		return errors.New("--config is missing: name the file with the rules, as in --config website.yaml")
	}
	loaded, err := config.Load(s.configs)
	if err != nil {
		return err
	}
	options := sim.Options{Policy: loaded.Policy}
	if options.Domain, err = chooseDomain(loaded.Policy.Domains(), s.domain); err != nil {
		return err
	}
	replay, err := sim.NewReplay(options)
	if err != nil {
		return err
	}
	var result simulation
	if len(logs) == 0 || len(logs) == 1 && logs[0] == "-" {
		result.Logs, err = s.stream(ctx, replay)
	} else {
		result.Logs, err = s.files(ctx, replay, logs)
	}
	s.progress.clear()
	if err != nil {
		return err
	}
	result.Report = replay.Report()
	return s.print(result)
}

// chooseDomain returns the domain named, or the only one if none is.
func chooseDomain(domains []policy.Domain, name string) (string, error) {
	known := make([]string, len(domains))
	for i, d := range domains {
		if d.Name == name || name == "" && len(domains) == 1 {
			return d.Name, nil
		}
		known[i] = strconv.Quote(d.Name)
	}
	switch {
	case len(domains) == 0:
		return "", errors.New("the config has no domain to replay against: write one, such as\n  domain: website\n  rules: [{name: per-ip, by: [ip], limit: 20/minute}]")
	case name == "":
		return "", fmt.Errorf("the config has %d domains: choose one with --domain: %s", len(domains), strings.Join(known, ", "))
	}
	return "", fmt.Errorf("--domain %q: the config has no such domain, only %s", name, strings.Join(known, ", "))
}

// stream replays standard input as it comes.
func (s *simulator) stream(ctx context.Context, replay *sim.Replay) ([]accessLog, error) {
	log, err := s.read(ctx, "standard input", s.in, func(e sim.Event) error { return replay.Add(ctx, e) })
	return []accessLog{log}, err
}

// files replays what the named files hold, sorted by time.
func (s *simulator) files(ctx context.Context, replay *sim.Replay, names []string) ([]accessLog, error) {
	var logs []accessLog
	var events []sim.Event
	for _, name := range names {
		if name == "-" {
			return nil, errors.New(`"-" is standard input, which cannot be sorted in among files: give it alone, or files only`)
		}
		log, err := s.file(ctx, name, func(e sim.Event) error {
			events = append(events, e)
			return nil
		})
		if err != nil {
			return nil, err
		}
		logs = append(logs, log)
	}
	sim.Sort(events)
	s.progress.lines = 0
	for _, e := range events {
		if err := replay.Add(ctx, e); err != nil {
			return nil, err
		}
		s.progress.step("replayed")
	}
	return logs, nil
}

func (s *simulator) file(ctx context.Context, name string, each func(sim.Event) error) (accessLog, error) {
	f, err := os.Open(name)
	if err != nil {
		return accessLog{}, err
	}
	defer f.Close()
	return s.read(ctx, name, f, each)
}

// read reads one log, which may be compressed.
func (s *simulator) read(ctx context.Context, name string, r io.Reader, each func(sim.Event) error) (accessLog, error) {
	plain, err := gunzip(r)
	if err != nil {
		return accessLog{}, fmt.Errorf("%s: %w", name, err)
	}
	log, err := sim.ReadLog(plain, func(e sim.Event) error {
		s.progress.step("read")
		if err := ctx.Err(); err != nil {
			return err
		}
		return each(e)
	})
	switch {
	case err != nil:
		return accessLog{}, fmt.Errorf("%s: %w", name, err)
	case log.Requests == 0 && log.Unparsed > 0:
		return accessLog{}, fmt.Errorf("%s: none of its %d lines is in the common or combined log format; line 1: %s; want lines such as\n"+
			`  192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /search?q=x HTTP/1.1" 200 5120`, name, log.Lines, log.UnparsedLines[0].Reason)
	}
	return accessLog{name, log}, nil
}

// gunzip returns what r holds, decompressed if it begins as gzip does.
func gunzip(r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		return gzip.NewReader(in)
	}
	return in, nil
}

func (s *simulator) print(result simulation) error {
	if !s.json {
		_, err := s.out.Write(result.text())
		return err
	}
	encoder := json.NewEncoder(s.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}

// progress shows how far a long run is, on a terminal only.
type progress struct {
	w     io.Writer // nil if there is nobody to look
	lines int64
	next  time.Time // when to show it next
	shown bool
}

const (
	progressDelay = 500 * time.Millisecond // what is over sooner shows nothing
	progressPause = 200 * time.Millisecond
)

func newProgress(w io.Writer) progress {
	p := progress{next: time.Now().Add(progressDelay)}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.w = w
		}
	}
	return p
}

// step counts one more line.
func (p *progress) step(done string) {
	p.lines++
	if p.w == nil || p.lines%1000 != 0 || time.Now().Before(p.next) {
		return
	}
	p.next, p.shown = time.Now().Add(progressPause), true
	fmt.Fprintf(p.w, "\r\x1b[K%s %s lines", done, commas(p.lines))
}

// clear takes the line off the terminal.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
