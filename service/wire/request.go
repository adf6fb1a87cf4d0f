package wire

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

// maxBatch is the largest number of requests in a batch, and maxChecks of checks
// in a request.
const maxBatch, maxChecks = 1000, 1000

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

// ReadQuery reads a request object of any form but receipt, which stands at path.
func ReadQuery(body []byte, path string) (decide.Query, error) {
	f, err := read(body, path, queryMembers)
	if err != nil {
		return decide.Query{}, err
	}
	return f.query(), nil
}

// ReadRefund reads what to give back: receipts, or if there are none the cost of
// a query.
func ReadRefund(body []byte) ([]weir.Receipt, decide.Query, error) {
	f, err := read(body, "", refundMembers)
	switch {
	case err != nil:
		return nil, decide.Query{}, err
	case f.given["receipt"]:
		return f.parts(), decide.Query{}, nil
	}
	return nil, f.query(), nil
}

// ReadCount reads a query and how far back to count.
func ReadCount(body []byte) (decide.Query, time.Duration, error) {
	f, err := read(body, "", countMembers)
	if err != nil {
		return decide.Query{}, 0, err
	}
	return f.query(), f.last, nil
}

// read reads a request object with some of the members.
func read(body []byte, path string, members []string) (f fields, err error) {
	d := NewDecoder(body)
	if err = f.read(d, path, members, queryExample); err == nil {
		err = d.End()
	}
	return f, err
}

// ReadBatch splits a batch into its entries, at most 1000, which are valid JSON of any kind.
func ReadBatch(body []byte) ([]json.RawMessage, error) {
	var entries []json.RawMessage
	d := NewDecoder(body)
	given, err := d.Object("", batchExample, func(name, path string) error {
		if name != "requests" {
			return UnknownMember(path, []string{"requests"})
		}
		return d.Array(path, "["+queryExample+"]", maxBatch, func(string) error {
			var entry json.RawMessage
			err := d.Syntax(d.Decode(&entry))
			entries = append(entries, entry)
			return err
		})
	})
	if err == nil {
		err = d.End()
	}
	if err == nil && !given["requests"] {
		err = Missing("", "requests", batchExample)
	}
	return entries, err
}

func (f *fields) read(d Decoder, path string, members []string, example string) (err error) {
	f.cost = 1
	f.given, err = d.Object(path, example, func(name, path string) error {
		if !slices.Contains(members, name) {
			return UnknownMember(path, members)
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
func (f *fields) member(d Decoder, name, path string) (err error) {
	switch name {
	case "key":
		f.key, err = d.Text(path, "search:alice")
	case "key_base64":
		f.key, err = readBase64(d, path)
	case "limit":
		f.limit, err = ReadText(d, path, "5/minute", weir.ParseLimit)
	case "algorithm":
		f.algorithm, err = ReadText(d, path, "sliding-log", parseAlgorithm)
	case "cost":
		f.cost, err = readCost(d, path)
	case "domain":
		f.domain, err = d.Text(path, "slack")
	case "attributes":
		f.attributes, err = ReadAttributes(d, path)
	case "checks":
		f.checks, err = readChecks(d, path)
	case "last":
		f.last, err = ReadText(d, path, "20s", ParseDuration)
	case "receipt":
		f.receipts, err = ReadText(d, path, "AQxzZWFyY2g6...", parseReceipts)
	}
	return err
}

// oneForm checks that the members given are those of one form.
func (f *fields) oneForm(path string, members []string, example string) error {
	i := slices.IndexFunc(forms, func(form form) bool { return f.given[form.name] })
	if i < 0 {
		return NewProblem(http.StatusBadRequest, path, fmt.Sprintf("want one of %s, as in %s", strings.Join(chosenBy(members), ", "), example))
	}
	form := forms[i]
	for _, name := range form.needs {
		if !f.given[name] {
			return Missing(path, name, example)
		}
	}
	for _, name := range members {
		ok := name == form.name || name == "last" || slices.Contains(form.needs, name) || slices.Contains(form.takes, name)
		if f.given[name] && !ok {
			return NewProblem(http.StatusBadRequest, member(path, name), fmt.Sprintf("%s cannot stand beside %s: leave one of them out", member(path, name), form.name))
		}
	}
	if slices.Contains(members, "last") && !f.given["last"] {
		return Missing(path, "last", `"last":"20s"`)
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

// ReadText reads a string and parses it. What a *weir.InvalidError of parse wants
// is wanted of the member.
func ReadText[T any](d Decoder, path, example string, parse func(string) (T, error)) (v T, err error) {
	text, err := d.Text(path, example)
	if err != nil {
		return v, err
	}
	if v, err = parse(text); err != nil {
		return v, renamed(err, path, text)
	}
	return v, nil
}

func readBase64(d Decoder, path string) (string, error) {
	return ReadText(d, path, "YWxpY2U=", func(text string) (string, error) {
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return "", &weir.InvalidError{Want: `standard base64 with padding, such as "YWxpY2U="`}
		}
		return string(key), nil
	})
}

func readCost(d Decoder, path string) (int64, error) {
	const want = "a whole number of units from 0 to 2147483648, such as 1"
	n, err := d.Integer(path, want)
	if err == nil && (n < 0 || n > weir.MaxUnits) {
		err = &weir.InvalidError{Field: path, Value: strconv.FormatInt(n, 10), Want: want}
	}
	return n, err
}

// ReadAttributes reads an object of strings.
func ReadAttributes(d Decoder, path string) (map[string]string, error) {
	attributes := make(map[string]string)
	_, err := d.Object(path, `{"category":"errors"}`, func(name, path string) (err error) {
		attributes[name], err = d.Text(path, "errors")
		return err
	})
	return attributes, err
}

func readChecks(d Decoder, path string) ([]fields, error) {
	var checks []fields
	err := d.Array(path, "["+checkExample+"]", maxChecks, func(path string) error {
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

// ParseDuration reads what may follow the slash of a limit.
func ParseDuration(text string) (time.Duration, error) {
	l, err := weir.ParseLimit("1/" + text)
	if err != nil || l != weir.Per(1, l.Window) {
		return 0, &weir.InvalidError{Want: `a duration from 1us to 366d, such as "20s"`}
	}
	return l.Window, nil
}

// parseReceipts reads what JoinReceipts wrote.
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

// JoinReceipts is the text of receipts; empty for none.
func JoinReceipts(receipts []weir.Receipt) string {
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

// UnknownMember is the Problem of a member that is none of those that there are.
func UnknownMember(path string, members []string) error {
	return NewProblem(http.StatusBadRequest, path, fmt.Sprintf("%s is not known here: want some of %s", path, strings.Join(members, ", ")))
}

// Missing is the Problem of an object at path that lacks a member.
func Missing(path, name, example string) error {
	at := member(path, name)
	return NewProblem(http.StatusBadRequest, at, fmt.Sprintf("%s is missing, as in %s", at, example))
}
