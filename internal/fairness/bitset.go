package fairness

import (
	"iter"
	"math/bits"
)

// bitset is a set of small numbers.
type bitset []uint64

// grow allocates space for the numbers below n.
func (b *bitset) grow(n int) {
	for len(*b)*64 < n {
		*b = append(*b, 0)
	}
}

func (b bitset) set(i int)   { b[i/64] |= 1 << (i % 64) }
func (b bitset) clear(i int) { b[i/64] &^= 1 << (i % 64) }

// from iterates over the numbers from start on, and then over the smaller ones.
func (b bitset) from(start int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(b) == 0 {
			return
		}
		if start >= len(b)*64 {
			start = 0
		}
		first := start / 64
		for i := range len(b) + 1 {
			at := (first + i) % len(b)
			word := b[at]
			switch i {
			case 0:
				word &= ^uint64(0) << (start % 64)
			case len(b):
				word &^= ^uint64(0) << (start % 64)
			}
			for ; word != 0; word &= word - 1 {
				if !yield(at*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}
