// Package siphash is SipHash with 128 bits of output, a keyed hash of short
// strings: who does not know the key cannot find two that collide. It follows
// "SipHash: a fast short-input PRF" by Jean-Philippe Aumasson and Daniel J.
// Bernstein (https://www.aumasson.jp/siphash/siphash.pdf) and, for 128 bits,
// their reference implementation (https://github.com/veorq/SipHash).
package siphash

import "math/bits"

// Key is 128 random bits, as two little-endian numbers.
type Key [2]uint64

// Sum returns the hash of s, as two little-endian numbers, by c rounds for each
// 8 bytes and twice d rounds at the end: SipHash-2-4 is the original, and
// SipHash-1-3 what hash tables use.
func Sum(k *Key, c, d int, s string) (lo, hi uint64) {
	v0, v1, v2, v3 := k[0]^0x736f6d6570736575, k[1]^0x646f72616e646f6d^0xee, k[0]^0x6c7967656e657261, k[1]^0x7465646279746573
	rest := len(s) &^ 7 // where the last, incomplete 8 bytes begin
	for i := 0; i < rest; i += 8 {
		m := load8(s[i:])
		v3 ^= m
		for range c {
			v0, v1, v2, v3 = round(v0, v1, v2, v3)
		}
		v0 ^= m
	}
	last := uint64(len(s))<<56 | tail(s, rest)
	v3 ^= last
	for range c {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	v0 ^= last
	v2 ^= 0xee
	for range d {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	lo = v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	for range d {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	return lo, v0 ^ v1 ^ v2 ^ v3
}

func round(v0, v1, v2, v3 uint64) (_, _, _, _ uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}

// load8 reads the first 8 bytes of s, which the compiler makes one load.
func load8(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// tail reads the up to 7 bytes from rest on, 0 for what is missing.
func tail(s string, rest int) (n uint64) {
	if len(s) >= 8 {
		return load8(s[len(s)-8:]) >> (8 * uint(8-len(s)+rest))
	}
	for i := len(s) - 1; i >= rest; i-- {
		n = n<<8 | uint64(s[i])
	}
	return n
}
