package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir"
)

// maxFile bounds the size of a file, in bytes.
const maxFile = 16 << 20

// Place is a place in a file.
type Place struct {
	File string `json:"file"`
	// Line and Column count from 1, Column in characters; both are 0 for what
	// concerns the file as a whole.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path is where it is in the document, such as rules[2].limit; it may be empty.
	Path string `json:"path"`
	// Snippet is the text of the line.
	Snippet string `json:"snippet"`

	order int // of the file
}

// position reads file:line:column.
func (p Place) position() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// report reads file:line:column: path: message, with the snippet on a line of
// its own below.
func (p Place) report(message string) string {
	text := p.position() + ": "
	if p.Path != "" {
		text += p.Path + ": "
	}
	text += message
	if p.Snippet != "" {
		text += fmt.Sprintf("\n%5d | %s", p.Line, p.Snippet)
	}
	return text
}

func (p Place) compare(q Place) int {
	return cmp.Or(p.order-q.order, p.Line-q.Line, p.Column-q.Column)
}

// Error is one thing that is wrong in a file.
type Error struct {
	Place
	// Message says what is wrong and what to write instead.
	Message string
	// Nearest is the known word nearest to an unknown one; it may be empty.
	Nearest string
}

// Error reads file:line:column: path: message; did you mean "limit"? The text
// of the line follows on a line of its own.
func (e *Error) Error() string {
	message := e.Message
	if e.Nearest != "" {
		message += fmt.Sprintf("; did you mean %q?", e.Nearest)
	}
	return e.report(message)
}

// Errors is everything that is wrong, in the order of the files and their lines.
type Errors []*Error

// Error has each error in turn.
func (es Errors) Error() string {
	texts := make([]string, len(es))
	for i, e := range es {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap returns the errors one by one.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// source is the text of a file.
type source struct {
	name  string
	order int
	text  string
	lines []string
}

// breaks are what YAML takes for the end of a line.
var breaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func newSource(order int, name, text string) *source {
	text = breaks.Replace(strings.TrimPrefix(text, "\ufeff"))
	return &source{name: name, order: order, text: text, lines: strings.Split(text, "\n")}
}

// spot is a place without its text, of which there are many.
type spot struct {
	source       *source
	line, column int
}

func (s spot) place(path string) Place { return s.source.place(s.line, s.column, path) }

func (s *source) place(line, column int, path string) Place {
	p := Place{File: s.name, Line: line, Column: column, Path: path, order: s.order}
	if line < 1 || line > len(s.lines) {
		return p
	}
	key := path
	if path == "" && line > 1 { // the line may be the value of a key above it
		key = s.lines[line-2]
	}
	if !secret(key) && !secret(s.lines[line-1]) {
		p.Snippet = printable(s.lines[line-1])
	}
	return p
}

// secret reports whether a text may hold or name a token, a password or a URL
// with one: a report may end up in a log, where none must be.
func secret(text string) bool {
	text = strings.ReplaceAll(strings.ToLower(text), weir.TokenBucket.String(), "")
	for _, sign := range []string{"token", "password", "secret", "redis:", "://"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// printable is a line as a terminal can show it, cut to a bearable length.
func printable(line string) string {
	const most = 120
	var b strings.Builder
	for line = strings.TrimRight(line, " \t\r"); line != ""; {
		if b.Len() >= most {
			return b.String() + "..."
		}
		c, n := utf8.DecodeRuneInString(line)
		if unicode.IsPrint(c) && n > 1 || ' ' <= c && c <= '~' {
			b.WriteString(line[:n])
		} else {
			b.WriteString(strings.Trim(strconv.Quote(line[:n]), `"`))
		}
		line = line[n:]
	}
	return b.String()
}

// expand returns the files that the paths stand for, each once.
func (l *loader) expand(paths []string) []string {
	var files []string
	for _, path := range paths {
		found := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			found = l.list(path)
		}
		for _, name := range found {
			if !slices.Contains(files, filepath.Clean(name)) {
				files = append(files, filepath.Clean(name))
			}
		}
	}
	return files
}

// list returns the configuration files in a directory. Names that begin with a
// dot belong to editors and to mounted volumes.
func (l *loader) list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		l.unreadable(0, dir, err)
		return nil
	}
	var files []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if (ext == ".yaml" || ext == ".yml") && e.Name()[0] != '.' && !e.IsDir() {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		l.unreadable(0, dir, errors.New("there is no *.yaml or *.yml file in this directory"))
	}
	return files
}

// open returns the text of a file, or nil if it cannot be one of ours.
func (l *loader) open(order int, name string) *source {
	text, err := readAll(name)
	if err != nil {
		l.unreadable(order, name, err)
		return nil
	}
	s := newSource(order, name, text)
	if line, column, ok := badUTF8(s.lines); !ok {
		l.errs = append(l.errs, &Error{Place: s.place(line, column, ""), Message: "this is not UTF-8: save the file as UTF-8 text"})
		return nil
	}
	return s
}

func readAll(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New("the file is larger than 16 MiB: split it")
	}
	return string(text), err
}

func (l *loader) unreadable(order int, name string, err error) {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	l.errs = append(l.errs, &Error{Place: Place{File: name, order: order}, Message: "cannot be read: " + err.Error()})
}

// badUTF8 returns where the first byte is that is not UTF-8; ok if none is.
func badUTF8(lines []string) (line, column int, ok bool) {
	for i, text := range lines {
		column := 1
		for text != "" {
			r, n := utf8.DecodeRuneInString(text)
			if r == utf8.RuneError && n == 1 {
				return i + 1, column, false
			}
			text = text[n:]
			column++
		}
	}
	return 0, 0, true
}
