package rlsapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/rlsapi"
)

// edge has what Envoy may be told of, and native what it has no words for.
const edge = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3, name: per-user}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: plan
    metadata: {tier: {name: gold, level: 2}, from: plan}
    rate_limit: {unlimited: true}
  - key: tenant
    metadata: {tier: {name: lead, open: true}, from: tenant, tags: [a, 1]}
    rate_limit: {unit: week, requests_per_unit: 4294967295}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 0}
`

const native = `
domain: native
rules:
  - {name: half, when: {rule: half}, limit: 100/30m}
  - {name: day, when: {rule: day}, limit: 10/day}
  - {name: beat, when: {rule: beat}, limit: 10/1500ms}
  - {name: tick, when: {rule: tick}, limit: 10/1500s, algorithm: token-bucket}
  - {name: banned, when: {rule: banned}, deny: true}
`

// failing has a domain for each of the things to do without the store.
const failing = `
domain: on-%[1]s
on_failure: %[1]s
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
`

// options returns what serves edge and native, at 17.25 s past midnight of a
// Thursday, New Year's Day of 2026.
func options(t *testing.T, o decide.Options) rlsapi.Options {
	t.Helper()
	if o.Limiter == nil {
		now := time.Date(2026, time.January, 1, 0, 0, 17, 250e6, time.UTC)
		o.Limiter = weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: func() time.Time { return now }})})
	}
	dir := t.TempDir()
	files := map[string]string{"edge.yaml": edge, "native.yaml": native}
	for _, how := range []string{"local", "allow", "deny"} {
		files[how+".yaml"] = fmt.Sprintf(failing, how)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := config.Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	e := decide.New(o)
	e.Load(loaded.Policy, false)
	return rlsapi.Options{Engine: e, Fields: httplimit.Fields{Dialect: httplimit.None}}
}

// serve returns a server that runs until the test ends, and a connection to it.
func serve(t *testing.T, o rlsapi.Options) (*rlsapi.Server, *grpc.ClientConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := rlsapi.New(o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, conn
}

func parse[M proto.Message](t *testing.T, text string, m M) M {
	t.Helper()
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// alice is a request of an entry, and whatever more a descriptor may have.
func alice(key, more string) string {
	return `domain: "edge" descriptors {entries {key: "` + key + `" value: "alice"} ` + more + `}`
}

// perUser is a status under the limit of user.
func perUser(code, remaining string) string {
	return `statuses {code: ` + code + ` current_limit {name: "per-user" requests_per_unit: 3 unit: MINUTE} limit_remaining: ` + remaining + ` duration_until_reset {seconds: 43}}`
}

// Each case is a conversation: requests, and what is answered to each.
func TestShouldRateLimit(t *testing.T) {
	for name, conversation := range map[string][][2]string{
		"up to the limit": {
			{alice("user", ""), `overall_code: OK ` + perUser("OK", "2")},
			{alice("user", ""), `overall_code: OK ` + perUser("OK", "1")},
			{alice("user", ""), `overall_code: OK ` + perUser("OK", "0")},
			{alice("user", ""), `overall_code: OVER_LIMIT ` + perUser("OVER_LIMIT", "0")},
		},
		"hits of the request and of a descriptor": {
			{`hits_addend: 2 ` + alice("user", ""), `overall_code: OK ` + perUser("OK", "1")},
			{`hits_addend: 2 ` + alice("user", ""), `overall_code: OVER_LIMIT ` + perUser("OVER_LIMIT", "1")},
			{`hits_addend: 2 ` + alice("user", "hits_addend {value: 1}"), `overall_code: OK ` + perUser("OK", "0")},
		},
		"a peek takes nothing and sees an exhausted key": {
			{alice("user", "hits_addend {value: 0}"), `overall_code: OK statuses {code: OK current_limit {name: "per-user" requests_per_unit: 3 unit: MINUTE} limit_remaining: 3 duration_until_reset {}}`},
			{`hits_addend: 3 ` + alice("user", ""), `overall_code: OK ` + perUser("OK", "0")},
			{alice("user", "hits_addend {}"), `overall_code: OVER_LIMIT ` + perUser("OVER_LIMIT", "0")},
		},
		"negative hits give back": {
			{`hits_addend: 3 ` + alice("user", ""), `overall_code: OK ` + perUser("OK", "0")},
			{alice("user", "is_negative_hits: true hits_addend {value: 2}"), `overall_code: OK ` + perUser("OK", "2")},
			{alice("user", "is_negative_hits: true hits_addend {value: 9}"), `overall_code: OK statuses {code: OK current_limit {name: "per-user" requests_per_unit: 3 unit: MINUTE} limit_remaining: 3 duration_until_reset {}}`},
		},
		"statuses in order, and a denial takes nothing": {
			{
				`domain: "edge" descriptors {entries {key: "path" value: "/"}} descriptors {entries {key: "nothing" value: "x"}} descriptors {entries {key: "user" value: "bob"} hits_addend {value: 3}}`,
				`overall_code: OK statuses {code: OK current_limit {requests_per_unit: 2 unit: HOUR} limit_remaining: 1 duration_until_reset {seconds: 3583}} statuses {code: OK} ` + perUser("OK", "0"),
			},
			{
				`domain: "edge" descriptors {entries {key: "path" value: "/"}} descriptors {entries {key: "user" value: "bob"}}`,
				`overall_code: OVER_LIMIT statuses {code: OK current_limit {requests_per_unit: 2 unit: HOUR} limit_remaining: 1 duration_until_reset {seconds: 3583}} ` + perUser("OVER_LIMIT", "0"),
			},
		},
		"a limit of its own": {
			{alice("user", "limit {requests_per_unit: 1 unit: HOUR unit_multiplier {value: 2}}"), `overall_code: OK statuses {code: OK current_limit {requests_per_unit: 1 unit: HOUR unit_multiplier {value: 2}} duration_until_reset {seconds: 7183}}`},
			{alice("user", "limit {requests_per_unit: 1 unit: HOUR unit_multiplier {value: 2}}"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT current_limit {requests_per_unit: 1 unit: HOUR unit_multiplier {value: 2}} duration_until_reset {seconds: 7183}}`},
			{alice("user", ""), `overall_code: OK ` + perUser("OK", "2")},
			{alice("any", "limit {requests_per_unit: 5 unit: MINUTE unit_multiplier {value: 60}}"), `overall_code: OK statuses {code: OK current_limit {requests_per_unit: 5 unit: HOUR} limit_remaining: 4 duration_until_reset {seconds: 3583}}`},
			{alice("any", "limit {unit: DAY}"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT current_limit {unit: DAY} duration_until_reset {}}`},
		},
		"no limit": {
			{`domain: "elsewhere" descriptors {entries {key: "user" value: "x"}} descriptors {}`, `overall_code: OK statuses {code: OK} statuses {code: OK}`},
			{`domain: "elsewhere" descriptors {limit {requests_per_unit: 1 unit: DAY}}`, `overall_code: OK statuses {code: OK}`},
			{`domain: "edge" descriptors {}`, `overall_code: OK statuses {code: OK}`},
			{alice("trial", ""), `overall_code: OK statuses {code: OK current_limit {unit: DAY} duration_until_reset {}}`},
		},
		"metadata of what admits": {
			{
				`domain: "edge" hits_addend: 2 descriptors {entries {key: "plan" value: "a"} entries {key: "b" value: "c"}}`,
				`overall_code: OK statuses {code: OK}`,
			},
			{
				`domain: "edge" hits_addend: 2 descriptors {entries {key: "plan" value: "a"}} descriptors {entries {key: "tenant" value: "b"} hits_addend {value: 3}}`,
				`overall_code: OK statuses {code: OK limit_remaining: 4294967295}
				statuses {code: OK current_limit {requests_per_unit: 4294967295 unit: WEEK} limit_remaining: 2147483645 duration_until_reset {seconds: 604783}}
				dynamic_metadata {
					fields {key: "domain" value {string_value: "edge"}}
					fields {key: "hitsAddend" value {number_value: 2}}
					fields {key: "descriptors" value {list_value {
						values {struct_value {fields {key: "entries" value {list_value {values {string_value: "plan=a"}}}}}}
						values {struct_value {fields {key: "entries" value {list_value {values {string_value: "tenant=b"}}}} fields {key: "hitsAddend" value {number_value: 3}}}}
					}}}
					fields {key: "metadata" value {struct_value {
						fields {key: "from" value {string_value: "plan"}}
						fields {key: "tags" value {list_value {values {string_value: "a"} values {number_value: 1}}}}
						fields {key: "tier" value {struct_value {
							fields {key: "name" value {string_value: "gold"}}
							fields {key: "level" value {number_value: 2}}
							fields {key: "open" value {bool_value: true}}
						}}}
					}}}
				}`,
			},
		},
		"limits of native rules": {
			{nativeRule("half"), `overall_code: OK statuses {code: OK current_limit {name: "half" requests_per_unit: 100 unit: MINUTE unit_multiplier {value: 30}} limit_remaining: 99 duration_until_reset {seconds: 1800}}`},
			{nativeRule("day"), `overall_code: OK statuses {code: OK current_limit {name: "day" requests_per_unit: 10 unit: DAY} limit_remaining: 9 duration_until_reset {seconds: 86400}}`},
			{nativeRule("beat"), `overall_code: OK statuses {code: OK current_limit {name: "beat" requests_per_unit: 10} limit_remaining: 9 duration_until_reset {seconds: 2}}`},
			{nativeRule("tick"), `overall_code: OK statuses {code: OK current_limit {name: "tick" requests_per_unit: 10 unit: MINUTE unit_multiplier {value: 25}} limit_remaining: 9 duration_until_reset {seconds: 150}}`},
			{nativeRule("banned"), `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT current_limit {name: "banned"} duration_until_reset {}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := serve(t, options(t, decide.Options{}))
			converse(t, conn, conversation)
		})
	}
}

func nativeRule(name string) string {
	return `domain: "native" descriptors {entries {key: "rule" value: "` + name + `"}}`
}

func converse(t *testing.T, conn *grpc.ClientConn, conversation [][2]string) {
	t.Helper()
	for i, turn := range conversation {
		got, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parse(t, turn[0], &rls.RateLimitRequest{}))
		if got != nil {
			got.ResponseHeadersToAdd = nil // of which TestHeaders tells
		}
		if want := parse(t, turn[1], &rls.RateLimitResponse{}); err != nil || !proto.Equal(got, want) {
			t.Errorf("%d. %s\ngot  %v, %v\nwant %v", i, turn[0], got, err, want)
		}
	}
}

// In global shadow mode nothing is denied, and the statuses say what would be.
func TestShadowMode(t *testing.T) {
	_, conn := serve(t, options(t, decide.Options{Shadow: true}))
	converse(t, conn, [][2]string{
		{`hits_addend: 3 ` + alice("user", ""), `overall_code: OK ` + perUser("OK", "0")},
		{alice("user", ""), `overall_code: OK ` + perUser("OVER_LIMIT", "0")},
	})
}

func TestHeaders(t *testing.T) {
	for dialect, want := range map[httplimit.Dialect][2]string{
		httplimit.None:    {"", "Retry-After: 43"},
		httplimit.Delta:   {"X-Ratelimit-Limit: 3, X-Ratelimit-Remaining: 0, X-Ratelimit-Reset: 43", "Retry-After: 43, X-Ratelimit-Limit: 3, X-Ratelimit-Remaining: 0, X-Ratelimit-Reset: 43"},
		httplimit.Draft03: {`X-Ratelimit-Limit: 3, 3;w=60;name="user", X-Ratelimit-Remaining: 0, X-Ratelimit-Reset: 43`, `Retry-After: 43, X-Ratelimit-Limit: 3, 3;w=60;name="user", X-Ratelimit-Remaining: 0, X-Ratelimit-Reset: 43`},
		httplimit.Draft10: {`Ratelimit: "user";r=0;t=43, Ratelimit-Policy: "user";q=3;w=60`, `Ratelimit: "user";r=0;t=43, Ratelimit-Policy: "user";q=3;w=60, Retry-After: 43`},
	} {
		o := options(t, decide.Options{})
		o.Fields.Dialect = dialect
		_, conn := serve(t, o)
		for i, hits := range []string{"hits_addend: 3 ", ""} {
			got, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parse(t, hits+alice("user", ""), &rls.RateLimitRequest{}))
			var fields []string
			for _, h := range got.GetResponseHeadersToAdd() {
				fields = append(fields, h.GetKey()+": "+h.GetValue())
			}
			if text := strings.Join(fields, ", "); err != nil || text != want[i] {
				t.Errorf("%v: got %s, %v\nwant %s", dialect, text, err, want[i])
			}
		}
	}
}

func TestBadRequests(t *testing.T) {
	_, conn := serve(t, options(t, decide.Options{}))
	for request, want := range map[string]string{
		``: "domain is empty",
		`descriptors {entries {key: "user" value: "alice"}}`: "domain is empty",
		`domain: "edge"`: "descriptors are empty",
		`domain: "edge"` + strings.Repeat(` descriptors {}`, 1001):                                                                "there are 1001 descriptors: want 1 to 1000",
		`hits_addend: 2147483649 ` + alice("user", ""):                                                                            `descriptors[0].hits_addend "2147483649": want 0 to 2147483648`,
		alice("user", "hits_addend {value: 18446744073709551615}"):                                                                `descriptors[0].hits_addend "9223372036854775807": want 0 to 2147483648`,
		alice("user", "limit {requests_per_unit: 1}"):                                                                             "descriptors[0].limit.unit UNKNOWN: want SECOND",
		alice("user", "limit {requests_per_unit: 1 unit: 9}"):                                                                     "descriptors[0].limit.unit 9: want SECOND",
		alice("user", "limit {requests_per_unit: 1 unit: DAY unit_multiplier {}}"):                                                "descriptors[0].limit.unit_multiplier 0: want 1 or more",
		alice("user", "limit {requests_per_unit: 1 unit: DAY unit_multiplier {value: 367}}"):                                      "descriptors[0].limit.unit_multiplier 367: want 1 or more, and 366 days at most",
		alice("user", "limit {requests_per_unit: 1 unit: YEAR unit_multiplier {value: 4294967295}}"):                              "unit_multiplier 4294967295",
		`domain: "edge" descriptors {} descriptors {limit {requests_per_unit: 1 unit: YEAR unit_multiplier {value: 4294967295}}}`: "descriptors[1].limit.unit_multiplier",
	} {
		got, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parse(t, request, &rls.RateLimitRequest{}))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s\ngot  %v, %v\nwant InvalidArgument, %s", request, got, err, want)
		}
	}
}

// broken is a store that answers Take with what fails returns.
type broken struct {
	weir.Store

	fails func(context.Context) error
}

func (b broken) Take(ctx context.Context, lists []weir.List) {
	for i := range lists {
		lists[i].Err = b.fails(ctx)
	}
}

// What goes wrong is never a denial.
func TestFailures(t *testing.T) {
	hangs := make(chan struct{}, 1)
	wait := func(ctx context.Context) error {
		hangs <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	for name, test := range map[string]struct {
		fails func(context.Context) error
		call  func(ctx context.Context) (context.Context, context.CancelFunc)
		want  codes.Code
	}{
		"a store out of reach": {func(context.Context) error {
			return &weir.StoreError{Err: errors.New("redis://u:hunter2@h")}
		}, context.WithCancel, codes.Unavailable},
		"a closed store": {func(context.Context) error { return weir.ErrClosed }, context.WithCancel, codes.Unavailable},
		"cancelled": {wait, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				<-hangs
				cancel()
			}()
			return ctx, cancel
		}, codes.Canceled},
		"a deadline": {wait, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		}, codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := serve(t, options(t, decide.Options{Limiter: weir.New(weir.Options{Store: broken{fails: test.fails}})}))
			ctx, cancel := test.call(t.Context())
			defer cancel()
			got, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, parse(t, alice("user", ""), &rls.RateLimitRequest{}))
			if status.Code(err) != test.want || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

// Where the store fails the rules say what then, and the answer says so.
func TestOnFailure(t *testing.T) {
	out := func(context.Context) error { return &weir.StoreError{Err: errors.New("connection refused")} }
	store := layer.NewFallback(layer.FallbackOptions{Store: broken{fails: out}, Replicas: 3})
	_, conn := serve(t, options(t, decide.Options{Limiter: weir.New(weir.Options{Store: store})}))
	for _, test := range []struct{ how, want, reason string }{
		{"local", "OK OVER_LIMIT", "store_unavailable_local"}, // a third of 3
		{"allow", "OK OK", "store_unavailable_allowed"},
		{"deny", "OVER_LIMIT OVER_LIMIT", "store_unavailable_denied"},
	} {
		r := parse(t, `domain: "on-`+test.how+`" descriptors {entries {key: "user" value: "alice"}}`, &rls.RateLimitRequest{})
		var codes []string
		for range 2 {
			got, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, got.GetOverallCode().String())
			headers := make(map[string]string)
			for _, h := range got.GetResponseHeadersToAdd() {
				headers[h.GetKey()] = h.GetValue()
			}
			if headers["Weir-Reason"] != test.reason {
				t.Errorf("%s: got headers %v", test.how, headers)
			}
		}
		if got := strings.Join(codes, " "); got != test.want {
			t.Errorf("%s: got %s, want %s", test.how, got, test.want)
		}
	}
}

// The store's view of a call that ended is told by the service itself, too.
func TestStatusOfCalls(t *testing.T) {
	for _, test := range []struct {
		err  error
		want codes.Code
	}{{context.Canceled, codes.Canceled}, {context.DeadlineExceeded, codes.DeadlineExceeded}} {
		fails := func(context.Context) error { return test.err }
		_, conn := serve(t, options(t, decide.Options{Limiter: weir.New(weir.Options{Store: broken{fails: fails}})}))
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parse(t, alice("user", ""), &rls.RateLimitRequest{}))
		if status.Code(err) != test.want {
			t.Errorf("%v: got %v, want %v", test.err, err, test.want)
		}
	}
}

// An override of an unknown domain holds where callers may choose their limits.
func TestOverrideOfAnUnknownDomain(t *testing.T) {
	e := decide.New(decide.Options{Limiter: weir.New(weir.Options{})})
	e.Load(new(policy.Policy), true)
	_, conn := serve(t, rlsapi.Options{Engine: e, Fields: httplimit.Fields{Dialect: httplimit.None}})
	request := parse(t, `domain: "elsewhere" descriptors {entries {key: "k" value: "v"} limit {requests_per_unit: 1 unit: YEAR}}`, &rls.RateLimitRequest{})
	for _, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT} {
		if got, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request); err != nil || got.GetOverallCode() != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
}
