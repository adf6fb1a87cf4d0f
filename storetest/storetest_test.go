package storetest_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

func openModel(now func() time.Time) (weir.Store, error) { return storetest.NewModel(now), nil }

func openMemory(now func() time.Time) (weir.Store, error) {
	return weir.NewMemory(weir.MemoryOptions{Now: now}), nil
}

// TestPure runs the suite on the pure functions: what the checks say of them
// they say of every store that agrees with them.
func TestPure(t *testing.T) { storetest.Run(t, openModel) }

func TestMemory(t *testing.T) { storetest.Run(t, openMemory) }
