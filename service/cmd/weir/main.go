// Command weir decides whether events may happen now: as a service, in place,
// or over the logs of what already did.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// status is an exit code that has been explained already.
type status int

// What a command exits with. Success is 0, and so is an allowed check.
const (
	exitNo      status = 1 // denied, or findings
	exitFailure status = 2 // wrong usage, or it could not be done
)

// Error is never shown.
func (s status) Error() string { return fmt.Sprintf("exit %d", int(s)) }

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := rootCmd()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	var code status
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(errs, "weir:", strings.TrimPrefix(err.Error(), "weir: ")) // an error of the library says so itself
	return int(exitFailure)
}

func rootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "An exact rate limiter",
		Long:          "weir decides whether an event may happen now.\n\nIt exits with 0 if so, with 1 if not (or if there is something to report),\nand with 2 if it was used wrongly or could not find out.",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("a command is missing, such as weir serve; weir --help lists them")
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serveCmd(), checkCmd(), lintCmd(), simulateCmd(), benchCmd(), benchServerCmd(), topCmd(), debugCmd(), versionCmd())
	return root
}
