package sim_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/sim"
)

func Example() {
	rules, err := policy.Compile([]policy.Domain{{Name: "website", Rules: []policy.Rule{
		{Name: "per-ip", By: []string{"ip"}, Limit: weir.PerMinute(2)},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	replay, err := sim.NewReplay(sim.Options{Policy: rules, Domain: "website"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = sim.ReadLog(strings.NewReader(`
192.0.2.1 - - [17/May/2015:10:05:10 +0000] "GET /a HTTP/1.1" 200 512
192.0.2.1 - - [17/May/2015:10:05:20 +0000] "GET /b HTTP/1.1" 200 512
192.0.2.1 - - [17/May/2015:10:05:30 +0000] "GET /c HTTP/1.1" 200 512
192.0.2.1 - - [17/May/2015:10:06:10 +0000] "GET /d HTTP/1.1" 200 512
`), func(e sim.Event) error { return replay.Add(context.Background(), e) })
	if err != nil {
		log.Fatal(err)
	}
	for _, rule := range replay.Report().Rules {
		fmt.Printf("%s %s: %d admitted, %d denied\n", rule.Name, rule.Limit, rule.Admitted, rule.Denied)
	}
	// Output: per-ip 2/1m: 3 admitted, 1 denied
}
