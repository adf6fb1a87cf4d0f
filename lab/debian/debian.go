// Package debian finds programs that tests need: as they are installed, or else as
// Debian's packages have them. Those are unpacked, and nothing is installed.
package debian

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

// Packages are packages that are unpacked together, once, into the user's cache.
type Packages struct {
	// Name is that of the directory there. It must change when Names does.
	Name string
	// Names has the packages of the programs, and what most systems lack of what
	// these need.
	Names []string
	// Programs says where the packages have each program, such as
	// usr/sbin/nginx.
	Programs map[string]string
}

// Find returns the path of a program. If it is neither on PATH nor can be fetched,
// the test fails.
func (p Packages) Find(t *testing.T, program string) string {
	t.Helper()
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	root, err := p.unpacked(t)
	if err != nil {
		t.Fatalf("%s is not on PATH, and cannot be fetched: %v\nInstall it, as with: apt-get install %s", program, err, strings.Join(p.Names, " "))
	}
	return filepath.Join(root, p.Programs[program])
}

// unpacked returns the directory that the packages are unpacked in.
func (p Packages) unpacked(t *testing.T) (root string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "weir")
	root = filepath.Join(cache, p.Name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // programs are no secret
		return "", err
	}
	// Not the test's directory: from here it can be renamed.
	fresh, err := os.MkdirTemp(cache, "fetch") //nolint:usetesting // as said
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }() // as far as it can
	if err := p.fetch(t, fresh); err != nil {
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
func (p Packages) fetch(t *testing.T, dir string) error {
	lists, archives := filepath.Join(dir, "lists"), filepath.Join(dir, "archives")
	for _, d := range []string{lists, archives} {
		if err := os.MkdirAll(filepath.Join(d, "partial"), 0o755); err != nil { //nolint:gosec // programs are no secret
			return err
		}
	}
	apt := []string{"-q", "-o", "Dir::State::Lists=" + lists, "-o", "Dir::Cache=" + dir, "-o", "Dir::Cache::Archives=" + archives, "-o", "APT::Sandbox::User="}
	t.Logf("fetching %s", strings.Join(p.Names, " "))
	update := run(t, dir, "apt-get", append(apt, "update")...) // which fails in containers whose hooks want root
	if err := run(t, dir, "apt-get", append(append(apt, "download"), p.Names...)...); err != nil {
		return errors.Join(update, err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) < len(p.Names) {
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
	cmd := exec.CommandContext(t.Context(), command, args...) //nolint:gosec // the commands are those above
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", command, args[len(args)-1], err, bytes.TrimSpace(out))
	}
	return nil
}

// Libraries returns the environment in which a program that Find returned finds
// the libraries of its packages.
func Libraries(path string) []string {
	root := filepath.Dir(filepath.Dir(filepath.Dir(path)))
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(root, "usr", "lib", machine+"-linux-gnu"))
}
