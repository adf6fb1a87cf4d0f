//go:build race

package faults

// raced says that the race detector leaves times without meaning.
const raced = true
