package httpapi

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/wire"
)

// authPath matches any method: a proxy asks with that of the request, or with GET.
const authPath = "/v1/auth/{domain}"

// Auth configures /v1/auth, which proxies ask before they pass a request on. Of
// the zero value only programs on this machine may ask.
type Auth struct {
	// Secret, if not empty, must come with every request as the header
	// Weir-Secret.
	Secret string
	// Peers, if not nil, are where requests must come from. If it is nil and
	// there is no Secret, that is this machine.
	Peers []netip.Prefix
	// Proxies are those before the one that asks: whom it names as the client in
	// X-Forwarded-For, and who is in them, is no client, but names one.
	Proxies []netip.Prefix
	// Attributes are the headers that attributes are read from, beside or
	// instead of those of the defaults: ip of X-Forwarded-For, host of
	// X-Forwarded-Host, method of X-Forwarded-Method or X-Original-Method, path
	// of X-Forwarded-Uri or X-Original-URI. If there are several, they must agree.
	Attributes map[string][]string
	// IPv6Bits is how many bits of an IPv6 address tell clients apart, 1 to 128;
	// 0 means 64.
	IPv6Bits int
	// DenyStatus is the status of a denial; 0 means 429.
	DenyStatus int
	// Fields writes the headers that tell of limits.
	Fields httplimit.Fields
}

var defaultAttributes = map[string][]string{
	"ip":     {"X-Forwarded-For"},
	"host":   {"X-Forwarded-Host"},
	"method": {"X-Forwarded-Method", "X-Original-Method"},
	"path":   {"X-Forwarded-Uri", "X-Original-URI"},
}

// normalize fills in the defaults.
func (a *Auth) normalize() {
	a.IPv6Bits = cmp.Or(a.IPv6Bits, 64)
	a.DenyStatus = cmp.Or(a.DenyStatus, http.StatusTooManyRequests)
	given := a.Attributes
	a.Attributes = maps.Clone(defaultAttributes)
	maps.Copy(a.Attributes, given)
}

// auth answers a proxy by the status. The body of its request is not read, and
// its method says nothing.
func (a *api) auth(w http.ResponseWriter, r *http.Request) {
	peer, ok := a.Auth.admits(r)
	if !ok {
		wire.NewProblem(http.StatusForbidden, "", "this caller may not ask: name its network in auth_peers of the server settings, or let it send the secret of auth_secret_file as the header Weir-Secret").Write(w)
		return
	}
	attributes, err := a.Auth.read(peer, r.Header)
	var answer decide.Answer
	if err == nil {
		answer, err = a.Engine.Check(r.Context(), decide.Query{Domain: r.PathValue("domain"), Attributes: attributes, Cost: 1})
	}
	if err != nil {
		wire.ProblemOf(err).Write(w)
		return
	}
	rows := enforced(&answer)
	a.Auth.Fields.Write(w.Header(), &answer.Decision, rows)
	if !answer.Allowed {
		httplimit.WriteDenial(w, a.Auth.DenyStatus, &answer.Decision, rows)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

// admits returns who asks, and whether that is one who may.
func (a *Auth) admits(r *http.Request) (peer netip.Addr, ok bool) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return peer, false
	}
	peer = from.Addr().Unmap().WithZone("")
	if a.Secret != "" {
		want, got := sha256.Sum256([]byte(a.Secret)), sha256.Sum256([]byte(r.Header.Get("Weir-Secret")))
		if subtle.ConstantTimeCompare(want[:], got[:]) == 0 {
			return peer, false
		}
	}
	if a.Peers == nil {
		return peer, a.Secret != "" || peer.IsLoopback()
	}
	return peer, slices.ContainsFunc(a.Peers, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// read returns the attributes that a proxy sends of the request that it asks for.
func (a *Auth) read(peer netip.Addr, h http.Header) (map[string]string, error) {
	attributes := make(map[string]string, len(a.Attributes))
	for name, headers := range a.Attributes {
		if name == "ip" {
			client := httplimit.ClientIP(peer, values(h, headers), a.Proxies)
			attributes[name] = httplimit.Network(client, a.IPv6Bits)
			continue
		}
		given := values(h, headers)
		for i := range given {
			if given[i] = normal(name, given[i]); given[i] != given[0] {
				return nil, wire.NewProblem(http.StatusBadRequest, name, fmt.Sprintf("%s is said in different ways by the header %s: the proxy must set one, and remove what clients send", name, strings.Join(headers, " or ")))
			}
		}
		if len(given) > 0 {
			attributes[name] = given[0]
		}
	}
	return attributes, nil
}

func values(h http.Header, names []string) (all []string) {
	for _, name := range names {
		all = append(all, h.Values(name)...)
	}
	return all
}

// normal returns the one spelling of an attribute's value.
func normal(name, value string) string {
	switch name {
	case "path":
		return normalPath(value)
	case "host":
		return normalHost(value)
	}
	return value
}

// enforced returns the rows that have a say in the verdict.
func enforced(a *decide.Answer) (rows []httplimit.Row) {
	for i := range a.Rows {
		if r := &a.Rows[i]; !r.Shadow {
			rows = append(rows, httplimit.Row{Decision: r.Decision, Name: r.Name, Window: r.Window})
		}
	}
	return rows
}
