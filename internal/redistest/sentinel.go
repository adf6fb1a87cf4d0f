package redistest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// Sentinel is a primary with two replicas, watched by three Sentinels two of
// which must agree that the primary is down.
type Sentinel struct {
	// Name is what the Sentinels call the primary.
	Name string
	// Servers has the first primary and its replicas, in this order.
	Servers []*Server
	// Sentinels has the Sentinels. Do sends them a command as to any server.
	Sentinels []*Server

	front string // where the first primary is reached
}

// StartSentinel starts such a set and waits until the replicas are in sync and
// every Sentinel knows all others. A primary that is killed is replaced after
// about 2 s.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	return StartSentinelBehind(t, func(addr string) string { return addr })
}

// StartSentinelBehind is StartSentinel with a first primary that its replicas,
// the Sentinels and those who ask them reach at another address than its own,
// such as that of a proxy, which front returns. It must be one of 127.0.0.1.
func StartSentinelBehind(t testing.TB, front func(addr string) string) *Sentinel {
	t.Helper()
	primary := Start(t, Options{Config: replication})
	s := &Sentinel{Name: "weir", front: front(primary.Addr())}
	_, port, err := net.SplitHostPort(s.front)
	if err != nil {
		t.Fatal(err)
	}
	primary.Must(t, "CONFIG", "SET", "replica-announce-port", port)
	replica := Options{Config: append([]string{"replicaof 127.0.0.1 " + port}, replication...)}
	s.Servers = []*Server{primary, Start(t, replica), Start(t, replica)}
	Await(t, "the replicas to be in sync", func() error { return errors.Join(inSync(s.Servers[1]), inSync(s.Servers[2])) })
	watch := Options{Config: []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 2", s.Name, port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 2000", s.Name),
		fmt.Sprintf("sentinel failover-timeout %s 6000", s.Name),
	}}
	for range 3 {
		sentinel := start(t, watch, "--sentinel")
		// Talk more often than every 2 and 10 s.
		if _, err := sentinel.Do("SENTINEL", "DEBUG", "PUBLISH-PERIOD", "100", "INFO-PERIOD", "500"); err != nil {
			t.Fatalf("redistest: want Redis 7, Valkey, or newer: %v", err)
		}
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	for _, sentinel := range s.Sentinels {
		Await(t, "each Sentinel to know all servers", func() error { return s.complete(sentinel) })
	}
	return s
}

// replication is how servers replicate without the pauses that spare a network. A
// Cluster lists a replica only after the first ping of its primary.
var replication = []string{"repl-diskless-sync-delay 0", "repl-ping-replica-period 1"}

// inSync returns nil if the server is a replica that has all of its primary's data.
func inSync(s *Server) error {
	info, err := s.Info("replication")
	if err == nil && info["master_link_status"] != "up" {
		err = fmt.Errorf("%s: %v", s.Addr(), info)
	}
	return err
}

// complete returns nil if the Sentinel sees the two others and both replicas.
func (s *Sentinel) complete(sentinel *Server) error {
	reply, err := sentinel.Do("SENTINEL", "MASTER", s.Name)
	if err != nil {
		return err
	}
	state := pairs(reply)
	if state["flags"] != "master" || state["num-slaves"] != "2" || state["num-other-sentinels"] != "2" {
		return fmt.Errorf("%s: %v", sentinel.Addr(), state)
	}
	return nil
}

// pairs reads an array of names, each followed by its value.
func pairs(reply any) map[string]string {
	all, _ := reply.([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(all); i += 2 {
		m[fmt.Sprint(all[i])] = fmt.Sprint(all[i+1])
	}
	return m
}

// Addrs returns the hosts and ports of the Sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// Primary returns the server that every Sentinel that answers calls the primary
// and that says so itself. There is none while the servers are at odds, as they
// are after the primary was killed: Await that there is.
func (s *Sentinel) Primary() (*Server, error) {
	named := make(map[string]bool)
	for _, sentinel := range s.Sentinels {
		if reply, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name); err == nil {
			named[strings.Join(strs(reply), ":")] = true
		}
	}
	for i, server := range s.Servers {
		addr := server.Addr()
		if i == 0 {
			addr = s.front
		}
		if len(named) != 1 || !named[addr] {
			continue
		}
		info, err := server.Info("replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("%s is not yet a primary", server.Addr())
		}
		return server, err
	}
	return nil, fmt.Errorf("the Sentinels name %v", named)
}

// strs reads an array of strings.
func strs(reply any) []string {
	all, _ := reply.([]any)
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = fmt.Sprint(all[i])
	}
	return texts
}
