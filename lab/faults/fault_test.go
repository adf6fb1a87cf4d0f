// Package faults breaks servers, and the way to them, while a fleet of Limiters
// asks them: every call must be answered within its deadline, without the store
// by what its rule says, never by more than the limits admit, and by the store
// again soon after it is back.
package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/lab/check"
)

// fault is what happens to a server or to the way to it.
type fault struct {
	name   string
	config []string      // of the server
	direct bool          // nodes reach the server without the proxy
	cold   bool          // nodes start while it lasts
	pace   time.Duration // of callers, if not the usual
	lasts  time.Duration // if not usuallyLong

	begin, end func(testing.TB, *site)

	loses bool   // the server loses data
	harm  harm   // done to the use of the store
	says  string // part of an error that the store must meet
}

// harm is how much of the use of a store a fault takes away.
type harm int

const (
	all     harm = iota // every rule is decided without the store
	some                // some calls are
	none                // none is, if the machine is quick enough
	perhaps             // it depends on the moment
)

const (
	usuallyLong = 1000 * time.Millisecond
	// back is how soon a store that is back is used.
	back = 2 * time.Second
)

// site is where a fault happens.
type site struct {
	server *redistest.Server
	proxy  proxy
	undo   func() // what begin leaves for end
}

// run lets a fault happen to a server of its own.
func (f fault) run(t testing.TB) result {
	t.Helper()
	s := &site{server: redistest.Start(t, redistest.Options{Config: f.config})}
	s.proxy = startProxy(t, s.server.Addr())
	url := s.proxy.url()
	if f.direct {
		url = s.server.URL()
	}
	if f.cold {
		f.begin(t, s)
	}
	fleet := startFleet(t, f.pace, url, url)
	e := event{name: f.name, harm: f.harm, says: f.says, back: back, began: time.Now()}
	if !f.cold {
		fleet.await(t, byStore)
		e.began = time.Now()
		f.begin(t, s)
	}
	if f.harm == all {
		fleet.await(t, withoutStore)
	}
	lasts := usuallyLong
	if f.lasts > 0 {
		lasts = f.lasts
	}
	<-time.After(time.Until(e.began.Add(lasts)))
	if f.end != nil {
		f.end(t, s)
	}
	e.ended = time.Now()
	if f.loses {
		e.losses = []loss{{e.began, e.ended}}
	}
	r := fleet.judge(t, e)
	checkLeaks(t, s.server)
	return r
}

// event is a fault that has happened.
type event struct {
	name         string
	began, ended time.Time
	losses       []loss
	harm         harm
	says         string
	back         time.Duration // how soon after its end the store must be used
}

// judge waits until the store is in use again, closes the fleet and checks what
// its callers saw.
func (f *fleet) judge(t testing.TB, e event) result {
	t.Helper()
	f.await(t, byStore)
	<-time.After(400 * time.Millisecond)
	ops := f.finish()
	f.close(t)
	r := f.result(t, e, ops)
	if most := deadline + slack() + r.late; r.p99 > most {
		t.Errorf("%s: 1 call of 100 takes longer than %v, want at most %v", e.name, r.p99, most)
	}
	if r.late > deadline/2 {
		e.back += time.Second // an attempt to use the store may have come to nothing
	}
	if r.recovery > e.back+slack() {
		t.Errorf("%s: the store is used after %v, want at most %v", e.name, r.recovery, e.back)
	}
	f.checkHarm(t, e, r)
	checkReasons(t, ops)
	f.checkBounds(t, ops, e.losses...)
	return r
}

// checkHarm checks that the fault did what it should, so that the test tests it,
// and no more.
func (f *fleet) checkHarm(t testing.TB, e event, r result) {
	t.Helper()
	failed := make(map[string]int)
	said, excused, all := e.says == "", 0, 0
	for _, one := range f.failures(e.began, e.ended) {
		all++
		failed[one.text]++
		said = said || strings.Contains(one.text, e.says)
		// A list whose slot is on the move is sent twice at most.
		if strings.Contains(one.text, "deadline exceeded") || strings.Contains(one.text, "TRYAGAIN") {
			excused++
		}
	}
	switch {
	case !said:
		t.Errorf("%s: the store never met %q, but %v", e.name, e.says, failed)
	case e.harm == some && r.degraded == 0:
		t.Errorf("%s: the store has answered all of %d calls", e.name, r.calls)
	case e.harm == none && excused < all:
		t.Errorf("%s: the store failed otherwise than by being slow: %v", e.name, failed)
	}
}

// result is what callers saw of a fault.
type result struct {
	name            string
	calls, degraded int
	p50, p99, max   time.Duration // of all calls
	unanswered      time.Duration // the 99th percentile of those that the store did not answer
	late            time.Duration // how late a timer was at most
	recovery        time.Duration
}

func (f *fleet) result(t testing.TB, e event, ops []check.Op) result {
	t.Helper()
	during := between(ops, e.began, e.ended)
	r := result{name: e.name, calls: len(during), degraded: degraded(during), recovery: f.recovery(t, ops, e.ended), late: percentile(100, f.late)}
	var took, unanswered []time.Duration
	for _, o := range during {
		took = append(took, o.Return.Sub(o.Call))
	}
	for _, one := range f.failures(e.began, e.ended) {
		unanswered = append(unanswered, one.took)
	}
	r.p50, r.p99, r.max, r.unanswered = percentile(50, took), percentile(99, took), percentile(100, took), percentile(99, unanswered)
	return r
}

const header = "| fault | calls | without the store | p50 | p99 | max | p99 / deadline | p99 of unanswered | latest timer | recovery |\n|---|---|---|---|---|---|---|---|---|---|"

// String is a row of a table.
func (r result) String() string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
	return fmt.Sprintf("| %s | %d | %d %% | %s | %s | %s | %.2f | %s | %s | %.2f s |", r.name, r.calls, 100*r.degraded/max(1, r.calls),
		ms(r.p50), ms(r.p99), ms(r.max), float64(r.p99)/float64(deadline), ms(r.unanswered), ms(r.late), r.recovery.Seconds())
}
