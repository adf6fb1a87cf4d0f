package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/load"
)

// anyPort is an address that only this machine reaches.
const anyPort = "127.0.0.1:0"

// spawned is a server that weir bench has started, so that its processor time
// can be told from the client's. It says on its standard output which doors it
// has, and for each line that it reads how much time it has used so far; it
// ends with its input, so that it outlives nobody.
type spawned struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *json.Decoder
	doors map[string]string // addresses
}

// spawn runs weir bench-server, and returns once it serves.
func spawn(ctx context.Context, errs io.Writer, args ...string) (*spawned, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &spawned{cmd: exec.CommandContext(ctx, program, append([]string{"bench-server"}, args...)...)} //nolint:gosec // itself
	p.cmd.Args[0], p.cmd.Stderr = os.Args[0], errs
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if p.out.Decode(&p.doors) != nil {
		p.stop()
		return nil, exitFailure // it has said why
	}
	return p, nil
}

// cpu returns the processor time used so far; not ok if that cannot be known,
// as of a process that is not our own, which is nil.
func (p *spawned) cpu() (used time.Duration, ok bool) {
	if p == nil {
		return 0, false
	}
	_, err := io.WriteString(p.in, "\n")
	return used, err == nil && p.out.Decode(&used) == nil && used > 0
}

func (p *spawned) stop() {
	_ = p.in.Close()
	_ = p.cmd.Wait() // killed, if the command was interrupted
}

// benchServerCmd is the other end of a spawned server.
func benchServerCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "bench-server weir|floor", Hidden: true, Args: cobra.ExactArgs(1)}
	addFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var s *server
		var err error
		if args[0] == "floor" {
			s, err = openFloor()
		} else {
			s, err = open(cmd.Flags(), func(string) (string, bool) { return "", false }, net.Listen, cmd.ErrOrStderr())
		}
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		err = s.report(cmd.InOrStdin(), json.NewEncoder(cmd.OutOrStdout()))
		cancel()
		return errors.Join(err, <-done)
	}
	return cmd
}

// report tells of the server until in ends.
func (s *server) report(in io.Reader, out *json.Encoder) error {
	doors := make(map[string]string)
	for _, d := range s.doors {
		doors[d.name] = d.listener.Addr().String()
	}
	err := out.Encode(doors)
	for asked := bufio.NewScanner(in); err == nil && asked.Scan(); {
		used, _ := load.CPU()
		err = out.Encode(used)
	}
	return err
}

// openFloor opens the doors of a server that reads requests and does nothing.
func openFloor() (*server, error) {
	s := &server{log: slog.New(slog.DiscardHandler), limiter: weir.New(weir.Options{})}
	over := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(over, idle{})
	err := s.openDoor("grpc", anyPort, floorGRPC{over}, net.Listen)
	if err == nil {
		err = s.openDoor("http", anyPort, &http.Server{Handler: idle{}}, net.Listen) //nolint:gosec // without bounds, as it is bare
	}
	return s, err
}

// idle does nothing.
type idle struct {
	rls.UnimplementedRateLimitServiceServer
}

func (idle) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
}

// ShouldRateLimit returns an empty answer.
func (idle) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return new(rls.RateLimitResponse), nil
}

// floorGRPC is a *grpc.Server as doors have it.
type floorGRPC struct{ *grpc.Server }

// Shutdown is Close.
func (f floorGRPC) Shutdown(context.Context) error { return f.Close() }

// Close cuts all calls off.
func (f floorGRPC) Close() error {
	f.Stop()
	return nil
}
