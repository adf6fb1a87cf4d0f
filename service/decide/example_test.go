package decide_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
)

// An operator lets alice search more for two hours, and asks what holds for her.
func ExampleEngine_SetOverrides() {
	ctx := context.Background()
	p, err := policy.Compile([]policy.Domain{{Name: "shop", Rules: []policy.Rule{
		{Name: "search", When: policy.When{"path": {"/search", "/find*"}}, By: []string{"user"}, Limit: weir.PerMinute(5)},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	e := decide.New(decide.Options{Limiter: weir.New(weir.Options{})})
	e.Load(p, false)

	o := decide.Override{
		ID: "1", Domain: "shop", Rule: "serach", Attributes: map[string]string{"user": "alice"},
		Limit: weir.PerMinute(1000), Until: time.Now().Add(2 * time.Hour), By: "bob", Why: "migration",
	}
	fmt.Println(e.CheckOverride(&o))
	o.Rule = "search"
	e.SetOverrides([]decide.Override{o})

	for _, path := range []string{"/search", "/cart"} {
		x, err := e.Explain(ctx, decide.Query{Domain: "shop", Attributes: map[string]string{"path": path, "user": "alice"}, Cost: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(x.Answer.Allowed, x.Rules[0].Matches, x.Rules[0].Limit, x.Rules[0].Why)
	}
	// Output:
	// weir: rule "serach": want search
	// true true 1000/1m path is "/search"
	// true false  path is "/cart": want "/search" or like "/find*"
}
