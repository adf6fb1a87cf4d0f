//go:build !race

package decide_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/service/decide"
)

// A query that no override is for allocates as much beside a thousand as without.
func TestOverridesOfOthersCostNothing(t *testing.T) {
	var others []string
	for i := range 500 {
		others = append(others, fmt.Sprintf("edge/user path=/b user=other%d 5/m", i), fmt.Sprintf("edge user=other%d deny", i))
	}
	for what, query := range map[string]decide.Query{
		"attributes":  {Domain: "edge", Attributes: map[string]string{"user": "al", "path": "/b"}},
		"descriptors": {Domain: "edge", Descriptors: described(t, "user=al path=/b cost=0")},
	} {
		var allocated [2]float64
		for i, texts := range [][]string{nil, others} {
			e, _ := engineOf(t, edge, false, false)
			override(t, e, texts...)
			allocated[i] = testing.AllocsPerRun(100, func() {
				if _, err := e.Check(t.Context(), query); err != nil {
					t.Error(err)
				}
			})
		}
		if allocated[1] > allocated[0] {
			t.Errorf("%s: %v allocations without overrides, %v beside them", what, allocated[0], allocated[1])
		}
	}
}
