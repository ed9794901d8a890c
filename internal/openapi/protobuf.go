package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"

	"portico.dev/internal/respond"
)

// entriesAtOnce is the number of entries of a version 2 document that are converted to protobuf in one step.
const entriesAtOnce = 100

// asProtobuf returns a document as protobuf, compressed. The conversion requires parsing the whole document, so the last
// few results are cached, and clients that request the same document concurrently share the work.
func (p *Publisher) asProtobuf(d Document) ([]byte, error) {
	if packed, ok := p.protobufs.Get(d.Hash); ok {
		return packed, nil
	}
	made, err, _ := p.converting.Do(d.Hash, func() (any, error) {
		asJSON, err := d.unpacked()
		if err != nil {
			return nil, err
		}
		body, err := handler3.ToV3ProtoBinary(asJSON)
		if err != nil {
			return nil, err
		}
		packed, err := respond.Pack(body, gzip.DefaultCompression)
		if err != nil {
			return nil, err
		}
		p.protobufs.Add(d.Hash, packed)
		return packed, nil
	})
	if err != nil {
		return nil, err
	}
	return made.([]byte), nil
}

// asProtobuf returns the version 2 document as protobuf, compressed.
func (s *v2Publisher) asProtobuf(ctx context.Context, e *mergedV2) ([]byte, error) {
	e.mu.Lock()
	packed := e.protobuf
	e.mu.Unlock()
	if packed != nil {
		return packed, nil
	}
	made, err := s.builds.do(ctx, "protobuf "+e.Hash, func(ctx context.Context) (any, error) {
		packed, err := packProtobuf(ctx, e.Document)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.protobuf = packed
		return packed, nil
	})
	if err != nil {
		return nil, err
	}
	return made.([]byte), nil
}

// packProtobuf converts a document to protobuf in pieces: two concatenated messages are the encoding of their merger. In
// one step, the parser would take a hundred times the size of a one-megabyte document.
func packProtobuf(ctx context.Context, d Document) ([]byte, error) {
	whole, err := d.open()
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for _, piece := range whole.pieces() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var body bytes.Buffer
		writeSwagger(&body, piece)
		encoded, err := handler.ToProtoBinary(body.Bytes())
		if err != nil {
			return nil, fmt.Errorf("write OpenAPI v2 as protobuf: %w", err)
		}
		if _, err := w.Write(encoded); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// pieces splits the document into documents with a few entries each.
func (s *swagger) pieces() []*swagger {
	var all []*swagger
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(s.paths)), entriesAtOnce) {
		piece := &swagger{info: s.info, paths: map[string]json.RawMessage{}}
		for _, key := range keys {
			piece.paths[key] = s.paths[key]
		}
		all = append(all, piece)
	}
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(s.named)), entriesAtOnce) {
		piece := &swagger{info: s.info, named: map[string]json.RawMessage{}}
		for _, key := range keys {
			piece.named[key] = s.named[key]
		}
		all = append(all, piece)
	}
	if len(all) == 0 {
		return []*swagger{s}
	}
	return all
}
