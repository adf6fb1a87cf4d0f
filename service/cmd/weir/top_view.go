package main

import (
	"strings"
	"time"
)

// overview adds who answers, how much it does and how it is.
func (p *page) overview(s *liveState, address, note string) {
	title := "weir " + s.Version + " at " + address + ", up " + lasting(s.Now.Sub(s.Started))
	p.add(bold, "%s%s", printable(title), note)
	rates := "allowed " + short(s.Totals.AllowedPerSec) + "/s, denied " + short(s.Totals.DeniedPerSec) + "/s"
	rates += "; in all " + count(s.Totals.Allowed) + " and " + count(s.Totals.Denied)
	if s.Totals.Errors > 0 {
		rates += ", errors " + count(s.Totals.Errors)
	}
	if s.Latency != nil {
		rates += "; " + s.Latency.String()
	}
	p.wrap(plain, 2, rates)
	colour := red
	if s.storeOK() {
		colour = green
	}
	p.wrap(colour, 2, printable(s.storeHealth()))
	if !s.Ready.Ready {
		p.wrap(red, 2, "not ready: "+printable(s.Ready.Detail))
	}
	if s.Config.Refused != "" {
		p.wrap(red, 2, "the config on disk is refused: "+printable(s.Config.Refused))
	}
}

// rules adds at most so many rules, those that deny most first.
func (p *page) rules(s *liveState, most int) {
	t := grid{titles: []string{"RULE", "LIMIT", " ALLOWED/S", " DENIED/S", " ALLOWED", " DENIED"}}
	all := s.busiest()
	for _, r := range all[:min(most, len(all))] {
		look := plain
		if r.DeniedPerSec > 0 {
			look = yellow
		}
		t.row(look, r.shown(), printable(r.Limit), short(r.AllowedPerSec), short(r.DeniedPerSec), count(r.Allowed), count(r.Denied))
	}
	p.grid(&t)
	if len(all) > most {
		p.add(plain, "and %d more", len(all)-most)
	}
}

// keys adds the hottest keys from the first on, at most so many, and marks one.
func (p *page) keys(s *liveState, all []hotKey, first, most int, marked keyID) {
	t := grid{titles: []string{"KEY", "COUNTED BY", "LIMIT", " DENIED", " ALLOWED"}}
	rules := s.byName()
	for _, k := range all[first:min(first+most, len(all))] {
		look := plain
		switch {
		case k.id() == marked:
			look = reversed
		case k.Denied > 0:
			look = yellow
		}
		by := rules[k.name()]
		if by == nil {
			by = &liveRule{Domain: k.Domain, Rule: k.Rule} // it was of the config before
		}
		t.row(look, k.text(), by.shown(), printable(by.Limit), short(k.Denied), short(k.Allowed))
	}
	p.grid(&t)
	if len(all) == 0 {
		p.add(plain, "none")
	}
}

// text is the state on a page for people, all of it.
func (s *liveState) text(address string) string {
	p := new(page)
	p.overview(s, address, "")
	p.add(plain, "")
	p.rules(s, len(s.Rules))
	p.add(plain, "")
	p.keys(s, s.hot("", byDenied), 0, len(s.Hot), keyID{})
	return p.String(0) + "\n"
}

// screen is the page that the terminal shows.
func (m *top) screen() string {
	p := &page{width: m.width, styled: true, colours: m.colours}
	switch {
	case m.state == nil && m.err == nil:
		p.add(plain, "asking %s", m.address)
	case m.state == nil:
		m.complain(p)
	default:
		note := ""
		if m.paused {
			note = "   PAUSED"
		}
		p.overview(m.state, m.address, note)
		m.complain(p)
		p.add(plain, "")
		m.body(p)
	}
	for len(p.lines) < m.height-1 {
		p.add(plain, "")
	}
	p.lines = p.lines[:max(0, min(len(p.lines), m.height-1))]
	m.footer(p)
	return p.String(m.height)
}

// complain says since when the service does not answer.
func (m *top) complain(p *page) {
	if m.err != nil {
		p.wrap(red, 3, "no answer for "+lasting(m.now().Sub(m.lost))+", trying again each second: "+printable(m.err.Error()))
	}
}

// body is what is between the overview and the footer.
func (m *top) body(p *page) {
	if m.open != nil {
		m.window(p)
		return
	}
	space := m.height - len(p.lines) - 1
	p.rules(m.state, max(1, min(len(m.state.Rules), space/3)))
	p.add(plain, "")
	m.rows = max(1, m.height-len(p.lines)-2)
	keys := m.keys()
	at := m.at(keys)
	first := max(0, min(at-m.rows/2, len(keys)-m.rows))
	p.keys(m.state, keys, first, m.rows, m.marked)
}

// footer says what the keys do.
func (m *top) footer(p *page) {
	switch {
	case m.typing:
		p.add(reversed, "filter: %s▏  enter to keep, esc to clear", printable(m.filter))
		return
	case m.open != nil:
		p.add(reversed, "esc back  p %s  q quit", m.pauses())
		return
	}
	words := []string{"q quit", "/ filter", "s sort: " + m.order.String(), "up, down, enter: a key's window", "p " + m.pauses()}
	if m.filter != "" {
		words[1] = "/ filter: " + printable(m.filter)
	}
	p.add(reversed, "%s", strings.Join(words, "  "))
}

func (m *top) pauses() string {
	if m.paused {
		return "go on"
	}
	return "pause"
}

// refreshed is how often the state is asked for.
const refreshed = time.Second
