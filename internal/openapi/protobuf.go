package openapi

import (
	"io"

	"k8s.io/kube-openapi/pkg/handler3"
)

// asProtobuf returns a document as protobuf, packed. Making it takes a parse of the whole document, so the last few are
// kept, and clients that ask for the same one at the same time share the work.
func (l *Library) asProtobuf(d Document) ([]byte, error) {
	if packed, ok := l.protobuf.Get(d.Hash); ok {
		return packed, nil
	}
	made, err, _ := l.making.Do(d.Hash, func() (any, error) {
		r, err := unpack(d.Packed)
		if err != nil {
			return nil, err
		}
		asJSON, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		body, err := handler3.ToV3ProtoBinary(asJSON)
		if err != nil {
			return nil, err
		}
		packed, err := pack(body)
		if err != nil {
			return nil, err
		}
		l.protobuf.Add(d.Hash, packed)
		return packed, nil
	})
	if err != nil {
		return nil, err
	}
	return made.([]byte), nil
}
