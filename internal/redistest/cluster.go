package redistest

import (
	"fmt"
	"strconv"
	"testing"
)

// Cluster is three primaries, each with a third of the slots, and three replicas.
type Cluster struct {
	// Servers has the primaries in the order of their slots, then a replica of
	// each, in this order too.
	Servers []*Server
}

// slots is the number of hash slots of a Cluster.
const slots = 16384

// StartCluster starts a Cluster and waits until each server finds it in order and
// knows all others, and the replicas are in sync. A primary that is killed is
// replaced after about 3 s.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := new(Cluster)
	config := append([]string{"cluster-enabled yes", "cluster-node-timeout 2000", "cluster-allow-replica-migration no"}, replication...)
	for i := range 6 {
		s := Start(t, Options{Config: config})
		c.Servers = append(c.Servers, s)
		s.Must(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		for _, other := range c.Servers[:i] {
			other.Must(t, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(s.port))
		}
	}
	for i, primary := range c.Servers[:3] {
		primary.Must(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/3), strconv.Itoa((i+1)*slots/3-1))
		c.replicate(t, primary, c.Servers[3+i])
	}
	for _, s := range c.Servers {
		Await(t, "each server to find the Cluster in order", func() error { return c.complete(s) })
	}
	for _, replica := range c.Servers[3:] {
		Await(t, "the replicas to be in sync", func() error { return inSync(replica) })
	}
	return c
}

// replicate makes a server a replica, once it has heard of its primary.
func (c *Cluster) replicate(t testing.TB, primary, replica *Server) {
	t.Helper()
	id := fmt.Sprint(primary.Must(t, "CLUSTER", "MYID"))
	Await(t, "a server to hear of its primary", func() error {
		_, err := replica.Do("CLUSTER", "REPLICATE", id)
		return err
	})
}

// complete returns nil if the server finds the Cluster in order, and knows a
// primary and a replica for each third of the slots.
func (c *Cluster) complete(s *Server) error {
	info, err := s.fields("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	reply, err := s.Do("CLUSTER", "SLOTS")
	if err != nil {
		return err
	}
	ranges, _ := reply.([]any)
	nodes := 0
	for _, r := range ranges {
		fields, _ := r.([]any) // first slot, last slot, primary, replicas
		nodes += len(fields) - 2
	}
	if info["cluster_state"] != "ok" || info["cluster_known_nodes"] != "6" || len(ranges) != 3 || nodes != len(c.Servers) {
		return fmt.Errorf("%s: %v %v", s.Addr(), info, ranges)
	}
	return nil
}

// Addrs returns the hosts and ports of all six servers.
func (c *Cluster) Addrs() []string { return addrs(c.Servers) }
