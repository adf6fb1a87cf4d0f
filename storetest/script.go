package storetest

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// The grammar of a script, which both the vectors in testdata and the random
// histories are written in. Lines starting with # are comments.
//
//	case WORDS...                         a fresh store at time 0
//	limit [NAME] [ALGORITHM] LIMIT        the limit of key NAME (default "key") from here on
//	at TIME take N [NAME] [as R] EXPECT   AllowN; R names the receipts
//	at TIME peek N [NAME] EXPECT          would N pass?
//	at TIME charge N [NAME] EXPECT        Charge
//	at TIME all NAME*N[:MODE]... [as R] EXPECT   AllowAll; MODE is shadow, peek or record
//	        row NAME EXPECT               a row of the list above, by position
//	at TIME reserve NAME*N[:MODE]... as R EXPECT   Reserve, with rows as all has
//	at TIME commit R [N]...               Commit: how many each has used
//	at TIME cancel R gives N              Cancel
//	at TIME refund R [N] gives N          Refund of (n units of each of) the receipts R
//	at TIME oldest N [NAME] gives N       RefundOldest
//	at TIME count DURATION [NAME] is N    Count
//	at TIME reset [NAME] is N             Reset: 1 if there was a state
//
// EXPECT is ok, deny or never, then remaining=N, limit=N, retry=TIME,
// reset=TIME; retry is 0 where it is not written. TIME is relative to
// midnight of 2026-01-01 UTC and may go backwards.

// Script is a sequence of steps on a fresh store.
type Script struct {
	Name  string
	Steps []Step
}

// Step is one line of a script.
type Step struct {
	Line    int
	At      time.Duration
	Verb    string
	Rows    []Row         // limit, take, peek, charge, all, oldest, count, reset: the keys
	Limit   weir.Limit    // limit
	N       int64         // refund: units of each receipt, 0 for all
	Used    []int64       // commit
	Last    time.Duration // count
	Receipt string        // refund, commit, cancel, or what "as" names
	Want    *Want         // nil: nothing is expected
	Number  int64         // what "gives" or "is" expects
}

// Row is a key of a step, with its cost and mode.
type Row struct {
	Name string
	Cost int64
	Mode weir.Mode
	Want *Want
}

// Want is what a decision is expected to be.
type Want struct {
	Verdict string // ok, deny, never
	Fields  map[string]string
}

// Epoch is the time 0 of scripts.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ParseScripts reads the cases of a file.
func ParseScripts(name, text string) ([]Script, error) {
	var scripts []Script
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if f[0] == "case" {
			scripts = append(scripts, Script{Name: strings.Join(f[1:], " ")})
			continue
		}
		if len(scripts) == 0 {
			return nil, fmt.Errorf("%s:%d: a line before the first case", name, n)
		}
		s := &scripts[len(scripts)-1]
		if err := s.parseLine(n, f); err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", name, n, lines.Text(), err)
		}
	}
	return scripts, lines.Err()
}

func (s *Script) parseLine(line int, f []string) error {
	switch f[0] {
	case "row":
		if len(s.Steps) == 0 {
			return fmt.Errorf("row without a list")
		}
		last := &s.Steps[len(s.Steps)-1]
		for i := range last.Rows {
			if r := &last.Rows[i]; len(f) > 2 && r.Name == f[1] && r.Want == nil {
				w, err := parseWant(f[2:])
				r.Want = w
				return err
			}
		}
		return fmt.Errorf("no such row in the list above")
	case "limit":
		step := Step{Line: line, Verb: "limit", Rows: []Row{{Name: "key"}}}
		f = f[1:]
		if len(f) > 0 && !strings.Contains(f[0], "/") {
			if _, err := weir.ParseAlgorithm(f[0]); err != nil {
				step.Rows[0].Name, f = f[0], f[1:]
			}
		}
		// The algorithm may come first, as it reads better aloud.
		if len(f) > 1 && !strings.Contains(f[0], "/") {
			f = append(f[1:len(f):len(f)], f[0])
		}
		var err error
		step.Limit, err = weir.ParseLimit(strings.Join(f, " "))
		s.Steps = append(s.Steps, step)
		return err
	case "at":
		step, err := parseAt(f[1:])
		step.Line = line
		s.Steps = append(s.Steps, step)
		return err
	}
	return fmt.Errorf("want case, limit, at or row")
}

func parseAt(f []string) (Step, error) {
	if len(f) < 3 {
		return Step{}, fmt.Errorf("want a time and a verb after at")
	}
	at, err := time.ParseDuration(f[0])
	if err != nil {
		return Step{}, err
	}
	p := &fields{f: f[2:]}
	step := Step{At: at, Verb: f[1]}
	switch step.Verb {
	case "take", "peek", "charge":
		step.Rows = []Row{{Cost: p.number()}}
		step.Rows[0].Name = p.name("as", "ok", "deny", "never")
		step.Receipt = p.as()
		step.Want = p.want()
	case "all", "reserve":
		for strings.Contains(p.peek(), "*") {
			step.Rows = append(step.Rows, p.row())
		}
		step.Receipt = p.as()
		step.Want = p.want()
	case "commit":
		step.Receipt = p.next()
		for p.peek() != "" {
			step.Used = append(step.Used, p.number())
		}
	case "cancel":
		step.Receipt = p.next()
		step.Number = p.after("gives")
	case "refund":
		step.Receipt = p.next()
		if p.peek() != "gives" {
			step.N = p.number()
		}
		step.Number = p.after("gives")
	case "oldest":
		step.Rows = []Row{{Cost: p.number()}}
		step.Rows[0].Name = p.name("gives")
		step.Number = p.after("gives")
	case "count":
		step.Last, p.err = time.ParseDuration(p.next())
		step.Rows = []Row{{Name: p.name("is")}}
		step.Number = p.after("is")
	case "reset":
		step.Rows = []Row{{Name: p.name("is")}}
		step.Number = p.after("is")
	default:
		return step, fmt.Errorf("unknown verb %q", step.Verb)
	}
	if p.err == nil && len(p.f) > 0 {
		p.err = fmt.Errorf("%q is left over", p.f)
	}
	return step, p.err
}

// fields reads the words of a line.
type fields struct {
	f   []string
	err error
}

func (p *fields) peek() string {
	if len(p.f) == 0 {
		return ""
	}
	return p.f[0]
}

func (p *fields) next() string {
	w := p.peek()
	if len(p.f) > 0 {
		p.f = p.f[1:]
	}
	return w
}

func (p *fields) number() int64 {
	n, err := strconv.ParseInt(p.next(), 10, 64)
	if err != nil {
		p.err = err
	}
	return n
}

// name reads a key's name, unless the next word is one of those that may follow.
func (p *fields) name(follow ...string) string {
	for _, w := range follow {
		if p.peek() == w {
			return "key"
		}
	}
	if len(p.f) == 0 {
		return "key"
	}
	return p.next()
}

func (p *fields) as() string {
	if p.peek() != "as" {
		return ""
	}
	p.next()
	return p.next()
}

func (p *fields) after(word string) int64 {
	if w := p.next(); w != word {
		p.err = fmt.Errorf("want %q, found %q", word, w)
	}
	return p.number()
}

func (p *fields) row() Row {
	name, rest, _ := strings.Cut(p.next(), "*")
	cost, mode, hasMode := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(cost, 10, 64)
	if err != nil {
		p.err = err
	}
	r := Row{Name: name, Cost: n}
	for hasMode && r.Mode.String() != mode {
		if r.Mode++; r.Mode > weir.Record {
			p.err = fmt.Errorf("unknown mode %q", mode)
			break
		}
	}
	return r
}

func (p *fields) want() *Want {
	if len(p.f) == 0 {
		return nil
	}
	w, err := parseWant(p.f)
	if err != nil {
		p.err = err
	}
	p.f = nil
	return w
}

func parseWant(f []string) (*Want, error) {
	w := &Want{Verdict: f[0], Fields: make(map[string]string)}
	if f[0] != "ok" && f[0] != "deny" && f[0] != "never" {
		return nil, fmt.Errorf("want ok, deny or never, found %q", f[0])
	}
	for _, field := range f[1:] {
		name, value, ok := strings.Cut(field, "=")
		if !ok || !strings.Contains(" remaining limit retry reset ", " "+name+" ") {
			return nil, fmt.Errorf("%q is no expectation", field)
		}
		w.Fields[name] = value
	}
	return w, nil
}

// String writes the step as a line that parses back.
func (s Step) String() string {
	var b strings.Builder
	switch s.Verb {
	case "limit":
		return "limit " + s.Rows[0].Name + " " + s.Limit.String()
	case "refund":
		fmt.Fprintf(&b, "at %s refund %s", s.At, s.Receipt)
		if s.N > 0 {
			fmt.Fprintf(&b, " %d", s.N)
		}
		return b.String() + fmt.Sprintf(" gives %d", s.Number)
	case "oldest":
		return fmt.Sprintf("at %s oldest %d %s gives %d", s.At, s.Rows[0].Cost, s.Rows[0].Name, s.Number)
	case "count":
		return fmt.Sprintf("at %s count %s %s is %d", s.At, s.Last, s.Rows[0].Name, s.Number)
	case "reset":
		return fmt.Sprintf("at %s reset %s is %d", s.At, s.Rows[0].Name, s.Number)
	case "commit":
		return strings.TrimRight(fmt.Sprintf("at %s commit %s %s", s.At, s.Receipt, strings.Trim(fmt.Sprint(s.Used), "[]")), " ")
	case "cancel":
		return fmt.Sprintf("at %s cancel %s gives %d", s.At, s.Receipt, s.Number)
	case "all", "reserve":
		fmt.Fprintf(&b, "at %s %s", s.At, s.Verb)
		for _, r := range s.Rows {
			fmt.Fprintf(&b, " %s*%d:%s", r.Name, r.Cost, r.Mode)
		}
	default:
		fmt.Fprintf(&b, "at %s %s %d %s", s.At, s.Verb, s.Rows[0].Cost, s.Rows[0].Name)
	}
	if s.Receipt != "" {
		b.WriteString(" as " + s.Receipt)
	}
	return b.String()
}

// player plays steps on a store.
type player struct {
	clock    clock
	store    weir.Store
	limiter  *weir.Limiter
	limits   map[string]weir.Limit
	receipts map[string][]weir.Receipt
	reserved map[string]*weir.Reservation
}

func newPlayer(open Open) (*player, error) {
	p := &player{limits: make(map[string]weir.Limit), receipts: make(map[string][]weir.Receipt), reserved: make(map[string]*weir.Reservation)}
	store, err := open(p.clock.Now)
	if err != nil {
		return nil, err
	}
	p.store, p.limiter = store, weir.New(weir.Options{Store: store})
	return p, nil
}

// answer is what a step came to.
type answer struct {
	weir.Decision
	number int64   // what cancel, refund, oldest, count and reset return
	gave   []int64 // refund: units given back of each receipt
}

func (p *player) request(r Row) weir.Request {
	return weir.Request{Key: r.Name, Limit: p.limits[r.Name], Cost: r.Cost, Mode: r.Mode}
}

// do plays one step.
func (p *player) do(s Step) (a answer, err error) {
	if s.Verb == "limit" {
		p.limits[s.Rows[0].Name] = s.Limit
		return a, nil
	}
	p.clock.Set(s.At)
	ctx := context.Background()
	switch s.Verb {
	case "take", "peek", "charge", "all":
		rs := make([]weir.Request, len(s.Rows))
		for i, r := range s.Rows {
			rs[i] = p.request(r)
			switch s.Verb {
			case "peek":
				rs[i].Mode = weir.Peek
			case "charge":
				rs[i].Mode = weir.Record
			}
		}
		a.Decision, err = p.limiter.AllowAll(ctx, rs...)
		if s.Receipt != "" {
			p.receipts[s.Receipt] = a.Receipts()
		}
	case "reserve":
		rs := make([]weir.Request, len(s.Rows))
		for i, r := range s.Rows {
			rs[i] = p.request(r)
		}
		var r *weir.Reservation
		if r, err = p.limiter.Reserve(ctx, rs...); err == nil {
			a.Decision, p.reserved[s.Receipt] = r.Decision, r
		}
	case "commit":
		err = p.reserved[s.Receipt].Commit(ctx, s.Used...)
	case "cancel":
		a.number, err = p.reserved[s.Receipt].Cancel(ctx)
	case "refund":
		for _, r := range p.receipts[s.Receipt] {
			if s.N > 0 {
				r = r.Part(s.N)
			}
			var n int64
			n, err = p.limiter.Refund(ctx, r)
			a.number += n
			a.gave = append(a.gave, n)
		}
	case "oldest":
		a.number, err = p.limiter.RefundOldest(ctx, p.request(s.Rows[0]))
	case "count":
		a.number, err = p.limiter.Count(ctx, s.Rows[0].Name, p.limits[s.Rows[0].Name], s.Last)
	case "reset":
		a.number, err = p.limiter.ResetAll(ctx, p.request(s.Rows[0]))
	}
	return a, err
}

// check compares an answer with what the step wants.
func (s Step) check(a answer) error {
	switch s.Verb {
	case "limit", "commit":
		return nil
	case "cancel", "refund", "oldest", "count", "reset":
		if a.number != s.Number {
			return fmt.Errorf("got %d", a.number)
		}
		return nil
	}
	if err := s.Want.check(a.Decision); err != nil {
		return err
	}
	for i, r := range s.Rows {
		if err := r.Want.check(a.Rows[i]); err != nil {
			return fmt.Errorf("row %s: %w", r.Name, err)
		}
	}
	return nil
}

func (w *Want) check(d weir.Decision) error {
	if w == nil {
		return nil
	}
	got := map[string]string{
		"remaining": strconv.FormatInt(d.Remaining, 10), "limit": strconv.FormatInt(d.Limit, 10),
		"retry": d.RetryAfter.String(), "reset": d.ResetAfter.String(),
	}
	verdict := map[weir.Reason]string{weir.OK: "ok", weir.OverLimit: "deny", weir.Never: "never"}[d.Reason]
	bad := verdict != w.Verdict || d.Allowed != (verdict == "ok")
	want := map[string]string{"retry": "0s"}
	for name, value := range w.Fields {
		want[name] = value
		if t, err := time.ParseDuration(value); err == nil && (name == "retry" || name == "reset") {
			want[name] = t.String()
		}
	}
	for name, value := range want {
		bad = bad || got[name] != value
	}
	if bad {
		return fmt.Errorf("got %s (%s) remaining=%s retry=%s reset=%s limit=%s",
			map[bool]string{true: "allowed", false: "denied"}[d.Allowed], d.Reason, got["remaining"], got["retry"], got["reset"], got["limit"])
	}
	return nil
}

// Play runs the script on a fresh store and returns the first step that went
// otherwise than it wants.
func (s Script) Play(open Open) error {
	p, err := newPlayer(open)
	if err != nil {
		return err
	}
	defer p.store.Close()
	for _, step := range s.Steps {
		a, err := p.do(step)
		if err == nil {
			err = step.check(a)
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %s: %w", s.Name, step.Line, step, err)
		}
	}
	return nil
}
