// Package redisstore is the weir.Store for a fleet: every decision is one
// atomic script on Redis or Valkey, by the server's clock, with the algorithms
// and the answers of the store in memory.
package redisstore
