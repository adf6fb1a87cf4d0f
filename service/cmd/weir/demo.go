package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/config"
	"github.com/weirlimit/weir/service/decide"
)

const demoDomain = "demo"

// demoRules are what the made-up users are held to. Each denies somebody within
// five seconds but the first, which has room for all of them.
var demoRules = policy.Domain{Name: demoDomain, Rules: []policy.Rule{
	{Name: "everyone", Limit: weir.Per(1000, 10*time.Second)},
	{Name: "per-user", By: []string{"user"}, Limit: weir.Per(30, 10*time.Second)},
	{Name: "login", When: policy.When{"path": {"/login"}}, By: []string{"user"}, Limit: weir.Per(3, 30*time.Second)},
	{Name: "stricter-search", When: policy.When{"path": {"/search"}}, By: []string{"user"}, Limit: weir.Limit{Max: 2, Window: time.Second, Burst: 10}, Shadow: true},
}}

// demoTick is how often the users are looked at: nobody asks more often.
const demoTick = 50 * time.Millisecond

// demoUsers ask at each so-and-so-many-th tick.
var demoUsers = []struct {
	name, path string
	every      int
}{
	{"demo:mallory", "/search", 1}, // 20 a second, which is seven times what is allowed
	{"demo:alice", "/search", 10},
	{"demo:alice", "/cart", 30},
	{"demo:bob", "/search", 7},
	{"demo:carol", "/help", 20},
	{"demo:dave", "/login", 15}, // who has forgotten his password
}

// demo is made-up traffic.
type demo struct{ engine *decide.Engine }

// run asks as the users do until ctx ends, one question at a time. Ticks are
// left out while the store is slow.
func (d *demo) run(ctx context.Context) {
	ticker := time.NewTicker(demoTick)
	defer ticker.Stop()
	for tick := 0; ; tick++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for i, u := range demoUsers {
			if (tick+i)%u.every == 0 {
				// The observer of the engine sees what becomes of it.
				_, _ = d.engine.Check(ctx, decide.Query{Domain: demoDomain, Attributes: map[string]string{"user": u.name, "path": u.path}, Cost: 1})
			}
		}
	}
}

// addDemo adds the rules of the demo to those that are configured. Without any,
// requests may still bring a limit of their own.
func addDemo(loaded *config.Config, set *settings) error {
	if loaded.Policy == nil && set.Inline == nil {
		inline := true
		set.Inline = &inline
	}
	domains := []policy.Domain{demoRules}
	if loaded.Policy != nil {
		for _, d := range loaded.Policy.Domains() {
			if d.Name == demoDomain {
				return fmt.Errorf("--demo has a domain of its own that is called %s, and so has the config: call that of the config otherwise", demoDomain)
			}
			if d.Tree != nil {
				d.Rules = nil // a list of what is in the tree
			}
			domains = append(domains, d)
		}
	}
	var err error
	loaded.Policy, err = policy.Compile(domains)
	return err
}

// dashboard is the URL of the admin address, as this machine can open it.
func (s *server) dashboard() string {
	for _, d := range s.doors {
		if d.name == "admin" {
			return "http://" + reachable(d.listener.Addr()) + "/"
		}
	}
	return ""
}
