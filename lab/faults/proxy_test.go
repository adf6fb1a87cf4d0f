package faults

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// proxy stands before a server and spoils what passes.
type proxy struct{ *toxiproxy.Proxy }

// startProxy starts a proxy that ends with the test.
func startProxy(t testing.TB, upstream string) proxy {
	t.Helper()
	toxics.Register("replication", new(replication))
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log to nobody's logger
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := proxy{toxiproxy.NewProxy(server, upstream, "127.0.0.1:0", upstream)}
	p.up(t)
	t.Cleanup(p.Stop)
	return p
}

func (p proxy) url() string { return "redis://" + p.Listen }

// up lets a proxy that is down listen again, on its port.
func (p proxy) up(t testing.TB) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
}

// lead lets connections from now on lead to another server, and ends those there are.
func (p proxy) lead(t testing.TB, upstream string) {
	t.Helper()
	if err := p.Update(&toxiproxy.Proxy{Listen: p.Listen, Upstream: upstream, Enabled: true}); err != nil {
		t.Fatal(err)
	}
}

// add adds a toxic in the words of toxiproxy's API.
func (p proxy) add(t testing.TB, toxic string) {
	t.Helper()
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Fatal(err)
	}
}

// clear removes all toxics.
func (p proxy) clear() { p.Toxics.ResetToxics(context.Background()) }

// replicationCut has every toxic of type replication drop what a primary sends
// to its replicas. The connections stay, so that neither side knows.
var replicationCut atomic.Bool

// replication is a toxic that knows which connections are of replicas, if it is
// there before they are.
type replication struct{}

// NewState implements toxics.StatefulToxic: whether a connection is of a replica.
func (*replication) NewState() any { return new(bool) }

// Pipe implements toxics.Toxic.
func (*replication) Pipe(stub *toxics.ToxicStub) {
	replica := stub.State.(*bool)
	for {
		var c *stream.StreamChunk
		select {
		case <-stub.Interrupt:
			return
		case c = <-stub.Input:
		}
		if c == nil {
			stub.Close()
			return
		}
		if bytes.HasPrefix(c.Data, []byte("+FULLRESYNC ")) || bytes.HasPrefix(c.Data, []byte("+CONTINUE")) {
			*replica = true
		}
		if !*replica || !replicationCut.Load() {
			stub.Output <- c
		}
	}
}
