//go:build long

package proxies

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// paths are where Debian's packages have the programs.
var paths = map[string]string{"nginx": "usr/sbin/nginx", "caddy": "usr/bin/caddy", "haproxy": "usr/sbin/haproxy"}

// packages have the programs, and what most systems lack of what they need.
var packages = []string{"nginx", "caddy", "haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"}

// find returns the program, as it is installed, or else as Debian has it: that
// is unpacked once, into the user's cache, and nothing is installed.
func find(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	root, err := unpacked(t)
	if err != nil {
		t.Fatalf("%s is not on PATH, and cannot be fetched: %v\nInstall it, as with: apt-get install %s", name, err, name)
	}
	return filepath.Join(root, paths[name])
}

// unpacked returns the directory that the packages are unpacked in.
func unpacked(t *testing.T) (root string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "weir")
	root = filepath.Join(cache, "proxies")
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	// Not the test's directory: from here it can be renamed.
	fresh, err := os.MkdirTemp(cache, "fetch") //nolint:usetesting // as said
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }() // as far as it can
	if err := fetch(t, fresh); err != nil {
		return "", err
	}
	err = os.Rename(filepath.Join(fresh, "root"), root)
	if _, other := os.Stat(root); other == nil {
		err = nil // somebody else was faster
	}
	return root, err
}

// fetch unpacks the packages into dir/root. The lists of what there is are fetched
// into dir as well, so that only their own user needs to write them.
func fetch(t *testing.T, dir string) error {
	lists, archives := filepath.Join(dir, "lists"), filepath.Join(dir, "archives")
	for _, d := range []string{lists, archives} {
		if err := os.MkdirAll(filepath.Join(d, "partial"), 0o755); err != nil {
			return err
		}
	}
	apt := []string{"-q", "-o", "Dir::State::Lists=" + lists, "-o", "Dir::Cache=" + dir, "-o", "Dir::Cache::Archives=" + archives, "-o", "APT::Sandbox::User="}
	t.Logf("fetching %s", strings.Join(packages, " "))
	update := run(t, dir, "apt-get", append(apt, "update")...) // which fails in containers whose hooks want root
	if err := run(t, dir, "apt-get", append(append(apt, "download"), packages...)...); err != nil {
		return errors.Join(update, err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) < len(packages) {
		return fmt.Errorf("apt-get brought %q, %w", debs, err)
	}
	for _, deb := range debs {
		if err := run(t, dir, "dpkg", "-x", deb, "root"); err != nil {
			return err
		}
	}
	return nil
}

func run(t *testing.T, dir, command string, args ...string) error {
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", command, args[len(args)-1], err, bytes.TrimSpace(out))
	}
	return nil
}

// libraries are the environment in which a program finds those of its package.
func libraries(path string) []string {
	root := filepath.Dir(filepath.Dir(filepath.Dir(path)))
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(root, "usr", "lib", machine+"-linux-gnu"))
}
