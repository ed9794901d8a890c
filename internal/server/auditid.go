package server

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// newAuditID is a random UUID (RFC 9562, version 4). Ids must differ and need not be secret: whoever may read one of the
// logs may read them all, so that the system's source of secrets is not asked for each request.
func newAuditID() string {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:8], id[:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	for _, dash := range [...]int{8, 13, 18, 23} {
		text[dash] = '-'
	}
	return string(text[:])
}
