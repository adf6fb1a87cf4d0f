package redisstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func TestURL(t *testing.T) {
	for _, test := range []struct {
		url  string
		want string // see describe
	}{
		{"redis://10.0.0.7:6379/0", "10.0.0.7:6379"},
		{"redis://10.0.0.7", "10.0.0.7:6379"},
		{"valkey://cache.example/", "cache.example:6379"},
		{"redis://user:password@10.0.0.7:6379/3", "10.0.0.7:6379 user=user password=password db=3"},
		{"redis://:p%40s%2Fs%3Fw%23o%25r+d:@h", "h:6379 password=p@s/s?w#o%r+d:"},
		{"redis://user@h?db=15", "h:6379 user=user db=15"},
		{"redis://[::1]:7000", "[::1]:7000"},
		{"redis://[fe80::1]", "[fe80::1]:6379"},
		{"rediss://h", "h:6379 tls"},
		{"valkeys://h?skip_verify=true", "h:6379 tls insecure"},
		{"rediss://h?skip_verify=false", "h:6379 tls"},
		{"unix:///run/redis.sock?db=2", "/run/redis.sock db=2 single"},
		{"unix://user:pass@/run/a%20b.sock", "/run/a b.sock user=user password=pass single"},
		{"redis://h1:1,h2:2,h3/0", "h1:1,h2:2,h3:6379 cluster"},
		{"redis://h1:1?addr=h2:2&addr=h3:3", "h1:1,h2:2,h3:3 cluster"},
		{"redis://:pw@s1,s2:2/1?master_set=main", "sentinel main at s1:26379,s2:2 password=pw db=1 sentinel=main"},
		{"redis://s?master_set=main&sentinel_user=su&sentinel_password=a+b%2Fc", "sentinel main at s:26379 sentinel=main su a+b/c"},
		{"rediss://s?master_set=main", "sentinel main at s:26379 tls sentinel=main tls"},
		{"redis://h?dial_timeout=1s&write_timeout=500ms", "h:6379 dial=1s write=500ms"},
		{"redis://:pw@h?proxy=twemproxy", "h:6379 password=pw single resp2"},
		{"unix:///run/nutcracker.sock?proxy=twemproxy", "/run/nutcracker.sock single resp2"},
	} {
		e, err := parseURL(test.url)
		if got := describe(e); err != nil || got != test.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", test.url, got, err, test.want)
		}
	}
}

// describe names what of an endpoint is not as usual.
func describe(e endpoint) string {
	o := e.option
	words := []string{e.server}
	add := func(is bool, format string, a ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, a...))
		}
	}
	add(o.Username != "", "user=%s", o.Username)
	add(o.Password != "", "password=%s", o.Password)
	add(o.SelectDB != 0, "db=%d", o.SelectDB)
	add(o.TLSConfig != nil, "tls")
	add(o.TLSConfig != nil && o.TLSConfig.InsecureSkipVerify, "insecure")
	add(e.cluster, "cluster")
	add(o.ForceSingleClient, "single")
	add(o.AlwaysRESP2, "resp2")
	add(e.sentinel, "sentinel=%s", o.Sentinel.MasterSet)
	add(o.Sentinel.Username != "", "%s %s", o.Sentinel.Username, o.Sentinel.Password)
	add(e.sentinel && o.Sentinel.TLSConfig != nil, "tls")
	add(o.Dialer.Timeout != 2*time.Second, "dial=%v", o.Dialer.Timeout)
	add(o.ConnWriteTimeout != 2*time.Second, "write=%v", o.ConnWriteTimeout)
	add(!o.DisableRetry || !o.DisableCache || o.ConnLifetime != 0, "unsafe")
	add(o.Sentinel.Dialer.Timeout != o.Dialer.Timeout, "sentinels without a timeout")
	return strings.Join(words, " ")
}

func TestLoginWins(t *testing.T) {
	for _, test := range []struct{ user, password, want string }{
		{"", "", "h:6379 user=a password=b"},
		{"c", "d", "h:6379 user=c password=d"},
		{"", "d", "h:6379 user=a password=d"},
	} {
		e, err := parseURL("redis://a:b@h")
		if err != nil {
			t.Fatal(err)
		}
		if e.login(test.user, test.password); describe(e) != test.want {
			t.Errorf("login(%q, %q): got %s, want %s", test.user, test.password, describe(e), test.want)
		}
	}
}

// TestBadURL holds that each mistake is named and nothing that may be a secret
// is shown: hunter2 is in every URL, whole or cut by what is wrong.
func TestBadURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		url   string
		shown string
		want  string // part of what to write instead
	}{
		{"", "***", "begins with redis://"},
		{"hunter2", "***", "begins with redis://"},
		{":hunter2@h:6379", "***", "begins with redis://"},
		{"http://:hunter2@h", "***", "begins with redis://"},
		{"hunter2://h", "***", "begins with redis://"},
		{"REDIS://:hunter2@h", "***", "begins with redis://"},
		{"redis://:hunt/er2@h:1/0", "redis://***", "/ is %2F"},
		{"redis://:hunt?er2@h:1/0", "redis://***", "? is %3F"},
		{"redis://:hunt#er2@h:1/0", "redis://***", "# is %23"},
		{"redis://:hunt@er2@h:1/0", "redis://***", "@ is %40"},
		{"redis://:hunt%er2@h:1/0", "redis://***", "% written as %25"},
		{"redis://hunt%zzer2@h:1/0", "redis://***", "% written as %25"},
		{"redis://:hunter2@h%zz/0", "redis://***", "a host after the @"},
		{"redis://:hunter2@h/%zz", "redis://***", "% written as %25"},
		{"redis://:hunt er2@h", "redis://***", "no spaces or line breaks"},
		{"redis://:hunter2@h\n", "redis://***", "no spaces or line breaks"},
		{"redis://:hunter2", "redis://***", "a host after the @"},
		{"redis://user:hunter2/0", "redis://***", "a host after the @"},
		{"redis://:hunter2@", "redis://***", "a host after the @"},
		{"redis://:hunter2@:6379", "redis://***", "a host after the @"},
		{"redis://:hunter2@h:", "redis://***", "a port from 1 to 65535"},
		{"redis://:hunter2@h:0", "redis://***", "a port from 1 to 65535"},
		{"redis://:hunter2@h:65536", "redis://***", "a port from 1 to 65535"},
		{"redis://:hunter2@h:+1", "redis://***", "a port from 1 to 65535"},
		{"redis://:hunter2@h1,,h2", "redis://***", "commas between"},
		{"redis://:hunter2@h1,h2:x", "redis://***", "commas between"},
		{"redis://:hunter2@h?addr=a_b:1,c:2", "redis://***", "commas between"},
		{"redis://:hunter2@::1:6379", "redis://***", "IPv6 address in []"},
		{"redis://:hunter2@h:1/x", "redis://***@h:1/x", "a db that is a number from 0"},
		{"redis://:hunter2@h:1/-1", "redis://***@h:1/-1", "a db that is a number from 0"},
		{"redis://:hunter2@h:1/0/1", "redis://***@h:1/0/1", "a db that is a number from 0"},
		{"redis://:hunter2@h:1/?db=x", "redis://***@h:1/x", "a db that is a number from 0"},
		{"redis://:hunter2@h:1/2?db=2", "redis://***@h:1?db=2", "one db"},
		{"redis://:hunter2@h1:1,h2:2/1", "redis://***@h1:1,h2:2", "db 0, since several addresses are a Cluster"},
		{"redis://h?pasword=hunter2", "redis://***", "no parameters but addr, ca, cert, db"},
		{"redis://h?sentinel_password=hunt@er2&master_set=m", "redis://***", "@ is %40"},
		{"redis://h?sentinel_password=hunter2&sentinel_password=hunter2", "redis://***", "each but addr once"},
		{"redis://h?sentinel_password=hunt%zzer2", "redis://***", "% written as %25"},
		{"redis://:hunter2@h?db=", "redis://***", "a value for each parameter"},
		{"redis://h:1?sentinel_password=hunter2", "redis://h:1", "master_set=NAME with"},
		{"redis://:hunter2@h:1?dial_timeout=5", "redis://***@h:1?dial_timeout=5", "from 1ms to 1m, such as dial_timeout=2s"},
		{"redis://:hunter2@h:1?write_timeout=2h", "redis://***@h:1?write_timeout=2h", "from 1ms to 1m"},
		{"redis://:hunter2@h:1?ca=ca.pem", "redis://***@h:1?ca=ca.pem", "rediss:// instead of redis://"},
		{"rediss://:hunter2@h:1?ca=/nowhere/ca.pem", "rediss://***@h:1?ca=/nowhere/ca.pem", "no such file"},
		{"rediss://:hunter2@h:1?ca=" + file, "rediss://***@h:1?ca=" + file, "-----BEGIN CERTIFICATE-----"},
		{"rediss://:hunter2@h:1?cert=" + file, "rediss://***@h:1?cert=" + file, "?cert=FILE&key=FILE"},
		{"rediss://:hunter2@h:1?cert=" + file + "&key=" + file, "rediss://***@h:1?cert=" + file, "PEM files"},
		{"rediss://:hunter2@h:1?skip_verify=1", "rediss://***@h:1?skip_verify=1", "skip_verify=true"},
		{"redis://:hunter2@h:1?proxy=envoy", "redis://***@h:1?proxy=envoy", "proxy=twemproxy"},
		{"redis://:hunter2@h:1/4?proxy=twemproxy", "redis://***@h:1?proxy=twemproxy", "one address and no db"},
		{"redis://:hunter2@h:1,i:2?proxy=twemproxy", "redis://***@h:1,i:2?proxy=twemproxy", "one address and no db"},
		{"redis://weir:hunter2@h:1?proxy=twemproxy", "redis://***@h:1?proxy=twemproxy", "without a user"},
		{"unix://:hunter2@", "unix://***", "the path of one socket"},
		{"unix://:hunter2@run/redis.sock", "unix://***", "the path of one socket"},
		{"unix://:hunter2@/run/redis.sock?addr=h", "unix://***", "the path of one socket"},
		{"unix://:hunter2@/run/redis.sock?master_set=m", "unix://***", "the path of one socket"},
	} {
		_, err := parseURL(test.url)
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, want an InvalidError", test.url, err)
			continue
		}
		if invalid.Field != "redis URL" || invalid.Value != test.shown || !strings.Contains(invalid.Want, test.want) {
			t.Errorf("%s:\n got %v\nwant %s ... %s", test.url, err, test.shown, test.want)
		}
		if !strings.HasSuffix(invalid.Want, ", as in redis://user:password@10.0.0.7:6379/0") {
			t.Errorf("%s: %v has no example", test.url, err)
		}
		if text := err.Error(); strings.Contains(text, "hunt") || strings.Contains(text, "er2") {
			t.Errorf("%s: a secret is shown: %v", test.url, err)
		}
	}
}

// FuzzURL holds that no text makes parseURL panic or show what stands before an @.
func FuzzURL(f *testing.F) {
	f.Add("redis://", "h:6379/0?db=1")
	f.Add("rediss://user:", "[::1],h2?master_set=m&ca=x")
	f.Add("unix://", "/run/redis.sock?db=%zz")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "Xhunter2X"
		e, err := parseURL(before + secret + "@" + after)
		if strings.Contains(before+after, secret) {
			return
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q %q: a secret is shown: %v", before, after, err)
		}
		if strings.Contains(e.server, secret) {
			t.Errorf("%q %q: a secret is in the server's name: %s", before, after, e.server)
		}
	})
}
