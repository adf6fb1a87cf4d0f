package telemetry

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/hotkeys"
)

const (
	hotHalfLife = time.Minute
	// A sketch has mostSlots, but all of a config together no more than allSlots
	// as long as each keeps leastSlots.
	mostSlots, leastSlots, allSlots = 128, 8, 1 << 16
	longestKey                      = 256 // bytes that are kept of a key
	shownKeys                       = 50
)

// drain brings what was sampled to where it is kept.
func (r *Recorder) drain(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slots := min(mostSlots, max(leastSlots, allSlots/max(1, len(r.table.Load().rules))))
	r.samples.drain(func(s *sample) {
		if s.first {
			r.observe(r.decision, s.took)
		}
		if s.of != nil && s.key != "" {
			s.of.heat(s, r.samples.weight(), slots, now)
		}
	})
}

// heat counts a key among the hot ones.
func (t *tally) heat(s *sample, weight float64, slots int, now time.Time) {
	sketch := &t.hot[resultOf(s.allowed, false)]
	if *sketch == nil {
		*sketch = hotkeys.New(slots, hotHalfLife)
	}
	(*sketch).Add(shortened(s.key), weight, now)
}

// shortened keeps of a long key its beginning and a hash.
func shortened(key string) string {
	if len(key) <= longestKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:longestKey-2*8] + hex.EncodeToString(sum[:8])
}

// hotKeys returns the keys that were denied most of late, then those that were
// allowed most. r.mu is held.
func (r *Recorder) hotKeys(now time.Time) []HotKey {
	var all []hotKey
	r.table.Load().each(func(of *rule) { all = append(all, of.hottest(now)...) })
	slices.SortFunc(all, func(a, b hotKey) int {
		return cmp.Or(cmp.Compare(b.counts[denied].Count, a.counts[denied].Count),
			cmp.Compare(b.counts[allowed].Count, a.counts[allowed].Count), strings.Compare(a.key, b.key))
	})
	shown := make([]HotKey, 0, shownKeys)
	for i := range all[:min(len(all), shownKeys)] {
		shown = append(shown, r.show(&all[i]))
	}
	return shown
}

// hotKey is a key of a rule with its counts as of now.
type hotKey struct {
	of     *rule
	key    string
	counts [2]hotkeys.Entry
}

// hottest returns the keys of both sketches. One that a full sketch does not have
// may have come as often as the rarest that it has.
func (of *rule) hottest(now time.Time) []hotKey {
	var all []hotKey
	places := make(map[string]int)
	for kind, sketch := range of.hot {
		if sketch == nil {
			continue
		}
		top, _ := sketch.Top(mostSlots, now)
		for _, e := range top {
			i, known := places[e.Key]
			if !known {
				i = len(all)
				places[e.Key] = i
				all = append(all, hotKey{of: of, key: e.Key})
			}
			all[i].counts[kind] = e
		}
	}
	return all
}

// show makes of a key what may be seen of it.
func (r *Recorder) show(k *hotKey) HotKey {
	shown := HotKey{
		Domain: k.of.domain, Rule: k.of.rule, Key: k.key, Redacted: r.options.RedactKeys, Attributes: map[string]string{},
		Allowed: units(k.counts[allowed].Count), AllowedError: units(k.counts[allowed].Error),
		Denied: units(k.counts[denied].Count), DeniedError: units(k.counts[denied].Error),
	}
	switch {
	case r.options.RedactKeys:
		shown.Key = r.redacted(k.key)
	case k.of.domain != "":
		shown.Key, shown.Attributes = k.of.decode(k.key)
	}
	return shown
}

func units(n float64) int64 { return int64(math.Round(n)) }

// redacted is the same for the same key, and tells nothing else of it.
func (r *Recorder) redacted(key string) string {
	h := hmac.New(sha256.New, r.secret)
	h.Write([]byte(key))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// wholeRule is shown in place of the key of a rule that does not partition.
const wholeRule = "all requests"

// decode returns a key as people read it, such as "user=alice", and as attributes.
func (of *rule) decode(key string) (text string, attributes map[string]string) {
	_, name, values := policy.SplitKey(key)
	var names []string
	if name != "" && of.config != nil {
		names = of.config.By
	} else {
		names, values = everySecond(values)
	}
	attributes = make(map[string]string)
	var parts []string
	for i, value := range values {
		if i >= len(names) { // the config was another then
			parts = append(parts, value)
			continue
		}
		attributes[names[i]] = value
		parts = append(parts, names[i]+"="+value)
	}
	return cmp.Or(strings.Join(parts, ", "), wholeRule), attributes
}

// everySecond parts entries into their keys and values.
func everySecond(entries []string) (keys, values []string) {
	for i, e := range entries {
		if i%2 == 0 {
			keys = append(keys, e)
		} else {
			values = append(values, e)
		}
	}
	return keys, values
}
