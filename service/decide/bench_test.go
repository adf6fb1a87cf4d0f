package decide_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
)

// BenchmarkCheck times a query that one limit matches, beside its floor: what
// the library takes for the decision.
func BenchmarkCheck(b *testing.B) {
	limit := weir.PerMinute(1000)
	p, err := policy.Compile([]policy.Domain{
		{Name: "rules", Rules: []policy.Rule{{Name: "per-user", By: []string{"user"}, Limit: limit}}},
		{Name: "tree", Tree: &policy.Tree{Algorithm: weir.SlidingLog, Descriptors: []policy.Descriptor{
			{Key: "user", RateLimit: &policy.RateLimit{Requests: 1000, Unit: policy.Minute}},
		}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	limiter := weir.New(weir.Options{})
	e, busy := decide.New(decide.Options{Limiter: limiter}), decide.New(decide.Options{Limiter: limiter})
	e.Load(p, false)
	busy.Load(p, false)
	var others []string
	for i := range 500 {
		others = append(others, fmt.Sprintf("rules/per-user user=other%d 5/m", i), fmt.Sprintf("tree user=other%d deny", i))
	}
	override(b, busy, others...)
	users := make([]string, 10_000)
	for i := range users {
		users[i] = "user" + strconv.Itoa(i)
	}
	described := func(domain, user string) decide.Query {
		return decide.Query{Domain: domain, Descriptors: []decide.Descriptor{{Entries: []decide.Entry{{Key: "user", Value: user}}, Cost: 1}}}
	}
	for _, c := range []struct {
		name string
		ask  func(user string) error
	}{
		{"floor", func(user string) error {
			_, err := limiter.Allow(b.Context(), user, limit)
			return err
		}},
		{"attributes", func(user string) error {
			_, err := e.Check(b.Context(), decide.Query{Domain: "rules", Attributes: map[string]string{"user": user}, Cost: 1})
			return err
		}},
		{"descriptors", func(user string) error {
			_, err := e.Check(b.Context(), described("rules", user))
			return err
		}},
		{"tree", func(user string) error {
			_, err := e.Check(b.Context(), described("tree", user))
			return err
		}},
		{"attributes beside 1000 overrides", func(user string) error {
			_, err := busy.Check(b.Context(), decide.Query{Domain: "rules", Attributes: map[string]string{"user": user}, Cost: 1})
			return err
		}},
		{"tree beside 1000 overrides", func(user string) error {
			_, err := busy.Check(b.Context(), described("tree", user))
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := c.ask(users[i%len(users)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
