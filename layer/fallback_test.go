package layer_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(now func() time.Time) (weir.Store, error) {
		memory := weir.NewMemory(weir.MemoryOptions{Now: now})
		return layer.NewFallback(layer.FallbackOptions{Store: memory, Deadline: time.Minute}), nil
	})
}
