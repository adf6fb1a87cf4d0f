//go:build long

package main

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

// grant adds the user weir of examples/weir.acl, with more rights, to servers.
func grant(t *testing.T, servers []*redistest.Server, more ...string) {
	t.Helper()
	for _, s := range servers {
		s.Must(t, append(append([]string{"ACL", "SETUSER"}, strings.Fields(users(t)[0])[1:]...), more...)...)
	}
}

// five checks that limits over all slots and the lists across them hold.
func five(t *testing.T, url string) {
	t.Helper()
	first := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", url, patient)
	second := serve(t, net.Listen, "--http", "127.0.0.1:0", "--admin", "off", "--redis", url, patient)
	for key := range 20 {
		for i, s := range []*served{first, second, first, second, first, second, first} {
			body := fmt.Sprintf(`{"checks":[{"key":"user:%d","limit":"5/minute"},{"key":"all","limit":"1000/minute"}]}`, key)
			if d := post(t, s.url()+"/v1/check", body); d.Allowed != (i < 5) {
				t.Errorf("user %d, check %d: %+v", key, i, d)
			}
		}
	}
	if _, answer := send(t, first.url()+"/v1/count", `{"key":"all","limit":"1000/minute","last":"1m"}`); answer != "{\"count\":100}\n" {
		t.Errorf("all together: %s", answer)
	}
	for _, s := range []*served{first, second} {
		noSecret(t, stopLog(t, s))
	}
}

func TestLongServeOnACluster(t *testing.T) {
	c := redistest.StartCluster(t)
	grant(t, c.Servers, "+cluster|slots", "+cluster|shards", "+asking")
	five(t, "redis://weir:"+password+"@"+strings.Join(c.Addrs()[:3], ","))
}

func TestLongServeWithSentinel(t *testing.T) {
	set := redistest.StartSentinel(t)
	grant(t, set.Servers, "+role")
	five(t, "redis://weir:"+password+"@"+strings.Join(set.Addrs(), ",")+"?master_set="+set.Name)
}
