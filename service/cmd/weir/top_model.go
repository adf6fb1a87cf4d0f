package main

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// top is the live state in a terminal, a tea.Model.
type top struct {
	client  *adminClient
	ctx     context.Context //nolint:containedctx // tea's commands take no arguments
	address string
	now     func() time.Time
	colours bool

	state *liveState // the last that came; nil before the first
	err   error      // why none came since lost; nil if one did
	lost  time.Time

	width, height int
	filter        string
	typing        bool // the filter
	order         order
	marked        keyID
	rows          int // of keys that fit
	paused        bool

	open    *hotKey    // whose window is shown; nil for none
	states  []keyState // of it; nil before they came
	openErr error
}

// What comes in.
type (
	tickMsg  struct{}
	stateMsg struct {
		state *liveState
		err   error
	}
	windowMsg struct {
		id     keyID
		states []keyState
		err    error
	}
)

// Init implements tea.Model.
func (m *top) Init() tea.Cmd { return m.ask }

// patience is how long an answer may take before the service counts as lost.
const patience = 3 * time.Second

// ask asks for the state.
func (m *top) ask() tea.Msg {
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	state, err := m.client.state(ctx)
	return stateMsg{state, err}
}

// state returns the live state.
func (c *adminClient) state(ctx context.Context) (*liveState, error) {
	const path = "/api/state"
	text, err := c.get(ctx, path)
	if err != nil {
		return nil, err
	}
	s := new(liveState)
	return s, c.decode(path, text, s)
}

// inspect asks for the window of the open key.
func (m *top) inspect() tea.Cmd {
	k := m.open
	if k == nil || k.Rule == "" || k.Redacted {
		return nil
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, patience)
		defer cancel()
		answer := struct {
			Keys []keyState `json:"keys"`
		}{Keys: []keyState{}}
		err := m.client.post(ctx, "/api/inspect", map[string]any{"domain": k.Domain, "attributes": k.Attributes}, &answer)
		return windowMsg{k.id(), answer.Keys, err}
	}
}

func tick() tea.Cmd {
	return tea.Tick(refreshed, func(time.Time) tea.Msg { return tickMsg{} })
}

// Update implements tea.Model.
func (m *top) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		if m.paused {
			return m, tick()
		}
		return m, tea.Batch(m.ask, m.inspect())
	case stateMsg:
		m.got(msg)
		return m, tick()
	case windowMsg:
		if m.open != nil && m.open.id() == msg.id && (!m.paused || m.states == nil) {
			m.states, m.openErr = msg.states, msg.err
		}
	case tea.PasteMsg:
		if m.typing {
			m.filter += msg.Content
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// got takes an answer, or that there is none.
func (m *top) got(msg stateMsg) {
	if msg.err != nil {
		if m.err == nil {
			m.lost = m.now()
		}
		m.err = msg.err
		return
	}
	m.state, m.err = msg.state, nil
}

func (m *top) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case m.typing:
		m.edit(name, key.Text)
		return nil
	}
	switch name {
	case "q":
		return tea.Quit
	case "p", "space":
		m.paused = !m.paused
	case "esc":
		if m.open == nil {
			m.filter = ""
		}
		m.open = nil
	}
	if m.open != nil {
		return nil
	}
	return m.browse(name)
}

// browse obeys the keys of the list.
func (m *top) browse(name string) tea.Cmd {
	switch name {
	case "/":
		m.typing = true
	case "s":
		m.order = (m.order + 1) % orders
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.rows)
	case "pgdown":
		m.move(m.rows)
	case "enter":
		if keys := m.keys(); len(keys) > 0 {
			m.open, m.states, m.openErr = &keys[m.at(keys)], nil, nil
			m.marked = m.open.id()
			return m.inspect()
		}
	}
	return nil
}

// edit changes the filter.
func (m *top) edit(name, text string) {
	switch name {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-n]
	default:
		m.filter += text
	}
}

// keys are those that are listed.
func (m *top) keys() []hotKey {
	if m.state == nil {
		return nil
	}
	return m.state.hot(m.filter, m.order)
}

// at is where the marked key is, or the first if it is no more.
func (m *top) at(keys []hotKey) int {
	return max(0, slices.IndexFunc(keys, func(k hotKey) bool { return k.id() == m.marked }))
}

// move marks the key so many further down.
func (m *top) move(n int) {
	if keys := m.keys(); len(keys) > 0 {
		at := m.at(keys) + n
		if m.marked == (keyID{}) {
			at = 0 // none has been
		}
		m.marked = keys[max(0, min(at, len(keys)-1))].id()
	}
}

// View implements tea.Model.
func (m *top) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	return v
}
