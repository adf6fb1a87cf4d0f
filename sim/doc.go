// Package sim replays recorded traffic against a policy under a virtual clock,
// to show what its limits would have done: how many requests of each rule they
// would have admitted, whom they would have limited most, and where another
// algorithm would have decided differently from the exact one.
//
// It reads no files and knows no time but that of the events.
package sim
