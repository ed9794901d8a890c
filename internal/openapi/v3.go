package openapi

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"sync"

	"portico.dev/internal/respond"
)

// maxDocument is the maximum size of a backend's document, in bytes.
const maxDocument = 16 << 20

// Document is the OpenAPI v3 document of one group-version, or a document of version 2.
type Document struct {
	// Path is its path in the index, "apis/example.com/v1". Documents of version 2 are not in an index.
	Path string
	// Hash is the SHA-512 of the JSON, in upper-case hex.
	Hash string
	// Packed is the JSON, compressed with gzip. It is the only form that is kept: documents are rarely read and compress to
	// a tenth.
	Packed []byte
}

// Source is a version 2 document that is built when it is read.
type Source struct {
	// Hash changes when the document does.
	Hash string
	// Document builds the document.
	Document func() (Document, error)
}

// Prepared returns the Source of an existing document.
func Prepared(d Document) Source {
	return Source{Hash: d.Hash, Document: func() (Document, error) { return d, nil }}
}

// NewDocument compresses a document.
func NewDocument(path string, asJSON []byte) (Document, error) {
	packed, err := respond.Pack(asJSON, gzip.DefaultCompression)
	if err != nil {
		return Document{}, fmt.Errorf("compress the document of %s: %w", path, err)
	}
	return Document{Path: path, Hash: respond.Hash(asJSON), Packed: packed}, nil
}

// as returns the document in the form in which it is served. Its body is the JSON: for another media type the caller sets
// MakeGzip.
func (d Document) as(mediaType string) respond.Document {
	return respond.Document{ETag: `"` + d.Hash + `"`, ContentType: mediaType, Vary: "Accept", Gzip: d.Packed}
}

// size returns the uncompressed size of the document, which gzip stores at the end.
func (d Document) size() int {
	if len(d.Packed) < 4 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(d.Packed[len(d.Packed)-4:]))
}

// unpacked returns the uncompressed document.
func (d Document) unpacked() ([]byte, error) {
	r, err := respond.Unpack(d.Packed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// open parses a document of version 2.
func (d Document) open() (*swagger, error) {
	body, err := d.unpacked()
	if err != nil {
		return nil, err
	}
	return openSwagger(body)
}

// index contains all documents at one moment. It is immutable.
type index struct {
	documents map[string]Document
	// served returns the list of the documents, which is made at the first request: while backends are registered there is
	// an index for each of them, and most are never read.
	served func() (*respond.Document, error)
}

func newIndex(documents []Document) *index {
	i := &index{documents: make(map[string]Document, len(documents))}
	for _, d := range documents {
		i.documents[d.Path] = d
	}
	i.served = sync.OnceValues(i.list)
	return i
}

// list makes the list of the documents.
func (i *index) list() (*respond.Document, error) {
	entries := root{Paths: make(map[string]rootEntry, len(i.documents))}
	for _, d := range i.documents {
		entries.Paths[d.Path] = rootEntry{ServerRelativeURL: d.URL()}
	}
	body, err := json.Marshal(entries)
	if err != nil {
		return nil, fmt.Errorf("encode the index: %w", err)
	}
	body = append(body, '\n')
	served := &respond.Document{ETag: `"` + respond.Hash(body) + `"`, ContentType: respond.MediaJSON, Plain: body}
	if len(body) > respond.CompressAbove {
		if served.Gzip, err = respond.Pack(body, gzip.DefaultCompression); err != nil {
			return nil, fmt.Errorf("compress the index: %w", err)
		}
	}
	return served, nil
}

// URL returns the path and the query of the document.
func (d Document) URL() string {
	u := url.URL{Path: "/openapi/v3/" + d.Path, RawQuery: url.Values{"hash": {d.Hash}}.Encode()}
	return u.String()
}
