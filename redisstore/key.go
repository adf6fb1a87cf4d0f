package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
)

// keys builds the names of states, such as weir:1l1m:{Ab3}:slack:search:alice:
// the prefix, the version of the format, a letter for the algorithm, what else
// belongs to the identity of a state, a hash tag, and the Key.
//
// Only the hash tag picks the slot of a Cluster: three characters drawn from
// the Group by a hash, so that no byte of a user ever is in one. The Key is
// escaped, and replaced by 144 bits of SHA-256 where that would be long; with
// a secret always, by those of HMAC-SHA256, so that keys tell nobody whom they
// are about. No two states share a name.
type keys struct {
	prefix string
	secret []byte
}

// keyVersion changes with the meaning of stored values, so that no version
// misreads another's.
const keyVersion = '1'

// maxName is the length up to which a Key is kept readable.
const maxName = 96

// letters are the algorithms in the names of states; 'h' is for tables.
var letters = [...]byte{packedLog: 'l', packedBuckets: 'b', slidingCounter: 'c', fixedWindow: 'w', tokenBucket: 't', sortedSet: 'z', plainWindow: 'p'}

// state returns the name of a request's state under a layout.
func (k *keys) state(l layout, r *weir.Request) string {
	b := make([]byte, 0, 64+len(r.Key))
	b = append(b, k.prefix...)
	b = append(b, ':', keyVersion, letters[l])
	b = appendWindow(b, r.Limit.Window)
	switch {
	case l == packedBuckets:
		b = append(b, '/')
		b = strconv.AppendInt(b, int64(r.Limit.Buckets), 10)
	case l == plainWindow: // see plain.go
		b = append(b, '/')
		b = strconv.AppendInt(b, r.Limit.Max, 10)
	case r.Limit.Epoch:
		b = append(b, 'e')
	}
	b = append(b, ':', '{')
	b = k.appendTag(b, group(r))
	b = append(b, '}')
	return string(k.appendName(b, r.Key))
}

// table returns the name of a table. No state has its letter.
func (k *keys) table(name string) string {
	b := append([]byte(k.prefix), ':', keyVersion, 'h', ':', '{')
	b = k.appendTag(b, name)
	b = append(b, '}')
	return string(k.appendName(b, name))
}

// group returns what picks the slot of a request.
func group(r *weir.Request) string {
	if r.Group != "" {
		return r.Group
	}
	return r.Key
}

// units are the units of a window, the largest first.
var units = [...]struct {
	of   time.Duration
	name string
}{
	{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"},
}

// appendWindow writes a window in the largest unit that divides it.
func appendWindow(b []byte, d time.Duration) []byte {
	for _, u := range units {
		if d%u.of == 0 {
			return append(strconv.AppendInt(b, int64(d/u.of), 10), u.name...)
		}
	}
	return append(strconv.AppendInt(b, d.Microseconds(), 10), "us"...)
}

const tagChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// appendTag writes 18 bits of a hash of a Group; with a secret, of its HMAC, so
// that they tell nobody which Group it is.
func (k *keys) appendTag(b []byte, group string) []byte {
	h := crc32.ChecksumIEEE([]byte(group))
	if k.secret != nil {
		h = binary.BigEndian.Uint32(k.mac("group " + group))
	}
	return append(b, tagChars[h>>26], tagChars[h>>20&63], tagChars[h>>14&63])
}

// mac returns the HMAC-SHA256 of s.
func (k *keys) mac(s string) []byte {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(s))
	return mac.Sum(nil)
}

// appendName writes a Key: as it is where it is short, printable ASCII.
func (k *keys) appendName(b []byte, key string) []byte {
	start := len(b)
	if len(key) <= maxName && k.secret == nil {
		for i := range len(key) {
			if b = appendEscaped(b, key[i]); len(b)-start > maxName {
				break
			}
		}
		if len(b)-start <= maxName {
			return b
		}
	}
	b = append(b[:start], '#')
	if k.secret != nil {
		return base64.RawURLEncoding.AppendEncode(b, k.mac("key " + key)[:18])
	}
	hash := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.AppendEncode(b, hash[:18])
}

func appendEscaped(b []byte, c byte) []byte {
	const hex = "0123456789ABCDEF"
	if c > ' ' && c < 0x7f && c != '%' && c != '#' && c != '{' && c != '}' {
		return append(b, c)
	}
	return append(b, '%', hex[c>>4], hex[c&15])
}
