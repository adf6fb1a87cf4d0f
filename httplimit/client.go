package httplimit

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// Clients tells clients apart by their addresses. The zero value takes the
// address that a connection comes from, which nobody can make up.
type Clients struct {
	// Proxies are the networks of the proxies in front of this server, which
	// write the address of whom they serve into Header. It is believed only of a
	// connection that comes from one of them, or by a Unix socket; without
	// Proxies, never.
	Proxies []netip.Prefix
	// Header is the only field that is read: "Forwarded" as RFC 7239 has it, or
	// any other as X-Forwarded-For, which is what empty means. Each proxy must add
	// to it, or replace it: one that lets it through unchanged lets clients say
	// who they are.
	Header string
	// IPv6Bits is how many bits of an IPv6 address tell clients apart, 1 to 128; 0
	// means 64, as a host there has a network of that size to itself.
	IPv6Bits int
}

// IP returns the address that a request came from, without zone and as IPv4
// where it is that, or the zero Addr if there is none, as of a Unix socket.
//
// Past the proxies it is read from the right: see ClientIP.
func (c Clients) IP(r *http.Request) netip.Addr {
	peer, _ := parseHop(r.RemoteAddr)
	peer = plain(peer)
	if !within(c.Proxies, peer) && (len(c.Proxies) == 0 || !local(r)) {
		return peer
	}
	name := cmp.Or(c.Header, "X-Forwarded-For")
	parse := parseHop
	if strings.EqualFold(name, "Forwarded") {
		parse = parseForwarded
	}
	return walk(peer, r.Header.Values(name), c.Proxies, parse)
}

// Key returns whom a request is counted with: an IPv4 address, or a network of
// IPv6 such as "2001:db8:0:1::/64". Those without an address share one.
func (c Clients) Key(r *http.Request) string {
	return Network(c.IP(r), cmp.Or(c.IPv6Bits, 64))
}

// Limit holds each client to a limit: it is for Options.Rules. Clients are
// counted by the name, so that two limits of different names do not count each
// other's requests.
func (c Clients) Limit(name string, limit weir.Limit) func(*http.Request) []Rule {
	return func(r *http.Request) []Rule {
		return []Rule{{Name: name, Request: weir.Request{Key: name + ":" + c.Key(r), Limit: limit}}}
	}
}

// local reports whether a request came by a Unix socket.
func local(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

// ClientIP returns the address that a request came from. The peer is one whose
// X-Forwarded-For may be believed, as the caller has made sure; forwardedFor is
// that field's lines. They are read from the right, past addresses in proxies,
// up to the first other one: what stands before that, the client may have made
// up. Without one it is the last address that could be read, or the peer's. An
// entry may have a port. IPv4 in IPv6 (::ffff:0:0/96, 64:ff9b::/96) is IPv4.
func ClientIP(peer netip.Addr, forwardedFor []string, proxies []netip.Prefix) netip.Addr {
	return walk(plain(peer), forwardedFor, proxies, parseHop)
}

// walk goes from the peer to the client, along the lines of a header field.
func walk(client netip.Addr, lines []string, proxies []netip.Prefix, parse func(string) (netip.Addr, bool)) netip.Addr {
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			var hop string
			line, hop, more = cutLast(line, ',')
			ip, ok := parse(strings.Trim(hop, " \t"))
			if !ok {
				return client
			}
			client = plain(ip)
			if !within(proxies, client) {
				return client
			}
		}
	}
	return client
}

func within(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// cutLast cuts s at its last sep that is not in a quoted string. It looks from
// the right, so that a quote which a client has opened on the left and never
// closed hides nothing of what a proxy has added.
func cutLast(s string, sep byte) (before, after string, found bool) {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"' && !escaped(s[:i]):
			quoted = !quoted
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return "", s, false
}

// escaped reports whether what follows s is escaped by a backslash at its end.
func escaped(s string) bool { return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1 }

// parseForwarded reads the address of an element of Forwarded: the one for= of
// its parameters. Names that are no address, "unknown" or "_hidden", are none.
func parseForwarded(element string) (ip netip.Addr, ok bool) {
	seen := 0
	for more := true; more; {
		var parameter string
		element, parameter, more = cutLast(element, ';')
		name, node, _ := strings.Cut(strings.Trim(parameter, " \t"), "=")
		if strings.EqualFold(name, "for") {
			seen++
			ip, ok = parseHop(unquote(node))
		}
	}
	return ip, ok && seen == 1
}

// unquote returns what a quoted string holds, and anything else as it is.
func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
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
