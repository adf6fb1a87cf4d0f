package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // the script
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
)

// Server returns the address of the server, or all of them, without secrets.
func (s *Store) Server() string { return s.link.endpoint.server }

// Ready asks the server whether it does all that the store needs of it, by
// doing it once with a key of its own, which it removes. The error is a
// *weir.StoreError: with Settings, waiting does not help.
func (s *Store) Ready(ctx context.Context) error {
	err := s.ready(ctx)
	var e *weir.StoreError
	// Sentinel and a Cluster may name a primary only after it has become a replica.
	if errors.As(err, &e) && !s.link.endpoint.sentinel && !s.link.clustered() && strings.Contains(e.Err.Error(), "READONLY") {
		e.Settings = true
	}
	return err
}

func (s *Store) ready(ctx context.Context) error {
	client, err := s.link.client(ctx)
	if err != nil {
		return err
	}
	// What keeps a silent connection alive.
	if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
		return s.link.fail(err, true)
	}
	probes := s.probes()
	if !s.options.Plain {
		if err := s.mayCall(ctx, client, probes); err != nil {
			return err
		}
	}
	return s.try(ctx, probes)
}

// probes returns a request for each algorithm, all of one key: its random part
// keeps it apart from those of users and of other processes.
func (s *Store) probes() []weir.Request {
	key := "\x00ready " + rand.Text()
	var probes []weir.Request
	for a := weir.SlidingLog; a <= weir.TokenBucket; a++ {
		limit, err := weir.Limit{Max: 2, Window: time.Second, Algorithm: a}.Normal()
		if err == nil && (!s.options.Plain || a == weir.FixedWindow) {
			probes = append(probes, weir.Request{Key: key, Limit: limit, Cost: 1})
		}
	}
	return probes
}

//go:embed ready.lua
var readyText string

// called finds the commands in a script.
var called = regexp.MustCompile(`call\('([A-Z]+)'`)

// mayCall returns an error if the user may not run commands that scripts of the
// probes call, some of which try does not get to. It sends EVAL, which is not
// needed again until the server loses a script.
func (s *Store) mayCall(ctx context.Context, client rueidis.Client, probes []weir.Request) error {
	of := []*script{s.scripts.table}
	for i := range probes {
		of = append(of, s.scripts.of(s.layout(probes[i].Limit))...)
	}
	var names []string
	for _, script := range of {
		for _, found := range called.FindAllStringSubmatch(script.text, -1) {
			names = append(names, found[1])
		}
	}
	slices.Sort(names)
	c := call{newScript(readyText), []string{s.single(&probes[0]).key}, slices.Compact(names)}
	refused, err := client.Do(ctx, c.eval(client.B())).AsStrSlice()
	if err != nil || len(refused) == 0 {
		return s.link.fail(err, true)
	}
	return &weir.StoreError{
		Server: s.link.endpoint.server, Settings: true,
		Err:  errors.New("the user may not run all that scripts call"),
		Hint: "allow the user these commands: +" + strings.ToLower(strings.Join(refused, " +")),
	}
}

// of returns what runs for a single request of a layout.
func (s *scripts) of(l layout) []*script {
	all := []*script{s.one[l], s.refund[l], s.reset[l]}
	if count := s.count[l]; count != nil {
		all = append(all, count)
	}
	return all
}

// try does each thing once with each probe, and with all of them in one list.
func (s *Store) try(ctx context.Context, probes []weir.Request) error {
	lists := make([]weir.List, 0, len(probes)+1)
	for i := range probes {
		lists = append(lists, weir.List{Requests: probes[i : i+1], Rows: make([]weir.Decision, 1)})
	}
	if len(probes) > 1 {
		lists = append(lists, weir.List{Requests: probes, Rows: make([]weir.Decision, len(probes))})
	}
	s.Take(ctx, lists)
	var failed error
	var receipts []weir.Receipt
	for i := range lists {
		failed = cmp.Or(failed, lists[i].Err)
		receipts = append(receipts, lists[i].Rows[0].Receipt)
	}
	if failed == nil && !s.options.Plain {
		_, failed = s.Refund(ctx, receipts[:len(probes)])
	}
	for i := range probes {
		if failed == nil && s.scripts.count[s.layout(probes[i].Limit)] != nil {
			_, failed = s.Count(ctx, probes[i], time.Second)
		}
	}
	_, err := s.Reset(ctx, probes)
	return cmp.Or(failed, err)
}
