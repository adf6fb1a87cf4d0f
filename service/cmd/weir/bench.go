package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/service/config"
)

// bencher measures front ends; its fields are the command's flags and output.
type bencher struct {
	configs  []string
	domain   string
	servers  []string
	fronts   []string
	duration time.Duration
	callers  int
	keys     int64
	rate     float64
	json     bool
	out      io.Writer
	errs     io.Writer
	ends     []func() // what end does
}

func benchCmd() *cobra.Command {
	var b bencher
	cmd := &cobra.Command{
		Use:   "bench [--config FILE|DIR --domain DOMAIN NAME=VALUE...]",
		Short: "Measure how fast checks are answered, beside servers that do nothing",
		Long: `Measure how fast a weir on this machine answers checks, each front end beside
its floor: a server of the same transport that reads the same request and does
nothing. Both are processes of their own, driven in turn.

First every caller asks again as soon as it is answered; this gives the decisions
a second, and the processor time that the server takes for one, on Linux. Then
questions are due at a fixed rate, whether or not the server keeps up; this gives
the quantiles. An answer took as long as it is since its question was due, so that
no stall is left out, and what this client was late with counts for both servers.

Rules are one limit of 1000/minute for each key, or those of --config. Attributes,
in this order the entries of gRPC, are NAME=VALUE; a * in a value is replaced by
the number of the key, from 0.

With --server a server that runs is asked, and there is no floor beside it.`,
		Example: `  weir bench
  weir bench --front grpc --callers 1 --duration 5s
  weir bench --config slack.yaml --domain slack category=c* user=u*
  weir bench --server grpc://10.0.0.7:8081 --domain slack category=c*`,
		RunE: func(cmd *cobra.Command, args []string) error {
			b.out, b.errs = cmd.OutOrStdout(), cmd.ErrOrStderr()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return b.run(ctx, args)
		},
	}
	cmd.Flags().StringArrayVar(&b.configs, "config", nil, "file or directory with rules; may be repeated")
	cmd.Flags().StringVar(&b.domain, "domain", "", "domain to ask; needed if the config has several")
	cmd.Flags().StringArrayVar(&b.servers, "server", nil, "server to ask, such as http://localhost:8080 or grpc://localhost:8081; may be repeated")
	cmd.Flags().StringSliceVar(&b.fronts, "front", []string{"http", "grpc"}, "front ends to measure; with --server those of its URLs")
	cmd.Flags().DurationVar(&b.duration, "duration", 18*time.Second, "how long to measure in all")
	cmd.Flags().IntVar(&b.callers, "callers", 16, "how many ask at once, at most")
	cmd.Flags().Int64Var(&b.keys, "keys", 10_000, "how many keys are asked for, one after the other")
	cmd.Flags().Float64Var(&b.rate, "rate", 0, "questions a second for the quantiles (default half of what the callers reached)")
	cmd.Flags().BoolVar(&b.json, "json", false, "print JSON")
	return cmd
}

func (b *bencher) run(ctx context.Context, args []string) error {
	if err := b.check(); err != nil {
		return err
	}
	q, err := b.question(args)
	if err != nil {
		return err
	}
	defer b.end()
	targets, err := b.targets(ctx)
	if err != nil {
		return err
	}
	r := report{Callers: b.callers, Keys: b.keys, CPUs: runtime.NumCPU()}
	for _, t := range targets {
		m, err := b.measure(ctx, t, q, b.slice(targets))
		if err != nil {
			return fmt.Errorf("%s: %w", t.front.name, err)
		}
		r.Fronts = append(r.Fronts, m)
	}
	return b.print(&r)
}

// maxSamples bounds the memory that quantiles take, 8 bytes each.
const maxSamples = 10_000_000

func (b *bencher) check() error {
	switch {
	case b.duration < 100*time.Millisecond || b.duration > 24*time.Hour:
		return fmt.Errorf("--duration %v: want 100ms to 24h, such as 18s", b.duration)
	case b.callers < 1 || b.callers > 10_000:
		return fmt.Errorf("--callers %d: want 1 to 10000, such as 16", b.callers)
	case b.keys < 1:
		return fmt.Errorf("--keys %d: want 1 or more, such as 10000", b.keys)
	case b.rate != 0 && (b.rate < 1 || b.rate > 1e9):
		return fmt.Errorf("--rate %v: want 1 a second or more, such as 5000", b.rate)
	case b.rate*b.duration.Seconds() > maxSamples:
		return fmt.Errorf("--rate %v for %v are more than %d questions: want fewer", b.rate, b.duration, maxSamples)
	case len(b.fronts) == 0:
		return errors.New("--front is empty: want http, grpc or both, as in --front http,grpc")
	case len(b.servers) > 0 && b.domain == "":
		return errors.New("--domain is missing: --server needs to know whose rules to ask, as in --domain slack category=c*")
	case len(b.servers) > 0 && len(b.configs) > 0:
		return errors.New("--server and --config contradict each other: the rules are those of the server")
	}
	return nil
}

// questions are what is asked for.
type questions struct {
	domain     string
	attributes [][2]string // names and values, in which * is the number of a key
	keys       int64
}

// value returns a value for the key of question n.
func (q *questions) value(i int, n int64) string {
	value := q.attributes[i][1]
	if !strings.Contains(value, "*") {
		return value
	}
	return strings.ReplaceAll(value, "*", fmt.Sprint(n%q.keys))
}

// question returns what the arguments and flags come to, and writes the rules
// where there are none.
func (b *bencher) question(args []string) (*questions, error) {
	q := &questions{domain: b.domain, keys: b.keys}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" || slices.ContainsFunc(q.attributes, func(a [2]string) bool { return a[0] == name }) {
			return nil, fmt.Errorf("%q is no attribute: want NAME=VALUE, each name once, such as user=u*", arg)
		}
		q.attributes = append(q.attributes, [2]string{name, value})
	}
	switch {
	case len(b.configs) == 0 && len(b.servers) == 0:
		if len(args) > 0 || b.domain != "" {
			return nil, errors.New("the rules of the domain are missing: name them with --config FILE, or a server with --server URL")
		}
		q.domain, q.attributes = "bench", [][2]string{{"key", "*"}}
	case len(args) == 0:
		return nil, errors.New("attributes are missing: name what the rules look at, such as user=u*, in which * is the number of a key")
	case len(b.configs) > 0:
		loaded, err := config.Load(b.configs)
		if err != nil {
			return nil, err
		}
		if q.domain, err = chooseDomain(loaded.Policy.Domains(), b.domain); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// ownRules are asked if there are no others.
const ownRules = `domain: bench
rules:
  - name: per-key
    by: [key]
    limit: 1000/minute
`

// targets returns what is to be measured, and starts it where nothing runs yet.
func (b *bencher) targets(ctx context.Context) ([]target, error) {
	var targets []target
	for _, server := range b.servers {
		scheme, address, _ := strings.Cut(server, "://")
		f, err := frontOf(scheme)
		if err != nil || address == "" {
			return nil, fmt.Errorf("--server %s: want a URL such as http://localhost:8080 or grpc://localhost:8081", server)
		}
		targets = append(targets, target{front: f, weir: endpoint{address: strings.TrimSuffix(address, "/")}})
	}
	if len(b.servers) > 0 {
		return targets, nil
	}
	for _, name := range b.fronts {
		f, err := frontOf(name)
		if err != nil {
			return nil, fmt.Errorf("--front: %w", err)
		}
		targets = append(targets, target{front: f})
	}
	weir, floor, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	for i := range targets {
		name := targets[i].front.name
		targets[i].weir, targets[i].floor = endpoint{weir.doors[name], weir}, &endpoint{floor.doors[name], floor}
	}
	return targets, nil
}

// start starts weir and the floor under it.
func (b *bencher) start(ctx context.Context) (weir, floor *spawned, err error) {
	args := []string{"weir", "--http", anyPort, "--grpc", anyPort, "--admin", off, "--log-level", "warn"}
	configs := b.configs
	if len(configs) == 0 {
		dir, err := os.MkdirTemp("", "weir-bench-")
		if err != nil {
			return nil, nil, err
		}
		b.atEnd(func() { _ = os.RemoveAll(dir) })
		configs = []string{filepath.Join(dir, "bench.yaml")}
		if err := os.WriteFile(configs[0], []byte(ownRules), 0o600); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range configs {
		args = append(args, "--config", c)
	}
	if weir, err = b.spawn(ctx, args...); err != nil {
		return nil, nil, err
	}
	floor, err = b.spawn(ctx, "floor")
	return weir, floor, err
}

// spawn starts a server that ends with the command.
func (b *bencher) spawn(ctx context.Context, args ...string) (*spawned, error) {
	p, err := spawn(ctx, b.errs, args...)
	if err == nil {
		b.atEnd(p.stop)
	}
	return p, err
}

func (b *bencher) atEnd(do func()) { b.ends = append(b.ends, do) }

// end undoes what was done for the measurement, the last first.
func (b *bencher) end() {
	for _, do := range slices.Backward(b.ends) {
		do()
	}
}

func (b *bencher) print(r *report) error {
	if !b.json {
		_, err := b.out.Write(r.text())
		return err
	}
	encoder := json.NewEncoder(b.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
