package main

import (
	"slices"
	"strings"
	"time"
)

// keyState is what is read of a key of POST /api/inspect.
type keyState struct {
	Domain     string  `json:"domain"`
	Rule       string  `json:"rule"`
	Limit      string  `json:"limit"`
	Algorithm  string  `json:"algorithm"`
	Window     float64 `json:"window_ms"`
	Capacity   int64   `json:"capacity"`
	Used       int64   `json:"used"`
	Remaining  int64   `json:"remaining"`
	NextFree   float64 `json:"next_free_ms"`
	ResetAfter float64 `json:"reset_after_ms"`
	Countable  bool    `json:"countable"`
	Timeline   []struct {
		From  float64 `json:"from_ms"` // ago
		Units int64   `json:"units"`
	} `json:"timeline"`
}

// window adds the windows of the open key, that of its own rule first.
func (m *top) window(p *page) {
	p.add(bold, "%s", m.open.text())
	switch {
	case m.open.Rule == "":
		p.wrap(plain, 3, "Its limit came with the request, so there is no rule to look it up by.")
		return
	case m.open.Redacted:
		p.wrap(plain, 3, "The service does not tell keys (--redact-keys), so this one cannot be looked up.")
		return
	case m.openErr != nil:
		p.wrap(red, 4, printable(m.openErr.Error()))
		return
	case m.states == nil:
		p.add(plain, "asking")
		return
	case len(m.states) == 0:
		p.wrap(plain, 3, "No rule in force counts it now.")
		return
	}
	own := func(k keyState) bool { return k.Rule == m.open.Rule && k.Domain == m.open.Domain }
	rows := 8
	for _, k := range append(only(m.states, own), slices.DeleteFunc(slices.Clone(m.states), own)...) {
		p.add(plain, "")
		p.keyState(&k, rows)
		rows = 3 // the others are beside the point
	}
}

// only returns the elements that are so.
func only[T any](all []T, so func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !so(v) })
}

// keyState adds a key's use in words and as a picture so many rows high.
func (p *page) keyState(k *keyState, rows int) {
	look := green
	if k.Remaining <= 0 {
		look = red
	}
	p.add(bold, "%s: %s, %s", printable(ruleName(k.Domain, k.Rule)), printable(k.Limit), printable(k.Algorithm))
	text := count(k.Used) + " of " + count(k.Capacity) + " used, " + count(k.Remaining) + " left"
	if k.NextFree > 0 {
		text += "; one more in " + lasting(ms(k.NextFree))
	}
	if k.ResetAfter > 0 {
		text += "; unused again in " + lasting(ms(k.ResetAfter))
	}
	p.add(look, "%s", text)
	width := min(p.width-2, 100)
	if !k.Countable || len(k.Timeline) == 0 || width < narrowest {
		p.add(look, "%s", gauge(k.Used, k.Capacity, width))
		return
	}
	p.chart(k, rows, min(width-7, len(k.Timeline)), look)
}

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// gauge reads [####    ].
func gauge(used, capacity int64, width int) string {
	width = max(1, width-2)
	full := 0
	if capacity > 0 {
		full = int(min(float64(used)/float64(capacity), 1) * float64(width))
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(" ", width-full) + "]"
}

// chart adds the units taken in each part of the window. What is about to expire
// is at the left, and now at the right.
func (p *page) chart(k *keyState, rows, width int, look style) {
	bars, most := make([]int64, width), int64(1)
	for _, part := range k.Timeline {
		at := 0 // as old as the window
		if k.Window > 0 {
			at = width - 1 - int(min(max(part.From, 0)/k.Window*float64(width), float64(width-1)))
		}
		bars[at] += part.Units
		most = max(most, bars[at])
	}
	rows = int(min(int64(rows), most))
	for row := rows; row > 0; row-- {
		line, label := make([]byte, width), ""
		for i, units := range bars {
			line[i] = ' '
			if units*int64(rows) > int64(row-1)*most {
				line[i] = '#'
			}
		}
		if row == rows {
			label = count(most)
		}
		p.add(look, "%5s |%s", label, line)
	}
	p.add(plain, "      +%s", strings.Repeat("-", width))
	ago := lasting(ms(k.Window)) + " ago, about to count no more"
	p.add(plain, "       %-*s%s", max(0, width-3), ago, "now")
}
