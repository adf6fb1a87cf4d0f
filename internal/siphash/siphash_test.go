package siphash_test

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/siphash"
)

// TestVectors runs the published vectors of SipHash-2-4 with 128 bits: the
// hashes of 0 to 63 bytes 00 01 02..., under the key 00 01 02... 0f.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/sip128.txt")
	if err != nil {
		t.Fatal(err)
	}
	var in []byte
	for i := range 64 {
		in = append(in, byte(i))
	}
	key := siphash.Key{binary.LittleEndian.Uint64(in), binary.LittleEndian.Uint64(in[8:])}
	vectors := strings.Fields(string(text))
	if len(vectors) != len(in) {
		t.Fatalf("%d vectors, want %d", len(vectors), len(in))
	}
	for n, want := range vectors {
		lo, hi := siphash.Sum(&key, 2, 4, string(in[:n]))
		sum := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, lo), hi)
		if got := hex.EncodeToString(sum); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
}

// TestRounds: each of the 128 bits of the key, both numbers of rounds and every
// byte of the input count.
func TestRounds(t *testing.T) {
	const text = "sixteen bytes, 7 more"
	type sum [2]uint64
	seen := make(map[sum]string)
	note := func(k siphash.Key, c, d int, s, what string) {
		lo, hi := siphash.Sum(&k, c, d, s)
		if other, ok := seen[sum{lo, hi}]; ok {
			t.Errorf("%s hashes as %s", what, other)
		}
		seen[sum{lo, hi}] = what
	}
	note(siphash.Key{}, 1, 3, text, "the text")
	note(siphash.Key{}, 2, 3, text, "two rounds")
	note(siphash.Key{}, 1, 4, text, "four last rounds")
	for bit := range 64 {
		note(siphash.Key{1 << bit, 0}, 1, 3, text, "a bit of the key")
		note(siphash.Key{0, 1 << bit}, 1, 3, text, "another bit of the key")
	}
	for i := range text {
		note(siphash.Key{}, 1, 3, text[:i]+"\x00"+text[i+1:], "a byte set to 0")
		note(siphash.Key{}, 1, 3, text[:i], "a shorter text")
	}
}

func BenchmarkSum(b *testing.B) {
	for _, key := range []string{"user:0000000", "tenant/0123456789/search/alice@example.com", strings.Repeat("k", 1024)} {
		b.Run(key[:8], func(b *testing.B) {
			k := siphash.Key{1, 2}
			b.SetBytes(int64(len(key)))
			for b.Loop() {
				siphash.Sum(&k, 1, 3, key)
			}
		})
	}
}
