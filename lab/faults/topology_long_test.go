//go:build long

package faults

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// backAfterFailover is how soon a new primary that answers is used.
const backAfterFailover = 5 * time.Second

// cut has replicas get nothing more until the test ends.
func cut(t testing.TB) {
	t.Helper()
	replicationCut.Store(true)
	t.Cleanup(func() { replicationCut.Store(false) })
}

// startReplicating starts a proxy that knows which connections are of replicas.
func startReplicating(t testing.TB, upstream string) proxy {
	t.Helper()
	p := startProxy(t, upstream)
	p.add(t, `{"type":"replication"}`)
	return p
}

// sentinelFailover ends or demotes the primary of a set whose replicas have
// nothing of what was decided, and awaits another.
func sentinelFailover(t testing.TB, name string, h harm, fail func(*redistest.Sentinel, proxy)) result {
	t.Helper()
	var p proxy
	set := redistest.StartSentinelBehind(t, func(addr string) string {
		p = startReplicating(t, addr)
		return p.Listen
	})
	cut(t)
	url := "redis://" + strings.Join(set.Addrs(), ",") + "?master_set=" + set.Name
	fleet := startFleet(t, 0, url, url)
	e := event{name: name, back: backAfterFailover, harm: h, losses: []loss{{from: time.Now()}}}
	fleet.await(t, byStore)
	e.began = time.Now()
	fail(set, p)
	if h == all {
		fleet.await(t, withoutStore)
	}
	var primary *redistest.Server
	redistest.Await(t, "another primary", func() (err error) {
		if primary, err = set.Primary(); err == nil && primary == set.Servers[0] {
			err = errors.New("the primary is the first")
		}
		return err
	})
	e.ended = time.Now()
	awaitUse(t, primary, fleet)
	e.losses[0].until = time.Now()
	awaitLoss(t, fleet)
	r := fleet.judge(t, e)
	checkLeaks(t, set.Servers[1:]...)
	return r
}

// awaitUse waits until each node of the fleet asks a new primary.
func awaitUse(t testing.TB, primary *redistest.Server, f *fleet) {
	t.Helper()
	since := time.Now()
	redistest.Await(t, "the new primary to be used", func() error {
		list, err := primary.Do("CLIENT", "LIST", "TYPE", "NORMAL")
		if n := strings.Count(fmt.Sprint(list), " cmd=eval"); err == nil && n < len(f.nodes) {
			err = fmt.Errorf("%d nodes of %d do: %v", n, len(f.nodes), list)
		}
		return err
	})
	if took := time.Since(since); took > backAfterFailover+slack() {
		t.Errorf("the new primary is used after %v, want at most %v", took, backAfterFailover)
	}
	t.Logf("the new primary is used after %v", time.Since(since))
}

// awaitLoss waits until what was lost shows, so that the bound is put to the test:
// until a key has admitted more in an hour than its limit.
func awaitLoss(t testing.TB, f *fleet) {
	t.Helper()
	redistest.Await(t, "a key to admit more than its limit", func() error {
		for i, r := range rules {
			if r.Limit.Window == time.Hour && f.admitted(i) > r.Limit.Max {
				t.Logf("%s has admitted more than %d", r.Key, r.Limit.Max)
				return nil
			}
		}
		return errors.New("nothing was lost")
	})
}

// hasRole returns nil if the server has the role "master" or "slave".
func hasRole(s *redistest.Server, role string) error {
	info, err := s.Info("replication")
	if err == nil && info["role"] != role {
		err = fmt.Errorf("%s is a %s", s.Addr(), info["role"])
	}
	return err
}

// clusterFailover ends the primary of most of the keys, whose replica has nothing
// of what was decided, and awaits the replica in its place.
func clusterFailover(t testing.TB, name string, fail func(primary *redistest.Server, p proxy)) result {
	t.Helper()
	c := redistest.StartCluster(t)
	var proxies []proxy
	for i, s := range c.Servers[:3] {
		proxies = append(proxies, startReplicating(t, s.Addr()))
		announce(t, s, c.Servers[3+i], proxies[i])
	}
	cut(t)
	url := "redis://" + strings.Join(c.Addrs(), ",")
	fleet := startFleet(t, 0, url, url)
	e := event{name: name, back: backAfterFailover, harm: some, losses: []loss{{from: time.Now()}}}
	fleet.await(t, byStore)
	at := busiest(t, c)
	replica := c.Servers[3+at]
	e.began = time.Now()
	fail(c.Servers[at], proxies[at])
	redistest.Await(t, "the replica to become a primary", func() error { return hasRole(replica, "master") })
	e.ended = time.Now()
	awaitUse(t, replica, fleet)
	e.losses[0].until = time.Now()
	awaitLoss(t, fleet)
	r := fleet.judge(t, e)
	checkLeaks(t, replica)
	return r
}

// announce has a primary of a Cluster tell everybody the address of its proxy, and
// waits until its replica replicates through that.
func announce(t testing.TB, primary, replica *redistest.Server, p proxy) {
	t.Helper()
	_, port, err := net.SplitHostPort(p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	primary.Must(t, "CONFIG", "SET", "cluster-announce-port", port)
	redistest.Await(t, "the replica to replicate through the proxy", func() error {
		info, err := replica.Info("replication")
		if err == nil && (info["master_port"] != port || info["master_link_status"] != "up") {
			err = fmt.Errorf("%v", info)
		}
		return err
	})
}

// busiest returns which primary has the most keys.
func busiest(t testing.TB, c *redistest.Cluster) (at int) {
	t.Helper()
	var most int64
	for i, s := range c.Servers[:3] {
		if n := s.Must(t, "DBSIZE").(int64); n > most {
			at, most = i, n
		}
	}
	return at
}

// migration moves every slot with keys from one primary to the next, to and fro.
func migration(t testing.TB, name string) result {
	t.Helper()
	c := redistest.StartCluster(t)
	url := "redis://" + strings.Join(c.Addrs(), ",")
	fleet := startFleet(t, 0, url, url)
	e := event{name: name, back: back, harm: none}
	fleet.await(t, byStore)
	e.began = time.Now()
	at := busiest(t, c)
	from, to := c.Servers[at], c.Servers[(at+1)%3]
	moved := 0
	for time.Since(e.began) < 2*usuallyLong {
		for _, slot := range slotsOf(t, from) {
			move(t, c, from, to, slot)
			moved++
		}
		from, to = to, from
	}
	e.ended = time.Now()
	t.Log("slots moved:", moved)
	r := fleet.judge(t, e)
	checkLeaks(t, c.Servers...)
	return r
}

// slotsOf returns the slots of the keys that a primary has.
func slotsOf(t testing.TB, s *redistest.Server) (all []string) {
	t.Helper()
	for _, key := range s.Must(t, "KEYS", "*").([]any) {
		if slot := fmt.Sprint(s.Must(t, "CLUSTER", "KEYSLOT", key.(string))); !slices.Contains(all, slot) {
			all = append(all, slot)
		}
	}
	return all
}

// move moves a slot as redis-cli does.
func move(t testing.TB, c *redistest.Cluster, from, to *redistest.Server, slot string) {
	t.Helper()
	id := func(s *redistest.Server) string { return fmt.Sprint(s.Must(t, "CLUSTER", "MYID")) }
	awaitGreatest(t, c, to, id(to))
	to.Must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
	from.Must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	host, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for {
		keys := from.Must(t, "CLUSTER", "GETKEYSINSLOT", slot, "1").([]any)
		if len(keys) == 0 {
			break
		}
		from.Must(t, "MIGRATE", host, port, keys[0].(string), "0", "5000")
	}
	to.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	from.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	// What two nodes each say of the other about a slot that moves again before
	// all know of this they may say for ever.
	redistest.Await(t, "all nodes to agree on the slots", func() error {
		views := make(map[string]bool)
		for _, s := range c.Servers {
			view, err := s.Do("CLUSTER", "SLOTS")
			if err != nil {
				return err
			}
			views[fmt.Sprint(view)] = true
		}
		if len(views) > 1 {
			return fmt.Errorf("they see %v", views)
		}
		return nil
	})
}

// awaitGreatest gives a primary the greatest epoch and waits until all nodes know:
// otherwise what another still says of its slots may count for more, for ever.
func awaitGreatest(t testing.TB, c *redistest.Cluster, primary *redistest.Server, id string) {
	t.Helper()
	redistest.Await(t, "all nodes to know the greatest epoch", func() error {
		if _, err := primary.Do("CLUSTER", "BUMPEPOCH"); err != nil { // unless it has it
			return err
		}
		for _, s := range c.Servers {
			nodes, err := s.Do("CLUSTER", "NODES")
			if err != nil {
				return err
			}
			if !greatest(fmt.Sprint(nodes), id) {
				return fmt.Errorf("%s sees\n%v", s.Addr(), nodes)
			}
		}
		return nil
	})
}

// greatest reports whether a reply to CLUSTER NODES gives a primary an epoch above
// those of all others.
func greatest(nodes, id string) bool {
	own, other := 0, 0
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "master") {
			continue
		}
		epoch, _ := strconv.Atoi(fields[6])
		if fields[0] == id {
			own = epoch
		} else {
			other = max(other, epoch)
		}
	}
	return own > other
}

// splitBrain promotes a replica that has nothing of what was decided, and has one
// node ask it, while the other still asks the old primary.
func splitBrain(t testing.TB, name string) result {
	t.Helper()
	primary := redistest.Start(t, redistest.Options{})
	link, way := startProxy(t, primary.Addr()), startProxy(t, primary.Addr())
	_, port, err := net.SplitHostPort(link.Listen)
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, redistest.Options{Config: []string{"replicaof 127.0.0.1 " + port, "repl-diskless-sync-delay 0"}})
	redistest.Await(t, "the replica to be in sync", func() error {
		info, err := replica.Info("replication")
		if err == nil && info["master_link_status"] != "up" {
			err = fmt.Errorf("%v", info)
		}
		return err
	})
	link.Stop()
	fleet := startFleet(t, 0, primary.URL(), way.url())
	e := event{name: name, back: back, harm: perhaps, losses: []loss{{from: time.Now()}}}
	fleet.await(t, byStore)
	e.began = time.Now()
	replica.Must(t, "REPLICAOF", "NO", "ONE")
	way.lead(t, replica.Addr())
	<-time.After(usuallyLong)
	way.lead(t, primary.Addr())
	e.ended = time.Now()
	e.losses[0].until = e.ended
	awaitLoss(t, fleet)
	r := fleet.judge(t, e)
	checkLeaks(t, primary, replica)
	return r
}

// topologies is what happens to more than one server.
var topologies = map[string]func(testing.TB, string) result{
	"Sentinel failover, primary killed": func(t testing.TB, name string) result {
		return sentinelFailover(t, name, all, func(s *redistest.Sentinel, _ proxy) { s.Servers[0].Kill() })
	},
	"Sentinel failover, primary cut off": func(t testing.TB, name string) result {
		return sentinelFailover(t, name, all, func(_ *redistest.Sentinel, p proxy) { p.Stop() })
	},
	"Sentinel failover, primary alive": func(t testing.TB, name string) result {
		return sentinelFailover(t, name, perhaps, func(s *redistest.Sentinel, _ proxy) { s.Sentinels[0].Must(t, "SENTINEL", "FAILOVER", s.Name) })
	},
	"Cluster failover, primary killed": func(t testing.TB, name string) result {
		return clusterFailover(t, name, func(s *redistest.Server, _ proxy) { s.Kill() })
	},
	"Cluster failover, primary frozen": func(t testing.TB, name string) result {
		return clusterFailover(t, name, func(s *redistest.Server, _ proxy) { s.Signal(t, syscall.SIGSTOP) })
	},
	"slot migration": migration,
	"split brain":    splitBrain,
}

func TestLongTopologies(t *testing.T) {
	for name, happen := range topologies {
		t.Run(name, func(t *testing.T) { t.Log(happen(t, name)) })
	}
}

func TestLongCloseWhileFrozen(t *testing.T) {
	t.Run("Sentinel", func(t *testing.T) {
		set := redistest.StartSentinel(t)
		url := "redis://" + strings.Join(set.Addrs(), ",") + "?master_set=" + set.Name
		closeWhileFrozen(t, url, slices.Concat(set.Servers, set.Sentinels)...)
	})
	t.Run("Cluster", func(t *testing.T) {
		c := redistest.StartCluster(t)
		closeWhileFrozen(t, "redis://"+strings.Join(c.Addrs(), ","), c.Servers...)
	})
}
