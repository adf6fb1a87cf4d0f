package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
)

// form is one way to write a request: the member that picks it, those it needs
// and those it may have.
type form struct {
	name  string
	needs []string
	takes []string
}

var forms = []form{
	{"key", []string{"limit"}, []string{"algorithm", "cost"}},
	{"key_base64", []string{"limit"}, []string{"algorithm", "cost"}},
	{"domain", nil, []string{"attributes", "cost"}},
	{"checks", nil, []string{"cost"}},
	{"receipt", nil, []string{"cost"}},
}

// The members that a request may have, by what is asked.
var (
	checkMembers  = []string{"key", "key_base64", "limit", "algorithm", "cost"}
	queryMembers  = append(slices.Clip(checkMembers), "domain", "attributes", "checks")
	refundMembers = append(slices.Clip(queryMembers), "receipt")
	countMembers  = append(slices.Clip(queryMembers), "last")
)

const (
	queryExample = `{"key":"search:alice","limit":"5/minute"} or {"domain":"slack","attributes":{"category":"errors"}}`
	checkExample = `{"key":"global","limit":"100/30m"}`
	batchExample = `{"requests":[{"key":"search:alice","limit":"5/minute"}]}`
)

// fields is a request object as it was written.
type fields struct {
	given      map[string]bool
	key        string
	limit      weir.Limit
	algorithm  weir.Algorithm
	cost       int64
	domain     string
	attributes map[string]string
	checks     []fields
	last       time.Duration
	receipts   []weir.Receipt
}

// readQuery reads a request object that stands at path.
func readQuery(body []byte, path string) (decide.Query, error) {
	f, err := read(body, path, queryMembers)
	if err != nil {
		return decide.Query{}, err
	}
	return f.query(), nil
}

// read reads a request object with some of the members.
func read(body []byte, path string, members []string) (f fields, err error) {
	d := newDecoder(body)
	if err = f.read(d, path, members, queryExample); err == nil {
		err = d.end()
	}
	return f, err
}

// readBatch splits a batch into its entries, which are valid JSON of any kind.
func readBatch(body []byte) ([]json.RawMessage, error) {
	var entries []json.RawMessage
	d := newDecoder(body)
	given, err := d.object("", batchExample, func(name, path string) error {
		if name != "requests" {
			return unknownMember(path, []string{"requests"})
		}
		return d.array(path, "["+queryExample+"]", maxBatch, func(string) error {
			var entry json.RawMessage
			err := d.syntax(d.Decode(&entry))
			entries = append(entries, entry)
			return err
		})
	})
	if err == nil {
		err = d.end()
	}
	if err == nil && !given["requests"] {
		err = missing("", "requests", batchExample)
	}
	return entries, err
}

func (f *fields) read(d decoder, path string, members []string, example string) (err error) {
	f.cost = 1
	f.given, err = d.object(path, example, func(name, path string) error {
		if !slices.Contains(members, name) {
			return unknownMember(path, members)
		}
		return f.member(d, name, path)
	})
	if err != nil {
		return err
	}
	if err := f.oneForm(path, members, example); err != nil {
		return err
	}
	return f.agree(path)
}

// member reads the value of a member.
func (f *fields) member(d decoder, name, path string) (err error) {
	switch name {
	case "key":
		f.key, err = d.text(path, "search:alice")
	case "key_base64":
		f.key, err = readBase64(d, path)
	case "limit":
		f.limit, err = readText(d, path, "5/minute", weir.ParseLimit)
	case "algorithm":
		f.algorithm, err = readText(d, path, "sliding-log", parseAlgorithm)
	case "cost":
		f.cost, err = readCost(d, path)
	case "domain":
		f.domain, err = d.text(path, "slack")
	case "attributes":
		f.attributes, err = readAttributes(d, path)
	case "checks":
		f.checks, err = readChecks(d, path)
	case "last":
		f.last, err = readText(d, path, "20s", parseDuration)
	case "receipt":
		f.receipts, err = readText(d, path, "AQxzZWFyY2g6...", parseReceipts)
	}
	return err
}

// oneForm checks that the members given are those of one form.
func (f *fields) oneForm(path string, members []string, example string) error {
	i := slices.IndexFunc(forms, func(form form) bool { return f.given[form.name] })
	if i < 0 {
		return newProblem(http.StatusBadRequest, path, fmt.Sprintf("want one of %s, as in %s", strings.Join(chosenBy(members), ", "), example))
	}
	form := forms[i]
	for _, name := range form.needs {
		if !f.given[name] {
			return missing(path, name, example)
		}
	}
	for _, name := range members {
		ok := name == form.name || name == "last" || slices.Contains(form.needs, name) || slices.Contains(form.takes, name)
		if f.given[name] && !ok {
			return newProblem(http.StatusBadRequest, member(path, name), fmt.Sprintf("%s cannot stand beside %s: leave one of them out", member(path, name), form.name))
		}
	}
	if slices.Contains(members, "last") && !f.given["last"] {
		return missing(path, "last", `"last":"20s"`)
	}
	return nil
}

// chosenBy lists the members that pick a form.
func chosenBy(members []string) []string {
	return slices.DeleteFunc(slices.Clone(members), func(name string) bool {
		return !slices.ContainsFunc(forms, func(form form) bool { return form.name == name })
	})
}

// agree puts the algorithm into the limit, and the cost of all into the checks.
func (f *fields) agree(path string) error {
	if f.given["algorithm"] {
		at, was := member(path, "algorithm"), f.limit.Algorithm
		if was != 0 && was != f.algorithm {
			return &weir.InvalidError{Field: at, Value: f.algorithm.String(), Want: was.String() + ", as the limit says, or none"}
		}
		f.limit.Algorithm = f.algorithm
		if err := f.limit.Validate(); err != nil {
			return renamed(err, at, f.algorithm.String())
		}
	}
	for i := range f.checks {
		if c := &f.checks[i]; !c.given["cost"] {
			c.cost = f.cost
		}
	}
	return nil
}

// query returns the query that a request object of any form but receipt is.
func (f *fields) query() decide.Query {
	switch {
	case f.given["domain"]:
		return decide.Query{Domain: f.domain, Attributes: f.attributes, Cost: f.cost}
	case f.given["checks"]:
		q := decide.Query{}
		for i := range f.checks {
			q.Checks = append(q.Checks, f.checks[i].request())
		}
		return q
	}
	return decide.Query{Checks: []weir.Request{f.request()}}
}

// request returns a check; cost 0 is a peek.
func (f *fields) request() weir.Request {
	r := weir.Request{Key: f.key, Limit: f.limit, Cost: f.cost}
	if f.cost == 0 {
		r.Mode = weir.Peek
	}
	return r
}

// parts returns the receipts for what is to be given back: the cost of each,
// or everything.
func (f *fields) parts() []weir.Receipt {
	if f.given["cost"] {
		for i := range f.receipts {
			f.receipts[i] = f.receipts[i].Part(f.cost)
		}
	}
	return f.receipts
}

// readText reads a string and parses it.
func readText[T any](d decoder, path, example string, parse func(string) (T, error)) (v T, err error) {
	text, err := d.text(path, example)
	if err != nil {
		return v, err
	}
	if v, err = parse(text); err != nil {
		return v, renamed(err, path, text)
	}
	return v, nil
}

func readBase64(d decoder, path string) (string, error) {
	return readText(d, path, "YWxpY2U=", func(text string) (string, error) {
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return "", &weir.InvalidError{Want: `standard base64 with padding, such as "YWxpY2U="`}
		}
		return string(key), nil
	})
}

func readCost(d decoder, path string) (int64, error) {
	const want = "a whole number of units from 0 to 2147483648, such as 1"
	n, err := d.integer(path, want)
	if err == nil && (n < 0 || n > weir.MaxUnits) {
		err = &weir.InvalidError{Field: path, Value: strconv.FormatInt(n, 10), Want: want}
	}
	return n, err
}

func readAttributes(d decoder, path string) (map[string]string, error) {
	attributes := make(map[string]string)
	_, err := d.object(path, `{"category":"errors"}`, func(name, path string) (err error) {
		attributes[name], err = d.text(path, "errors")
		return err
	})
	return attributes, err
}

func readChecks(d decoder, path string) ([]fields, error) {
	var checks []fields
	err := d.array(path, "["+checkExample+"]", maxChecks, func(path string) error {
		var f fields
		err := f.read(d, path, checkMembers, checkExample)
		checks = append(checks, f)
		return err
	})
	if err == nil && len(checks) == 0 {
		err = &weir.InvalidError{Field: path, Value: "[]", Want: "at least one check, such as [" + checkExample + "]"}
	}
	return checks, err
}

// parseAlgorithm reads a name; to leave the choice to the limit, a request has
// no such member.
func parseAlgorithm(text string) (weir.Algorithm, error) {
	if text == "" {
		return 0, &weir.InvalidError{Want: "the name of one, such as sliding-log, or leave the member out"}
	}
	return weir.ParseAlgorithm(text)
}

// parseDuration reads what may follow the slash of a limit.
func parseDuration(text string) (time.Duration, error) {
	l, err := weir.ParseLimit("1/" + text)
	if err != nil || l != weir.Per(1, l.Window) {
		return 0, &weir.InvalidError{Want: `a duration from 1us to 366d, such as "20s"`}
	}
	return l.Window, nil
}

// parseReceipts reads what joinReceipts wrote.
func parseReceipts(text string) ([]weir.Receipt, error) {
	var receipts []weir.Receipt
	for part := range strings.SplitSeq(text, ".") {
		var r weir.Receipt
		// No charge has the ID 0: it would give back the oldest units of any key.
		if err := r.UnmarshalText([]byte(part)); err != nil || r.ID == 0 {
			return nil, &weir.InvalidError{Want: "the receipt of a decision, whole and as it was"}
		}
		receipts = append(receipts, r)
	}
	return receipts, nil
}

func joinReceipts(receipts []weir.Receipt) string {
	var parts []string
	for _, r := range receipts {
		text, _ := r.MarshalText() // never fails
		parts = append(parts, string(text))
	}
	return strings.Join(parts, ".")
}

// renamed returns an InvalidError with the field and value as the caller knows
// them.
func renamed(err error, field, value string) error {
	if invalid, ok := errors.AsType[*weir.InvalidError](err); ok {
		return &weir.InvalidError{Field: field, Value: value, Want: invalid.Want}
	}
	return err
}

func unknownMember(path string, members []string) error {
	return newProblem(http.StatusBadRequest, path, fmt.Sprintf("%s is not known here: want some of %s", path, strings.Join(members, ", ")))
}

func missing(path, name, example string) error {
	at := member(path, name)
	return newProblem(http.StatusBadRequest, at, fmt.Sprintf("%s is missing, as in %s", at, example))
}
