//go:build long

package fleet

import "testing"

func TestLongFleet(t *testing.T) { schedules(t, 5000) }
