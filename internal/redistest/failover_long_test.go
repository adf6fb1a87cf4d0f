//go:build long

package redistest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

func TestLongClusterFailover(t *testing.T) {
	c := redistest.StartCluster(t)
	primary, replica := c.Servers[0], c.Servers[3]
	primary.Kill()
	redistest.Await(t, "the replica to become a primary", func() error { return hasRole(replica, "master") })
	primary.Restart(t)
	redistest.Await(t, "the primary to become a replica", func() error { return hasRole(primary, "slave") })
}

func TestLongSentinelFailback(t *testing.T) {
	set := redistest.StartSentinel(t)
	first := set.Servers[0]
	first.Kill()
	redistest.Await(t, "another primary", func() error {
		_, err := set.Primary()
		return err
	})
	first.Restart(t)
	redistest.Await(t, "the primary to become a replica", func() error { return hasRole(first, "slave") })
	set.Sentinels[0].Restart(t)
	redistest.Await(t, "the Sentinel that has restarted to agree", func() error {
		second, err := set.Primary()
		if err == nil && second == first {
			err = errors.New("the primary is the first again")
		}
		return err
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
