package frame

import "golang.org/x/net/http2/hpack"

// table is the dynamic table of a Decoder (RFC 7541, 2.3.2). It has no maps, since nothing is looked for in it.
type table struct {
	ring   []entry // grows with what is kept, as that of an Encoder
	newest uint32  // entries are numbered; ring has number n at n%len(ring)
	count  uint32
	size   uint32 // of the entries, as RFC 7541, 4.1 counts
	limit  uint32
}

// indexed is the field that an index stands for: those of the static table begin at 1.
func (t *table) indexed(i uint64) (entry, error) {
	switch {
	case i == 0:
		return entry{}, undecodable("index 0")
	case i <= uint64(len(staticFields)):
		f := &staticFields[i-1]
		return entry{f[0], f[1]}, nil
	case i-uint64(len(staticFields)) > uint64(t.count):
		return entry{}, undecodable("an index beyond the table")
	}
	return t.ring[(t.newest-uint32(i-uint64(len(staticFields)))+1)%uint32(len(t.ring))], nil
}

// add keeps an entry. One that is larger than the table empties it (RFC 7541, 4.4).
func (t *table) add(f entry) {
	size := f.size()
	if size > t.limit {
		t.evict(0)
		return
	}
	t.evict(t.limit - size)
	if t.count == uint32(len(t.ring)) {
		t.grow()
	}
	t.newest++
	t.ring[t.newest%uint32(len(t.ring))] = f
	t.count++
	t.size += size
}

// grow doubles the room. It is a power of two, so that numbers may overflow.
func (t *table) grow() {
	old := t.ring
	t.ring = make([]entry, max(firstRing, 2*len(old)))
	for i := range t.count {
		n := t.newest - i
		t.ring[n%uint32(len(t.ring))] = old[n%uint32(len(old))]
	}
}

// evict makes the table no larger than size.
func (t *table) evict(size uint32) {
	for t.size > size {
		oldest := &t.ring[(t.newest-t.count+1)%uint32(len(t.ring))]
		t.size -= oldest.size()
		*oldest = entry{}
		t.count--
	}
}

var errCutShort = undecodable("the header block is cut short")

// readNumber reads an integer with a prefix of so many bits (RFC 7541, 5.1).
func readNumber(p []byte, bits uint) (n uint64, rest []byte, err error) {
	if len(p) == 0 {
		return 0, nil, errCutShort
	}
	most := uint64(1)<<bits - 1
	if n = uint64(p[0]) & most; n < most {
		return n, p[1:], nil
	}
	for i, shift := 1, 0; i < len(p); i, shift = i+1, shift+7 {
		n += uint64(p[i]&0x7f) << shift
		if p[i] < 0x80 {
			return n, p[i+1:], nil
		}
		if shift >= 56 {
			return 0, nil, undecodable("an integer without end")
		}
	}
	return 0, nil, errCutShort
}

// readText reads a string (RFC 7541, 5.2). Names that many messages have are not made anew.
func readText(p []byte, name bool) (s string, rest []byte, err error) {
	if len(p) == 0 {
		return "", nil, errCutShort
	}
	packed := p[0] >= 0x80
	n, p, err := readNumber(p, 7)
	if err != nil {
		return "", nil, err
	}
	if n > uint64(len(p)) {
		return "", nil, errCutShort
	}
	text := p[:n]
	if packed {
		if s, err = hpack.HuffmanDecodeToString(text); err != nil {
			return "", nil, undecodable(err.Error())
		}
		return s, p[n:], nil
	}
	if name {
		if known, ok := knownNames[string(text)]; ok {
			return known, p[n:], nil
		}
	}
	return string(text), p[n:], nil
}
