package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/docs"
)

// TestReferenceOfCommands holds docs/reference/cli.md to what --help says.
func TestReferenceOfCommands(t *testing.T) {
	var page strings.Builder
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" {
			return
		}
		var help, errs bytes.Buffer
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		if code := run(t.Context(), args, nil, &help, &errs); code != 0 || errs.Len() > 0 {
			t.Fatalf("%q exits with %d and says %s", args, code, &errs)
		}
		page.WriteString("\n## " + cmd.CommandPath() + "\n\n```text\n" + help.String() + "```\n")
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(rootCmd())
	docs.Golden(t, "docs/reference/cli.md", strings.TrimPrefix(page.String(), "\n"))
}

// TestReferenceOfFlags holds the table of server settings to the flags: which
// settings are flags, and the defaults that their texts name.
func TestReferenceOfFlags(t *testing.T) {
	const page = "docs/reference/config.md"
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	addFlags(flags)
	var told []string
	for row := range strings.Lines(docs.Section(t, page, "## Server settings")) {
		for _, key := range docs.Names(row) {
			cells := strings.Split(row, "|")
			if strings.TrimSpace(cells[2]) != "yes" {
				continue
			}
			told = append(told, strings.ReplaceAll(key, "_", "-"))
			flag := flags.Lookup(told[len(told)-1])
			if flag == nil {
				continue
			}
			if named := regexp.MustCompile(`\(default (.*)\)`).FindStringSubmatch(flag.Usage); named != nil && strings.TrimSpace(cells[3]) != named[1] {
				t.Errorf("%s: the default of %s is %s, and that of the flag %s", page, key, cells[3], named[1])
			}
		}
	}
	var have []string
	flags.VisitAll(func(flag *pflag.Flag) { have = append(have, flag.Name) })
	have = slices.DeleteFunc(have, func(name string) bool { return name == "config" || name == "log-format" || name == "demo" })
	docs.Same(t, page, told, have)
}
