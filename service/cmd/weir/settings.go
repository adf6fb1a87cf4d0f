package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/service/config"
)

// off closes a door.
const off = "off"

// settings are what `weir serve` runs with. Each is a flag, or else an
// environment variable, or else in the server mapping of a config file, or
// else its default. RESP is empty unless asked for.
type settings struct {
	config.Server
	logFormat string
	demo      bool
}

// addFlags adds what can be set. The defaults are in resolve, after all that
// can come before them.
func addFlags(flags *pflag.FlagSet) {
	flags.StringArray("config", nil, "file or directory with rules; may be repeated ($WEIR_CONFIG is a list like $PATH)")
	flags.String("http", "", "address for HTTP, or off (default :8080)")
	flags.String("grpc", "", "address for Envoy's rate limit service over gRPC, or off (default :8081)")
	flags.String("resp", "", "address for the Redis protocol, or off; this version does not serve it yet")
	flags.String("admin", "", "address for operators, or off (default 127.0.0.1:6070)")
	flags.String("admin-token", "", "token that operators must send; others can see it here, so better set $WEIR_ADMIN_TOKEN")
	flags.String("admin-tokens-file", "", "file of such tokens, lines NAME TOKEN [EXPIRY], read again when it changes; the log tells who did what by NAME")
	flags.Bool("redact-keys", false, "do not name who is limited in the log and among the hottest keys")
	flags.String("redis", "", "URL of a Redis or Valkey server to keep limits on, such as redis://10.0.0.7:6379 (default in memory)")
	flags.String("redis-password-file", "", "file with its password, which $WEIR_REDIS_PASSWORD may have instead")
	flags.String("redis-prefix", "", "what all keys begin with (default weir)")
	flags.String("redis-key-secret-file", "", "file with a secret that hides in keys who is limited, which $WEIR_REDIS_KEY_SECRET may have instead")
	flags.String("redis-mode", "", "scripts, or plain for a server without them, which has fixed-window only (default scripts)")
	flags.String("redis-layout", "", "packed, or sorted-set to look into sliding logs with ZRANGE (default packed)")
	flags.String("replicas", "", "how many processes share the server: while it is away each decides by that part of a limit (default 1)")
	flags.String("deadline", "", "how long the server may take before it is decided without it (default 50ms)")
	flags.String("snapshot", "", "file to keep limits in across restarts if they are in memory: written on a stop and every --snapshot-every, read at the start")
	flags.String("snapshot-every", "", "how often, which is how much a crash forgets; at least 1s (default 1m)")
	flags.Bool("shadow-mode", false, "decide and count, but deny nothing")
	flags.Bool("demo", false, "send made-up traffic to rules of its own, the domain demo, to look at")
	flags.String("log-level", "", "debug, info, warn or error (default info)")
	flags.String("log-format", "", "text or json (default text)")
}

// getenv is os.LookupEnv.
type getenv func(name string) (value string, ok bool)

// configPaths returns the files and directories to load.
func configPaths(flags *pflag.FlagSet, env getenv) []string {
	if paths, _ := flags.GetStringArray("config"); len(paths) > 0 {
		return paths
	}
	list, _ := env("WEIR_CONFIG")
	return filepath.SplitList(list)
}

// resolve puts the settings together.
func resolve(flags *pflag.FlagSet, env getenv, file config.Server) (settings, error) {
	s := settings{Server: file}
	if err := s.FromEnv(env); err != nil {
		return s, err
	}
	s.logFormat, _ = env("WEIR_LOG_FORMAT")
	s.demo, _ = flags.GetBool("demo")
	for _, o := range []struct {
		flag, otherwise string
		value           *string
	}{
		{"http", ":8080", &s.HTTP},
		{"grpc", ":8081", &s.GRPC},
		{"resp", "", &s.RESP},
		{"admin", "127.0.0.1:6070", &s.Admin},
		{"admin-token", "", &s.AdminToken},
		{"admin-tokens-file", "", &s.AdminTokensFile},
		{"redis", "", &s.Redis.URL},
		{"redis-password-file", "", &s.Redis.Password.File},
		{"redis-prefix", "", &s.Redis.Prefix},
		{"redis-key-secret-file", "", &s.Redis.KeySecret.File},
		{"redis-mode", "", &s.Redis.Mode},
		{"redis-layout", "", &s.Redis.Layout},
		{"snapshot", "", &s.Snapshot.File},
		{"log-level", "info", &s.LogLevel},
		{"log-format", "text", &s.logFormat},
	} {
		if flags.Changed(o.flag) {
			*o.value, _ = flags.GetString(o.flag)
		}
		if *o.value == "" {
			*o.value = o.otherwise
		}
	}
	for _, name := range []string{"replicas", "deadline", "snapshot-every", "shadow-mode", "redact-keys"} {
		if flag := flags.Lookup(name); flag.Changed {
			if err := s.Set(strings.ReplaceAll(name, "-", "_"), "--"+name, flag.Value.String()); err != nil {
				return s, err
			}
		}
	}
	return s, s.check()
}

func (s settings) check() error {
	if s.HTTP == off && s.GRPC == off && s.Admin == off {
		return errors.New("--http, --grpc and --admin are all off: leave one open, such as --http :8080")
	}
	for _, door := range [][2]string{{"http", s.HTTP}, {"grpc", s.GRPC}, {"resp", s.RESP}, {"admin", s.Admin}} {
		if name, address := door[0], door[1]; address != "" && address != off && !isAddress(address) {
			return fmt.Errorf("--%s %q is no address: want host:port such as 127.0.0.1:8080, :8080, or off", name, address)
		}
	}
	if s.Admin != off && s.AdminToken == "" && s.AdminTokensFile == "" && !loopback(s.Admin) {
		return fmt.Errorf("--admin %s is open to other machines and needs a token: set WEIR_ADMIN_TOKEN or --admin-tokens-file, or use --admin 127.0.0.1:6070", s.Admin)
	}
	switch {
	case s.demo && s.Admin == off:
		return errors.New("--demo is there to be looked at, and --admin is off: leave that open, such as --admin 127.0.0.1:6070")
	case (s.GRPCTLS.Cert == "") != (s.GRPCTLS.Key == ""), s.GRPCTLS.Cert == "" && s.GRPCTLS.ClientCA != "":
		return errors.New("TLS needs a certificate and its key: set both grpc_cert_file and grpc_key_file in the server settings, and with them, if you want, grpc_client_ca_file")
	case s.Snapshot.File != "" && s.Redis.URL != "":
		return fmt.Errorf("--snapshot %s is for limits in memory, and with --redis they are on the server: leave one of them out", s.Snapshot.File)
	case s.Snapshot.File == "" && s.Snapshot.Every != 0:
		return errors.New("--snapshot-every says how often a file is written, but there is none: name it, as in --snapshot limits.snapshot")
	}
	return checkRedis(s.Redis)
}

func checkRedis(r config.Redis) error {
	switch {
	case r.URL == "" && r != config.Redis{}:
		return errors.New("there are settings for Redis, but no server: name it, as in --redis redis://10.0.0.7:6379")
	case !slices.Contains([]string{"", "scripts", "plain"}, r.Mode):
		return fmt.Errorf("--redis-mode %q: want scripts or plain", r.Mode)
	case !slices.Contains([]string{"", "packed", "sorted-set"}, r.Layout):
		return fmt.Errorf("--redis-layout %q: want packed or sorted-set", r.Layout)
	case r.Mode == "plain" && r.Layout == "sorted-set":
		return errors.New("--redis-layout sorted-set needs scripts: leave out --redis-mode plain")
	}
	return nil
}

// inline reports whether limits sent with a request are served beside rules.
func (s settings) inline() bool { return s.Inline != nil && *s.Inline }

// isAddress reports whether a config file would take it as an address, too.
func isAddress(address string) bool {
	_, port, err := net.SplitHostPort(address)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil
}

// loopback reports whether only this machine can reach an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
