package frame

import "hash/maphash"

// Encoder encodes header blocks (RFC 7541). It belongs to a Writer, which guards it.
//
// Nearly all fields of nearly all messages were sent before with the same value, so a small hash table finds them. Strings
// are not Huffman-coded: the coding saves less on the wire than it costs at both ends.
type Encoder struct {
	block []byte

	seed     maphash.Seed
	ring     []headerField // grows with the number of entries: most idle connections have few
	newest   uint32        // entries are numbered from 1; entry n is ring[n%len(ring)]
	count    uint32        // of the entries
	size     uint32        // of the entries, as in RFC 7541, section 4.1
	limit    uint32
	minLimit uint32   // the smallest limit since the last block, which must be sent too
	changed  bool     // the limit must be sent
	byField  []uint32 // entry numbers by hash, as long as ring
	byName   []uint32
}

type headerField struct{ name, value string }

func (e *headerField) size() uint32 { return uint32(len(e.name) + len(e.value) + 32) }

const (
	maxTableSize = 4096
	initialRing  = 16      // doubled up to maxTableSize/32, which is enough for every table
	maxKeptBlock = 4 << 10 // retained for the next block; most have a few hundred bytes
)

// NewEncoder returns an Encoder with the table size that every peer must allow.
func NewEncoder() *Encoder {
	return &Encoder{seed: maphash.MakeSeed(), limit: maxTableSize, minLimit: maxTableSize}
}

func (e *Encoder) begin() {
	e.block = e.block[:0]
	if e.ring == nil {
		e.grow()
	}
	if !e.changed {
		return
	}
	if e.minLimit < e.limit {
		e.integer(0x20, 5, e.minLimit)
	}
	e.integer(0x20, 5, e.limit)
	e.changed, e.minLimit = false, e.limit
}

// blockWritten releases a large block, because a connection may live for days after it.
func (e *Encoder) blockWritten() {
	if cap(e.block) > maxKeptBlock {
		e.block = nil
	}
}

// WriteField writes a field. Its name must be in lower case.
func (e *Encoder) WriteField(name, value string) {
	h := maphash.String(e.seed, name)
	both := e.fieldHash(h, value)
	n := e.byField[both%e.hashSize()]
	if f := e.at(n); f != nil && f.value == value && f.name == name {
		e.integer(0x80, 7, e.index(n))
		return
	}
	static, whole := staticIndex(name, value)
	if whole {
		e.integer(0x80, 7, static)
		return
	}
	if uint32(len(name)+len(value)+32) > e.limit/2 {
		e.literal(0x00, 4, static, h, name, value) // it would evict everything else
		return
	}
	e.literal(0x40, 6, static, h, name, value)
	e.add(headerField{name, value})
	e.byField[both%e.hashSize()], e.byName[h%e.hashSize()] = e.newest, e.newest
}

func (e *Encoder) hashSize() uint64 { return uint64(len(e.ring)) }

// fieldHash returns the hash of a field. h is the hash of its name.
func (e *Encoder) fieldHash(h uint64, value string) uint64 {
	return h ^ maphash.String(e.seed, value)*3
}

// grow doubles the ring.
func (e *Encoder) grow() {
	old := e.ring
	size := max(initialRing, 2*uint32(len(old)))
	e.ring, e.byField, e.byName = make([]headerField, size), make([]uint32, size), make([]uint32, size)
	for n := e.newest - e.count + 1; n <= e.newest && e.count > 0; n++ {
		f := old[n%uint32(len(old))]
		e.ring[n%size] = f
		h := maphash.String(e.seed, f.name)
		e.byField[e.fieldHash(h, f.value)%e.hashSize()], e.byName[h%e.hashSize()] = n, n
	}
}

// WriteNeverIndexed writes a field with a value that will not occur again, or must not be indexed (RFC 7541, section
// 7.1.3).
func (e *Encoder) WriteNeverIndexed(name, value string) {
	if static, ok := staticNames.find(name); ok {
		e.literal(0x10, 4, static, 0, name, value)
		return
	}
	e.literal(0x10, 4, 0, maphash.String(e.seed, name), name, value)
}

// literal writes a field. index is the index of its name in the static table. If it is 0, the dynamic table is searched by
// hash.
func (e *Encoder) literal(kind byte, bits int, index uint32, hash uint64, name, value string) {
	if index == 0 {
		n := e.byName[hash%e.hashSize()]
		if f := e.at(n); f != nil && f.name == name {
			index = e.index(n)
		}
	}
	e.integer(kind, bits, index)
	if index == 0 {
		e.string(name)
	}
	e.string(value)
}

// at returns entry n, or nil if it was evicted.
func (e *Encoder) at(n uint32) *headerField {
	if n == 0 || e.newest-n >= e.count {
		return nil
	}
	return &e.ring[n%uint32(len(e.ring))]
}

func (e *Encoder) index(n uint32) uint32 { return uint32(len(staticFields)) + 1 + e.newest - n }

func (e *Encoder) add(f headerField) {
	e.evict(e.limit - f.size())
	if e.count == uint32(len(e.ring)) {
		e.grow()
	}
	e.newest++
	if e.newest == 0 { // after 2^32 entries; 0 is not a valid number
		e.newest, e.count, e.size = 0, 0, 0
	}
	e.ring[e.newest%uint32(len(e.ring))] = f
	e.count++
	e.size += f.size()
}

// evict removes entries until the table is no larger than size.
func (e *Encoder) evict(size uint32) {
	for e.size > size {
		oldest := &e.ring[(e.newest-e.count+1)%uint32(len(e.ring))]
		e.size -= oldest.size()
		*oldest = headerField{}
		e.count--
	}
}

func (e *Encoder) integer(kind byte, bits int, n uint32) {
	most := uint32(1)<<bits - 1
	if n < most {
		e.block = append(e.block, kind|byte(n))
		return
	}
	e.block = append(e.block, kind|byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		e.block = append(e.block, byte(n)|0x80)
	}
	e.block = append(e.block, byte(n))
}

func (e *Encoder) string(s string) {
	e.integer(0, 7, uint32(len(s)))
	e.block = append(e.block, s...)
}

// SetTableSize sets the table size that the peer allows.
func (e *Encoder) SetTableSize(n uint32) {
	n = min(n, maxTableSize)
	e.limit, e.minLimit, e.changed = n, min(e.minLimit, n), true
	e.evict(n)
}
