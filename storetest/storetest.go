// Package storetest is the contract of a weir.Store as tests that any store
// can run: Run in its own tests, with a function that opens it empty.
//
// The contract is written twice: as vectors in testdata, one grammar that can
// be read aloud (see script.go), and as properties that are checked on seeded
// random histories. A history that breaks a property is shrunk to a short one
// and printed in the grammar of the vectors.
//
// The whole suite opens 5,000 stores and asks them 370,000 times. With go test
// -short, meant for stores behind a network, it draws a fifth of the histories:
// 1,200 stores are asked 100,000 times.
package storetest

import (
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Open returns a new, empty store whose clock is now. now may step backwards.
// The suite closes the store.
type Open func(now func() time.Time) (weir.Store, error)

// Check is one promise of the contract.
type Check struct {
	Name    string
	Promise string
	Run     func(Open) error // nil, or how the store broke the promise
}

// Checks is the suite.
func Checks() []Check {
	return []Check{
		{"vectors", "every case of testdata gets the answers written there", vectors},
		{"model", "random histories get the answers of the pure functions", sameAsModel},
		{"bounds", "no window of a history admits more than the algorithm's bound", bounds},
		{"exact", "sliding-log denies nothing that a naive log would admit, and admits nothing else", exact},
		{"buckets-strict", "sliding-buckets denies nothing that a log of one more part would admit", bucketsStrict},
		{"retry", "RetryAfter is the least microsecond at which the same request passes", leastRetry},
		{"denial-free", "denials and peeks change no later answer", denialsAreFree},
		{"all-or-nothing", "a denied list charges nothing but its Record rows", allOrNothing},
		{"shadow", "a shadow row never denies, and is charged iff the list is admitted and it fits", shadow},
		{"refund-once", "a receipt gives back exactly its units, once", refundOnce},
		{"limit-change", "another Max or Burst keeps what is recorded; another window or algorithm starts fresh", limitChange},
		{"limit-raise", "a limit raised from 1/h to 100/h acts at once, and 100/s in its place starts fresh", limitRaise},
		{"never", "a cost above the capacity is a denial that no wait ends, and does no harm", never},
		{"refund-at-capacity", "a refund to an unused key changes nothing, then or later", refundAtCapacity},
		{"tiny-windows", "windows below a millisecond hold and expire to the microsecond", tinyWindows},
		{"sub-second", "windows around a second and below lose no state: a naive count agrees at every step", subSecond},
		{"large-limits", "limits up to 2^31 and 366 days are exact to the unit and the microsecond", largeLimits},
		{"slow-refill", "a slow rate that is asked just before each refill still refills", slowRefill},
		{"clock-back", "a clock that steps back delays by at most one Window", clockBack},
		{"keys", "keys are data: any bytes, any length, each a state of its own", keysAreData},
		{"cancelled", "a context that has ended consumes nothing", cancelled},
		{"concurrent", "64 callers on one key get exactly Max, without errors", concurrent},
		{"concurrent-lists", "concurrent lists over shared keys never admit more than any limit", concurrentLists},
		{"each", "independent requests in one trip do not affect each other", independent},
		{"closed", "every call after Close fails with ErrClosed", closed},
	}
}

// Run runs the whole suite on a store.
func Run(t *testing.T, open Open) {
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(open); err != nil {
				t.Errorf("the store breaks a promise: %s\n%v", c.Promise, err)
			}
		})
	}
}

//go:embed testdata/*.txt
var testdata embed.FS

// Vectors returns the cases of testdata, to be played through other doors.
func Vectors() ([]Script, error) {
	files, err := testdata.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var all []Script
	for _, f := range files {
		text, err := testdata.ReadFile("testdata/" + f.Name())
		if err != nil {
			return nil, err
		}
		scripts, err := ParseScripts(f.Name(), string(text))
		if err != nil {
			return nil, err
		}
		for i := range scripts {
			scripts[i].Name = f.Name() + ": " + scripts[i].Name
		}
		all = append(all, scripts...)
	}
	return all, nil
}

func vectors(open Open) error {
	scripts, err := Vectors()
	errs := []error{err}
	for _, s := range scripts {
		errs = append(errs, s.Play(open))
	}
	return errors.Join(errs...)
}

// clock is the injected clock: Epoch plus an offset.
type clock struct {
	mu sync.Mutex
	at time.Duration
}

// Now returns the time of the clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Epoch.Add(c.at)
}

// Set sets the clock to d after Epoch.
func (c *clock) Set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = d
}

// fail is an error that shows the steps that lead to it.
func fail(steps []Step, format string, args ...any) error {
	var text strings.Builder
	fmt.Fprintf(&text, format, args...)
	text.WriteString("\ncase the shortest history found")
	for _, s := range steps {
		text.WriteString("\n" + s.String())
	}
	return errors.New(text.String())
}
