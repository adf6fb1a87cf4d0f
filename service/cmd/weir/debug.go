package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func debugCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Collect what a bug report needs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("debug does one thing: weir debug bundle")
		},
	}
	cmd.AddCommand(bundleCmd())
	return cmd
}

func bundleCmd() *cobra.Command {
	var flags adminFlags
	b := bundle{now: time.Now()}
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write a zip file for a bug report",
		Long: `Write a zip file for a bug report: what a service tells of itself on its admin
address. It has the versions, the rules and the settings without secrets, the
metrics, the live state, the goroutines and a heap profile.

The live state has the hottest keys, which may name persons, unless
--redact-keys replaces them by numbers. Rules are as they are configured, with the
values that they name. Look through it before you hand it on.`,
		Example: `  weir debug bundle
  weir debug bundle --redact-keys -o weir.zip`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.client()
			if err != nil {
				return err
			}
			b.client = client
			return b.write(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().StringVarP(&b.file, "output", "o", "", "file to write (default weir-debug-TIME.zip)")
	cmd.Flags().BoolVar(&b.redactKeys, "redact-keys", false, "replace keys by numbers")
	return cmd
}

// bundle is a zip file in the making.
type bundle struct {
	client     *adminClient
	file       string
	redactKeys bool
	now        time.Time
	parts      []part
}

// part is a file of the bundle.
type part struct {
	name, what string
	text       []byte
	err        error // why it is not there
}

// write writes the bundle and says what is in it.
func (b *bundle) write(ctx context.Context, out io.Writer) error {
	if err := b.collect(ctx); err != nil {
		return err
	}
	if b.file == "" {
		b.file = "weir-debug-" + b.now.UTC().Format("20060102T150405Z") + ".zip"
	}
	contents := b.contents()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, p := range append([]part{{name: "README.txt", text: []byte(contents)}}, b.parts...) {
		if p.err != nil {
			continue
		}
		// Writing to memory does not fail, so only the last error counts.
		if f, err := w.CreateHeader(&zip.FileHeader{Name: p.name, Method: zip.Deflate, Modified: b.now}); err == nil {
			_, _ = f.Write(p.text)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := keep(b.file, archive.Bytes()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s:\n%s", b.file, contents)
	return err
}

// keep writes a file that only its owner may read, and that was not there.
func keep(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return fmt.Errorf("%s is there already: name another file with -o", name)
	case err != nil:
		return fmt.Errorf("the bundle cannot be written: %w: name another file with -o", err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// collect asks for all parts. Without the state there is no bundle; of the others
// one may be missing, as something is wrong where bundles are made.
func (b *bundle) collect(ctx context.Context) error {
	state, err := b.client.get(ctx, "/api/state")
	if err != nil {
		return err
	}
	s := scrubber{secrets: []string{b.client.token}, redactKeys: b.redactKeys}
	b.json("state.json", "the live state, with "+b.keysAre(), state, nil, s)
	of, err := json.MarshalIndent(map[string]any{"service": member(state, "version"), "command": thisBuild()}, "", "  ")
	b.add("version.json", "the versions of the service and of this command", of, err, s)

	config, err := b.client.get(ctx, "/api/config")
	if rules, ok := member(config, "rules").(string); ok {
		text, err := s.yaml(rules)
		b.add("rules.yaml", "the rules in force, secrets removed", text, err, s)
	}
	b.json("config.json", "the config and how it differs from its files, secrets removed", config, err, s)
	for _, p := range []struct{ name, what, path string }{
		{"metrics.txt", "the metrics", "/metrics"},
		{"goroutines.txt", "what each goroutine does", "/debug/pprof/goroutine?debug=2"},
	} {
		text, err := b.client.get(ctx, p.path)
		b.add(p.name, p.what, text, err, s)
	}
	heap, err := b.client.get(ctx, "/debug/pprof/heap")
	b.parts = append(b.parts, part{"heap.pprof", "a heap profile: which code holds memory, but not what is in it", heap, err})
	return nil
}

func (b *bundle) keysAre() string {
	if b.redactKeys {
		return "keys replaced by numbers"
	}
	return "the hottest keys, which may name persons (--redact-keys replaces them)"
}

func (b *bundle) add(name, what string, text []byte, err error, s scrubber) {
	b.parts = append(b.parts, part{name, what, []byte(s.text(string(text))), err})
}

// json adds a part that is JSON, without its secrets.
func (b *bundle) json(name, what string, text []byte, err error, s scrubber) {
	if err == nil {
		text, err = s.json(text)
	}
	b.add(name, what, text, err, s)
}

// member returns a member of a JSON object; nil if there is none.
func member(text []byte, name string) any {
	var object map[string]any
	_ = json.Unmarshal(text, &object) // what is none has no members
	return object[name]
}

// contents says what is in the bundle, and what is not.
func (b *bundle) contents() string {
	var text strings.Builder
	for _, p := range b.parts {
		if p.err == nil {
			fmt.Fprintf(&text, "  %-15s %s\n", p.name, p.what)
		} else {
			fmt.Fprintf(&text, "  %-15s is missing: %v\n", p.name, p.err)
		}
	}
	return text.String()
}
