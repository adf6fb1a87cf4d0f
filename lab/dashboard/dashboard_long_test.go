//go:build long

package dashboard

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/weirlimit/weir/internal/redistest"
)

// busy lets traffic rise and fall, so that the charts have something to show.
func busy(s *state, i int) {
	wave := 1 + 0.3*math.Sin(float64(i)/17) + 0.1*math.Sin(float64(i)/3)
	s.Totals.AllowedS, s.Totals.DeniedS = 118*wave, max(0, 14*math.Sin(float64(i)/40))
	s.LatencyMS = &latency{0.2 + 0.05*wave, 0.5, 0.9 + 0.3*wave}
	for j := range s.Rules {
		r := &s.Rules[j]
		r.AllowedS = []float64{118, 82, 36}[j%3] * wave
		r.DeniedS = []float64{0, 13, 1.5}[j%3] * max(0, math.Sin(float64(i)/40))
	}
	s.Hot[0].Denied += 3
}

func TestLongLive(t *testing.T) {
	s := serve(t)
	b := open(t, s, wide)
	b.awaitText("#health", "Serving 3 rules from slack.yaml; Redis answers.")
	b.awaitText("#tiles", "118")
	for want, in := range map[string]string{
		"181,204 since start": "#tiles", "0.24 ms": "#tiles", "weir v1.2.3": "#about",
		"5/1m (shadow)": "#rules-rows", "category=errors": "#keys-rows", "8,210": "#keys-rows", "None: the config": "#overrides-rows",
	} {
		b.awaitText(in, want)
	}
	s.steer(func(s *server) {
		s.state.Totals.AllowedS, s.state.Rules[1].DeniedS, s.state.Hot[0].Denied = 250.5, 77, 9001
	})
	b.awaitText("#tiles", "251")
	b.awaitText("#rules-rows", "77")
	b.awaitText("#keys-rows", "9,001")
	b.awaitText("#decisions-peak", "at most 251 allowed, 12.5 denied in 5 minutes")

	// A rule's own decisions: by its name in the table, or by the list.
	b.js(`[...document.querySelectorAll("#rules-rows button")].find(b => b.textContent === "per-category").click()`)
	b.awaitText("#decisions-peak", "77 denied")
	b.js(`document.querySelector("#scope").value = ""; document.querySelector("#scope").dispatchEvent(new Event("change"))`)
	b.awaitText("#decisions-peak", "251 allowed")
}

func TestLongPictures(t *testing.T) {
	for name, l := range map[string]look{
		"light": wide, "dark": {width: 1360, height: 1500, dark: true},
		"narrow": {width: 360, height: 2600},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.steer(func(s *server) {
				s.keys, s.change = windows(), busy
				s.overrides = []override{
					{ID: "a", Domain: "slack", Rule: "search", Attributes: map[string]string{"user": "alice"}, Limit: "1000/1m", Until: "2026-11-21T12:00:00Z", By: "admin", Why: "import of the old archive", Created: "2026-11-21T10:00:00Z"},
					{ID: "b", Domain: "slack", Attributes: map[string]string{"user": "mallory"}, Deny: true, Until: "2026-11-22T10:00:00Z", By: "carol", Why: "spam", Created: "2026-11-21T09:00:00Z"},
				}
				s.explained = explanation()
			})
			b := open(t, s, l)
			points := 20
			if *screenshots != "" {
				points = 295
			}
			b.await(fmt.Sprintf("document.querySelector('#rules-rows path.allowed')?.getAttribute('d').split('L').length > %d", points))
			b.fill("#try-attributes", "category=errors")
			b.click("#try .primary")
			b.awaitText("#try-result", "It would be denied")
			b.js("scrollTo(0, 0)")
			b.shoot(name)
			if over := eval[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("the page is %v px wider than the screen", over)
			}
			b.click("#keys-rows button")
			b.awaitText("#key-body", "10 of 10 used; the next slot frees in")
			b.shoot(name + "-key")
		})
	}
}

// explanation is why a request is denied.
func explanation() any {
	return map[string]any{"allowed": false, "reason": "over_limit", "rules": []map[string]any{
		{"rule": "global", "matches": true, "why": "it has no conditions", "limit": "10000/30m", "key": "slack/global", "group": "", "override": "",
			"decision": map[string]any{"allowed": true, "limit": 10000, "remaining": 3900, "retry_after_ms": 0, "reset_after_ms": 1795000, "reason": "ok"}},
		{"rule": "per-category", "matches": true, "why": "it has no conditions", "limit": "10/30m", "key": "slack/per-category/errors", "group": "", "override": "",
			"decision": map[string]any{"allowed": false, "limit": 10, "remaining": 0, "retry_after_ms": 117000, "reset_after_ms": 1737000, "reason": "over_limit"}},
		{"rule": "search", "matches": false, "why": `path is "", and not "/search"`, "limit": "5/1m", "key": "", "group": "", "override": "", "decision": nil},
	}}
}

func TestLongStoreDownAndBack(t *testing.T) {
	s := serve(t)
	b := open(t, s, wide)
	b.awaitText("#health", "Serving")
	s.steer(func(s *server) {
		s.state.Store.Status, s.state.Ready.Store = "unavailable", "unavailable"
		s.state.Store.Detail, s.state.Store.LatencyMS = "", nil
		s.state.Totals.Degraded, s.state.Store.Errors = 412, 9
	})
	b.awaitText("#health", "Degraded Redis does not answer: each process decides by its share.")
	b.awaitText("#tiles", "412")
	b.await(`document.title === "Degraded – weir"`)
	b.shoot("degraded")
	s.steer(func(s *server) { s.state.Store.Status, s.state.Ready.Store = "ok", "ok" })
	b.awaitText("#health", "Serving")
	s.steer(func(s *server) { s.state.Config.Refused = "slack.yaml:3:5: unknown key limt; did you mean limit?" })
	b.awaitText("#health", "Config refused What was loaded before stays in force. slack.yaml:3:5: unknown key limt")
	s.steer(func(s *server) { s.state.Ready = readiness{Detail: "stopping", Store: "ok"} })
	b.awaitText("#health", "Not ready stopping.")
}

func TestLongConnectionLostAndBack(t *testing.T) {
	s := serve(t)
	l := wide
	l.expected = "^error network: Failed to load resource"
	b := open(t, s, l)
	b.awaitText("#health", "Serving")
	s.steer(func(s *server) { s.down = true })
	b.awaitText("#health", "Connection lost The server does not answer; what is shown is old.")
	b.awaitText("#about", "Next try in")
	b.shoot("lost")
	s.steer(func(s *server) { s.down, s.state.Totals.AllowedS = false, 333 })
	b.awaitText("#health", "Serving")
	b.awaitText("#tiles", "333")

	s.steer(func(s *server) { s.down = true })
	b.await("!document.querySelector('#reconnect').hidden")
	s.steer(func(s *server) { s.down = false })
	b.js("document.querySelector('#reconnect').click()")
	b.awaitText("#health", "Serving")
}

func TestLongToken(t *testing.T) {
	s := serve(t)
	s.steer(func(s *server) { s.token = "open sesame" })
	l := wide
	l.expected = "^error network: .*(401|INCOMPLETE_CHUNKED_ENCODING)"
	b := open(t, s, l)
	b.await("document.querySelector('#token-dialog').open")
	b.awaitText("#health", "Token wanted")
	b.shoot("token")
	b.press(kb.Escape)
	b.await("!document.querySelector('#token-dialog').open")
	b.click("#reconnect")
	b.fill("#token-value", "wrong")
	b.press(kb.Enter)
	b.awaitText("#token-error", "the token is not known here")
	b.fill("#token-value", "open sesame")
	b.press(kb.Enter)
	b.awaitText("#health", "Serving")
	b.awaitText("#overrides-rows", "None: the config")
	if kept := eval[string](b, "sessionStorage.getItem('weir-token') + Object.keys(localStorage).length + document.cookie"); kept != "open sesame0" {
		t.Errorf("the token is kept as %q, want in the session alone", kept)
	}
	s.steer(func(s *server) { s.token = "another" }) // what was known expires
	s.CloseClientConnections()
	b.await("document.querySelector('#token-dialog').open")
}

func TestLongManyKeys(t *testing.T) {
	s := serve(t)
	s.steer(func(s *server) {
		s.pace = time.Second // as the service has it: each has a megabyte
		s.state.Hot = nil
		for i := range 10_000 {
			user := fmt.Sprintf("user-%05d", i)
			s.state.Hot = append(s.state.Hot, hotKey{Domain: "slack", Rule: "search", Key: "user=" + user, Denied: float64(20_000 - i), Attributes: map[string]string{"user": user}})
		}
		s.state.Hot[7777].Key = `user="><img src=x onerror=alert(1)>`
	})
	b := open(t, s, wide)
	b.awaitText("#keys-count", "50 of 10,000")
	b.await("document.querySelectorAll('#keys-rows tr').length === 50")
	b.fill("#keys-filter", "USER-0999 search")
	b.awaitText("#keys-count", "10")
	b.await("document.querySelectorAll('#keys-rows tr').length === 10")
	b.awaitText("#keys-rows", "user=user-09991")
	b.fill("#keys-filter", "onerror")
	b.awaitText("#keys-rows", `user="><img src=x onerror=alert(1)>`)
	b.await("document.querySelectorAll('#keys-rows img').length === 0")
	b.fill("#keys-filter", "nobody")
	b.awaitText("#keys-rows", "None of the most limited keys has this in it.")
}

func TestLongKey(t *testing.T) {
	s := serve(t)
	s.steer(func(s *server) { s.keys = windows() })
	l := wide
	l.expected = "^error network: .* 400 .*/api/overrides$" // for one that the server refuses
	b := open(t, s, l)
	b.awaitText("#keys-rows", "category=errors")

	// By the keyboard alone, with the focus where it was afterwards.
	b.js("document.querySelector('#keys-rows button').focus()")
	b.press(kb.Enter)
	b.awaitText("#key-title", "category=errors")
	b.awaitText("#key-body .card", "per-category 10/30m sliding-log")
	redistest.Await(t, "inspect", func() error {
		return s.called(`POST /api/inspect {"domain":"slack","attributes":{"category":"errors"}}`)
	})
	label := eval[string](b, "document.querySelector('#key-body svg').getAttribute('aria-label')")
	if want := "10 of 10 used; the next slot frees in 1m 52s; unused again in 28m 57s."; label != want {
		t.Errorf("the picture says %q, want %q", label, want)
	}
	b.await("document.querySelector('#key-body .card').querySelectorAll('.tick').length === 7")
	b.await("document.querySelector('#key-body .card').querySelectorAll('.tick.first').length === 1")
	b.await("document.querySelectorAll('#key-body .card').length === 4")
	b.press(kb.Escape)
	b.await("!document.querySelector('#key-dialog').open && document.activeElement.textContent === 'category=errors'")

	// What is used later is seen.
	b.press(kb.Enter)
	b.awaitText("#key-body", "10 of 10 used")
	s.steer(func(s *server) {
		s.keys = slices.Clone(s.keys)
		s.keys[1].Used, s.keys[1].Capacity = 3, 30
		s.state.Hot[0].Allowed++
	})
	b.awaitText("#key-body", "3 of 30 used; 27 left")

	b.click("#key-reset")
	b.awaitText("#confirm-text", "under every rule shown here: per-category, global, burst, hourly.")
	b.agree()
	redistest.Await(t, "reset", func() error {
		return s.called(`POST /api/reset {"domain":"slack","attributes":{"category":"errors"}}`)
	})
	b.awaitText("#news", "category=errors is reset.")

	b.click("#key-block")
	b.fill("#confirm [name=why]", "spam")
	b.shoot("block")
	b.agree()
	redistest.Await(t, "block", func() error {
		return s.called(`POST /api/overrides {"domain":"slack","rule":"","attributes":{"category":"errors"},"deny":true,"for":"1h","why":"spam"}`)
	})
	b.click("#key-override")
	b.fill("#confirm [name=limit]", "1000/minute")
	b.fill("#confirm [name=for]", "1w") // which this server does not know
	b.fill("#confirm [name=why]", "import")
	b.click("#confirm-ok")
	b.awaitText("#confirm-error", `for is "1w", want a duration such as 2h`)
	b.fill("#confirm [name=for]", "2h")
	b.agree()
	b.click("#key-close")
	b.awaitText("#overrides-rows", "1000/minute")
	b.awaitText("#overrides-rows", "Blocked")

	b.click("#overrides-rows tr button")
	b.awaitText("#confirm-text", "ends now")
	b.agree()
	b.await("document.querySelectorAll('#overrides-rows tr').length === 1")
}

func TestLongKeyWithoutRule(t *testing.T) {
	s := serve(t)
	s.steer(func(s *server) { s.keys = windows()[2:3] })
	b := open(t, s, wide)
	b.fill("#keys-filter", "login")
	b.awaitText("#keys-count", "1")
	b.click("#keys-rows button")
	b.fill("#key-body [name=limit]", "5/minute")
	b.press(kb.Enter)
	b.awaitText("#key-body", "14 of 20 used; 6 left")
	if err := s.called(`POST /api/inspect {"key":"login:198.51.100.7","limit":"5/minute"}`); err != nil {
		t.Error(err)
	}
}

func TestLongPlayground(t *testing.T) {
	s := serve(t)
	s.steer(func(s *server) { s.explained, s.keys = explanation(), windows() })
	b := open(t, s, wide)
	b.await("document.querySelector('#try-domain').value === 'slack'")
	b.fill("#try-attributes", "category errors")
	b.click("#try .primary")
	b.awaitText("#try-result", "write an attribute as name=value")
	b.fill("#try-attributes", "category=errors\nuser = a=b")
	b.click("#try .primary")
	b.awaitText("#try-result", "It would be denied: over its limit.")
	b.awaitText("#try-result", "Denied: over its limit; again in 1m 57s")
	b.awaitText("#try-result", `Does not match: path is "", and not "/search"`)
	if err := s.called(`POST /api/explain {"domain":"slack","attributes":{"category":"errors","user":"a=b"},"cost":1}`); err != nil {
		t.Error(err)
	}
	b.click("#try-inspect")
	b.awaitText("#key-body", "10 of 10 used")
	b.press(kb.Escape)

	// 21 requests around the end of a window of 10 each 10 s.
	for algorithm, want := range map[string]string{
		"sliding-log": "sliding-log\t11\t10\t10", "sliding-buckets": "sliding-buckets\t11\t10\t10",
		"fixed-window": "fixed-window\t20\t1\t19 (190%)", "token-bucket": "token-bucket\t11\t10\t11 (110%)", "sliding-counter": "sliding-counter\t10\t11\t10",
	} {
		b.awaitText(fmt.Sprintf("[data-algorithm=%s] tr", algorithm), want)
	}
	b.fill("#compare-requests", "3 sometimes")
	b.awaitText("#compare-error", "write a line such as 10 at 9.5s")
	b.fill("#compare-requests", "3 at 1s")
	b.awaitText("#compare-result caption", "3 requests")
	b.fill("#compare-limit", "many")
	b.awaitText("#compare-error", "Write a limit such as 10/10s")
}

func TestLongThemes(t *testing.T) {
	s := serve(t)
	b := open(t, s, wide)
	background := "getComputedStyle(document.documentElement).backgroundColor"
	b.await(background + " === 'rgb(246, 246, 243)'")
	b.js("document.querySelector('#theme').focus()")
	b.press("d") // of Dark
	b.await(background + " === 'rgb(20, 23, 26)'")
	b.do(chromedp.Reload())
	b.await(background + " === 'rgb(20, 23, 26)' && document.querySelector('#theme').value === 'dark'")
	b.press(kb.Tab)
	b.await("document.activeElement.textContent === 'Skip to content' && document.activeElement.getBoundingClientRect().top >= 0")
}

// TestLongTree holds that who hears the page can find their way.
func TestLongTree(t *testing.T) {
	s := serve(t)
	b := open(t, s, wide)
	b.awaitText("#keys-rows", "category=errors")
	tree := b.tree()
	for _, want := range []string{
		"banner", "navigation Sections", "main", "contentinfo", "status",
		"heading weir", "heading Traffic", "heading Rules", "heading Most limited keys", "heading Overrides", "heading Playground",
		"combobox Theme", "combobox Decisions of", "searchbox Search rules", "searchbox Search keys", "table", "columnheader Denied", "rowheader category=errors",
		"button category=errors", "combobox Domain", "spinbutton Cost", "textbox Attributes, one a line", "button Ask", "textbox Limit", "textbox What is sent, one a line",
	} {
		if !slices.Contains(tree, want) {
			t.Errorf("there is no %q in\n%q", want, tree)
		}
	}
	s.steer(func(s *server) { s.keys = windows() })
	b.click("#keys-rows button")
	b.awaitText("#key-body", "10 of 10 used")
	tree = b.tree()
	for _, want := range []string{"dialog category=errors", "button Close", "button Block…", "image 10 of 10 used; the next slot frees in 1m 52s; unused again in 28m 57s."} {
		if !slices.Contains(tree, want) {
			t.Errorf("there is no %q in\n%q", want, tree)
		}
	}
}

// TestLongComplaints holds that the others would hear of a violation.
func TestLongComplaints(t *testing.T) {
	l := wide
	l.expected = "Content Security Policy"
	b := open(t, serve(t), l)
	b.awaitText("#health", "Serving")
	b.js("document.body.setAttribute('style', 'color: red')")
	redistest.Await(t, "a complaint of an inline style", func() error {
		if len(b.heard()) == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
}
