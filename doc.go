// Package weir decides whether an event may happen now.
package weir
