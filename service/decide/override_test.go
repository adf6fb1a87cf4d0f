package decide_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
)

// order reads an override such as "edge/per-user user=al 5/minute", "edge user=al
// deny" or, with the time it was created at, "edge/per-user user=al 5/minute @2".
func order(t testing.TB, text string) decide.Override {
	t.Helper()
	text, created, _ := strings.Cut(text, " @")
	fields := strings.Fields(text)
	n, _ := strconv.Atoi(created)
	o := decide.Override{ID: text, Attributes: make(map[string]string), Until: time.Now().Add(time.Hour), Created: time.Unix(int64(n), 0), By: "ops"}
	o.Domain, o.Rule, _ = strings.Cut(fields[0], "/")
	for i, field := range fields[1:] {
		if name, value, ok := strings.Cut(field, "="); ok {
			o.Attributes[name] = value
			continue
		}
		var err error
		if o.Deny = field == "deny"; !o.Deny {
			o.Limit, err = weir.ParseLimit(strings.Join(fields[i+1:], " "))
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	return o
}

// override puts overrides in force, after they have been checked.
func override(t testing.TB, e *decide.Engine, texts ...string) {
	t.Helper()
	var list []decide.Override
	for _, text := range texts {
		o := order(t, text)
		if err := e.CheckOverride(&o); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		list = append(list, o)
	}
	e.SetOverrides(list)
}

func TestOverridesOfRules(t *testing.T) {
	as := func(pairs string) decide.Query {
		q := decide.Query{Domain: "edge", Attributes: make(map[string]string), Cost: 1}
		for pair := range strings.FieldsSeq(pairs) {
			name, value, _ := strings.Cut(pair, "=")
			q.Attributes[name] = value
		}
		return q
	}
	for name, test := range map[string]struct {
		file      string
		shadow    bool
		overrides []string
		ask, want string
	}{
		"no override":         {native, false, nil, "user=al", "ok ok 2/3 | ok global 9/10 | ok per-user 2/3"},
		"raised":              {native, false, []string{"edge/per-user user=al 5/minute"}, "user=al", "ok ok 4/5 | ok global 9/10 | ok per-user 4/5"},
		"for another user":    {native, false, []string{"edge/per-user user=bob 5/minute"}, "user=al", "ok ok 2/3 | ok global 9/10 | ok per-user 2/3"},
		"of another domain":   {native + "---\ndomain: other\nrules: [{name: per-user, limit: 1/s}]\n", false, []string{"other/per-user user=al 5/minute"}, "user=al", "ok ok 2/3 | ok global 9/10 | ok per-user 2/3"},
		"two attributes":      {native, false, []string{"edge/per-user user=al path=/x 5/minute"}, "user=al path=/x", "ok ok 4/5 | ok global 9/10 | ok per-user 4/5"},
		"one of two":          {native, false, []string{"edge/per-user user=al path=/x 5/minute"}, "user=al", "ok ok 2/3 | ok global 9/10 | ok per-user 2/3"},
		"missing is empty":    {native, false, []string{"edge/global user= 5/minute"}, "path=/x", "ok ok 4/5 | ok global 4/5"},
		"missing and present": {native, false, []string{"edge/global user= 5/minute"}, "user=al", "ok ok 2/3 | ok global 9/10 | ok per-user 2/3"},
		"denied":              {native, false, []string{"edge/per-user user=al deny"}, "user=al", "deny never 0/0 | ok global 10/10 | deny per-user 0/0"},
		"a rule that denies":  {native, false, []string{"edge/closed path=/closed 2/minute"}, "path=/closed", "ok ok 1/2 | ok global 9/10 | ok closed 1/2"},
		"blocked":             {native, false, []string{"edge user=al deny"}, "user=al", "deny never 0/0 | ok global 10/10 | ok per-user 3/3 | deny blocked 0/0"},
		"blocked elsewhere":   {native, false, []string{"edge user=al deny"}, "user=bob", "ok ok 2/3 | ok global 9/10 | ok per-user 2/3"},
		"a shadow stays one":  {native, false, []string{"edge/trial path=/trial deny"}, "path=/trial", "ok ok 9/10 | ok global 9/10 | deny shadow trial 0/0"},
		"all are shadows":     {native, true, []string{"edge/per-user user=al 5/minute", "edge user=al deny"}, "user=al", "ok ok 4/5 | ok shadow global 9/10 | ok shadow per-user 4/5 | deny shadow blocked 0/0"},
		"the last holds":      {native, false, []string{"edge/per-user user=al 5/minute @1", "edge/per-user path=/x 7/minute @3", "edge/per-user user=al 6/minute @2"}, "user=al path=/x", "ok ok 6/7 | ok global 9/10 | ok per-user 6/7"},
		"each rule its own":   {native, false, []string{"edge/per-user user=al 5/minute", "edge/global user=al 4/minute"}, "user=al", "ok ok 3/4 | ok global 3/4 | ok per-user 4/5"},
		"a limit of a tree":   {edge, false, []string{"edge/user.path user=al 9/minute"}, "user=al path=/b", "ok ok 8/9 | ok user.path 8/9"},
		"what is unlimited":   {edge, false, []string{"edge/vip vip=1 9/minute"}, "vip=1", "ok ok 8/9 | ok vip 8/9"},
		"blocked, unlimited":  {edge, false, []string{"edge vip=1 deny"}, "vip=1", "deny never 0/0 | deny blocked 0/0"},
		"unlimited as it was": {edge, false, []string{"edge/user vip=1 9/minute"}, "vip=1", "ok no_rule 0/0"},
		"a ban of a tree":     {edge, false, []string{"edge/banned banned=1 9/minute"}, "banned=1", "ok ok 8/9 | ok banned 8/9"},
		"no limit at all":     {edge, false, []string{"edge x=1 deny"}, "x=1", "deny never 0/0 | deny blocked 0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := engineOf(t, test.file, test.shadow, false)
			override(t, e, test.overrides...)
			a, err := e.Check(t.Context(), as(test.ask))
			if got := text(a); err != nil || got != test.want {
				t.Errorf("\n got %s (%v)\nwant %s", got, err, test.want)
			}
			e.SetOverrides(nil)
		})
	}
}

func TestOverridesOfDescriptors(t *testing.T) {
	for name, test := range map[string]struct {
		file      string
		overrides []string
		asks      []string // and the answers, in turn
	}{
		"raised": {edge, []string{"edge/user user=al 5/minute"}, []string{
			"user=al cost=4", "OK | OK 1 of 5/1m0s",
			"user=bob cost=4", "OVER | OVER 3 of 3/1m0s",
		}},
		"what is unlimited": {edge, []string{"edge/vip vip=1 2/minute"}, []string{
			"vip=1", "OK | OK 1 of 2/1m0s", "vip=1", "OK | OK 0 of 2/1m0s", "vip=1", "OVER | OVER 0 of 2/1m0s",
			"vip=2", "OK | OK unlimited 4294967295",
		}},
		"a ban": {edge, []string{"edge/banned banned=1 2/minute"}, []string{"banned=1", "OK | OK 1 of 2/1m0s", "banned=2", "OVER | OVER 0 of 0/24h0m0s"}},
		"blocked": {edge, []string{"edge user=al deny"}, []string{
			"user=al", "OVER | OVER 0 of 0/0s", "user=bob", "OK | OK 2 of 3/1m0s",
			"user=al; user=bob", "OVER | OVER 0 of 0/0s | OK 2 of 3/1m0s",
			"user=al limit=9/minute", "OVER | OVER 0 of 0/0s",
			"user=al path=/q method=GET", "OVER | OVER 0 of 0/0s",
		}},
		"blocked, unlimited":       {edge, []string{"edge vip=1 deny"}, []string{"vip=1", "OVER | OVER 0 of 0/0s"}},
		"blocked without a limit":  {edge, []string{"edge x=1 deny"}, []string{"x=1", "OVER | OVER 0 of 0/0s"}},
		"blocked, of a quota":      {edge, []string{"edge pool=a deny"}, []string{"pool=a; pool=b", "OVER | OVER 0 of 0/0s | OK 2 of 2/1m0s"}},
		"a shadow of a tree":       {edge, []string{"edge/trial trial=1 deny"}, []string{"trial=1", "OK | OK 0 of 0/0s"}},
		"replaces what it did":     {edge, []string{"edge/special special=1 9/minute"}, []string{"special=1; user=al", "OK | OK 8 of 9/1m0s | OK"}},
		"rules":                    {native, []string{"edge/per-user user=al 5/minute"}, []string{"user=al", "OK | OK 4 of 5/1m0s"}},
		"a state shared by others": {native, []string{"edge/global user=al 20/h"}, []string{"user=al; user=bob", "OK | OK 2 of 3/1m0s | OK 2 of 3/1m0s", "user=al cost=0; path=/x cost=16", "OK | OK 2 of 3/1m0s | OK 2 of 20/1h0m0s"}},
		"a state of a brought one": {edge, []string{"edge/user user=al 5/minute"}, []string{"user=al; user=al limit=3/minute", "OK | OK 3 of 5/1m0s | OK 3 of 5/1m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := engineOf(t, test.file, false, false)
			override(t, e, test.overrides...)
			for ; len(test.asks) > 0; test.asks = test.asks[2:] {
				a, err := e.Check(t.Context(), decide.Query{Domain: "edge", Descriptors: described(t, test.asks[0])})
				if got := statuses(a); err != nil || got != test.asks[1] {
					t.Errorf("%s:\n got %s (%v)\nwant %s", test.asks[0], got, err, test.asks[1])
				}
			}
		})
	}
}

// A tree keeps the limit of an override as its own, unless the limit says how it
// is to be kept.
func TestOverridesKeepTheAlgorithm(t *testing.T) {
	logs := strings.Replace(charged, "charge_on_deny: true", "algorithm: sliding-counter", 1)
	for _, test := range []struct{ file, limit, want string }{
		{edge, "9/minute", "9/1m epoch"},
		{edge, "9/minute fixed-window", "9/1m fixed-window"},
		{edge, "9/minute sliding-log", "9/1m"},
		{edge, "9/minute buckets=5", "9/1m buckets=5"},
		{edge, "9/minute burst=10", "9/1m burst=10"},
		{logs, "9/minute", "9/1m sliding-counter"},
		{logs, "9/minute epoch", "9/1m epoch"},
		{charged, "9/minute", "9/1m epoch"},
		{native, "9/minute", "9/1m"},
	} {
		e, _ := engineOf(t, test.file, false, false)
		rule := "user"
		if test.file == native {
			rule = "per-user"
		}
		override(t, e, "edge/"+rule+" user=al "+test.limit)
		states, err := e.Inspect(t.Context(), decide.Query{Domain: "edge", Attributes: map[string]string{"user": "al"}})
		if err != nil || len(states) == 0 {
			t.Fatal(err)
		}
		if got := states[len(states)-1].Limit.String(); got != test.want {
			t.Errorf("%s: got %s, want %s", test.limit, got, test.want)
		}
	}
}

// What a log denies is not charged, though the tree charges what it denies.
func TestOverridesChargeDenialsOfFixedWindowsOnly(t *testing.T) {
	e, _ := engineOf(t, charged, false, false)
	override(t, e, "edge/user user=al 2/minute sliding-log")
	al := decide.Query{Domain: "edge", Descriptors: described(t, "user=al cost=3")}
	if a, err := e.Check(t.Context(), al); err != nil || a.Allowed {
		t.Errorf("got %s (%v)", statuses(a), err)
	}
	wantUnits(t, 0)(e.Count(t.Context(), al, time.Minute))
}

// Other calls than Check see the same rows.
func TestOverridesHoldForEveryCall(t *testing.T) {
	e, _ := engineOf(t, native, false, false)
	override(t, e, "edge/per-user user=al 5/h", "edge/global user=al 50/h")
	al := decide.Query{Domain: "edge", Attributes: map[string]string{"user": "al"}, Cost: 5}
	if a, err := e.Charge(t.Context(), al); err != nil || text(a) != "ok ok 0/5 | ok global 45/50 | ok per-user 0/5" {
		t.Errorf("got %s (%v)", text(a), err)
	}
	wantUnits(t, 5)(e.Count(t.Context(), al, time.Hour))
	al.Cost = 2
	wantUnits(t, 4)(e.RefundOldest(t.Context(), al))
	wantUnits(t, 3)(e.Count(t.Context(), al, time.Hour))
	wantUnits(t, 2)(e.Reset(t.Context(), al))
	e.SetOverrides(nil)
	if a, err := e.Check(t.Context(), al); err != nil || text(a) != "ok ok 1/3 | ok global 8/10 | ok per-user 1/3" {
		t.Errorf("without them got %s (%v)", text(a), err)
	}
}

// An override ends by itself, in force as well as where it is kept, and outlives
// the rules.
func TestOverridesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.Compile([]policy.Domain{slack})
		if err != nil {
			t.Fatal(err)
		}
		e := decide.New(decide.Options{Limiter: weir.New(weir.Options{})})
		e.Load(p, false)
		kept, ctx := decide.NewOverrides(), t.Context()
		for i, text := range []string{"slack category=a deny", "slack category=b deny"} {
			o := order(t, text)
			o.Until = time.Now().Add(time.Duration(i+1) * time.Hour)
			if err := kept.Put(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
		list, err := kept.List(ctx)
		if err != nil || len(list) != 2 {
			t.Fatalf("got %v (%v)", list, err)
		}
		e.SetOverrides(list)
		e.Load(p, false)
		for hour, want := range [][]bool{{false, false}, {true, false}, {true, true}} {
			var got []bool
			for _, category := range []string{"a", "b"} {
				a, err := e.Check(ctx, ask(category, 1))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, a.Allowed)
			}
			list, err := kept.List(ctx)
			if !slices.Equal(got, want) || err != nil || len(list) != 2-hour {
				t.Errorf("after %d hours got %v and %v (%v), want %v", hour, got, list, err, want)
			}
			<-time.After(time.Hour)
		}
		if found, err := kept.Remove(ctx, "slack category=b deny"); found || err != nil {
			t.Errorf("removing what has ended: got %t (%v)", found, err)
		}
	})
}

func TestOverridesAreKept(t *testing.T) {
	kept, ctx := decide.NewOverrides(), t.Context()
	put := func(id string) error {
		o := order(t, "slack category=a deny")
		o.ID = id
		return kept.Put(ctx, o)
	}
	for i := range 10_000 {
		if err := put(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	var invalid *weir.InvalidError
	if err := put("more"); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "at most 10000 at a time") {
		t.Errorf("one too many: got %v", err)
	}
	for i, want := range []bool{true, false} {
		if found, err := kept.Remove(ctx, "7"); err != nil || found != want {
			t.Errorf("removal %d: got %t (%v)", i, found, err)
		}
	}
	for range 2 {
		if err := put("more"); err != nil {
			t.Error(err)
		}
	}
	if list, err := kept.List(ctx); err != nil || len(list) != 10_000 {
		t.Errorf("got %d (%v)", len(list), err)
	}
}

// Of more than there may be, those created last are in force; what nobody could
// have put is left out.
func TestSetOverridesIsBounded(t *testing.T) {
	e, _ := newEngine(t, false, slack)
	var list []decide.Override
	for i := range 10_001 {
		list = append(list, order(t, fmt.Sprintf("slack category=c%d deny @%d", i, i)))
	}
	bad := []decide.Override{order(t, "slack category=x deny"), order(t, "slack/global category=x 5/m"), order(t, "slack/global category=x 5/m")}
	bad[0].Attributes, bad[1].Limit, bad[2].Rule = nil, weir.Limit{Max: 1}, ""
	e.SetOverrides(append(list, bad...))
	for category, want := range map[string]bool{"c0": true, "c1": false, "c10000": false, "x": true} {
		if a, err := e.Check(t.Context(), ask(category, 1)); err != nil || a.Allowed != want {
			t.Errorf("%s: got %s (%v)", category, text(a), err)
		}
	}
}

func TestCheckOverride(t *testing.T) {
	e, _ := engineOf(t, edge+"---\ndomain: slack\nrules: [{name: global, limit: 10/h}, {name: per-category, by: category, limit: 3/m}]\n", false, false)
	logs, _ := engineOf(t, strings.Replace(charged, "charge_on_deny: true", "algorithm: sliding-log", 1), false, false)
	bare, _ := newEngine(t, true)
	change := func(text string, change func(o *decide.Override)) decide.Override {
		o := order(t, text)
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		engine *decide.Engine
		given  decide.Override
		want   string
	}{
		"fine":              {e, order(t, "slack/global user=al 5/m"), ""},
		"fine, unlimited":   {e, order(t, "edge/vip user=al 5/m"), ""},
		"fine, denies":      {e, order(t, "edge/user.path user=al deny"), ""},
		"fine, blocks":      {e, order(t, "edge user=al deny"), ""},
		"domain":            {e, order(t, "slakc/global user=al 5/m"), `weir: domain "slakc": want slack`},
		"another domain":    {e, order(t, "nothing/global user=al 5/m"), `weir: domain "nothing": want edge or slack`},
		"no domain":         {bare, order(t, "slack/global user=al 5/m"), `weir: domain "slack": want that of a config; none is loaded`},
		"rule":              {e, order(t, "slack/per-catgory user=al 5/m"), `weir: rule "per-catgory": want per-category`},
		"another rule":      {e, order(t, "slack/x user=al 5/m"), `weir: rule "x": want global or per-category`},
		"a limit for all":   {e, order(t, "slack user=al 5/m"), `weir: rule "": want the rule whose limit it replaces: global or per-category; without a rule it can only deny`},
		"no attributes":     {e, order(t, "slack/global 5/m"), `want at least one that a request has to have, such as {"user": "alice"}`},
		"both":              {e, change("slack/global user=al 5/m", func(o *decide.Override) { o.Deny = true }), `weir: limit "5/1m": want either a limit or to deny: leave one of them out`},
		"neither":           {e, change("slack/global user=al 5/m", func(o *decide.Override) { o.Limit = weir.Limit{} }), `weir: limit "": want a limit such as 1000/minute, or to deny`},
		"a limit":           {e, change("slack/global user=al 5/m", func(o *decide.Override) { o.Limit.Max = 1 << 40 }), `weir: max "1099511627776": want 1 to`},
		"a limit of a tree": {logs, order(t, "edge/user user=al 200000/m"), `at most 100000 with sliding-log`},
		"past":              {e, change("slack/global user=al 5/m", func(o *decide.Override) { o.Until = time.Now().Add(-time.Hour) }), `weir: for "-1h0m0s": want more than nothing and at most 366 days, such as 2h`},
		"far":               {e, change("slack/global user=al 5/m", func(o *decide.Override) { o.Until = time.Now().Add(9000 * time.Hour) }), `at most 366 days`},
		"too many":          {e, order(t, "slack/global a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1 p=1 q=1 5/m"), `weir: attributes "17": want at most 16`},
		"no name":           {e, order(t, "slack/global =al 5/m"), `want the name of an attribute, such as user`},
		"too long":          {e, order(t, "slack/global user="+strings.Repeat("x", 1001)+" 5/m"), `weir: attributes.user "xxx`},
		"no text":           {e, order(t, "slack/global user=\xff 5/m"), `want UTF-8 text of at most 1000 bytes`},
		"too long a why":    {e, change("slack/global user=al 5/m", func(o *decide.Override) { o.Why = strings.Repeat("x", 1001) }), `weir: why "xxx`},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.engine.CheckOverride(&test.given)
			var invalid *weir.InvalidError
			switch {
			case test.want == "":
				if err != nil {
					t.Errorf("got %v", err)
				}
			case !errors.As(err, &invalid) || !strings.Contains(err.Error(), test.want):
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// An Override is written as text and read back, with an algorithm where it names
// one.
func TestOverrideAsText(t *testing.T) {
	names := []string{"", " sliding-log", " sliding-buckets", " sliding-counter", " fixed-window", " token-bucket", " burst=7", " buckets=3", " epoch", " burst=7 token-bucket", " epoch fixed-window"}
	for _, name := range names {
		want := order(t, "slack/global user=al 5/minute"+name)
		want.Until, want.Created = want.Until.Round(0).UTC(), want.Created.UTC()
		text, err := json.Marshal(want)
		var got decide.Override
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || got.Limit.Algorithm != want.Limit.Algorithm || got.Limit.String() != want.Limit.String() {
			t.Errorf("%q: got %+v (%v), want %+v", name, got.Limit, err, want.Limit)
		}
		if got.Limit = want.Limit; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	deny := order(t, "slack user=al deny")
	deny.Until, deny.Why = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), "spam"
	text, err := json.Marshal(deny)
	const want = `{"id":"slack user=al deny","domain":"slack","rule":"","attributes":{"user":"al"},"limit":"","deny":true,"until":"2026-11-21T09:00:00Z","by":"ops","why":"spam",`
	if err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("got %s (%v), want %s", text, err, want)
	}
	if got, want := deny.String(), `deny until 2026-11-21T09:00:00Z, by "ops": "spam"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var invalid *weir.InvalidError
	if err := json.Unmarshal([]byte(`{"limit":"5 per minute"}`), &deny); !errors.As(err, &invalid) {
		t.Errorf("got %v", err)
	}
}

// With any overrides, Explain and Inspect see the rows that Check sees.
func TestExplainEqualsCheck(t *testing.T) {
	rules := map[string][]string{native: {"", "global", "per-user", "trial", "closed"}, edge: {"", "user", "user.path", "vip", "banned", "ban-trial", "trial", "pool", "special", "files_*/pub/*.txt"}}
	values := map[string][]string{"user": {"al", "bob", "free"}, "path": {"/trial", "/closed", "/abc"}, "vip": {"1"}, "banned": {"1"}, "ban-trial": {"1"}, "trial": {"1"}, "pool": {"a"}, "special": {"1"}, "files": {"a/pub/b.txt"}}
	names := []string{"user", "path", "vip", "banned", "ban-trial", "trial", "pool", "special", "files"}
	overridden, policies := 0, make(map[string]*policy.Policy)
	for file := range rules {
		e, _ := engineOf(t, file, false, false)
		policies[file] = e.Policy()
	}
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		file := [...]string{native, edge}[seed%2]
		e := decide.New(decide.Options{Limiter: weir.New(weir.Options{}), Shadow: r.IntN(5) == 0})
		e.Load(policies[file], false)
		pair := func() string {
			name := names[r.IntN(len(names))]
			return name + "=" + values[name][r.IntN(len(values[name]))]
		}
		var texts []string
		for i := range r.IntN(6) {
			what := [...]string{" deny", " 7/minute", " 8/h sliding-log"}[r.IntN(3)]
			rule := rules[file][r.IntN(len(rules[file]))]
			if rule == "" {
				what = " deny"
			}
			texts = append(texts, fmt.Sprintf("edge/%s %s%s @%d", rule, pair(), what, i))
		}
		override(t, e, texts...)
		for range 10 {
			q := decide.Query{Domain: "edge", Cost: int64(r.IntN(3))}
			if r.IntN(2) == 0 {
				ds := []string{pair(), pair() + " " + pair(), pair() + " cost=0"}
				q.Descriptors = described(t, strings.Join(ds[:1+r.IntN(3)], ";"))
			} else {
				q.Attributes = make(map[string]string)
				for range r.IntN(3) {
					name, value, _ := strings.Cut(pair(), "=")
					q.Attributes[name] = value
				}
			}
			overridden += compareExplanation(t, e, q)
			if t.Failed() {
				t.Fatalf("seed %d, overrides %q, query %+v", seed, texts, q)
			}
		}
	}
	if overridden < 100 {
		t.Errorf("only %d rows were overridden", overridden)
	}
}

// compareExplanation compares what Explain, Inspect and Check see, on an engine
// that is empty enough, and returns how many rows are overridden.
func compareExplanation(t *testing.T, e *decide.Engine, q decide.Query) (overridden int) {
	t.Helper()
	x, err := e.Explain(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	states, err := e.Inspect(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	a, err := e.Check(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if a.Allowed != x.Answer.Allowed {
		t.Errorf("explained as %s, answered %s", text(x.Answer), text(a))
	}
	row := func(name, key string, limit int64) string { return fmt.Sprint(name, " ", key, " ", limit) }
	var want, explained, limited, inspected []string
	for i := range a.Rows {
		want = append(want, row(a.Rows[i].Name, a.Rows[i].Key, a.Rows[i].Limit))
		if a.Rows[i].Limit > 0 {
			limited = append(limited, row(a.Rows[i].Name, a.Rows[i].Key, a.Rows[i].Limit))
		}
	}
	for _, r := range x.Rules {
		if r.Why == "" || r.Matches != (r.Limit != "") {
			t.Errorf("got %+v", r)
		}
		if r.Override != "" {
			overridden++
		}
		if r.Decision != nil {
			explained = append(explained, row(r.Rule.Name, r.Key, r.Decision.Limit))
		}
	}
	for _, s := range states {
		inspected = append(inspected, row(s.Rule, s.Key, s.Decision.Limit))
	}
	if !slices.Equal(explained, want) || !slices.Equal(inspected, limited) {
		t.Errorf("explained %q, inspected %q, answered %q", explained, inspected, want)
	}
	return overridden
}
