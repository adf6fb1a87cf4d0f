package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/httpapi"
	"github.com/weirlimit/weir/service/rlsapi"
	"github.com/weirlimit/weir/service/telemetry"
	"github.com/weirlimit/weir/service/wire"
)

func serveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [--config FILE|DIR]... [--redis URL]",
		Short: "Answer checks over the network",
		Long: `Answer checks over the network, until interrupted. What has been accepted by
then is finished, which takes at most five seconds.

Every flag can also be set as a variable WEIR_..., such as WEIR_HTTP, and all but
--config and --log-format in the server mapping of a config file. A flag beats a
variable, which beats a file. Only --demo is nothing but a flag.

Rules are loaded again when a file changes, comes or goes, and on SIGHUP; what
has been used stays used. While something is wrong with them the last good ones
stay in force. Server settings take a restart.

Limits are kept in memory. With --snapshot FILE they outlive the process: it
writes the file when it stops and every --snapshot-every, so that a crash forgets
no more than that, and reads it when it starts. A file that is damaged is put
aside, and all limits start unused.

With --redis all processes that name the same server and prefix share their
limits. The URL is one of

  redis://host:6379                                 rediss:// for TLS
  redis://host1:6379,host2:6379                     a Cluster
  redis://host1:26379,host2:26379?master_set=NAME   Sentinel
  unix:///run/redis.sock

and may have user:password@ before the host, a database as /DB or ?db=DB, and
parameters such as ?ca=FILE. Others can see a password there: better set
$WEIR_REDIS_PASSWORD or --redis-password-file, with the user in the URL or in
$WEIR_REDIS_USERNAME. The rights that the user needs are in examples/weir.acl.

Envoy and other clients of envoyproxy/ratelimit ask over gRPC, or POST /json. gRPC
is served with TLS if the server mapping of a config file has grpc_cert_file and
grpc_key_file, and asks clients for certificates if it has grpc_client_ca_file.
These files are read again when they change.

Operators ask and act at --admin: GET /api/state tells how things are, POST
/api/overrides changes for a time what somebody is held to, and the log tells who
did what. From other machines that takes --admin-token, or --admin-tokens-file
with a line NAME TOKEN [EXPIRY] for each operator, EXPIRY such as
2027-01-31T00:00:00Z.

What is wrong with the settings ends the program with a sentence that says so. A
server that is out of reach, or takes longer than --deadline, does not: until it
answers again each process decides by its part of every limit (--replicas), or
allows or denies if on_failure of a rule says so. The reason in each answer tells.`,
		Example: `  weir serve
  weir serve --config slack.yaml --http 127.0.0.1:9000 --admin off
  weir serve --redis redis://10.0.0.7:6379 --redis-password-file /run/secrets/redis`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the program at once
			s, err := open(cmd.Flags(), os.LookupEnv, net.Listen, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return s.run(ctx)
		},
	}
	addFlags(cmd.Flags())
	return cmd
}

// noArgs does not repeat an argument as cobra.NoArgs does: it may be a URL with
// a password.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return errors.New("serve takes flags only, as in weir serve --config slack.yaml --redis redis://10.0.0.7:6379")
	}
	return nil
}

const (
	// drainTime is how long accepted requests may take to finish; with what
	// else there is to do, stopping takes less than 5 s.
	drainTime = 4 * time.Second
	// Bounds on what a slow or hostile client can hold on to.
	readHeaderTime = 5 * time.Second
	readTime       = 10 * time.Second
	writeTime      = 15 * time.Second
	idleTime       = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// server is the service, its doors open.
type server struct {
	log       *slog.Logger
	level     *slog.LevelVar      // of log
	telemetry *telemetry.Recorder // nil of the floor of weir bench
	limiter   *weir.Limiter
	keeper    *keeper // nil if there is no file to keep them in
	demo      *demo   // nil unless asked for
	doors     []door  // those for callers first
	state     atomic.Pointer[string]
	// reloader is nil if there is no config.
	reloader  *reloader
	overrides *overrides // nil if there can be none
	tokens    *tokens    // nil if operators need none

	// These are nil if limits are kept in memory.
	store    *redisstore.Store
	fallback *layer.Fallback // over store
	outage   *outage         // of store
}

// What /readyz says.
var starting, serving, stopping = "starting", "serving", "stopping"

// door is an address that is served.
type door struct {
	name     string
	listener net.Listener
	server   answerer
}

// answerer is an *http.Server, or what serves in the same way.
type answerer interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// open loads what is configured and opens the doors. Nothing is answered
// before run.
func open(flags *pflag.FlagSet, env getenv, listen listen, errs io.Writer) (*server, error) {
	watcher, once := config.NewWatcher(configPaths(flags, env))
	read := func() (*config.Config, settings, error) { return readConfig(flags, env) }
	loaded, set, err := read()
	if err != nil {
		return nil, err
	}
	log, level, err := newLog(errs, set.LogLevel, set.logFormat)
	if err != nil {
		return nil, err
	}
	s := &server{log: log, level: level}
	s.state.Store(&starting)
	if err := s.openTelemetry(set, env); err != nil {
		return nil, err
	}
	if set.Snapshot.File != "" {
		err = s.openMemory(set.Snapshot)
	} else {
		err = s.openLimiter(set.Redis)
	}
	if err != nil {
		return nil, err
	}
	engine := decide.New(decide.Options{Limiter: s.limiter, Observe: s.decided(), Timed: s.telemetry.Timed, Shadow: set.ShadowMode})
	if set.demo {
		s.demo = &demo{engine}
	}
	if loaded.Policy != nil {
		if len(loaded.Files) == 0 {
			watcher = nil // the demo's rules do not change
		}
		s.reloader = newReloader(log, watcher, engine, s.telemetry.Loaded, loaded, set)
		s.reloader.read = read
		if once != nil {
			log.Warn("the config is not loaded again when it changes", "because", once)
		}
	}
	s.overrides = newOverrides(log, engine, s.sharedTable(set.Redis.Mode))
	if err := s.openDoors(engine, set, env, listen); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.greet(loaded, set)
	return s, nil
}

func (s *server) openDoors(engine *decide.Engine, set settings, env getenv, listen listen) error {
	auth, err := openAuth(set.Auth)
	if err != nil {
		return err
	}
	envoy, err := openEnvoy(set.Server, s.log)
	if err != nil {
		return err
	}
	envoy.Engine, envoy.Ready = engine, func() bool { return s.ready().Ready }
	if _, ok := env(collector); ok {
		envoy.Span = s.telemetry.Span
	}
	o := httpapi.Options{Engine: engine, Ready: s.ready, Auth: auth}
	admin, err := s.overAdmin(engine, set)
	if err != nil {
		return err
	}
	callers, reference := http.NewServeMux(), rlsapi.Handler(envoy)
	callers.Handle("/", httpapi.New(o))
	callers.Handle("/json", reference)
	callers.Handle("/healthcheck", reference)
	for _, d := range []struct {
		name, address string
		server        answerer
	}{{"http", set.HTTP, s.overHTTP(s.telemetry.Trace(callers))}, {"grpc", set.GRPC, rlsapi.New(envoy)}, {"admin", set.Admin, admin}} {
		if err := s.openDoor(d.name, d.address, d.server, listen); err != nil {
			return err
		}
	}
	return nil
}

// listen is net.Listen.
type listen func(network, address string) (net.Listener, error)

func (s *server) openDoor(name, address string, server answerer, listen listen) error {
	if address == off {
		return nil
	}
	l, err := listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use by another program: stop that, or choose another address with --%s", address, name)
	case err != nil:
		return fmt.Errorf("--%s %s cannot be opened: %w", name, address, err)
	}
	s.doors = append(s.doors, door{name, l, server})
	return nil
}

func (s *server) overHTTP(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
}

// greet says what is served and where.
func (s *server) greet(loaded *config.Config, set settings) {
	if len(loaded.Files) == 0 {
		s.log.Info("no config is given, so each request brings its own limit" + s.tryIt())
	} else {
		announce(s.log, "the config is loaded", loaded, set)
	}
	for _, d := range s.doors {
		s.log.Info("listening", "door", d.name, "address", d.listener.Addr().String())
	}
	if set.demo {
		s.log.Info("made-up users ask the domain demo; see who is limited, and why, at " + s.dashboard() + " or with: weir top --admin " + s.dashboard())
	}
	if set.RESP != "" && set.RESP != off {
		s.log.Warn("this version cannot open a door that was asked for", "door", "resp", "address", set.RESP)
	}
}

// tryIt is the rest of a sentence that tells how to try the first door.
func (s *server) tryIt() string {
	d := s.doors[0]
	if d.name != "http" {
		return ""
	}
	return `; try: curl -d '{"key":"search:alice","limit":"5/minute"}' http://` + reachable(d.listener.Addr()) + "/v1/check"
}

// reachable returns the address of a listener as this machine can dial it.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return a.String()
}

// observer logs answers while anybody wants to read that much.
func observer(log *slog.Logger) func(decide.Event) {
	return func(e decide.Event) {
		if !log.Enabled(context.Background(), slog.LevelDebug) {
			return
		}
		if err := e.Answer.Err; err != nil {
			log.Debug("refused", "domain", e.Query.Domain, "error", err)
			return
		}
		log.Debug("decided", "domain", e.Query.Domain, "allowed", e.Answer.Allowed, "reason", e.Answer.Reason.String(), "rows", len(e.Answer.Rows))
	}
}

func (s *server) ready() wire.Readiness {
	state := s.state.Load()
	r := wire.Readiness{Ready: state == &serving, Detail: *state, Store: "ok"}
	if s.reloader != nil {
		r.Detail += s.reloader.status()
	}
	if s.outage != nil {
		var lack string
		if lack, r.Degraded = s.outage.status(); lack != "" {
			r.Detail, r.Store = r.Detail+"; "+lack, "unavailable"
		}
	}
	return r
}

// run serves until ctx ends or a door fails, and stops.
func (s *server) run(ctx context.Context) error {
	s.state.Store(&serving)
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { s.watchStore(ctx) })
	if s.telemetry != nil {
		background.Go(func() { s.telemetry.Run(ctx) })
	}
	defer background.Wait()
	defer cancel()
	if s.demo != nil {
		background.Go(func() { s.demo.run(ctx) })
	}
	if s.keeper != nil {
		go s.keeper.run(ctx) // which a slow disk may hold up
	}
	if s.reloader != nil && s.reloader.watcher != nil {
		s.reloader.start(ctx)
	}
	if s.tokens != nil {
		s.tokens.start(ctx)
	}
	if s.overrides != nil {
		background.Go(func() { s.overrides.run(ctx) })
	}
	failed := make(chan error, len(s.doors))
	for _, d := range s.doors {
		go func() { failed <- d.server.Serve(d.listener) }()
	}
	s.log.Info("serving")
	var err error
	select {
	case <-ctx.Done():
		s.log.Info("stopping")
	case err = <-failed:
	}
	s.state.Store(&stopping)
	return errors.Join(err, s.stop())
}

// stop finishes what was accepted, and closes the doors, that for operators
// last: until then it tells that the service is stopping.
func (s *server) stop() error {
	drain := drainTime
	if s.keeper != nil {
		drain -= keepTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	var callers sync.WaitGroup
	for _, d := range s.doors {
		if d.name == "admin" {
			callers.Wait()
		}
		callers.Go(func() {
			if err := d.server.Shutdown(ctx); err != nil {
				s.log.Warn("connections were cut off, having taken too long", "door", d.name)
			}
		})
	}
	callers.Wait()
	defer s.log.Info("stopped")
	s.closeDoors()
	if s.telemetry != nil {
		s.flush()
	}
	if s.keeper != nil {
		s.keeper.last()
	}
	return s.limiter.Close()
}

// close closes whatever is open.
func (s *server) close() error {
	s.closeDoors()
	return s.limiter.Close()
}

func (s *server) closeDoors() {
	for _, d := range s.doors {
		_ = d.server.Close()
		_ = d.listener.Close() // an error if the server has closed it
	}
}
