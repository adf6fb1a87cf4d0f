package main

import (
	"fmt"
	"strings"
	"time"
)

// The picture, in pixels: time goes from left to right of the plot, what was
// admitted in the last window from its bottom up.
const (
	width, height = 720, 190
	left, right   = 30, 610
	top, bottom   = 14, 134
	highest       = 24 // units at the top
)

// The colours have enough contrast on white and on black.
const (
	grey  = "#7d8590"
	blue  = "#3b82f6"
	green = "#2da44e"
	red   = "#e5534b"
)

func x(t time.Duration) float64 {
	return left + float64(right-left)*t.Seconds()/length.Seconds()
}

func y(units int) float64 {
	return bottom - float64(bottom-top)*float64(units)/highest
}

// svg draws r.
func (r *result) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="none">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s: %d admitted, %d denied, at most %d in any %v</title>\n", r.algorithm, len(r.admitted), len(r.denied), r.peak(), window)
	for t := time.Duration(0); t <= length; t += window {
		line(&b, grey, fmt.Sprintf("M%.1f %dV%d", x(t), top, bottom), `stroke-opacity="0.35"`)
		label(&b, grey, x(t), bottom+14, "middle", t.String())
	}
	line(&b, grey, fmt.Sprintf("M%d %.1fH%d", left, y(most), right), `stroke-dasharray="4 3"`)
	label(&b, grey, left-6, y(most)+4, "end", fmt.Sprint(most))
	line(&b, blue, r.curve(), `stroke-width="2"`)
	label(&b, blue, right+8, y(most)+4, "start", fmt.Sprintf("in the last %v", window))
	line(&b, green, ticks(r.admitted, bottom+22), `stroke-width="2"`)
	label(&b, green, right+8, bottom+32, "start", fmt.Sprintf("%d admitted", len(r.admitted)))
	line(&b, red, ticks(r.denied, bottom+40), `stroke-width="2"`)
	label(&b, red, right+8, bottom+50, "start", fmt.Sprintf("%d denied", len(r.denied)))
	b.WriteString("</svg>\n")
	return b.String()
}

// curve is what was admitted in the last window, at each time.
func (r *result) curve() string {
	var path strings.Builder
	fmt.Fprintf(&path, "M%d %d", left, bottom)
	for _, t := range r.changes() {
		fmt.Fprintf(&path, "H%.1fV%.1f", x(t), y(r.within(t)))
	}
	return path.String()
}

// ticks is a stroke for each time.
func ticks(times []time.Duration, from int) string {
	var path strings.Builder
	for _, t := range times {
		fmt.Fprintf(&path, "M%.1f %dv12", x(t), from)
	}
	return path.String()
}

func line(b *strings.Builder, colour, path, style string) {
	fmt.Fprintf(b, `<path stroke="%s" %s d="%s"/>`+"\n", colour, style, path)
}

func label(b *strings.Builder, colour string, x, y float64, anchor, text string) {
	fmt.Fprintf(b, `<text fill="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", colour, x, y, anchor, text)
}
