package frame

import "testing"

// everyday is the header of a typical response. Only the audit ID changes between responses.
type everyday struct{ audit string }

// EncodeHeaders implements HeaderBlock.
func (h *everyday) EncodeHeaders(e *Encoder) {
	e.WriteField(":status", "200")
	e.WriteField("cache-control", "no-cache, private")
	e.WriteField("x-kubernetes-pf-flowschema-uid", "2b9b8c3e-3f0a-4b57-9d0c-3f1de9bc7a10")
	e.WriteField("x-kubernetes-pf-prioritylevel-uid", "b7a1c0de-94d7-4a30-8d9e-52f0a3c0e7f1")
	e.WriteField("content-type", "application/json")
	e.WriteNeverIndexed("audit-id", h.audit)
	e.WriteNeverIndexed("content-length", "1024")
	e.WriteNeverIndexed("date", "Sat, 28 Nov 2026 15:00:00 GMT")
}

// BenchmarkHeaders encodes and decodes a header whose fields are in the dynamic table.
func BenchmarkHeaders(b *testing.B) {
	h := &everyday{"3b1bd1a6-7f2a-4c0a-9f0b-0d6b3f6c1c55"}
	e := NewEncoder()
	d := NewDecoder(BlockLimits{MaxBytes: 64 << 10, MaxFields: 500})
	encode := func() []byte {
		e.begin()
		h.EncodeHeaders(e)
		return e.block
	}
	fields := 0
	each := func(string, string) error { fields++; return nil }
	if err := d.Decode(encode(), each); err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			encode()
		}
	})
	block := encode()
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := d.Decode(block, each); err != nil {
				b.Fatal(err)
			}
		}
	})
	if fields == 0 {
		b.Error("decoded 0 fields, want some")
	}
}
