//go:build long

package linear

import "testing"

func TestLong(t *testing.T) { linearizable(t, 10*each) }
