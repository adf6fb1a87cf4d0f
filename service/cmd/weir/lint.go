package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/service/config"
)

// finding is a line of `weir lint --json`.
type finding struct {
	Severity string `json:"severity"` // error or warning
	config.Place
	Message string `json:"message"`
	Nearest string `json:"nearest,omitempty"`
	text    string
}

func lintCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint FILE|DIR...",
		Short: "Report what is wrong or doubtful in config files",
		Long: `Report what is wrong in config files, and what is allowed but probably not meant.
What an envoyproxy/ratelimit file limits is said in words, first.

It exits with 0 if there is nothing to report, with 1 if there is, and with 2 if
a file cannot be read.`,
		Example: "  weir lint slack.yaml",
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return errors.New("a FILE is missing, as in weir lint slack.yaml")
			}
			findings, result := lint(paths)
			if asJSON {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(findings); err != nil {
					return err
				}
				return result
			}
			explain(cmd.OutOrStdout(), paths)
			for _, f := range findings {
				fmt.Fprintln(cmd.OutOrStdout(), f.text)
			}
			if n := len(findings); n > 0 { // all of them of one severity
				fmt.Fprintf(cmd.OutOrStdout(), "%d %s(s)\n", n, findings[0].Severity)
			} else if result == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", strings.Join(paths, ", "))
			}
			return result
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list of findings")
	return cmd
}

// explain writes what Explain says, unless the files are wrong, which lint reports.
func explain(w io.Writer, paths []string) {
	sentences, _ := config.Explain(paths)
	for _, s := range sentences {
		fmt.Fprintf(w, "%s:%d: %s\n", s.File, s.Line, s.Message)
	}
}

// lint returns what there is to report, not nil, and what to exit with.
func lint(paths []string) ([]finding, error) {
	findings := []finding{}
	warnings, err := config.Lint(paths)
	for _, w := range warnings {
		findings = append(findings, finding{"warning", w.Place, w.Message, "", w.String()})
	}
	var wrong config.Errors
	if err != nil && !errors.As(err, &wrong) {
		return findings, err
	}
	var result error
	for _, e := range wrong {
		findings = append(findings, finding{"error", e.Place, e.Message, e.Nearest, e.Error()})
		if e.Line == 0 {
			result = exitFailure // it concerns the file as a whole: it cannot be read
		}
	}
	if len(findings) > 0 && result == nil {
		result = exitNo
	}
	return findings, result
}
