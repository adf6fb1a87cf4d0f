package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
)

// endpoint is a server, or the servers of a Sentinel set or a Cluster, and how
// to reach them.
type endpoint struct {
	option   rueidis.ClientOption
	server   string // the addresses, for messages: never with a secret
	cluster  bool   // several addresses: it must be a Cluster
	sentinel bool   // the addresses are those of sentinels
}

// login sets the user and the password; one that is empty stays as it is.
func (e *endpoint) login(user, password string) {
	if user != "" {
		e.option.Username = user
	}
	if password != "" {
		e.option.Password = password
	}
}

const (
	dialTimeout  = 2 * time.Second // to connect and to log in
	writeTimeout = 2 * time.Second // until a silent connection counts as broken
	pingInterval = time.Second
	exampleURL   = "redis://user:password@10.0.0.7:6379/0"
)

// urlParameters are those that may stand behind the question mark, once each
// except for addr.
var urlParameters = []string{
	"addr", "ca", "cert", "db", "dial_timeout", "key", "master_set", "proxy",
	"sentinel_password", "sentinel_user", "skip_verify", "write_timeout",
}

// parseURL reads the URL of a server. An error is a *weir.InvalidError that
// shows only what has been recognized as no secret, since whatever cannot be
// read may be part of a password.
func parseURL(text string) (endpoint, error) {
	u := urlReader{shown: "***"}
	u.split(text)
	u.readUser()
	u.readAddresses()
	u.readDB()
	u.readTLS()
	u.readSentinel()
	u.readTimeouts()
	u.readProxy()
	if u.err != nil {
		return endpoint{}, u.err
	}
	return u.endpoint, nil
}

// urlReader reads a URL part by part. After its first error, the others do not count.
type urlReader struct {
	endpoint

	scheme, userinfo, hosts, path string
	params                        url.Values
	shown                         string // as much of the URL as errors may show
	err                           error
}

func (u *urlReader) fail(want string) {
	if u.err == nil {
		u.err = &weir.InvalidError{Field: "redis URL", Value: u.shown, Want: want + ", as in " + exampleURL}
	}
}

// failParam fails for the value of a parameter, which is no secret.
func (u *urlReader) failParam(name, want string) {
	if u.err == nil {
		u.shown += "?" + name + "=" + u.params.Get(name)
	}
	u.fail(want)
}

// split cuts the URL into its parts. An @ right of the authority means that a
// password holds one of the characters that end an authority.
func (u *urlReader) split(text string) {
	scheme, rest, _ := strings.Cut(text, "://")
	if !slices.Contains([]string{"redis", "rediss", "valkey", "valkeys", "unix"}, scheme) {
		u.fail("a URL that begins with redis://, rediss:// (TLS), valkey://, valkeys:// or unix://")
		return
	}
	u.scheme, u.shown = scheme, scheme+"://***"
	if strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		u.fail("no spaces or line breaks; in a password a space is %20")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	at := strings.IndexByte(authority, '@')
	if strings.Contains(text, "#") || strings.Count(text, "@") > 1 || strings.Contains(text, "@") && at < 0 {
		u.fail("a password whose special characters are percent-encoded: / is %2F, ? is %3F, # is %23, @ is %40, % is %25")
	}
	u.userinfo, u.hosts = authority[:max(at, 0)], authority[at+1:]
	u.path = u.unescape(path)
	u.splitQuery(query)
}

// splitQuery reads the parameters. A plus is a plus: passwords have them.
func (u *urlReader) splitQuery(query string) {
	params, err := url.ParseQuery(strings.ReplaceAll(query, "+", "%2B"))
	if err != nil {
		u.fail("parameters such as ?db=0, with & between them and % written as %25")
	}
	for name, values := range params {
		if !slices.Contains(urlParameters, name) {
			u.fail("no parameters but " + strings.Join(urlParameters, ", "))
		}
		if name != "addr" && len(values) > 1 || slices.Contains(values, "") {
			u.fail("a value for each parameter, and each but addr once")
		}
	}
	u.params = params
}

func (u *urlReader) unescape(text string) string {
	plain, err := url.PathUnescape(text)
	if err != nil {
		u.fail("% written as %25")
	}
	return plain
}

func (u *urlReader) readUser() {
	user, password, _ := strings.Cut(u.userinfo, ":")
	u.option.Username, u.option.Password = u.unescape(user), u.unescape(password)
}

// readAddresses reads the hosts before the path and those in addr.
func (u *urlReader) readAddresses() {
	u.sentinel = u.params.Has("master_set")
	if u.scheme == "unix" {
		u.readSocket()
		return
	}
	port := "6379"
	if u.sentinel {
		port = "26379"
	}
	for _, text := range append(strings.Split(u.hosts, ","), u.params["addr"]...) {
		address, ok := readAddress(text, port)
		if !ok {
			u.fail("a host after the @, with a port from 1 to 65535 or none, several with commas between, an IPv6 address in []")
			return
		}
		u.option.InitAddress = append(u.option.InitAddress, address)
	}
	u.cluster = len(u.option.InitAddress) > 1 && !u.sentinel
	u.server = strings.Join(u.option.InitAddress, ",")
	u.show(u.server)
}

func (u *urlReader) readSocket() {
	if u.hosts != "" || len(u.path) < 2 || u.params.Has("addr") || u.sentinel {
		u.fail("the path of one socket, as in unix:///run/redis.sock?db=0; else a URL")
		return
	}
	u.option.InitAddress = []string{u.path}
	// A Cluster behind the socket would name addresses that are not sockets.
	u.option.ForceSingleClient = true
	u.option.DialCtxFn = dialWith("unix", nil)
	u.server, u.path = u.path, ""
	u.show(u.server)
}

// show adds what is known to be no secret to what errors show.
func (u *urlReader) show(server string) {
	u.shown = u.scheme + "://"
	if u.userinfo != "" {
		u.shown += "***@"
	}
	u.shown += server
}

// readAddress returns text as host:port.
func readAddress(text, port string) (string, bool) {
	host, p, err := net.SplitHostPort(text)
	if err != nil {
		host, p, err = net.SplitHostPort(text + ":" + port)
	}
	if n, bad := strconv.ParseUint(p, 10, 16); err != nil || bad != nil || n == 0 {
		return "", false
	}
	if _, err := netip.ParseAddr(host); err != nil && !isHostName(host) {
		return "", false
	}
	return net.JoinHostPort(host, p), true
}

func isHostName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
}

// readDB reads the database, from the path or from db.
func (u *urlReader) readDB() {
	text := strings.TrimPrefix(u.path, "/")
	if u.params.Has("db") {
		if text != "" {
			u.failParam("db", "one db, behind the slash or as ?db=")
		}
		text = u.params.Get("db")
	}
	if text == "" {
		return
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		u.shown += "/" + text
		u.fail("a db that is a number from 0")
	}
	if n != 0 && u.cluster {
		u.fail("db 0, since several addresses are a Cluster, which has no other")
	}
	u.option.SelectDB = int(n)
}

// readTLS reads the files as well, so that a wrong path is known at once.
func (u *urlReader) readTLS() {
	if u.scheme != "rediss" && u.scheme != "valkeys" {
		for _, name := range []string{"ca", "cert", "key", "skip_verify"} {
			if u.params.Has(name) {
				u.failParam(name, "rediss:// instead of "+u.scheme+":// for TLS, or no "+name)
			}
		}
		return
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.params.Has("ca") {
		c.RootCAs = u.readCA()
	}
	if u.params.Has("cert") || u.params.Has("key") {
		pair, err := tls.LoadX509KeyPair(u.params.Get("cert"), u.params.Get("key"))
		if err != nil {
			u.failParam("cert", "PEM files of a certificate and its key as ?cert=FILE&key=FILE ("+err.Error()+")")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	switch u.params.Get("skip_verify") {
	case "", "false":
	case "true":
		c.InsecureSkipVerify = true
	default:
		u.failParam("skip_verify", "skip_verify=true, which trusts any server, or none")
	}
	u.option.TLSConfig, u.option.Sentinel.TLSConfig = c, c
}

func (u *urlReader) readCA() *x509.CertPool {
	pem, err := os.ReadFile(u.params.Get("ca"))
	pool := x509.NewCertPool()
	if err != nil {
		u.failParam("ca", "a file with the certificates to trust ("+err.Error()+")")
	} else if !pool.AppendCertsFromPEM(pem) {
		u.failParam("ca", "a file with certificates in PEM, which begin with -----BEGIN CERTIFICATE-----")
	}
	return pool
}

func (u *urlReader) readSentinel() {
	s := &u.option.Sentinel
	s.MasterSet, s.Username, s.Password = u.params.Get("master_set"), u.params.Get("sentinel_user"), u.params.Get("sentinel_password")
	// A switch of the primary that was missed as an event is seen so.
	s.TopologyRefreshInterval = 5 * time.Second
	if u.sentinel {
		u.server = "sentinel " + s.MasterSet + " at " + u.server
	} else if s.Username != "" || s.Password != "" {
		u.fail("master_set=NAME with sentinel_user and sentinel_password")
	}
}

// readTimeouts also sets what goes for every server.
//
// DisableRetry: rueidis repeats only commands that are marked as read-only,
// after a broken connection and LOADING, TRYAGAIN or CLUSTERDOWN, which
// EVALSHA, EVAL and MULTI are not; without its retries nothing depends on the
// marks. MOVED and ASK, with which a server says that it has done nothing, are
// followed in any case. So a take is never sent twice. A ConnLifetime would
// resend what it finds in an expired connection, so there is none.
func (u *urlReader) readTimeouts() {
	o := &u.option
	o.DisableRetry = true
	o.DisableCache = true
	// What a server without CLIENT SETINFO or a user without the right to it
	// answers would count as an error there.
	o.ClientSetInfo = rueidis.DisableClientSetInfo
	o.Dialer = net.Dialer{Timeout: u.timeout("dial_timeout", dialTimeout), KeepAlive: pingInterval}
	o.Sentinel.Dialer = o.Dialer
	o.ConnWriteTimeout = u.timeout("write_timeout", writeTimeout)
}

func (u *urlReader) timeout(name string, standard time.Duration) time.Duration {
	if !u.params.Has(name) {
		return standard
	}
	d, err := time.ParseDuration(u.params.Get(name))
	if err != nil || d < time.Millisecond || d > time.Minute {
		u.failParam(name, "a duration from 1ms to 1m, such as "+name+"=2s")
	}
	return d
}

// readProxy prepares for a twemproxy, which closes the connection on commands
// that it does not know, HELLO and CLUSTER among them.
func (u *urlReader) readProxy() {
	switch {
	case !u.params.Has("proxy"):
		return
	case u.params.Get("proxy") != "twemproxy":
		u.failParam("proxy", "proxy=twemproxy; other proxies need no parameter")
	case u.cluster || u.sentinel || u.option.SelectDB != 0:
		u.failParam("proxy", "one address and no db for a twemproxy, whose own settings name the servers and the db")
	case u.option.Username != "":
		u.failParam("proxy", "redis://:password@host, without a user: a twemproxy knows none")
	}
	network := "tcp"
	if u.scheme == "unix" {
		network = "unix"
	}
	u.option.AlwaysRESP2 = true
	u.option.ForceSingleClient = true
	u.option.DialCtxFn = dialWith(network, func(c net.Conn) net.Conn { return &greeted{Conn: c} })
}
