package httplimit

import (
	"net/netip"
	"slices"
	"strings"
)

// ClientIP returns the address that a request came from. The peer is one whose
// X-Forwarded-For may be believed, as the caller has made sure; forwardedFor is
// that field's lines. They are read from the right, past addresses in proxies,
// up to the first other one: what stands before that, the client may have made
// up. Without one it is the last address that could be read, or the peer's. An
// entry may have a port. IPv4 in IPv6 (::ffff:0:0/96, 64:ff9b::/96) is IPv4.
func ClientIP(peer netip.Addr, forwardedFor []string, proxies []netip.Prefix) netip.Addr {
	client := plain(peer)
	for _, line := range slices.Backward(forwardedFor) {
		for _, hop := range slices.Backward(strings.Split(line, ",")) {
			ip, ok := parseHop(strings.TrimSpace(hop))
			if !ok {
				return client
			}
			client = plain(ip)
			if !slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(client) }) {
				return client
			}
		}
	}
	return client
}

// parseHop reads an address, perhaps with a port.
func parseHop(hop string) (netip.Addr, bool) {
	if withPort, err := netip.ParseAddrPort(hop); err == nil {
		return withPort.Addr(), true
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(hop, "["), "]"))
	return ip, err == nil
}

var translated = netip.MustParsePrefix("64:ff9b::/96")

// plain returns an address in its one form, without zone: lest all of IPv4, where
// it is written as a network of IPv6, be taken for one client.
func plain(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if translated.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}

// Network returns who is taken for one client at ip: at an IPv4 address itself,
// of IPv6 the network of so many bits, from 0 to 128, such as
// "2001:db8:0:1::/64", as a host there has all of it to itself.
func Network(ip netip.Addr, bits int) string {
	if p, err := ip.Prefix(bits); err == nil && ip.Is6() && bits < 128 {
		return p.String()
	}
	return ip.String()
}
