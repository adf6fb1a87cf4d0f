package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/internal/redistest"
)

const (
	ok        = rls.RateLimitResponse_OK
	overLimit = rls.RateLimitResponse_OVER_LIMIT
	second    = rls.RateLimitResponse_RateLimit_SECOND
	minute    = rls.RateLimitResponse_RateLimit_MINUTE
	hour      = rls.RateLimitResponse_RateLimit_HOUR
	daily     = rls.RateLimitResponse_RateLimit_DAY
)

// envoyFiles are files of envoyproxy/ratelimit.
var envoyFiles = map[string]string{
	"web.yaml": `
domain: web
descriptors:
  - key: client
    rate_limit: {unit: second, requests_per_unit: 50}
  - key: signup
    rate_limit: {unit: minute, requests_per_unit: 1}
`,
	"mail.yaml": `
domain: mail
descriptors:
  - key: sender
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: recipient
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: list
    rate_limit: {unit: day, requests_per_unit: 20}
`,
	"files.yaml": `
domain: files
descriptors:
  - key: path
    value: pub/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: own
    value: home/*
    rate_limit: {unit: hour, requests_per_unit: 10}
`,
}

// dialEnvoy connects to the gRPC door of a server.
func dialEnvoy(t *testing.T, s *served, c credentials.TransportCredentials, more ...grpc.DialOption) rls.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.door(t, "grpc"), append(more, grpc.WithTransportCredentials(c))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rls.NewRateLimitServiceClient(conn)
}

// door returns the address of a door.
func (s *served) door(t *testing.T, name string) string {
	t.Helper()
	for _, d := range s.doors {
		if d.name == name {
			return d.listener.Addr().String()
		}
	}
	t.Fatalf("there is no door %s", name)
	return ""
}

// window is what is known of a limit from what has been answered.
type window struct {
	key, value string
	limit      uint32
	unit       rls.RateLimitResponse_RateLimit_Unit
	used       uint32
	wait       int64
}

// hit asks once of all windows and checks the answer, which it returns. A window
// has ended when the wait for its end has grown.
func hit(t *testing.T, c rls.RateLimitServiceClient, domain string, windows ...*window) rls.RateLimitResponse_Code {
	t.Helper()
	request := &rls.RateLimitRequest{Domain: domain}
	for _, w := range windows {
		entries := []*ratelimit.RateLimitDescriptor_Entry{{Key: w.key, Value: w.value}}
		request.Descriptors = append(request.Descriptors, &ratelimit.RateLimitDescriptor{Entries: entries})
	}
	got, err := c.ShouldRateLimit(t.Context(), request)
	if err != nil || len(got.GetStatuses()) != len(windows) {
		t.Fatalf("%v: got %v, %v", request, got, err)
	}
	want := &rls.RateLimitResponse{OverallCode: ok, ResponseHeadersToAdd: got.GetResponseHeadersToAdd()}
	for i, w := range windows {
		wait := got.GetStatuses()[i].GetDurationUntilReset().GetSeconds()
		if wait > w.wait || wait == 0 {
			w.used = 0
		}
		w.wait = wait
		if w.used == w.limit {
			want.OverallCode = overLimit
		}
	}
	for _, w := range windows {
		code := ok
		if w.used == w.limit {
			code = overLimit
		}
		if want.GetOverallCode() == ok {
			w.used++
		}
		want.Statuses = append(want.Statuses, &rls.RateLimitResponse_DescriptorStatus{
			Code: code, LimitRemaining: w.limit - w.used, DurationUntilReset: &durationpb.Duration{Seconds: w.wait},
			CurrentLimit: &rls.RateLimitResponse_RateLimit{RequestsPerUnit: w.limit, Unit: w.unit},
		})
	}
	if !proto.Equal(got, want) {
		t.Errorf("%v:\ngot  %v\nwant %v", request, got, want)
	}
	if limited := want.GetOverallCode() == overLimit; limited != (len(got.GetResponseHeadersToAdd()) == 1) {
		t.Errorf("headers %v: want Retry-After where something is over its limit", got.GetResponseHeadersToAdd())
	}
	return got.GetOverallCode()
}

// exhaust hits until so many hits in a row have been denied, and checks that no
// more than the limit of the last window were admitted before.
func exhaust(t *testing.T, c rls.RateLimitServiceClient, denials int, domain string, windows ...*window) {
	t.Helper()
	for denied := 0; denied < denials; {
		if denied++; hit(t, c, domain, windows...) == ok {
			denied = 0
		}
	}
}

// A client that follows the public scenarios of envoyproxy/ratelimit gets the
// same codes, limits, units and remainings.
func TestEnvoyScenarios(t *testing.T) {
	for name, args := range map[string]func(t *testing.T) []string{
		"memory": func(*testing.T) []string { return nil },
		"redis": func(t *testing.T) []string {
			return []string{"--redis", redistest.Start(t, redistest.Options{}).URL(), patient}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range envoyFiles {
				place(t, filepath.Join(dir, name), text)
			}
			s := serve(t, net.Listen, append([]string{"--http", "127.0.0.1:0", "--admin", "off", "--grpc", "127.0.0.1:0", "--config", dir}, args(t)...)...)
			c := dialEnvoy(t, s, insecure.NewCredentials())
			noLimit(t, c, "unheard-of", "client")
			noLimit(t, c, "web", "nothing")
			hit(t, c, "web", &window{key: "client", value: "a", limit: 50, unit: second})
			exhaust(t, c, 5, "mail", &window{key: "sender", value: "a", limit: 20, unit: minute})
			exhaust(t, c, 5, "mail", &window{key: "sender", value: "b", limit: 20, unit: minute}, &window{key: "recipient", value: "b", limit: 10, unit: hour})
			hit(t, c, "mail", &window{key: "list", value: "a", limit: 20, unit: daily})
			shareThresholds(t, c)
			dropIn(t, c, filepath.Join(dir, "late.yaml"))
			overHTTP(t, "http://"+s.door(t, "http"))
		})
	}
}

func noLimit(t *testing.T, c rls.RateLimitServiceClient, domain, key string) {
	t.Helper()
	if err := unlimited(t.Context(), c, domain, key); err != nil {
		t.Error(err)
	}
}

// unlimited says what is wrong unless a key has no limit.
func unlimited(ctx context.Context, c rls.RateLimitServiceClient, domain, key string) error {
	request := &rls.RateLimitRequest{Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: "a"}}}}}
	got, err := c.ShouldRateLimit(ctx, request)
	if want := (&rls.RateLimitResponse{OverallCode: ok, Statuses: []*rls.RateLimitResponse_DescriptorStatus{{Code: ok}}}); err != nil || !proto.Equal(got, want) {
		return fmt.Errorf("%v: got %v, %w", request, got, err)
	}
	return nil
}

// shareThresholds checks that values share a limit where the file says so, and
// nowhere else.
func shareThresholds(t *testing.T, c rls.RateLimitServiceClient) {
	t.Helper()
	shared := &window{key: "path", value: "pub/a", limit: 10, unit: hour}
	exhaust(t, c, 1, "files", shared)
	shared.value = "pub/b"
	exhaust(t, c, 1, "files", shared)
	for _, value := range []string{"home/a", "home/b"} {
		hit(t, c, "files", &window{key: "own", value: value, limit: 10, unit: hour})
	}
}

// dropIn checks that a file acts when it comes, and no more when it has gone.
func dropIn(t *testing.T, c rls.RateLimitServiceClient, name string) {
	t.Helper()
	noLimit(t, c, "late", "blocked")
	place(t, name, "domain: late\ndescriptors:\n  - key: blocked\n    rate_limit: {unit: second, requests_per_unit: 0}\n  - key: client\n    rate_limit: {unit: second, requests_per_unit: 50}\n")
	redistest.Await(t, "the file to act", func() error {
		if unlimited(t.Context(), c, "late", "blocked") == nil {
			return errors.New("there is no limit")
		}
		return nil
	})
	hit(t, c, "late", &window{key: "client", value: "a", limit: 50, unit: second})
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the file to be gone", func() error { return unlimited(t.Context(), c, "late", "blocked") })
}

// overHTTP checks that the HTTP door serves what the reference does there.
func overHTTP(t *testing.T, url string) {
	t.Helper()
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if status, answer := send(t, url+"/json", `{"domain":"files","descriptors":[{"entries":[{"key":"own","value":"home/http"}],"hits_addend":"10"}]}`); status != want {
			t.Errorf("got %d %s, want %d", status, answer, want)
		}
	}
	response, err := http.Get(url + "/healthcheck")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("/healthcheck: got %s", response.Status)
	}
}

// In shadow mode nothing is denied.
func TestShadowModeFlag(t *testing.T) {
	dir := t.TempDir()
	place(t, filepath.Join(dir, "mail.yaml"), envoyFiles["mail.yaml"])
	s := serve(t, net.Listen, "--http", "off", "--admin", "off", "--grpc", "127.0.0.1:0", "--config", dir, "--shadow-mode")
	c := dialEnvoy(t, s, insecure.NewCredentials())
	for _, want := range []rls.RateLimitResponse_Code{ok, overLimit} {
		got, err := c.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "mail", HitsAddend: 10, Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "recipient", Value: "a"}}}}})
		if err != nil || got.GetOverallCode() != ok || got.GetStatuses()[0].GetCode() != want {
			t.Errorf("got %v, %v, want OK, and %v of the status", got, err, want)
		}
	}
}

// One who watches does not hold the stop up.
func TestStopWithWatchers(t *testing.T) {
	s := serve(t, net.Listen, "--http", "off", "--admin", "off", "--grpc", "127.0.0.1:0")
	conn, err := grpc.NewClient(s.door(t, "grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := health.NewHealthClient(conn).Watch(t.Context(), &health.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := s.stopped(); err != nil || strings.Contains(s.output.String(), "cut off") {
		t.Errorf("%v: %s", err, s.output.String())
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	text []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.key = a.newKey(t)
	a.text = a.sign(t, a.cert, a.key)
	return a
}

func (a *authority) newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t *testing.T, cert *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue returns a certificate for this machine and its key.
func (a *authority) issue(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private := a.newKey(t)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	return a.sign(t, leaf, private), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// client returns what a client that trusts a needs, and the serial number that
// the server showed it last.
func (a *authority) client(t *testing.T, of *authority) (*tls.Config, *atomic.Int64) {
	t.Helper()
	shown := new(atomic.Int64)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(a.text)
	config.VerifyConnection = func(s tls.ConnectionState) error {
		shown.Store(s.PeerCertificates[0].SerialNumber.Int64())
		return nil
	}
	if of != nil {
		pair, err := tls.X509KeyPair(of.issue(t, 100))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, shown
}

// callOnce makes a connection of its own for a call.
func callOnce(t *testing.T, s *served, config *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient(s.door(t, "grpc"), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return unlimited(t.Context(), rls.NewRateLimitServiceClient(conn), "none", "k")
}

// tlsServer returns a server with TLS and the paths of its files.
func tlsServer(t *testing.T, a, clients *authority) (s *served, cert, key, ca string) {
	t.Helper()
	dir := t.TempDir()
	cert, key, ca = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	certText, keyText := a.issue(t, 10)
	place(t, cert, string(certText))
	place(t, key, string(keyText))
	text := fmt.Sprintf("server: {grpc_cert_file: %q, grpc_key_file: %q", cert, key)
	if clients != nil {
		place(t, ca, string(clients.text))
		text += fmt.Sprintf(", grpc_client_ca_file: %q", ca)
	}
	place(t, filepath.Join(dir, "server.yaml"), text+"}\n")
	s = serve(t, net.Listen, "--http", "off", "--admin", "off", "--grpc", "127.0.0.1:0", "--config", filepath.Join(dir, "server.yaml"))
	return s, cert, key, ca
}

// New certificates are shown to new connections, and old connections stay.
func TestCertificateSwap(t *testing.T) {
	a := newAuthority(t)
	s, cert, key, _ := tlsServer(t, a, nil)
	config, shown := a.client(t, nil)
	var dials atomic.Int64
	old := dialEnvoy(t, s, credentials.NewTLS(config), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}))
	noLimit(t, old, "none", "k")
	if shown.Load() != 10 {
		t.Fatalf("certificate %d is shown", shown.Load())
	}
	certText, keyText := a.issue(t, 11)
	place(t, cert, string(certText))
	redistest.Await(t, "a certificate of another key to be refused", func() error {
		if err := callOnce(t, s, config); err != nil || shown.Load() != 10 {
			t.Fatalf("certificate %d is shown, %v", shown.Load(), err)
		}
		if log := s.output.String(); !strings.Contains(log, "WARN the certificates on disk are refused") {
			return errors.New(log)
		}
		return nil
	})
	place(t, key, string(keyText))
	redistest.Await(t, "the new certificate", func() error {
		if err := callOnce(t, s, config); err != nil || shown.Load() != 11 {
			return fmt.Errorf("certificate %d is shown, %w", shown.Load(), err)
		}
		return nil
	})
	noLimit(t, old, "none", "k")
	if dials.Load() != 1 || strings.Contains(s.output.String(), "PRIVATE KEY") {
		t.Errorf("%d connections, want 1: %s", dials.Load(), s.output.String())
	}
}

// Only clients with a certificate of the authority on disk are answered.
func TestMutualTLS(t *testing.T) {
	a, clients, others := newAuthority(t), newAuthority(t), newAuthority(t)
	s, _, _, ca := tlsServer(t, a, clients)
	known, _ := a.client(t, clients)
	other, _ := a.client(t, others)
	none, _ := a.client(t, nil)
	if err := callOnce(t, s, known); err != nil {
		t.Error(err)
	}
	for name, config := range map[string]*tls.Config{"none": none, "of another authority": other} {
		if err := callOnce(t, s, config); grpcstatus.Code(err) != codes.Unavailable {
			t.Errorf("a client with certificate %s: got %v", name, err)
		}
	}
	place(t, ca, string(others.text))
	redistest.Await(t, "the new authority", func() error { return callOnce(t, s, other) })
	if err := callOnce(t, s, known); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("a client of the old authority: got %v", err)
	}
}

// What cannot be served is said at the start.
func TestBadCertificates(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	cert, _ := a.issue(t, 1)
	_, key := a.issue(t, 2)
	for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": key, "empty.pem": nil} {
		place(t, filepath.Join(dir, name), string(text))
	}
	good, goodKey := a.issue(t, 3)
	place(t, filepath.Join(dir, "good.pem"), string(good))
	place(t, filepath.Join(dir, "good-key.pem"), string(goodKey))
	for _, test := range [][4]string{
		{"none.pem", "key.pem", "", "none.pem: no such file"},
		{"cert.pem", "key.pem", "", "private key does not match public key"},
		{"good.pem", "good-key.pem", "empty.pem", "empty.pem holds no certificate: want PEM"},
	} {
		env := func(name string) (string, bool) {
			file := map[string]string{"WEIR_GRPC_CERT_FILE": test[0], "WEIR_GRPC_KEY_FILE": test[1], "WEIR_GRPC_CLIENT_CA_FILE": test[2]}[name]
			if file == "" {
				return "", false
			}
			return filepath.Join(dir, file), true
		}
		flags := serveCmd().Flags()
		if err := flags.Parse([]string{"--http", "off", "--admin", "off", "--grpc", "127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
		if _, err := open(flags, env, net.Listen, new(written)); err == nil || !strings.HasPrefix(err.Error(), "TLS of --grpc: ") || !strings.Contains(err.Error(), test[3]) {
			t.Errorf("%v: got %v", test, err)
		}
	}
}
