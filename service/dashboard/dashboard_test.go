package dashboard

import (
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func get(t *testing.T, method, target string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, http.NoBody)
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestFiles(t *testing.T) {
	for _, test := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/index.html", 200, "text/html; charset=utf-8"},
		{"GET", "/main.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/style.css", 200, "text/css; charset=utf-8"},
		{"GET", "/icon.svg", 200, "image/svg+xml"},
		{"GET", "/vendor/uplot/uPlot.esm.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/vendor/uplot/LICENSE", 200, "text/plain; charset=utf-8"},
		{"GET", "/vendor", 404, "text/plain; charset=utf-8"},
		{"GET", "/vendor/", 404, "text/plain; charset=utf-8"},
		{"GET", "/../dashboard.go", 404, "text/plain; charset=utf-8"},
		{"POST", "/", 405, "text/plain; charset=utf-8"},
		{"DELETE", "/main.js", 405, "text/plain; charset=utf-8"},
	} {
		a := get(t, test.method, test.path, nil)
		if a.StatusCode != test.status || a.Header.Get("Content-Type") != test.kind {
			t.Errorf("%s %s: %d %s, want %d %s", test.method, test.path, a.StatusCode, a.Header.Get("Content-Type"), test.status, test.kind)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", test.method, test.path, name, got, want)
			}
		}
	}
}

// TestCaching holds that a browser keeps the files, and asks whether they are
// still what they were.
func TestCaching(t *testing.T) {
	seen := make(map[string]string)
	for name := range load() {
		a := get(t, "GET", name, nil)
		tag := a.Header.Get("ETag")
		if !regexp.MustCompile(`^"[\w-]{22}"$`).MatchString(tag) || a.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: ETag %s, Cache-Control %s; want a strong tag and no-cache", name, tag, a.Header.Get("Cache-Control"))
		}
		if other := seen[tag]; other != "" && path.Base(name) != "index.html" && name != "/" {
			t.Errorf("%s and %s have the same tag", name, other)
		}
		seen[tag] = name
		if a := get(t, "GET", name, http.Header{"If-None-Match": {tag}}); a.StatusCode != http.StatusNotModified || a.ContentLength > 0 {
			t.Errorf("%s: %d when nothing has changed, want 304", name, a.StatusCode)
		}
		if a := get(t, "GET", name, http.Header{"If-None-Match": {`"another"`}}); a.StatusCode != http.StatusOK {
			t.Errorf("%s: %d for another version, want 200", name, a.StatusCode)
		}
	}
}

// references are what the files name: scripts, styles, images.
var references = regexp.MustCompile(`(?:from |import |href=|src=)"([^"#]+)"`)

// TestSelfContained holds that every file that is named is there, that none is
// elsewhere, and that nothing stands inline which the policy would refuse.
func TestSelfContained(t *testing.T) {
	files := load()
	used := map[string]bool{"/": true, "/index.html": true, "/vendor/uplot/LICENSE": true}
	for name, f := range files {
		if ext := path.Ext(name); ext != ".html" && ext != ".js" && ext != ".css" || strings.HasPrefix(name, "/vendor/") {
			continue
		}
		for _, found := range references.FindAllStringSubmatch(string(f.text), -1) {
			target := path.Join(path.Dir(name), found[1])
			if _, ok := files[target]; !ok {
				t.Errorf("%s names %s, which is not there", name, found[1])
			}
			used[target] = true
		}
		if bad := regexp.MustCompile(`\sstyle=|<style|<script(?: [^>]*)?>[^<]|\son\w+=`).FindString(string(f.text)); bad != "" {
			t.Errorf("%s has %q inline", name, bad)
		}
		if far := regexp.MustCompile(`https?://[^"]+`).FindString(string(f.text)); far != "" && far != "http://www.w3.org/2000/svg" {
			t.Errorf("%s names %s", name, far)
		}
	}
	for name := range files {
		if !used[name] {
			t.Errorf("nothing uses %s", name)
		}
	}
}

// TestEveryKindIsKnown holds that no file is served as something that it is not.
func TestEveryKindIsKnown(t *testing.T) {
	kinds := slices.Collect(maps.Keys(types))
	err := fs.WalkDir(web, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !slices.Contains(kinds, path.Ext(name)) {
			t.Errorf("%s: what kind of file is it?", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVendored holds that what is not ours says what it is, and under which terms.
func TestVendored(t *testing.T) {
	script, licence := load()["/vendor/uplot/uPlot.esm.js"].text, load()["/vendor/uplot/LICENSE"].text
	if !strings.Contains(string(script), "(v1.6.32)") || !strings.Contains(string(licence), "The MIT License") {
		t.Error("uPlot lacks its version or its licence")
	}
}
