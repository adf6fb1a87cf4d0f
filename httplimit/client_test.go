package httplimit_test

import (
	"net/netip"
	"strings"
	"testing"

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
