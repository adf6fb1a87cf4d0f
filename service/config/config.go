// Package config reads configuration files: the rules of domains, and the
// settings of the server. It is strict, and reports everything that is wrong
// in all files at once, each with its place.
package config

import (
	"errors"
	"slices"

	"github.com/weirlimit/weir/policy"
)

// Config is what a set of files says.
type Config struct {
	Policy *policy.Policy
	Server Server
	// Files are the paths of the files that were read, in order.
	Files []string
}

// Load reads files, and directories for their *.yaml and *.yml files in order
// of their names. A file may have several documents, and a domain may be spread
// over documents and files. The error is Errors: all that is wrong.
func Load(paths []string) (*Config, error) {
	l, err := load(paths)
	if err != nil {
		return nil, err
	}
	return &Config{Policy: l.policy, Server: l.server, Files: l.files}, nil
}

// loader collects what the files say and what is wrong with them.
type loader struct {
	files    []string
	docs     []*document // those with a domain
	policy   *policy.Policy
	server   Server
	serverAt *spot // of the server settings, once there are some
	errs     Errors
}

func load(paths []string) (*loader, error) {
	l := new(loader)
	l.files = l.expand(paths)
	for i, name := range l.files {
		if s := l.open(i, name); s != nil {
			l.read(s)
		}
	}
	l.compile()
	if len(l.errs) > 0 {
		slices.SortStableFunc(l.errs, func(a, b *Error) int { return a.compare(b.Place) })
		return nil, l.errs
	}
	return l, nil
}

const nothing = "there is nothing here: write a domain and its rules, or server settings"

// read reads the documents of a file.
func (l *loader) read(s *source) {
	docs, errs := parse(s)
	l.errs = append(l.errs, errs...)
	if len(docs)+len(errs) == 0 {
		l.errs = append(l.errs, &Error{Place: s.place(1, 1, ""), Message: nothing})
	}
	for _, n := range docs {
		d := &document{loader: l, source: s, places: make(map[string]spot), failed: make(map[string]bool)}
		if d.read(n) {
			l.docs = append(l.docs, d)
		}
	}
}

// compile adds what policy finds wrong, unless it only follows from what has
// been found already.
func (l *loader) compile() {
	domains := make([]policy.Domain, len(l.docs))
	for i, d := range l.docs {
		domains[i] = d.domain
	}
	var err error
	l.policy, err = policy.Compile(domains)
	var wrong policy.Errors
	errors.As(err, &wrong)
	for _, e := range wrong {
		d, p := l.find(e.Path)
		if d.follows(p) {
			continue
		}
		message := e.Message
		if e.Other != nil {
			d, p := l.find(e.Other)
			message += " (the other is at " + d.placeOf(p).position() + ")"
		}
		l.errs = append(l.errs, &Error{Place: d.placeOf(p), Message: message})
	}
}

// find returns the document that a path of policy is about, and the rest of it.
func (l *loader) find(p policy.Path) (*document, policy.Path) { return l.docs[p[1].(int)], p[2:] }
