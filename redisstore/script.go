package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir/internal/algo"
)

// layout is how a state is stored. The numbers are those of algo.Kind.
type layout uint8

const (
	packedLog      = layout(algo.SlidingLog)
	packedBuckets  = layout(algo.SlidingBuckets)
	slidingCounter = layout(algo.SlidingCounter)
	fixedWindow    = layout(algo.FixedWindow)
	tokenBucket    = layout(algo.TokenBucket)
	sortedSet      = layout(algo.TokenBucket + 1) // a sliding-log, for people to inspect
	plainWindow    = layout(algo.TokenBucket + 2) // a fixed-window without scripts, see plain.go
)

// scripted are the layouts that scripts know.
var scripted = []layout{packedLog, packedBuckets, slidingCounter, fixedWindow, tokenBucket, sortedSet}

// sources are the files of a layout in lua/, after what they need of it.
var sources = map[layout]struct{ constants, needs, file string }{
	packedLog:      {constants: "local SIZE, WRAP, CELL, CELL2, CELL3 = 10, 16777216, '>I7I3', '>I7I3I7I3', '>I7I3I7I3I7I3'", file: "log.lua"},
	packedBuckets:  {constants: "local SIZE, WRAP, CELL, CELL2, CELL3 = 12, 1099511627776, '>I7I5', '>I7I5I7I5', '>I7I5I7I5I7I5'", file: "log.lua"},
	sortedSet:      {file: "sortedset.lua"},
	slidingCounter: {needs: "muldiv.lua", file: "counter.lua"},
	fixedWindow:    {file: "window.lua"},
	tokenBucket:    {needs: "muldiv.lua", file: "bucket.lua"},
}

//go:embed lua/*.lua
var lua embed.FS

// script is a text that servers keep under its SHA-1.
type script struct {
	text, sha string
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// scripts are all that a store runs: one for tables, for each layout one of a kind, one
// for lists of each set of layouts, and one for each few rows of layouts.
type scripts struct {
	one, refund, count, reset map[layout]*script
	table                     *script
	lists                     sync.Map // set of layouts, a bit each -> *script
	few                       sync.Map // layouts in their order, as text -> *script
	source                    func(name string) string
}

// maxNested is the number of rows up to which a list has a script of its own:
// there are 203 of them, as many as a server can keep.
const maxNested = 4

func newScripts() *scripts { return newScriptsFrom(luaFile) }

func newScriptsFrom(source func(string) string) *scripts {
	s := &scripts{
		one: make(map[layout]*script), refund: make(map[layout]*script), count: make(map[layout]*script), reset: make(map[layout]*script),
		source: source,
	}
	s.table = newScript(s.source("each.lua") + tableText)
	for _, l := range scripted {
		s.one[l] = newScript(s.compose("one.lua", l))
		s.refund[l] = newScript(s.compose("refund.lua", l))
		s.reset[l] = newScript(s.compose("reset.lua", l))
		if l == packedLog || l == packedBuckets || l == sortedSet {
			s.count[l] = newScript(s.compose("count.lua", l))
		}
	}
	return s
}

// list returns the script for lists of a set of layouts.
func (s *scripts) list(set uint) *script {
	if found, ok := s.lists.Load(set); ok {
		return found.(*script)
	}
	var of []layout
	for _, l := range scripted {
		if set&(1<<l) != 0 {
			of = append(of, l)
		}
	}
	made, _ := s.lists.LoadOrStore(set, newScript(s.compose("list.lua", of...)))
	return made.(*script)
}

// nested returns the script for rows of layouts, which come in their order.
func (s *scripts) nested(of []layout) *script {
	key := string(of)
	if found, ok := s.few.Load(key); ok {
		return found.(*script)
	}
	before, rest, _ := strings.Cut(s.source("nested.lua"), "@rows\n")
	frame, after, _ := strings.Cut(rest, "@end\n")
	behind := ""
	for i, l := range slices.Backward(of) {
		row := strings.ReplaceAll(s.fill(frame, l), "@i", fmt.Sprint(i+1))
		behind = strings.ReplaceAll(row, "@behind\n", behind)
	}
	made, _ := s.few.LoadOrStore(key, newScript(strings.Join(append(s.functions(of), before, behind, after), "\n")))
	return made.(*script)
}

func luaFile(name string) string {
	text, err := lua.ReadFile("lua/" + name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(text)
}

// compose puts a script together: each.lua, what the layouts need, and a frame
// with the sections of the layouts in its places. A place is a line such as
// @look; a section of a layout's file begins with a line such as "--- look".
// What stands between @kinds and @end is repeated for each layout.
func (s *scripts) compose(frame string, of ...layout) string {
	text := s.functions(of)
	before, rest, repeats := strings.Cut(s.source(frame), "@kinds\n")
	if !repeats {
		return strings.Join(append(text, s.fill(before, of[0])), "\n")
	}
	body, after, _ := strings.Cut(rest, "@end\n")
	text = append(text, before)
	for _, l := range of {
		text = append(text, s.fill(body, l))
	}
	return strings.Join(append(text, after), "\n")
}

// functions returns each.lua and what the layouts need, each file once.
func (s *scripts) functions(of []layout) []string {
	text := []string{s.source("each.lua")}
	once := make(map[string]bool)
	for _, l := range of {
		from := sources[l]
		if from.needs != "" && !once[from.needs] {
			text = append(text, s.source(from.needs))
		}
		if !once[from.file] {
			text = append(text, s.section(l, "functions"))
		}
		once[from.needs], once[from.file] = true, true
	}
	return text
}

// fill puts the sections of a layout in their places.
func (s *scripts) fill(frame string, l layout) string {
	frame = strings.ReplaceAll(frame, "@kind", fmt.Sprint(l))
	for _, name := range []string{"look", "tell", "charge", "refund"} {
		section := s.section(l, name)
		if name == "look" {
			section = sources[l].constants + "\n" + section
		}
		frame = strings.ReplaceAll(frame, "@"+name+"\n", section)
	}
	return frame
}

// section returns a section of a layout's file.
func (s *scripts) section(l layout, name string) string {
	_, rest, _ := strings.Cut(s.source(sources[l].file), "--- "+name+"\n")
	section, _, _ := strings.Cut(rest, "\n--- ")
	return section + "\n"
}

// call is one script to run.
type call struct {
	*script

	keys, args []string
}

func (c *call) evalsha(b rueidis.Builder) rueidis.Completed {
	return b.Evalsha().Sha1(c.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

func (c *call) eval(b rueidis.Builder) rueidis.Completed {
	return b.Eval().Script(c.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

// run runs the calls in one trip, and once more those that the server has
// refused for a reason that passes at once. An error of a result is a server's,
// the connection's, or a *weir.StoreError.
func (l *link) run(ctx context.Context, client rueidis.Client, calls []call) []rueidis.RedisResult {
	results := l.trip(ctx, client, calls, (*call).evalsha)
	l.again(ctx, client, calls, results, later, (*call).evalsha)
	l.again(ctx, client, calls, results, byText, (*call).eval)
	return results
}

// again repeats the calls whose results are to be treated so: they have done
// nothing.
func (l *link) again(ctx context.Context, client rueidis.Client, calls []call, results []rueidis.RedisResult, t treatment, command command) {
	var of []int
	var refused []call
	for i := range results {
		if err := results[i].Error(); err != nil && treat(err) == t {
			of, refused = append(of, i), append(refused, calls[i])
		}
	}
	if len(of) == 0 || t == later && !pause(ctx) {
		return
	}
	for i, result := range l.trip(ctx, client, refused, command) {
		results[of[i]] = result
	}
}

// minPause is the shortest time that a key moves in from one node of a Cluster to
// another.
const minPause = time.Millisecond

// pause waits 1 to 5 ms and reports whether ctx has not ended.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(minPause + rand.N(4*minPause)):
		return true
	case <-ctx.Done():
		return false
	}
}

// command is how to send a call: evalsha or eval.
type command func(*call, rueidis.Builder) rueidis.Completed

// trip sends the calls at once.
func (l *link) trip(ctx context.Context, client rueidis.Client, calls []call, command command) []rueidis.RedisResult {
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]rueidis.RedisResult{rueidis.NewErrorResult(l.fail(err, false))}, len(calls))
	}
	switch len(calls) {
	case 0:
		return nil
	case 1:
		return []rueidis.RedisResult{client.Do(ctx, command(&calls[0], client.B()))}
	}
	commands := make(rueidis.Commands, len(calls))
	for i := range calls {
		commands[i] = command(&calls[i], client.B())
	}
	results := client.DoMulti(ctx, commands...)
	if errors.Is(results[0].Error(), rueidis.ErrNoSlot) { // it sends none if one has no node
		half := len(calls) / 2
		return append(l.trip(ctx, client, calls[:half], command), l.trip(ctx, client, calls[half:], command)...)
	}
	return results
}
