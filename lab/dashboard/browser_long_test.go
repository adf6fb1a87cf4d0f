//go:build long

package dashboard

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/internal/redistest"
)

var screenshots = flag.String("screenshots", "", "the `directory` that pictures of the dashboard are written to")

// started returns the browser that all tests share, each with a profile of its own.
var started = sync.OnceValues(func() (context.Context, error) {
	path, err := chromium()
	if err != nil {
		return nil, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.Flag("no-sandbox", true))
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	end = func() { _ = chromedp.Cancel(ctx) } // there is nobody left to tell
	return ctx, chromedp.Do(ctx)
})

// end ends the browser.
var end = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	end()
	os.Exit(code)
}

// chromium returns the browser's path.
func chromium() (string, error) {
	names := []string{"chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %s is on PATH; install one, as with: apt-get install chromium", strings.Join(names, ", "))
}

// tab is a page in the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// look is how the page is looked at.
type look struct {
	width, height int64
	dark          bool
	expected      string // a regular expression for complaints that belong to the test
}

var wide = look{width: 1360, height: 1500}

// open shows the dashboard of a server.
func open(t *testing.T, s *server, l look) *tab {
	t.Helper()
	return browse(t, s.URL, l)
}

// browse shows a page. When the test ends, the browser must not have complained
// of anything: no error, no violation of a policy.
func browse(t *testing.T, url string, l look) *tab {
	t.Helper()
	browser, err := started()
	if err != nil {
		t.Fatal(err)
	}
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // which opens it, for as long as ctx lives
		t.Fatal(err)
	}
	messages, heard := chromedp.Console(ctx), make(chan struct{})
	go func() {
		defer close(heard)
		for m, err := range messages {
			b.hear(m, err)
		}
	}()
	t.Cleanup(func() {
		closeTab()
		<-heard
		b.judge(l.expected)
	})
	scheme := map[bool]string{true: "dark", false: "light"}[l.dark]
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 600})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	call(b, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: "en-GB"})
	b.do(chromedp.Navigate(url))
	return b
}

// hear notes what the browser complains of.
func (b *tab) hear(m chromedp.ConsoleMessage, err error) {
	complains := m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException()
	if err != nil || !complains {
		return // the end of the tab is an error too
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, fmt.Sprintf("%s %s: %s %s", m.Type, m.Source, m.Text, m.URL))
}

// judge fails the test for a complaint that it did not expect.
func (b *tab) judge(expected string) {
	for _, complaint := range b.heard() {
		if expected == "" || !regexp.MustCompile(expected).MatchString(complaint) {
			b.t.Errorf("the browser complains: %s", complaint)
		}
	}
}

func (b *tab) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}

// do runs steps, each within a minute.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for _, step := range steps {
		run(b, step)
	}
}

// run runs an action within a minute, and returns what it does.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// call sends a command of the protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return run(b, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) })
}

// js runs a script.
func (b *tab) js(script string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](script))
}

// eval returns what an expression, or the promise that it is, comes to.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// await waits until an expression of JavaScript is true.
func (b *tab) await(expression string) {
	b.t.Helper()
	redistest.Await(b.t, expression, func() error {
		if !eval[bool](b, "Boolean("+expression+")") {
			return fmt.Errorf("it is false on a page that reads:\n%s", b.text("body"))
		}
		return nil
	})
}

// awaitText waits until an element has some text in it.
func (b *tab) awaitText(selector, part string) {
	b.t.Helper()
	redistest.Await(b.t, fmt.Sprintf("%s to say %q", selector, part), func() error {
		if text := b.text(selector); !strings.Contains(text, part) {
			return fmt.Errorf("it says %q", text)
		}
		return nil
	})
}

// text returns what an element shows.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// press types keys, as chromedp/kb names them.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// agree agrees to what the dialog asks, which then closes.
func (b *tab) agree() {
	b.t.Helper()
	b.click("#confirm-ok")
	b.await("!document.querySelector('#confirm-dialog').open")
}

// fill replaces what is in a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.js(fmt.Sprintf("document.querySelector(%q).select()", selector))
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// shoot writes a picture of the page if asked to.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	picture := run(b, chromedp.CaptureScreenshot())
	err := os.MkdirAll(*screenshots, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// tree returns what assistive technology sees: a line of role and name for each.
func (b *tab) tree() (lines []string) {
	b.t.Helper()
	for _, n := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if !n.Ignored {
			lines = append(lines, strings.TrimSpace(spoken(n.Role)+" "+spoken(n.Name)))
		}
	}
	return lines
}

// spoken returns a text that is a value of the tree.
func spoken(v *accessibility.Value) (text string) {
	if v != nil {
		_ = json.Unmarshal(v.Value, &text) // "" if it is no text
	}
	return text
}
