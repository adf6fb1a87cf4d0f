package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/service/load"
)

// front is a front end that can be driven.
type front struct {
	name string
	// dial returns what asks a server, and what closes the connections to it. An
	// answer may be empty, as those of the floor are.
	dial func(address string, callers int, q *questions) (ask askOne, closes func(), err error)
}

// askOne is a load.Ask that reports whether the answer was a denial.
type askOne func(ctx context.Context, n int64) (denied bool, err error)

// fronts are those there are.
var fronts = []front{{"http", dialHTTP}, {"grpc", dialGRPC}}

func frontOf(name string) (front, error) {
	i := slices.IndexFunc(fronts, func(f front) bool { return f.name == name })
	if i < 0 {
		return front{}, fmt.Errorf("%q is no front end that can be measured: want http or grpc", name)
	}
	return fronts[i], nil
}

// counting makes of ask a load.Ask that counts denials.
func (ask askOne) counting(denied *atomic.Int64) load.Ask {
	return func(ctx context.Context, n int64) error {
		no, err := ask(ctx, n)
		if no {
			denied.Add(1)
		}
		return err
	}
}

// dialHTTP asks /v1/check, each caller over a connection of its own.
func dialHTTP(address string, callers int, q *questions) (askOne, func(), error) {
	transport := &http.Transport{MaxIdleConnsPerHost: callers, DisableCompression: true}
	client, url := &http.Client{Transport: transport}, "http://"+address+"/v1/check"
	ask := func(ctx context.Context, n int64) (bool, error) {
		body, err := json.Marshal(map[string]any{"domain": q.domain, "attributes": q.named(n)})
		if err != nil {
			return false, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return false, err
		}
		r.Header.Set("Content-Type", "application/json")
		return readCheck(client.Do(r))
	}
	return ask, transport.CloseIdleConnections, nil
}

// named are the attributes of question n.
func (q *questions) named(n int64) map[string]string {
	attributes := make(map[string]string, len(q.attributes))
	for i, a := range q.attributes {
		attributes[a[0]] = q.value(i, n)
	}
	return attributes
}

func readCheck(response *http.Response, err error) (denied bool, _ error) {
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return false, err
	}
	if response.StatusCode != http.StatusOK {
		var problem struct{ Detail string }
		if err := json.Unmarshal(answer, &problem); err != nil || problem.Detail == "" {
			problem.Detail = "is it a weir server?"
		}
		return false, fmt.Errorf("the server answered with status %d: %s", response.StatusCode, problem.Detail)
	}
	return bytes.HasPrefix(answer, []byte(`{"allowed":false`)), nil
}

// dialGRPC asks ShouldRateLimit, over a connection for each processor, as Envoy
// has one for each of its workers.
func dialGRPC(address string, callers int, q *questions) (askOne, func(), error) {
	clients := make([]rls.RateLimitServiceClient, min(callers, runtime.NumCPU()))
	var conns []*grpc.ClientConn
	closes := func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	for i := range clients {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			closes()
			return nil, nil, err
		}
		conns, clients[i] = append(conns, conn), rls.NewRateLimitServiceClient(conn)
	}
	ask := func(ctx context.Context, n int64) (bool, error) {
		answer, err := clients[n%int64(len(clients))].ShouldRateLimit(ctx, q.described(n))
		if err != nil {
			return false, errors.New(strings.TrimPrefix(err.Error(), "rpc error: "))
		}
		return answer.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT, nil
	}
	return ask, closes, nil
}

// described is the request of question n.
func (q *questions) described(n int64) *rls.RateLimitRequest {
	entries := make([]*ratelimit.RateLimitDescriptor_Entry, len(q.attributes))
	for i, a := range q.attributes {
		entries[i] = &ratelimit.RateLimitDescriptor_Entry{Key: a[0], Value: q.value(i, n)}
	}
	return &rls.RateLimitRequest{Domain: q.domain, Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: entries}}}
}
