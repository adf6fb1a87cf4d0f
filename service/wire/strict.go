package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf16"

	"github.com/weirlimit/weir"
)

// Decoder reads JSON strictly: what is not asked for, comes twice, or is of
// another type is a Problem or a *weir.InvalidError that names the member by its
// path. That of the whole is "".
type Decoder struct{ *json.Decoder }

// NewDecoder returns a Decoder of a body, as Body returns it.
func NewDecoder(body []byte) Decoder {
	d := Decoder{json.NewDecoder(bytes.NewReader(body))}
	d.UseNumber()
	return d
}

// next returns the next token.
func (d Decoder) next() (json.Token, error) {
	t, err := d.Token()
	return t, d.Syntax(err)
}

// Syntax returns the Problem that an error of the JSON itself is.
func (d Decoder) Syntax(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return NewProblem(http.StatusBadRequest, "", "the body is not valid JSON: it ends too early")
	}
	return NewProblem(http.StatusBadRequest, "", fmt.Sprintf("the body is not valid JSON: %v, near byte %d", err, d.InputOffset()))
}

// End checks that nothing follows.
func (d Decoder) End() error {
	if _, err := d.Token(); errors.Is(err, io.EOF) {
		return nil
	}
	return NewProblem(http.StatusBadRequest, "", fmt.Sprintf("the body goes on after the object that it is: nothing may follow byte %d", d.InputOffset()))
}

// Object calls read for each member, before its value, and returns their names.
func (d Decoder) Object(path, want string, read func(name, path string) error) (map[string]bool, error) {
	t, err := d.next()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('{') {
		return nil, wrongType(path, t, "an object such as "+want)
	}
	given := make(map[string]bool)
	for d.More() {
		t, err := d.next()
		if err != nil {
			return nil, err
		}
		name := t.(string) // the decoder accepts no other name
		at := member(path, name)
		if given[name] {
			return nil, NewProblem(http.StatusBadRequest, at, "the member "+strconv.Quote(clip(name))+" is given twice: write it once")
		}
		given[name] = true
		if err := read(name, at); err != nil {
			return nil, err
		}
	}
	_, err = d.next()
	return given, err
}

// Array calls read for each element, before it, and refuses
// more than most.
func (d Decoder) Array(path, want string, most int, read func(path string) error) error {
	t, err := d.next()
	if err != nil {
		return err
	}
	if t != json.Delim('[') {
		return wrongType(path, t, "a list such as "+want)
	}
	for i := 0; d.More(); i++ {
		if i == most {
			return NewProblem(http.StatusBadRequest, path, fmt.Sprintf("%s has too many entries: send at most %d at once", path, most))
		}
		if err := read(Index(path, i)); err != nil {
			return err
		}
	}
	_, err = d.next()
	return err
}

// Text reads a string.
func (d Decoder) Text(path, example string) (string, error) {
	t, err := d.next()
	if err != nil {
		return "", err
	}
	if s, ok := t.(string); ok {
		return s, nil
	}
	return "", wrongType(path, t, "a string in quotes, such as "+strconv.Quote(example))
}

// Integer reads a whole number written without fraction and exponent.
func (d Decoder) Integer(path, want string) (int64, error) {
	t, err := d.next()
	if err != nil {
		return 0, err
	}
	if number, ok := t.(json.Number); ok {
		if n, err := strconv.ParseInt(number.String(), 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, wrongType(path, t, want)
}

// Bool reads true or false.
func (d Decoder) Bool(path string) (bool, error) {
	t, err := d.next()
	if err != nil {
		return false, err
	}
	if b, ok := t.(bool); ok {
		return b, nil
	}
	return false, wrongType(path, t, "true or false")
}

// wrongType says that a member has another value than it wants.
func wrongType(path string, t json.Token, want string) error {
	value := fmt.Sprint(t)
	switch t := t.(type) {
	case nil:
		value = "null"
	case json.Delim:
		value = map[json.Delim]string{'{': "{...}", '[': "[...]"}[t]
	}
	if path == "" {
		path = "body"
	}
	return &weir.InvalidError{Field: path, Value: value, Want: want}
}

func member(path, name string) string {
	if path == "" || name == "" {
		return path + clip(name)
	}
	return path + "." + clip(name)
}

// Index is the path of an element.
func Index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// clip keeps a message short however long a name is.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

// paired reports whether every surrogate that body escapes has its other half:
// a lone one stands for no character, and all would be read as the same one.
func paired(body []byte) bool {
	for i := 0; i+1 < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		i++
		first := escaped(body[i-1:])
		if !utf16.IsSurrogate(first) {
			continue
		}
		if utf16.DecodeRune(first, escaped(body[min(i+5, len(body)):])) == '\uFFFD' {
			return false
		}
		i += 10
	}
	return true
}

// escaped returns the character of an escape such as \u00e9 that b begins
// with, or 0.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 32)
	if err != nil {
		return 0
	}
	return rune(n)
}
