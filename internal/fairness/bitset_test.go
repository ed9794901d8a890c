package fairness

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestBitset(t *testing.T) {
	for _, size := range []int{1, 63, 64, 65, 128, 200} {
		var b bitset
		b.grow(size)
		in := make([]bool, size)
		for range 1000 {
			if i := rand.IntN(size); in[i] {
				b.clear(i)
				in[i] = false
			} else {
				b.set(i)
				in[i] = true
			}
			start := rand.IntN(size + 1)
			var want []int
			for i := range size {
				if at := (start + i) % size; in[at] {
					want = append(want, at)
				}
			}
			if got := slices.Collect(b.from(start)); !slices.Equal(got, want) {
				t.Fatalf("bits of %d from %d = %v, want %v", size, start, got, want)
			}
		}
	}
	for range (bitset)(nil).from(0) {
		t.Error("iteration over a nil bitset yields a bit, want none")
	}
}
