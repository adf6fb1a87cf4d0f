// Package dashboard serves the page that shows an operator what is limited and
// why. The page is made of the files in web, as they are: no build makes it and
// nothing is fetched from elsewhere. All it knows it asks of the admin API,
// which is expected beside it, under api/.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed web
var web embed.FS

// types are the kinds of files that web has. The system's own table of them may
// say otherwise, and a script that is not called one does not run.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	"":      "text/plain; charset=utf-8",
}

// security is sent with every answer: the page runs its own files alone, talks to
// whom it came from alone, and is shown in no other page.
var security = map[string]string{
	"Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
}

// file is one of web.
type file struct {
	text       []byte
	kind, etag string
}

// Handler serves the page at / and its files beside it; anything else is a 404.
// It asks for no token, for the page holds nothing: it asks its user for the one
// that the admin API wants.
func Handler() http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for name, value := range security {
			header.Set(name, value)
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "the dashboard's files can only be read: use GET", http.StatusMethodNotAllowed)
			return
		}
		f, ok := files[r.URL.Path]
		if !ok {
			http.Error(w, "there is nothing at this path; the dashboard is at /", http.StatusNotFound)
			return
		}
		header.Set("Content-Type", f.kind)
		header.Set("ETag", f.etag)
		header.Set("Cache-Control", "no-cache") // kept, but asked about: a new version shows at once
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.text))
	})
}

// load returns the files by their URL path.
func load() map[string]file {
	files := make(map[string]file)
	err := fs.WalkDir(web, "web", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := web.ReadFile(name)
		sum := sha256.Sum256(text)
		files[strings.TrimPrefix(name, "web")] = file{
			text: text,
			kind: types[path.Ext(name)],
			etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`,
		}
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("dashboard: its files are part of the program, and cannot be read: %v", err))
	}
	files["/"] = files["/index.html"]
	return files
}
