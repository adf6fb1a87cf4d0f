package redistest

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
)

// StartTwemproxy starts twemproxy (nutcracker) in front of the server, waits until
// a command reaches it, and returns the host and port to connect to. The server's
// default user must be without a password.
func StartTwemproxy(t testing.TB, server *Server) string {
	t.Helper()
	program, dir := find(t, "nutcracker"), t.TempDir()
	t.Cleanup(func() { showLog(t, program, dir) })
	proof := rand.Text()
	server.Must(t, "SET", proof, "1", "EX", "60")
	for range ports {
		port := freePort(t)
		writeFile(t, filepath.Join(dir, "nutcracker.yml"), fmt.Sprintf(twemproxyConfig, loopback(port), server.Addr()))
		c := spawn(t, dir, program, "-c", "nutcracker.yml", "-p", filepath.Join(dir, "pid"),
			"-a", "127.0.0.1", "-s", strconv.Itoa(port+busOffset))
		t.Cleanup(c.kill)
		if c.await(t, func() error { return reaches(loopback(port), proof) }) {
			server.Must(t, "DEL", proof)
			return loopback(port)
		}
	}
	t.Fatalf("redistest: %d ports that were free were taken before %s could listen on them", ports, program)
	return ""
}

const twemproxyConfig = `weir:
  listen: %s
  redis: true
  hash: fnv1a_64
  distribution: ketama
  auto_eject_hosts: false
  timeout: 5000
  servers:
   - %s:1
`

// reaches returns nil if the key is found through the proxy.
func reaches(addr, key string) error {
	client, err := Dial(addr, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	value, err := client.Do("GET", key)
	if err == nil && value == nil {
		err = fmt.Errorf("%s leads to another server", addr)
	}
	return err
}
