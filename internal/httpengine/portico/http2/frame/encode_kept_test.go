package frame

import (
	"io"
	"strings"
	"testing"
)

type manyFields struct{ n, length int }

// EncodeHeaders implements Fields.
func (m manyFields) EncodeHeaders(e *Encoder) {
	for range m.n {
		e.WriteNeverIndexed("x-long", strings.Repeat("v", m.length))
	}
}

// A40: between header blocks, a connection keeps only its tables, independent of the size of the blocks.
func TestA40LargeHeaderMemoryIsReleased(t *testing.T) {
	o := NewWriter(io.Discard, 0, func(error) {})
	s := &SendStream{ID: 1}
	if err := o.WriteHeaders(s, manyFields{15, 1000}, nil, false); err != nil {
		t.Fatal(err)
	}
	if kept := cap(o.encoder.block); kept > maxKeptBlock {
		t.Errorf("%d bytes of the written block kept, want at most %d", kept, maxKeptBlock)
	}
	var all []byte
	for i := range byte(200) { // more minimal entries than fit into the table
		all = append(all, 0x40, 1, 'a', 1, '0'+i%70)
	}
	d := NewDecoder(BlockLimits{MaxBytes: 64 << 10, MaxFields: 500})
	if err := d.Decode(all, func(string, string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if d.table.size > maxTableSize || len(d.table.ring) > maxTableSize/32 || d.emit != nil {
		t.Errorf("table = %d bytes in %d entries, want at most %d bytes", d.table.size, len(d.table.ring), maxTableSize)
	}
	if _, _, err := NewBlockAssembler(64).Add(&Frame{Type: Headers, Stream: 1, Payload: make([]byte, 65)}); err != ErrBlockFlood {
		t.Errorf("Add of a block over the limit: error = %v, want ErrBlockFlood", err)
	}
}
