package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/rlsapi"
)

// openEnvoy returns how Envoy is answered, but for the engine. It is told to add
// no headers that tell of limits unless they are asked for, as it may add its own.
func openEnvoy(s config.Server, log *slog.Logger) (rlsapi.Options, error) {
	o := rlsapi.Options{Fields: httplimit.Fields{Dialect: httplimit.None}}
	if s.GRPCDialect != "" {
		if err := o.Fields.Dialect.UnmarshalText([]byte(s.GRPCDialect)); err != nil {
			return o, err
		}
	}
	if s.GRPC == off || s.GRPCTLS.Cert == "" {
		return o, nil
	}
	c := &certificates{files: s.GRPCTLS, log: log, looked: time.Now()}
	if err := c.load(); err != nil {
		return o, fmt.Errorf("TLS of --grpc: %w", err)
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: c.current}
	return o, nil
}

// lookEvery is how often at most files are looked at.
const lookEvery = time.Second

// certificates are those that are on disk. Handshakes look whether they have
// changed; connections that there are stay as they are.
type certificates struct {
	files config.TLS
	log   *slog.Logger
	good  atomic.Pointer[tls.Config] // in force

	mu     sync.Mutex // held while the files are looked at
	looked time.Time
	read   [3]string // what is in force
	wrong  string    // with the files since, which the log has said
}

// current never waits for another handshake's look at a slow disk.
func (c *certificates) current(*tls.ClientHelloInfo) (*tls.Config, error) {
	if c.mu.TryLock() {
		defer c.mu.Unlock()
		if time.Since(c.looked) >= lookEvery {
			c.looked = time.Now()
			c.reload()
		}
	}
	return c.good.Load(), nil
}

// reload keeps what is in force if the files are wrong, as they are for a
// moment while one is replaced after the other.
func (c *certificates) reload() {
	before := c.good.Load()
	wrong := ""
	if err := c.load(); err != nil {
		wrong = err.Error()
	}
	switch {
	case wrong != "" && wrong != c.wrong:
		c.log.Warn("the certificates on disk are refused, and what was loaded before them stays in force", "door", "grpc", "error", wrong)
	case c.good.Load() != before:
		c.log.Info("the certificates are loaded again", "door", "grpc")
	}
	c.wrong = wrong
}

// load puts the files in force unless they are already.
func (c *certificates) load() error {
	var read [3]string
	for i, name := range [...]string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		read[i] = string(text)
	}
	if read == c.read {
		return nil
	}
	pair, err := tls.X509KeyPair([]byte(read[0]), []byte(read[1]))
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.files.Cert, c.files.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if c.files.ClientCA != "" {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM([]byte(read[2])) {
			return errors.New(c.files.ClientCA + " holds no certificate: want PEM, which begins with -----BEGIN CERTIFICATE-----")
		}
	}
	c.read = read
	c.good.Store(config)
	return nil
}
