package main

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// planted are secrets, everywhere that one could be.
const plantedToken, planted = "planted-token", "planted"

// leaky is a service that tells all it knows.
var leaky = map[string]string{
	"/api/state": strings.Replace(aState, `"redis 7.0.15 at 10.0.0.7:6379"`, `"redis://weir:planted@10.0.0.7:6379/?x=1&key_secret=planted said NOAUTH"`, 1),
	"/api/config": `{"rules":"domain: shop\nrules:\n- name: search # planted\n  when: {path: /search, api_token: planted, x-api-key: [planted, planted2]}\n  by: user\n  limit: 5/10s\n---\ndomain: second\nserver:\n  admin_token: \"planted\"\n  redis: redis://u:p@planted@host\n",
		"files":["shop.yaml"],"diff":["second/x changed: planted-token -> 1/s"],
		"server":{"admin_token":"planted","redis":{"url":"rediss://:planted@10.0.0.7","Password":{"Text":"planted","File":""}},"auth_secret":"planted","admin_tokens":["planted",{"x":"planted"}],"http":":8080","replicas":3}}`,
	"/metrics":                       "weir_build_info{version=\"1.2.3\",go=\"go1.26\"} 1\n",
	"/debug/pprof/goroutine?debug=2": "goroutine 1 [running]:\nmain.main()\n\tAuthorization: Bearer planted-token\n\tget http://127.0.0.1/?token=planted Bearer planted\n",
	"/debug/pprof/heap":              "\x1f\x8bheap",
}

// bundled makes a bundle of a service that answers so, and returns its files and
// what was printed.
func bundled(t *testing.T, answers map[string]string, args ...string) (files map[string]string, printed string, code int) {
	t.Helper()
	t.Setenv("WEIR_ADMIN_TOKEN", plantedToken)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := answers[r.URL.RequestURI()]; ok && r.Header.Get("Authorization") == "Bearer "+plantedToken {
			_, _ = io.WriteString(w, text)
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "bundle.zip")
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"debug", "bundle", "--admin", server.URL, "-o", file}, args...), nil, &out, &errs)
	if code != 0 {
		return nil, errs.String(), code
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v: want a file that only its owner may read", info.Mode(), err)
	}
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	files = make(map[string]string)
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return files, out.String(), 0
}

func TestBundleHasNoSecrets(t *testing.T) {
	files, printed, code := bundled(t, leaky)
	if code != 0 {
		t.Fatal(printed)
	}
	want := []string{"README.txt", "config.json", "goroutines.txt", "heap.pprof", "metrics.txt", "rules.yaml", "state.json", "version.json"}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, text := range files {
		if strings.Contains(text, planted) {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
	// What is no secret stays.
	for name, texts := range map[string][]string{
		"state.json":     {"user=mallory", "10.0.0.7:6379", "12345"},
		"config.json":    {`"rules": "see rules.yaml"`, "shop.yaml", ":8080", `"replicas": 3`, "second/x changed: (removed) -> 1/s"},
		"rules.yaml":     {"domain: shop", "name: search", "path: /search", "limit: 5/10s", "domain: second", "redis: redis://(removed)@host"},
		"goroutines.txt": {"main.main()"}, "metrics.txt": {"weir_build_info"}, "heap.pprof": {"\x1f\x8bheap"},
		"version.json": {`"service": "1.2.3"`, `"go"`},
		"README.txt":   {"the hottest keys, which may name persons (--redact-keys replaces them)", "heap.pprof"},
	} {
		for _, text := range texts {
			if !strings.Contains(files[name], text) {
				t.Errorf("%s has no %q:\n%s", name, text, files[name])
			}
		}
	}
	if !strings.Contains(printed, "bundle.zip:\n"+files["README.txt"]) {
		t.Errorf("it says %s", printed)
	}
}

func TestBundleRedactsKeys(t *testing.T) {
	files, printed, _ := bundled(t, leaky, "--redact-keys")
	for name, text := range files {
		for _, key := range []string{"mallory", "bob", "carol"} {
			if strings.Contains(text, key) {
				t.Errorf("%s names %s", name, key)
			}
		}
	}
	if state := files["state.json"]; !strings.Contains(state, `"key": "key 4"`) || !strings.Contains(printed, "keys replaced by numbers") {
		t.Errorf("%s\n%s", state, printed)
	}
}

// TestBundleWithoutSome makes one of a service that is not well.
func TestBundleWithoutSome(t *testing.T) {
	some := maps.Clone(leaky)
	delete(some, "/metrics")
	some["/api/config"] = `{"rules":"a: [planted","files":[]}`
	files, printed, code := bundled(t, some)
	if code != 0 || files["metrics.txt"] != "" || files["rules.yaml"] != "" || files["heap.pprof"] == "" {
		t.Errorf("exit %d, %q", code, slices.Sorted(maps.Keys(files)))
	}
	if !strings.Contains(printed, "metrics.txt     is missing: ") || !strings.Contains(printed, "rules.yaml      is missing: it is no YAML\n") || strings.Contains(fmt.Sprint(files), planted) {
		t.Error(printed)
	}
	delete(some, "/api/state")
	if _, printed, code := bundled(t, some); code != 2 || !strings.Contains(printed, "is it the admin address") {
		t.Errorf("exit %d, %s", code, printed)
	}
}

func TestBundleOverwritesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.zip")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, printed, code := bundled(t, leaky, "-o", file)
	if text, err := os.ReadFile(file); code != 2 || string(text) != "precious" || err != nil || !strings.Contains(printed, "is there already: name another file with -o") {
		t.Errorf("exit %d, %s, %v", code, printed, err)
	}
}
