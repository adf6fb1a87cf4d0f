package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
)

func topCmd() *cobra.Command {
	var flags adminFlags
	var once, asJSON bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live what a service decides",
		Long: `Show live, in a terminal, what a service decides: how much and how fast, by
which rules, who is limited most, and how its store is. A key's window shows when
its units were taken and when they count no more.

While the service does not answer, the last state stays, with why, and it is asked
again each second.`,
		Example: `  weir top
  weir top --admin https://weir.internal:6070 --token-file /run/secrets/weir-admin
  weir top --once --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.client()
			switch {
			case err != nil:
				return err
			case once:
				return printState(cmd.Context(), client, asJSON, cmd.OutOrStdout())
			case asJSON:
				return errors.New("--json is for --once: weir top --once --json")
			}
			return showTop(cmd.Context(), client, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().BoolVar(&once, "once", false, "print the state once, as text, and exit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the service's JSON as it is; with --once")
	return cmd
}

// printState prints the state as it is now.
func printState(ctx context.Context, c *adminClient, asJSON bool, out io.Writer) error {
	if !asJSON {
		s, err := c.state(ctx)
		if err == nil {
			_, err = io.WriteString(out, s.text(c.base))
		}
		return err
	}
	text, err := c.get(ctx, "/api/state")
	if err != nil {
		return err
	}
	_, err = out.Write(append(bytes.TrimRight(text, "\n"), '\n'))
	return err
}

// showTop shows the state until the user quits, and fails if there is none to
// begin with.
func showTop(ctx context.Context, c *adminClient, in io.Reader, out io.Writer) error {
	if f, ok := out.(term.File); !ok || !term.IsTerminal(f.Fd()) {
		return errors.New("weir top needs a terminal: use weir top --once, or --once --json")
	}
	m := newTop(ctx, c, os.Getenv("NO_COLOR") == "")
	var err error
	if m.state, err = c.state(ctx); err != nil {
		return err
	}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
	if ctx.Err() != nil {
		err = nil // as the user wanted
	}
	return err
}

// newTop returns a model of the smallest usual terminal.
func newTop(ctx context.Context, c *adminClient, colours bool) *top {
	return &top{client: c, ctx: ctx, address: c.base, now: time.Now, colours: colours, width: 80, height: 24}
}
