package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// scrubber takes out of texts what nobody else may read.
type scrubber struct {
	secrets    []string // that are known; empty ones do not count
	redactKeys bool
}

const removed = "(removed)"

var (
	// secretName is what is called like a secret, but not a file that has one.
	secretName = regexp.MustCompile(`(?i)(token|secret|passw(or)?d|authorization|credentials?|api[_-]?key|private[_-]?key)s?$`)
	// userinfo is what a URL has before its host.
	userinfo = regexp.MustCompile(`(://)[^/\s"'@]*(?:@[^/\s"'@]*)*@`)
	// parameter is a secret among the parameters of a URL.
	parameter = regexp.MustCompile(`(?i)([?&][\w-]*(?:token|secret|passw(?:or)?d|key)=)[^&\s"']+`)
	// bearer is the header that carries a token.
	bearer = regexp.MustCompile(`(?i)(bearer\s+)[\w.~+/=-]+`)
)

// text returns s without the secrets that show in any text.
func (c scrubber) text(s string) string {
	for _, secret := range c.secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, removed)
		}
	}
	s = userinfo.ReplaceAllString(s, "${1}"+removed+"@")
	s = parameter.ReplaceAllString(s, "${1}"+removed)
	return bearer.ReplaceAllString(s, "${1}"+removed)
}

// json returns a document without its secrets.
func (c scrubber) json(text []byte) ([]byte, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(c.value("", v))
	return out.Bytes(), err
}

// yaml returns documents without their secrets, and without comments.
func (c scrubber) yaml(text string) ([]byte, error) {
	var out bytes.Buffer
	d, e := yaml.NewDecoder(strings.NewReader(text), yaml.UseOrderedMap()), yaml.NewEncoder(&out)
	for {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return out.Bytes(), e.Close()
		}
		if err != nil {
			return nil, errors.New("it is no YAML") // the error would show a part of it
		}
		if err := e.Encode(c.value("", v)); err != nil {
			return nil, err
		}
	}
}

// value returns v, the member of that name, without secrets.
func (c scrubber) value(name string, v any) any {
	if secretName.MatchString(name) && v != nil && v != "" {
		return removed
	}
	switch v := v.(type) {
	case string:
		if name == "rules" {
			return "see rules.yaml"
		}
		return c.text(v)
	case []any:
		for i := range v {
			v[i] = c.value(name, v[i])
		}
		if c.redactKeys && name == "hot" {
			anonymous(v)
		}
	case map[string]any:
		for k := range v {
			v[k] = c.value(k, v[k])
		}
	case yaml.MapSlice:
		for i := range v {
			k, _ := v[i].Key.(string)
			v[i].Value = c.value(k, v[i].Value)
		}
	}
	return v
}

// anonymous replaces the keys of the hottest keys by their numbers.
func anonymous(hot []any) {
	for i := range hot {
		if k, ok := hot[i].(map[string]any); ok {
			k["key"], k["attributes"], k["redacted"] = "key "+strconv.Itoa(i+1), map[string]any{}, true
		}
	}
}
