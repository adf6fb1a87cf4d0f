package redisstore

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
)

// Plain mode is fixed-window without scripts, one transaction a decision:
//
//	MULTI; SET key BASE NX PX window; INCRBY key cost; GET key; PTTL key; EXEC
//
// BASE is 2^63-1-Max, so that the server itself refuses the increment that
// would pass Max: a denial consumes nothing, and no key is ever without a time
// to live. As BASE depends on Max, so does the state: another Max starts afresh.
// What one transaction cannot do is refused: lists, Charge, refunds, other
// algorithms. Waits are in whole milliseconds, up to one too long.

// plainWant is what plain mode has, for errors.
const plainWant = "what a store in plain mode has: one fixed-window of whole milliseconds at a time, by first use, to take or to peek, such as 100/1m fixed-window"

// plainRefuses returns why plain mode cannot decide a list, or nil.
func plainRefuses(l *weir.List) error {
	if n := len(l.Requests); n != 1 {
		return &weir.InvalidError{Field: "requests", Value: strconv.Itoa(n), Want: plainWant}
	}
	r := &l.Requests[0]
	if r.Limit.Algorithm != weir.FixedWindow || r.Limit.Epoch || r.Limit.Window%time.Millisecond != 0 {
		return &weir.InvalidError{Field: "limit", Value: r.Limit.String(), Want: plainWant}
	}
	if r.Mode == weir.Record {
		return &weir.InvalidError{Field: "mode", Value: r.Mode.String(), Want: plainWant}
	}
	return nil
}

// takePlain is Take in plain mode.
func (s *Store) takePlain(ctx context.Context, client rueidis.Client, lists []weir.List) {
	var commands rueidis.Commands
	var of []int // the list, and how many commands it has
	for i := range lists {
		if len(lists[i].Requests) == 0 {
			continue
		}
		if lists[i].Err = plainRefuses(&lists[i]); lists[i].Err != nil {
			continue
		}
		sent := s.plainCommands(client.B(), &lists[i].Requests[0])
		if s.link.clustered() {
			s.plainAnswer(&lists[i], client.DoMulti(ctx, sent...))
			continue
		}
		commands, of = append(commands, sent...), append(of, i, len(sent))
	}
	results := client.DoMulti(ctx, commands...)
	for ; len(of) > 0; of = of[2:] {
		s.plainAnswer(&lists[of[0]], results[:of[1]])
		results = results[of[1]:]
	}
}

// plainCommands returns the transaction of a request. What cannot pass, or must
// not take, only looks.
func (s *Store) plainCommands(b rueidis.Builder, r *weir.Request) rueidis.Commands {
	key := s.keys.state(plainWindow, r)
	look := rueidis.Commands{b.Get().Key(key).Build(), b.Pttl().Key(key).Build(), b.Exec().Build()}
	if r.Mode == weir.Peek || r.Cost > r.Limit.Max {
		return append(rueidis.Commands{b.Multi().Build()}, look...)
	}
	base := strconv.FormatInt(math.MaxInt64-r.Limit.Max, 10)
	return append(rueidis.Commands{
		b.Multi().Build(),
		b.Set().Key(key).Value(base).Nx().PxMilliseconds(r.Limit.Window.Milliseconds()).Build(),
		b.Incrby().Key(key).Increment(r.Cost).Build(),
	}, look...)
}

// plainAnswer fills in the row of a list from the results of its transaction.
func (s *Store) plainAnswer(l *weir.List, results []rueidis.RedisResult) {
	for _, r := range results {
		if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
			l.Err = s.link.fail(err, true)
			return
		}
	}
	replies, err := results[len(results)-1].ToArray()
	if err != nil || len(replies) != len(results)-2 {
		l.Err = s.link.fail(errReply, true)
		return
	}
	l.Rows[0], l.Err = plainDecision(&l.Requests[0], replies)
	l.Err = s.link.fail(l.Err, true)
}

func plainDecision(r *weir.Request, replies []rueidis.RedisMessage) (d weir.Decision, err error) {
	n := len(replies)
	used, left, err := plainState(r, replies[n-2:])
	if err != nil {
		return d, err
	}
	d = weir.Decision{Limit: r.Limit.Max, Remaining: max(0, r.Limit.Max-used), ResetAfter: left}
	switch {
	case r.Cost > r.Limit.Max:
		d.Reason = weir.Never
	case n == 2:
		d.Allowed = used+r.Cost <= r.Limit.Max
	default:
		err = replies[1].Error()
		if err == nil {
			d.Allowed = true
		} else if strings.Contains(err.Error(), "overflow") {
			err = nil
		}
	}
	if !d.Allowed && d.Reason == weir.OK {
		d.Reason, d.RetryAfter = weir.OverLimit, left
	}
	return d, err
}

// plainState returns what is used of a window, and how long it lasts.
func plainState(r *weir.Request, look []rueidis.RedisMessage) (used int64, left time.Duration, err error) {
	value, err := look[0].ToString()
	if rueidis.IsRedisNil(err) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	count, err := strconv.ParseInt(value, 10, 64)
	if err != nil || count < math.MaxInt64-r.Limit.Max {
		return 0, 0, errReply
	}
	// A key is gone one millisecond after its time to live.
	ttl, err := look[1].AsInt64()
	return count - (math.MaxInt64 - r.Limit.Max), time.Duration(ttl+1) * time.Millisecond, err
}

// resetPlain is Reset in plain mode.
func (s *Store) resetPlain(ctx context.Context, requests []weir.Request) (n int64, err error) {
	client, err := s.link.client(ctx)
	if err != nil {
		return 0, err
	}
	for i := range requests {
		gone, failed := client.Do(ctx, client.B().Del().Key(s.keys.state(plainWindow, &requests[i])).Build()).AsInt64()
		if n += gone; err == nil {
			err = s.link.fail(failed, true)
		}
	}
	return n, err
}
