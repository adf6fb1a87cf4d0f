//go:build race

package weir_test

// scale divides the size of the largest tests: with the race detector each
// call takes ten times as long.
const scale = 10
