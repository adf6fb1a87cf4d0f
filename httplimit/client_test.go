package httplimit_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

func TestClientIP(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48")}
	tests := []struct {
		forwarded []string
		want      string
	}{
		{nil, "10.0.0.1"},
		{[]string{""}, "10.0.0.1"},
		{[]string{"203.0.113.7"}, "203.0.113.7"},
		{[]string{" 203.0.113.7 "}, "203.0.113.7"},
		{[]string{"203.0.113.7:4711"}, "203.0.113.7"},
		{[]string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{[]string{"[2001:db8::1]"}, "2001:db8::1"},
		{[]string{"fe80::1%eth0"}, "fe80::1"},
		{[]string{"::ffff:203.0.113.7"}, "203.0.113.7"},
		{[]string{"64:ff9b::cb00:7107"}, "203.0.113.7"},
		// To evade: what the client sends stands further left.
		{[]string{"198.51.100.1, 203.0.113.7"}, "203.0.113.7"},
		{[]string{"198.51.100.1", "203.0.113.7"}, "203.0.113.7"},
		{[]string{"10.9.9.9, 203.0.113.7"}, "203.0.113.7"},
		// Past proxies, in whatever words they are named.
		{[]string{"203.0.113.7, 10.2.2.2"}, "203.0.113.7"},
		{[]string{"198.51.100.1, 203.0.113.7", "::ffff:10.2.2.2,2001:db8:ffff::9"}, "203.0.113.7"},
		{[]string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		// Where it cannot be read, who wrote it is taken instead.
		{[]string{"203.0.113.7, unknown"}, "10.0.0.1"},
		{[]string{"203.0.113.7, unknown, 10.2.2.2"}, "10.2.2.2"},
		{[]string{"203.0.113.7,"}, "10.0.0.1"},
		{[]string{"203.0.113.256"}, "10.0.0.1"},
	}
	for _, test := range tests {
		if got := httplimit.ClientIP(netip.MustParseAddr("10.0.0.1"), test.forwarded, proxies); got.String() != test.want {
			t.Errorf("%q: got %v, want %s", test.forwarded, got, test.want)
		}
	}
	if got := httplimit.ClientIP(netip.MustParseAddr("::ffff:10.0.0.1"), nil, nil); got.String() != "10.0.0.1" {
		t.Errorf("got %v", got)
	}
}

func TestNetwork(t *testing.T) {
	for _, test := range []struct {
		ip   string
		bits int
		want string
	}{
		{"203.0.113.7", 64, "203.0.113.7"},
		{"203.0.113.7", 8, "203.0.113.7"},
		{"2001:db8:0:1:2:3:4:5", 64, "2001:db8:0:1::/64"},
		{"2001:db8:0:1:2:3:4:5", 56, "2001:db8::/56"},
		{"2001:db8::5", 128, "2001:db8::5"},
		{"2001:db8::5", 129, "2001:db8::5"},
	} {
		if got := httplimit.Network(netip.MustParseAddr(test.ip), test.bits); got != test.want {
			t.Errorf("%s/%d: got %q, want %q", test.ip, test.bits, got, test.want)
		}
	}
}

// request is one from an address, with header fields "Name: value".
func request(from string, header ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = from
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func TestClients(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48")}
	direct, behind, rfc := httplimit.Clients{}, httplimit.Clients{Proxies: proxies}, httplimit.Clients{Proxies: proxies, Header: "forwarded"}
	for name, test := range map[string]struct {
		clients httplimit.Clients
		request *http.Request
		want    string
	}{
		"the connection's":              {direct, request("203.0.113.7:4711"), "203.0.113.7"},
		"whatever is said":              {direct, request("203.0.113.7:4711", "X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1"), "203.0.113.7"},
		"of IPv6":                       {direct, request("[2001:db8::1]:4711"), "2001:db8::/64"},
		"of IPv6 with a zone":           {direct, request("[fe80::1%eth0]:4711"), "fe80::/64"},
		"IPv4 in IPv6":                  {direct, request("[::ffff:203.0.113.7]:4711"), "203.0.113.7"},
		"without a port, as some set":   {direct, request("203.0.113.7"), "203.0.113.7"},
		"none":                          {direct, request("@", "X-Forwarded-For: 192.0.2.1"), "invalid IP"},
		"none, and no Unix socket":      {behind, request("@", "X-Forwarded-For: 192.0.2.1"), "invalid IP"},
		"of no proxy":                   {behind, request("203.0.113.7:4711", "X-Forwarded-For: 192.0.2.1"), "203.0.113.7"},
		"a proxy's own":                 {behind, request("10.0.0.1:4711"), "10.0.0.1"},
		"past a proxy":                  {behind, request("10.0.0.1:4711", "x-forwarded-FOR: 203.0.113.7"), "203.0.113.7"},
		"past a proxy, IPv4 in IPv6":    {behind, request("[::ffff:10.0.0.1]:4711", "X-Forwarded-For: 203.0.113.7"), "203.0.113.7"},
		"past two":                      {behind, request("10.0.0.1:4711", "X-Forwarded-For: 203.0.113.7, 2001:db8:ffff::9"), "203.0.113.7"},
		"the other field":               {behind, request("10.0.0.1:4711", "X-Forwarded-For: 203.0.113.7", "Forwarded: for=192.0.2.1"), "203.0.113.7"},
		"what cannot be read":           {behind, request("10.0.0.1:4711", "X-Forwarded-For: 203.0.113.7, for=192.0.2.1"), "10.0.0.1"},
		"a field of one's own":          {httplimit.Clients{Proxies: proxies, Header: "X-Real-Ip"}, request("10.0.0.1:4711", "X-Real-IP: 203.0.113.7"), "203.0.113.7"},
		"a smaller network":             {httplimit.Clients{IPv6Bits: 48}, request("[2001:db8:1:2::1]:4711"), "2001:db8:1::/48"},
		"an address":                    {httplimit.Clients{IPv6Bits: 128}, request("[2001:db8:1:2::1]:4711"), "2001:db8:1:2::1"},
		"RFC 7239":                      {rfc, request("10.0.0.1:4711", "Forwarded: for=203.0.113.7"), "203.0.113.7"},
		"with all it can have":          {rfc, request("10.0.0.1:4711", `Forwarded: by=_edge;For="203.0.113.7:4711" ; proto=https;host="a,b;for=c"`), "203.0.113.7"},
		"its IPv6":                      {rfc, request("10.0.0.1:4711", `Forwarded: for="[2001:db8:1:2::1]:4711"`), "2001:db8:1:2::/64"},
		"its IPv6 without a port":       {rfc, request("10.0.0.1:4711", `Forwarded: FOR="[2001:db8:1:2::1]"`), "2001:db8:1:2::/64"},
		"its IPv4 in IPv6":              {rfc, request("10.0.0.1:4711", `Forwarded: for="[::ffff:203.0.113.7]"`), "203.0.113.7"},
		"past two by RFC 7239":          {rfc, request("10.0.0.1:4711", `Forwarded: for=192.0.2.1, for=203.0.113.7`, `Forwarded: for="[2001:db8:ffff::9]",for=10.0.0.2`), "203.0.113.7"},
		"an escaped quote":              {rfc, request("10.0.0.1:4711", `Forwarded: for=203.0.113.7;host="a\", for=192.0.2.1"`), "203.0.113.7"},
		"an escaped backslash":          {rfc, request("10.0.0.1:4711", `Forwarded: for=192.0.2.1;host="a\\", for=203.0.113.7`), "203.0.113.7"},
		"unknown":                       {rfc, request("10.0.0.1:4711", "Forwarded: for=203.0.113.7, for=unknown"), "10.0.0.1"},
		"obfuscated":                    {rfc, request("10.0.0.1:4711", "Forwarded: for=203.0.113.7, for=_gazonk"), "10.0.0.1"},
		"obfuscated, past a proxy":      {rfc, request("10.0.0.1:4711", "Forwarded: for=_gazonk, for=10.0.0.2"), "10.0.0.2"},
		"said twice":                    {rfc, request("10.0.0.1:4711", "Forwarded: for=192.0.2.1;for=203.0.113.7"), "10.0.0.1"},
		"not said":                      {rfc, request("10.0.0.1:4711", "Forwarded: for=192.0.2.1, proto=https"), "10.0.0.1"},
		"a quote too few":               {rfc, request("10.0.0.1:4711", `Forwarded: for="203.0.113.7`), "10.0.0.1"},
		"nothing":                       {rfc, request("10.0.0.1:4711", "Forwarded: "), "10.0.0.1"},
		"the other field than RFC 7239": {rfc, request("10.0.0.1:4711", "X-Forwarded-For: 203.0.113.7"), "10.0.0.1"},
	} {
		if got := test.clients.Key(test.request); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// Behind a proxy that adds to the field, a client is itself whatever it sends:
// it neither evades its limit nor uses up that of a victim whom it names.
func TestClientsCannotBeSomebodyElse(t *testing.T) {
	const self, victim = "203.0.113.7", "192.0.2.1"
	proxy := netip.MustParsePrefix("10.0.0.0/8")
	for header, added := range map[string]string{
		"X-Forwarded-For": self, "Forwarded": "for=" + self + `;by="[2001:db8::9]";host="a.example"`,
	} {
		limited := httplimit.Middleware(httplimit.Options{
			Limiter: frozen(t), Rules: httplimit.Clients{Proxies: []netip.Prefix{proxy}, Header: header}.Limit("site", weir.PerMinute(3)),
		})(http.HandlerFunc(hello))
		ask := func(fields ...string) int {
			w := httptest.NewRecorder()
			limited.ServeHTTP(w, request("10.0.0.1:4711", fields...))
			return w.Code
		}
		for i, made := range []string{
			victim, "for=" + victim, "for=" + victim + ", for=10.0.0.2", "10.0.0.2", `for="` + victim, `for="\`, `"`, ",", ";", "unknown", strings.Repeat("10.0.0.3, ", 50) + victim,
		} {
			want := http.StatusOK
			if i >= 3 {
				want = http.StatusTooManyRequests
			}
			form := []string{header + ": " + made + ", " + added}
			if i%2 == 1 {
				form = []string{header + ": " + made, strings.ToLower(header) + ": " + added}
			}
			if got := ask(form...); got != want {
				t.Errorf("%s, request %d with %q: got %d, want %d", header, i, form, got, want)
			}
		}
		if got := ask(header + ": " + strings.ReplaceAll(added, self, victim)); got != http.StatusOK {
			t.Errorf("%s: the victim got %d", header, got)
		}
	}
}

// Whoever has a /64 to draw addresses from is one client.
func TestClientsCannotRotate(t *testing.T) {
	limited := httplimit.Middleware(httplimit.Options{Limiter: frozen(t), Rules: httplimit.Clients{}.Limit("site", weir.PerMinute(3))})(http.HandlerFunc(hello))
	for i, from := range []string{"[2001:db8::1]:1", "[2001:db8::2]:2", "[2001:db8::ffff:ffff:ffff:ffff]:3", "[2001:db8::4%eth1]:4", "[2001:db8:0:1::1]:5"} {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, request(from))
		if denied := w.Code == http.StatusTooManyRequests; denied != (i == 3) {
			t.Errorf("%s: got %d", from, w.Code)
		}
	}
}

// A proxy on this machine may come by a Unix socket, which has no address.
func TestClientsByUnixSocket(t *testing.T) {
	for name, proxies := range map[string][]netip.Prefix{"invalid IP": nil, "203.0.113.7": {netip.MustParsePrefix("10.0.0.0/8")}} {
		socket := filepath.Join(t.TempDir(), "http")
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, httplimit.Clients{Proxies: proxies}.Key(r))
		}))
		_ = s.Listener.Close()
		s.Listener = listener
		s.Start()
		client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
		r := request("", "X-Forwarded-For: 203.0.113.7")
		r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", "localhost"
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		client.CloseIdleConnections()
		s.Close()
		if err != nil || string(got) != name {
			t.Errorf("got %q, %v, want %s", got, err, name)
		}
	}
}

// What stands further left than the client changes nothing in Forwarded either.
func FuzzForwarded(f *testing.F) {
	for _, made := range []string{"for=198.51.100.1, for=unknown", `for="`, `for="\`, `host="a\\", for=_b;`, `;;,,=="`, ""} {
		f.Add(made, "")
		f.Add(made, made)
	}
	clients := httplimit.Clients{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Header: "Forwarded"}
	f.Fuzz(func(t *testing.T, made, line string) {
		for _, added := range []string{"for=203.0.113.7", `proto=https;For="203.0.113.7:80"`, `for=203.0.113.7;host="a,;\"\\"`, `for=203.0.113.7, for=10.0.0.2;by="[2001:db8::9]:443"`} {
			r := request("10.0.0.1:4711")
			r.Header["Forwarded"] = []string{line, made + ", " + added}
			if got := clients.IP(r).String(); got != "203.0.113.7" {
				t.Errorf("%q: got %s", r.Header, got)
			}
		}
		r := request("10.0.0.1:4711")
		r.Header["Forwarded"] = []string{made}
		if ip := clients.IP(r); !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() {
			t.Errorf("%q: got %v", made, ip)
		}
	})
}

// What stands further left than the client changes nothing, whatever it is.
func FuzzClientIP(f *testing.F) {
	f.Add("198.51.100.1, unknown", "10.0.0.2")
	f.Fuzz(func(t *testing.T, made, proxy string) {
		proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		lines := []string{made, "203.0.113.7"}
		if ip, err := netip.ParseAddr(proxy); err == nil && proxies[0].Contains(ip) {
			lines = append(lines, proxy)
		}
		for _, forwarded := range [][]string{lines, {strings.Join(lines, ", ")}} {
			if got := httplimit.ClientIP(netip.MustParseAddr("192.0.2.1"), forwarded, proxies); got.String() != "203.0.113.7" {
				t.Errorf("%q: got %v", forwarded, got)
			}
		}
	})
}
