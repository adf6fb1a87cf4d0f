package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// newLog returns a log of a level and format as settings name them, such as
// "info" and "text". Its level can be changed.
func newLog(w io.Writer, level, format string) (*slog.Logger, *slog.LevelVar, error) {
	l, ok := levels[level]
	if !ok {
		return nil, nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	now := new(slog.LevelVar)
	now.Set(l)
	switch format {
	case "text":
		return slog.New(newLines(w, now)), now, nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: now})), now, nil
	}
	return nil, nil, fmt.Errorf("log format %q: want text or json", format)
}

// lines writes records as lines for people: time, level and message as they
// are, so that a command in a message can be copied, then the attributes as
// slog.TextHandler writes them. Messages are the program's own words.
type lines struct {
	slog.Handler // writes the attributes to buf
	out          *lockedOutput
}

type lockedOutput struct {
	mu  sync.Mutex
	buf bytes.Buffer
	w   io.Writer
}

func newLines(w io.Writer, level slog.Leveler) lines {
	out := &lockedOutput{w: w}
	return lines{slog.NewTextHandler(&out.buf, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutHead}), out}
}

// withoutHead leaves out what Handle writes itself.
func withoutHead(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

// Handle implements slog.Handler.
func (l lines) Handle(ctx context.Context, r slog.Record) error {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	l.out.buf.Reset()
	fmt.Fprintf(&l.out.buf, "%s %s %s ", r.Time.UTC().Format(time.RFC3339), r.Level, r.Message)
	if err := l.Handler.Handle(ctx, r); err != nil {
		return err
	}
	_, err := fmt.Fprintf(l.out.w, "%s\n", bytes.TrimSpace(l.out.buf.Bytes()))
	return err
}

// WithAttrs implements slog.Handler.
func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lines{l.Handler.WithAttrs(attrs), l.out}
}

// WithGroup implements slog.Handler.
func (l lines) WithGroup(name string) slog.Handler {
	return lines{l.Handler.WithGroup(name), l.out}
}
