package config

import (
	"net/netip"
	"strings"
)

// Auth holds the settings of /v1/auth, which proxies ask.
type Auth struct {
	// DenyStatus is the status of a denial, 400 to 499.
	DenyStatus int
	// Secret is what those who ask must send.
	Secret Secret
	// Peers are those who may ask.
	Peers Networks
	// Proxies are those before the one that asks.
	Proxies Networks
	// Attributes are the headers that attributes are read from.
	Attributes Headers
	// IPv6Prefix is how many bits of an address tell clients apart, 1 to 128.
	IPv6Prefix int
	// Dialect is that of the headers that tell of limits: draft-10, draft-03,
	// delta, epoch or none.
	Dialect string
	// Jitter is how much longer than needed Retry-After asks to wait at most, in
	// parts of the wait from 0 to 1.
	Jitter float64
}

// Networks is a list such as "10.0.0.0/8, 192.0.2.1".
type Networks string

// Prefixes returns what is listed, and whether that could be read.
func (n Networks) Prefixes() (all []netip.Prefix, ok bool) {
	for _, text := range splitList(string(n)) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			ip, err := netip.ParseAddr(text)
			if err != nil || ip.Zone() != "" {
				return nil, false
			}
			p = netip.PrefixFrom(ip, ip.BitLen())
		}
		if p.Addr().Is4In6() {
			return nil, false
		}
		all = append(all, p)
	}
	return all, true
}

// Headers is a list of attributes and the headers they are read from, such as
// "user=X-User, plan=X-Plan".
type Headers string

// Map returns the headers of each attribute, and whether they could be read.
func (h Headers) Map() (all map[string][]string, ok bool) {
	all = make(map[string][]string)
	for _, pair := range splitList(string(h)) {
		attribute, header, _ := strings.Cut(pair, "=")
		if attribute == "" || header == "" || strings.Trim(header, headerBytes) != "" {
			return nil, false
		}
		all[attribute] = append(all[attribute], header)
	}
	return all, true
}

// headerBytes are those that names of headers are made of here.
const headerBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// splitList splits at commas and spaces.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
