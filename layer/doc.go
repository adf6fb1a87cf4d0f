// Package layer has stores made of stores.
//
// A Fallback answers within a deadline, whatever happens to the store that it
// asks.
package layer
