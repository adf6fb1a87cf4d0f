package soak

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// each is how often a line is printed.
	each = 10 * time.Second
	// A process leaks if its memory grows, once warm and over minFitted at
	// least, by more than maxGrowth KiB, and maxSlope in each minute. A run of
	// half an hour tells twice as much as one of five minutes.
	minFitted           = 3 * time.Minute
	maxGrowth, maxSlope = 4096, 512
	// maxMore is how many descriptors more than before the first fault a process
	// may have at the end.
	maxMore = 16
	// judged is how long a run must take for times to be judged: a test among
	// others on a busy machine cannot promise any.
	judged = time.Minute
)

// watched is what a place's process has had of the machine.
type watched struct {
	life            int
	since           time.Time
	before, last    usage // the most before the first fault; now
	growth, longest trend // of this life, and of the longest
}

// warmUp is how long a process may grow as it likes.
func warmUp() time.Duration { return min(2*time.Minute, *duration/3) }

// mayGrow is the slope, in KiB a minute, that is no leak yet.
func (t *trend) mayGrow() float64 { return maxSlope + maxGrowth/max(1, t.last.Minutes()) }

// sample looks at the processes, and at what there is to see of the answers.
func (s *soak) sample(now time.Time) {
	for place := range s.processes {
		p, w := s.processes[place].Load(), &s.watched[place]
		select {
		case <-p.ended:
			s.Fatalf("process %d has ended: %v", place, p.cmd.ProcessState)
		default:
		}
		w.add(p.life, now, usageOf(p.cmd.Process.Pid))
		if !s.faults.any() {
			w.before.descriptors = max(w.before.descriptors, w.last.descriptors)
		}
	}
	for _, text := range s.ledger.settle(now) {
		s.violation("admitted", "%s", text)
	}
}

func (w *watched) add(life int, now time.Time, u usage) {
	if life != w.life {
		w.life, w.since, w.growth = life, now, trend{}
	}
	w.last = u
	if now.Sub(w.since) >= warmUp() {
		w.growth.add(now, u.rss)
	}
	if w.growth.last >= w.longest.last {
		w.longest = w.growth
	}
}

// recovered checks that the processes used the store again after the last fault.
func (s *soak) recovered() {
	if *duration < judged {
		return
	}
	for _, text := range s.faults.late() {
		s.violation("store not used again", "%s", text)
	}
}

// line prints how it goes.
func (s *soak) line(now time.Time) {
	f := s.figures()
	n, live := s.inspect(now)
	var rss, open []string
	for i := range s.watched {
		rss = append(rss, fmt.Sprintf("%.1f", s.watched[i].last.rss/1024))
		open = append(open, fmt.Sprint(s.watched[i].last.descriptors))
	}
	fmt.Printf("%6v  %7d decisions  %5.2f %% degraded  p99 %9s  max %9s  RSS %s MiB  fds %s  keys %d of %d live  violations %d  %s\n",
		now.Sub(s.began).Round(time.Second), f.decisions, percent(f.degraded, f.decisions), ms(f.lately.quantile(0.99)), ms(f.lately.max),
		strings.Join(rss, "+"), strings.Join(open, "+"), n, live, f.violations, s.faults.phase(now, now))
}

func percent(part, whole int64) float64 { return 100 * float64(part) / float64(max(1, whole)) }

// inspect looks at the keys on Redis, which are gone soon after they matter.
func (s *soak) inspect(now time.Time) (n, live int) {
	n, bad := s.keys()
	for _, key := range bad {
		s.violation("time to live", "%s ms", key)
	}
	live = s.living.count(now)
	if n > live+live/4+500 {
		s.violation("keys", "Redis has %d keys, %d can matter", n, live)
	}
	return n, live
}

// conclude prints the report, and fails the test for what must not be.
func (s *soak) conclude(lasted time.Duration) {
	now := time.Now()
	s.recovered()
	n, live := s.inspect(now)
	for _, text := range s.ledger.settle(now.Add(2 * horizon)) {
		s.violation("admitted", "%s", text)
	}
	fmt.Print("\n", s.report(lasted))
	fmt.Printf("keys        %d on Redis, %d can matter\n", n, live)
	fmt.Println("store used again after, at most")
	for _, name := range slices.Sorted(maps.Keys(s.faults.slowest)) {
		fmt.Printf("  %-16s %s\n", name, ms(s.faults.slowest[name]))
	}
	for place := range s.watched {
		s.leaks(place)
	}
	own := usageOf(os.Getpid())
	fmt.Printf("this        RSS %.1f MiB, %d threads, %d descriptors\n", own.rss/1024, own.threads, own.descriptors)
	for _, text := range s.verdict() {
		s.Error(text)
	}
}

// leaks prints what a process has had, and what of it has grown.
func (s *soak) leaks(place int) {
	w := &s.watched[place]
	fitted := fmt.Sprintf("over %v, too short to judge", w.longest.last.Round(time.Second))
	if w.longest.last >= minFitted {
		fitted = fmt.Sprintf("over %v, at most %.0f", w.longest.last.Round(time.Second), w.longest.mayGrow())
	}
	fmt.Printf("process %d   RSS %.1f MiB, %+.0f KiB/min (%s), %d threads, %d descriptors (%d before the first fault)\n",
		place, w.last.rss/1024, w.longest.slope(), fitted, w.last.threads, w.last.descriptors, w.before.descriptors)
	if w.longest.last >= minFitted && w.longest.slope() > w.longest.mayGrow() {
		s.violation("memory", "that of process %d grows by %.0f KiB a minute", place, w.longest.slope())
	}
	if w.last.descriptors > w.before.descriptors+maxMore {
		s.violation("descriptors", "process %d has %d, %d before the first fault", place, w.last.descriptors, w.before.descriptors)
	}
}
