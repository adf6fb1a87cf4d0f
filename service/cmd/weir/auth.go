package main

import (
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/httpapi"
)

// openAuth returns how proxies are answered. What was listed could be read when
// it was set.
func openAuth(a config.Auth) (httpapi.Auth, error) {
	fields := httplimit.Fields{Jitter: a.Jitter}
	if a.Dialect != "" {
		if err := fields.Dialect.UnmarshalText([]byte(a.Dialect)); err != nil {
			return httpapi.Auth{}, err
		}
	}
	secret, err := reveal(a.Secret, "auth secret")
	peers, _ := a.Peers.Prefixes()
	proxies, _ := a.Proxies.Prefixes()
	attributes, _ := a.Attributes.Map()
	return httpapi.Auth{
		Secret: secret, Peers: peers, Proxies: proxies, Attributes: attributes,
		IPv6Bits: a.IPv6Prefix, DenyStatus: a.DenyStatus, Fields: fields,
	}, err
}
