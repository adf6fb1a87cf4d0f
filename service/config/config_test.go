package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/config"
)

// write fills a new working directory with files, given as name and text in turn.
func write(t testing.TB, files ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for i := 0; i < len(files); i += 2 {
		if err := os.MkdirAll(filepath.Dir(files[i]), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[i], []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func load(t testing.TB, paths ...string) *config.Config {
	t.Helper()
	c, err := config.Load(paths)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rules shows each rule and override of a config on a line.
func rules(c *config.Config) string {
	var b strings.Builder
	for _, d := range c.Policy.Domains() {
		for _, r := range d.Rules {
			fmt.Fprintf(&b, "%s %s when=%v by=%q optional=%t deny=%t shadow=%t on_failure=%s", d.Name, r.Name, r.When, r.By, r.Optional, r.Deny, r.Shadow, r.OnFailure)
			if r.Deadline > 0 {
				fmt.Fprintf(&b, " deadline=%s", r.Deadline)
			}
			if r.SlotDomain || r.Slot != nil {
				fmt.Fprintf(&b, " slot=%q slot_domain=%t", r.Slot, r.SlotDomain)
			}
			fmt.Fprintf(&b, " limit=%s\n", r.Limit)
			for _, o := range r.Overrides {
				limit := o.Limit.String()
				if o.Deny {
					limit = "deny"
				}
				fmt.Fprintf(&b, "  when=%v %s\n", o.When, limit)
			}
		}
	}
	return b.String()
}

func TestLoadReadsEveryKey(t *testing.T) {
	write(t, "slack.yaml", `
domain: slack
rules:
  - name: global
    limit: 100/30m
  - name: per-category
    by: [category]
    slot: domain
    limit: 10/30m
    overrides:
      - when: {category: "audit-*"}
        limit: 50/30m
        algorithm: fixed-window
        align: epoch
      - when: {category: [spam, test]}
        deny: true
  - name: search
    when: {path: /search}
    by: user
    slot: [user]
    optional: true
    limit: 5/minute
    shadow: true
    on_failure: deny
    deadline: 20ms
server:
  http: ":8080"
  grpc: off
  resp: 127.0.0.1:6380
  admin: "[::1]:6070"
  admin_token: s3cret
  inline: true
  shadow_mode: true
  log_level: debug
  redis: redis://10.0.0.7:6379
  redis_username: weir
  redis_password_file: /run/secrets/redis
  redis_prefix: limits
  redis_key_secret_file: /run/secrets/keys
  redis_mode: scripts
  redis_layout: sorted-set
  replicas: 3
  deadline: 100ms
  snapshot: limits.snapshot
  snapshot_every: 30s
  grpc_cert_file: cert.pem
  grpc_key_file: key.pem
  grpc_client_ca_file: ca.pem
  grpc_dialect: draft-03
`)
	c := load(t, "slack.yaml")
	want := `slack global when=map[] by=[] optional=false deny=false shadow=false on_failure=local limit=100/30m
slack per-category when=map[] by=["category"] optional=false deny=false shadow=false on_failure=local slot=[] slot_domain=true limit=10/30m
  when=map[category:[audit-*]] 50/30m epoch
  when=map[category:[spam test]] deny
slack search when=map[path:[/search]] by=["user"] optional=true deny=false shadow=true on_failure=deny deadline=20ms slot=["user"] slot_domain=false limit=5/1m
`
	if got := rules(c); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	yes := true
	server := config.Server{
		HTTP: ":8080", GRPC: "off", RESP: "127.0.0.1:6380", Admin: "[::1]:6070",
		AdminToken: "s3cret", Inline: &yes, ShadowMode: true, LogLevel: "debug",
		GRPCTLS: config.TLS{Cert: "cert.pem", Key: "key.pem", ClientCA: "ca.pem"}, GRPCDialect: "draft-03",
		Redis: config.Redis{
			URL: "redis://10.0.0.7:6379", Username: "weir", Password: config.Secret{File: "/run/secrets/redis"},
			Prefix: "limits", KeySecret: config.Secret{File: "/run/secrets/keys"}, Mode: "scripts", Layout: "sorted-set",
			Replicas: 3, Deadline: 100 * time.Millisecond,
		},
		Snapshot: config.Snapshot{File: "limits.snapshot", Every: 30 * time.Second},
	}
	if !reflect.DeepEqual(c.Server, server) {
		t.Errorf("got %+v, want %+v", c.Server, server)
	}
	if !slices.Equal(c.Files, []string{"slack.yaml"}) {
		t.Errorf("files %q", c.Files)
	}
}

func TestLimits(t *testing.T) {
	tests := []struct{ name, rule, override, want, wantOverride string }{
		{"defaults", "limit: 5/minute", "limit: 20000/minute", "5/1m", "20000/1m"},
		{"algorithm", "limit: 5/minute, algorithm: token-bucket", "limit: 7/minute, algorithm: sliding-counter",
			"5/1m burst=5", "7/1m sliding-counter"},
		{"an override keeps the algorithm of its rule", "limit: 5/minute, algorithm: fixed-window, align: epoch", "limit: 7/minute",
			"5/1m epoch", "7/1m epoch"},
		{"an override names another algorithm", "limit: 5/minute, algorithm: fixed-window, align: epoch", "limit: 7/minute, algorithm: sliding-buckets",
			"5/1m epoch", "7/1m buckets=100"},
		{"an override's text implies another algorithm", "limit: 5/minute, algorithm: fixed-window, align: epoch", `limit: 10/s burst=20`,
			"5/1m epoch", "10/1s burst=20"},
		{"the order of keys does not matter", "algorithm: sliding-counter, limit: 5/minute", "algorithm: fixed-window, limit: 7/minute",
			"5/1m sliding-counter", "7/1m fixed-window"},
		{"the same in text and key", "limit: 5/minute fixed-window, algorithm: fixed-window", "limit: 5/minute epoch, align: epoch",
			"5/1m fixed-window", "5/1m epoch"},
		{"key and text complete each other", "limit: 50000/h buckets=60, algorithm: sliding-buckets", "limit: 10/s burst 20, algorithm: token-bucket",
			"50000/1h buckets=60", "10/1s burst=20"},
		{"blocks of text", "limit: \"5/minute\\n\"", "limit: '7/minute'", "5/1m", "7/1m"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			write(t, "f.yaml", "domain: d\nrules:\n- {overrides: [{"+tt.override+", when: {user: a}}], name: r, "+tt.rule+"}\n")
			r := load(t, "f.yaml").Policy.Domains()[0].Rules[0]
			if got := r.Limit.String(); got != tt.want {
				t.Errorf("the rule has %s, want %s", got, tt.want)
			}
			if got := r.Overrides[0].Limit.String(); got != tt.wantOverride {
				t.Errorf("the override has %s, want %s", got, tt.wantOverride)
			}
		})
	}
}

func TestValuesAreReadAsTheyAreWritten(t *testing.T) {
	tests := []struct{ yaml, want string }{
		{"404", "404"}, {"0404", "0404"}, {"1.50", "1.50"}, {"0x1F", "0x1F"}, {"1_000", "1_000"}, {"1e3", "1e3"}, {"true", "true"},
		{"True", "True"}, {"no", "no"}, {"2015-05-17", "2015-05-17"}, {".inf", ".inf"}, {"'it''s'", "it's"}, {`"a\tb"`, "a\tb"},
		{`""`, ""}, {"a b", "a b"}, {"/search?q=*", "/search?q=*"}, {"10.0.0.1:80", "10.0.0.1:80"}, {"é", "é"}, {"'null'", "null"},
	}
	for _, tt := range tests {
		t.Run(tt.yaml, func(t *testing.T) {
			write(t, "f.yaml", "domain: d\nrules:\n- name: r\n  limit: 5/minute\n  when:\n    a: "+tt.yaml+"\n    b: ["+tt.yaml+", x]\n")
			w := load(t, "f.yaml").Policy.Domains()[0].Rules[0].When
			if want := (policy.When{"a": {tt.want}, "b": {tt.want, "x"}}); !reflect.DeepEqual(w, want) {
				t.Errorf("got %q, want %q", w, want)
			}
		})
	}
}

func TestAliasesAndMergeKeys(t *testing.T) {
	write(t, "f.yaml", `
domain: &name d
rules:
  - &base
    name: base
    limit: &five 5/minute
    by: &by [user]
    when: &when {path: /a, method: GET}
  - <<: *base
    name: merged
    when:
      <<: [{path: /c, zone: eu}, *when]
      method: POST
  - {name: aliased, limit: *five, by: *by, when: *when}
  - {name: *name, limit: *five}
`)
	want := `d base when=map[method:[GET] path:[/a]] by=["user"] optional=false deny=false shadow=false on_failure=local limit=5/1m
d merged when=map[method:[POST] path:[/c] zone:[eu]] by=["user"] optional=false deny=false shadow=false on_failure=local limit=5/1m
d aliased when=map[method:[GET] path:[/a]] by=["user"] optional=false deny=false shadow=false on_failure=local limit=5/1m
d d when=map[] by=[] optional=false deny=false shadow=false on_failure=local limit=5/1m
`
	if got := rules(load(t, "f.yaml")); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

const oneRule = "domain: d\nrules: [{name: %s, limit: 5/minute}]\n"

func TestFilesAndDirectories(t *testing.T) {
	rule := func(name string) string { return fmt.Sprintf(oneRule, name) }
	write(t,
		"conf/b.yaml", rule("b1")+"---\n"+rule("b2"), "conf/a.yml", "\ufeff"+rule("a"), "conf/c.txt", "not: ours",
		"conf/.hidden.yaml", "not: ours", "conf/sub.yaml/x.yaml", "not: ours", "z.conf", "---\n---\n"+rule("z")+"---\n# end\n")
	c := load(t, "z.conf", "conf", "conf/../conf/b.yaml")
	if want := []string{"z.conf", filepath.Join("conf", "a.yml"), filepath.Join("conf", "b.yaml")}; !slices.Equal(c.Files, want) {
		t.Errorf("files %q, want %q", c.Files, want)
	}
	var names []string
	for _, r := range c.Policy.Domains()[0].Rules {
		names = append(names, r.Name)
	}
	if want := []string{"z", "a", "b1", "b2"}; !slices.Equal(names, want) {
		t.Errorf("rules %q, want %q", names, want)
	}
}

func TestNoPaths(t *testing.T) {
	c := load(t)
	if len(c.Files) != 0 || len(c.Policy.Domains()) != 0 || c.Server != (config.Server{}) {
		t.Errorf("got %+v from nothing", c)
	}
}

func TestErrorsOfAllFiles(t *testing.T) {
	write(t, "a.yaml", fmt.Sprintf(oneRule, "same")+"server: {http: off}\n",
		"b.yaml", "domain: d\nrules:\n  - name: same\n    limit: 0/minute\nserver: {http: off}\n", "dir/readme", "")
	_, err := config.Load([]string{"b.yaml", "missing.yaml", "a.yaml", "dir"})
	want := `dir: cannot be read: there is no *.yaml or *.yml file in this directory
b.yaml:4:12: rules[0].limit: "0/minute": want 1 to 2147483648 units, such as 5 in 5/minute; to deny everything use a rule's deny
    4 |     limit: 0/minute
missing.yaml: cannot be read: no such file or directory
a.yaml:2:16: rules[0].name: domain "d" already has a rule named "same": give each rule a name of its own (the other is at b.yaml:3:11)
    2 | rules: [{name: same, limit: 5/minute}]
a.yaml:3:9: server: there are server settings already, at b.yaml:5:9: keep one of them
    3 | server: {http: off}`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	var all config.Errors
	var one *config.Error
	if !errors.As(err, &all) || len(all) != 5 || !errors.As(err, &one) || one != all[0] {
		t.Errorf("errors.As finds %d errors, the first %v", len(all), one)
	}
}

func TestTokenIsNotShown(t *testing.T) {
	for _, text := range []string{
		"server:\n  admin_token: s3cret\n  admin_token: s3cret\n",
		"server: {admin_tokn: s3cret, admin_token: [s3cret]}\n",
		`server: {"admin_token": "s3cret", bogus: 1}`,
		"server:\n  admin_token : s3cret\n  admin_token : s3cret\n",
		"server:\n  Admin_Token: s3cret\n",
		"server:\n  admin_token:\n    - s3cret\n",
		"server:\n  admin_token: *s3cret\n",
		"server:\n  admin_token:\n    !s3cret\n",
		"server:\n  admin_token: s3cret: x\n",
		"server:\n  admin_token:\n    s3cret: x: y\n",
		"server:\n  admin_token:\n    \"s3cret\n",
		"server: {algorithm: token-bucket, admin_token: s3cret}\n",
		"server:\n  redis: redis://:s3cret@h\n  redis: redis://:s3cret@h\n",
		"server:\n  redis:\n    - rediss://:s3cret@h\n",
		"server:\n  Redis: :s3cret@h\n",
		"server:\n  reddis: valkey://:s3cret@h\n",
		"server: {redis_mode: lua, redis_password: s3cret}\n",
		"server:\n  redis_key_secret: s3cret\n",
	} {
		write(t, "f.yaml", text)
		_, err := config.Load([]string{"f.yaml"})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s\ngives %v\nwant an error without the token", text, err)
		}
	}
	write(t, "f.yaml", "domain: d\nrules: [{name: r, limit: 5/s, algorithm: token-bucket, b: 1}]\n")
	if _, err := config.Load([]string{"f.yaml"}); err == nil || !strings.HasSuffix(err.Error(), "b: 1}]") {
		t.Errorf("got %v, want the line, which has no token", err)
	}
}

func TestColumnsCountCharacters(t *testing.T) {
	write(t, "f.yaml", "domain: d\r\nrules: [{name: a, when: {ü: é}, limit: 0/m}]\r\n")
	_, err := config.Load([]string{"f.yaml"})
	if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:2:40: rules[0].limit: ") {
		t.Errorf("got %v, want an error at 2:40", err)
	}
}

func TestFileSize(t *testing.T) {
	write(t, "f.yaml", strings.Repeat("# filler\n", 2<<20))
	_, err := config.Load([]string{"f.yaml"})
	if want := "f.yaml: cannot be read: the file is larger than 16 MiB: split it"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestManyOverrides(t *testing.T) {
	const n = 10_000
	var b strings.Builder
	b.WriteString("domain: d\nrules:\n  - name: per-tenant\n    by: tenant\n    limit: 5/minute\n    overrides:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - {when: {tenant: t%d}, limit: %d/minute}\n", i, i+1)
	}
	write(t, "f.yaml", b.String())
	rows, _ := load(t, "f.yaml").Policy.Match(nil, "d", map[string]string{"tenant": "t9999"})
	if len(rows) != 1 || rows[0].Limit.Max != n {
		t.Errorf("got %+v, want the limit of the last override", rows)
	}
	findings, err := config.Lint([]string{"f.yaml"})
	if err != nil || len(findings) != 0 {
		t.Errorf("findings %v, error %v", findings, err)
	}
}

func TestFromEnv(t *testing.T) {
	env := map[string]string{
		"WEIR_HTTP": ":1", "WEIR_GRPC": "off", "WEIR_RESP": "", "WEIR_ADMIN": "localhost:4", "WEIR_ADMIN_TOKEN": "t",
		"WEIR_INLINE": "false", "WEIR_LOG_LEVEL": "warn", "HTTP": ":9",
		"WEIR_REDIS": "redis://h", "WEIR_REDIS_USERNAME": "weir", "WEIR_REDIS_PASSWORD": "hunter2", "WEIR_REDIS_KEY_SECRET_FILE": "k",
		"WEIR_REPLICAS": "2", "WEIR_DEADLINE": "10s",
	}
	lookup := func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
	s := config.Server{HTTP: ":8080", RESP: ":6380", Redis: config.Redis{Password: config.Secret{File: "p"}, Mode: "plain"}}
	if err := s.FromEnv(lookup); err != nil {
		t.Fatal(err)
	}
	no := false
	want := config.Server{HTTP: ":1", GRPC: "off", RESP: ":6380", Admin: "localhost:4", AdminToken: "t", Inline: &no, LogLevel: "warn"}
	want.Redis = config.Redis{
		URL: "redis://h", Username: "weir", Password: config.Secret{Text: "hunter2"}, KeySecret: config.Secret{File: "k"}, Mode: "plain",
		Replicas: 2, Deadline: 10 * time.Second,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v, want %+v", s, want)
	}
	env = map[string]string{
		"WEIR_HTTP": "8080", "WEIR_INLINE": "yes", "WEIR_GRPC": ":2", "WEIR_REDIS_MODE": "lua",
		"WEIR_REDIS_PASSWORD": "hunter2", "WEIR_REDIS_PASSWORD_FILE": "p", "WEIR_REDIS_KEY_SECRET": "s3cret", "WEIR_REDIS_KEY_SECRET_FILE": "k",
		"WEIR_REPLICAS": "two", "WEIR_DEADLINE": "50",
	}
	err := s.FromEnv(lookup)
	message := `weir: WEIR_HTTP "8080": want an address such as :8080 or 127.0.0.1:8080, or off
weir: WEIR_INLINE "yes": want true or false
weir: WEIR_REDIS_MODE "lua": want scripts or plain
weir: WEIR_REPLICAS "two": want how many processes share the server, 1 to 100000, such as 3
weir: WEIR_DEADLINE "50": want how long the store may take to answer, 1ms to 10s, such as 50ms
weir: WEIR_REDIS_PASSWORD_FILE "p": want either it or WEIR_REDIS_PASSWORD
weir: WEIR_REDIS_KEY_SECRET_FILE "k": want either it or WEIR_REDIS_KEY_SECRET`
	if err == nil || err.Error() != message {
		t.Errorf("got\n%v\nwant\n%s", err, message)
	}
	if s.HTTP != ":1" || *s.Inline || s.GRPC != ":2" {
		t.Errorf("wrong values must leave the settings alone and right ones not: %+v", s)
	}
}

// FuzzLoad looks for a file that makes Load panic, or that gives neither a
// policy nor errors with a place.
func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"errors", "lint", "explain"} {
		names, _ := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	f.Add("domain: &a d\nrules:\n- &b {name: x, limit: 5/m, <<: [{by: u}]}\n- <<: *b\n  name: *a\n")
	f.Add("domain: d\ndescriptors: &a\n- {key: k, value: 'a*', share_threshold: on, rate_limit: {unit: Day, requests_per_unit: 0x1_0}, metadata: {a: [1, {b: ~}]}}\n- key: l\n  descriptors: *a\n")
	f.Add("x: &x [a]\n*x : b\n? |\n  q\n: >-\n  r\n---\n--- |\n  s\n...\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		name := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load([]string{name})
		if (c == nil) != (err != nil) {
			t.Fatalf("got config %v and error %v", c, err)
		}
		if _, lintErr := config.Lint([]string{name}); (lintErr == nil) != (err == nil) {
			t.Errorf("Lint gives %v and Load %v", lintErr, err)
		}
		if _, explainErr := config.Explain([]string{name}); (explainErr == nil) != (err == nil) {
			t.Errorf("Explain gives %v and Load %v", explainErr, err)
		}
		var all config.Errors
		if errors.As(err, &all); err != nil && len(all) == 0 {
			t.Errorf("no list of errors in %v", err)
		}
		lines := strings.Count(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n") + 1
		for _, e := range all {
			if e.File != name || e.Line < 1 || e.Line > lines || e.Column < 1 || e.Message == "" {
				t.Errorf("an error has no place: %+v", e)
			}
		}
	})
}
