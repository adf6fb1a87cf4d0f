package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/httpapi"
)

// checker asks one question; its fields are the command's flags and output.
type checker struct {
	configs   []string
	domain    string
	server    string
	cost      int64
	algorithm string
	json      bool
	out       io.Writer
}

func checkCmd() *cobra.Command {
	var c checker
	cmd := &cobra.Command{
		Use:   "check KEY LIMIT | check --domain DOMAIN NAME=VALUE...",
		Short: "Ask once whether something may happen",
		Long: `Ask once whether something may happen: a key and the limit to hold it to, or
the rules of a domain and the attributes that they look at.

A server is asked if there is one. Otherwise the answer is that of a fresh
memory, in which nothing has happened yet, and rules come from --config.

It exits with 0 if it is allowed and with 1 if it is denied.`,
		Example: `  weir check search:alice 5/minute --server http://localhost:8080
  weir check --config slack.yaml --domain slack category=errors --cost 3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.out = cmd.OutOrStdout()
			return c.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringArrayVar(&c.configs, "config", nil, "file or directory with rules; may be repeated")
	cmd.Flags().StringVar(&c.domain, "domain", "", "domain whose rules to ask")
	cmd.Flags().StringVar(&c.server, "server", "", "server to ask, such as http://localhost:8080")
	cmd.Flags().Int64Var(&c.cost, "cost", 1, "units to take; 0 only asks")
	cmd.Flags().StringVar(&c.algorithm, "algorithm", "", "algorithm of LIMIT, if not the default")
	cmd.Flags().BoolVar(&c.json, "json", false, "print the answer as the server's JSON")
	return cmd
}

func (c *checker) run(ctx context.Context, args []string) error {
	question, err := c.question(args)
	if err != nil {
		return err
	}
	base, transport := c.server, http.RoundTripper(nil)
	if base == "" {
		base = "http://in-place"
		if transport, err = c.inPlace(); err != nil {
			return err
		}
	} else if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	answer, err := ask(ctx, &http.Client{Transport: transport, Timeout: 10 * time.Second}, strings.TrimSuffix(base, "/")+"/v1/check", question)
	if err != nil {
		return err
	}
	return c.print(answer)
}

// question is the request object that the arguments and flags come to.
func (c *checker) question(args []string) (map[string]any, error) {
	q := map[string]any{"cost": c.cost}
	if c.domain == "" {
		switch {
		case len(c.configs) > 0:
			return nil, errors.New("--domain is missing: --config needs to know whose rules to ask, as in --domain slack category=errors")
		case len(args) != 2:
			return nil, errors.New("want a KEY and a LIMIT, as in weir check search:alice 5/minute, or a domain, as in weir check --config slack.yaml --domain slack category=errors")
		}
		q["key"], q["limit"] = args[0], args[1]
		if !utf8.ValidString(args[0]) {
			delete(q, "key")
			q["key_base64"] = []byte(args[0])
		}
		if c.algorithm != "" {
			q["algorithm"] = c.algorithm
		}
		return q, nil
	}
	switch {
	case c.algorithm != "":
		return nil, errors.New("--algorithm is for a LIMIT of your own: a rule names its algorithm in the config")
	case c.server != "" && len(c.configs) > 0:
		return nil, errors.New("--server and --config contradict each other: the rules are those of the server")
	case c.server == "" && len(c.configs) == 0:
		return nil, errors.New("the rules of the domain are missing: name them with --config FILE, or a server with --server URL")
	}
	attributes := make(map[string]string, len(args))
	for _, arg := range append([]string{c.domain}, args...) {
		if !utf8.ValidString(arg) {
			return nil, fmt.Errorf("%q is not valid UTF-8: want --domain and NAME=VALUE in UTF-8, such as category=errors", arg)
		}
	}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if _, twice := attributes[name]; !ok || twice {
			return nil, fmt.Errorf("%q is no attribute: want NAME=VALUE, each name once, such as category=errors", arg)
		}
		attributes[name] = value
	}
	q["domain"], q["attributes"] = c.domain, attributes
	return q, nil
}

// inPlace returns a server in this process, over a fresh memory.
func (c *checker) inPlace() (http.RoundTripper, error) {
	engine := decide.New(decide.Options{Limiter: weir.New(weir.Options{})})
	if len(c.configs) > 0 {
		loaded, err := config.Load(c.configs)
		if err != nil {
			return nil, err
		}
		engine.Load(loaded.Policy, false)
	}
	return roundTripper{httpapi.New(httpapi.Options{Engine: engine})}, nil
}

// roundTripper asks a handler as if it were a server.
type roundTripper struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	w := recorder{header: make(http.Header)}
	h.ServeHTTP(&w, r)
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r}, nil
}

// recorder is the http.ResponseWriter of a roundTripper.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

// maxAnswer is the largest answer read, in bytes.
const maxAnswer = 16 << 20

// ask posts a question and returns the decision, as JSON.
func ask(ctx context.Context, client *http.Client, url string, question any) ([]byte, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--server: %w: want a URL such as http://localhost:8080", err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the server did not answer: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("the server broke off: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return answer, nil
	}
	var problem struct{ Detail string }
	if err := json.Unmarshal(answer, &problem); err != nil || problem.Detail == "" {
		return nil, fmt.Errorf("%s answered with status %d: is it a weir server?", url, response.StatusCode)
	}
	return nil, errors.New(problem.Detail)
}

// verdict is what print reads of a decision.
type verdict struct {
	Allowed    *bool  `json:"allowed"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"`
	Reason     string `json:"reason"`
	Rules      []struct {
		Name    string `json:"name"`
		Allowed bool   `json:"allowed"`
		Shadow  bool   `json:"shadow"`
	} `json:"rules"`
}

func (c *checker) print(answer []byte) error {
	var v verdict
	if err := json.Unmarshal(answer, &v); err != nil || v.Allowed == nil {
		return fmt.Errorf("%s did not answer with a decision: is it a weir server?", c.server)
	}
	text := v.String() + "\n"
	switch {
	case c.json:
		text = string(answer)
	case c.cost == 0:
		text = "would be " + text
	}
	if _, err := io.WriteString(c.out, text); err != nil {
		return err
	}
	if !*v.Allowed {
		return exitNo
	}
	return nil
}

// String says the verdict in a line.
func (v verdict) String() string {
	text := v.text()
	if strings.HasPrefix(v.Reason, "store_unavailable") {
		text += " (" + strings.ReplaceAll(v.Reason, "_", " ") + ")"
	}
	return text
}

func (v verdict) text() string {
	switch {
	case v.Reason == weir.NoRule.String():
		return "allowed: no rule applies"
	case *v.Allowed:
		return fmt.Sprintf("allowed: %d of %d left", v.Remaining, v.Limit)
	}
	var by []string
	for _, r := range v.Rules {
		if !r.Allowed && !r.Shadow && r.Name != "" {
			by = append(by, r.Name)
		}
	}
	text := "denied"
	if len(by) > 0 {
		text += " by " + strings.Join(by, " and ")
	}
	switch {
	case v.Limit == 0:
		return text + ": never allowed"
	case v.Reason == weir.Never.String():
		return fmt.Sprintf("%s: never more than %d at once", text, v.Limit)
	}
	retry := time.Duration(v.RetryAfter) * time.Millisecond
	return fmt.Sprintf("%s: %d of %d left, retry in %v", text, v.Remaining, v.Limit, retry)
}
