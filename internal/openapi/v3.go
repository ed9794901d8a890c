package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
)

// maxDocument is the largest document that is taken from a backend, in bytes.
const maxDocument = 16 << 20

// Document is the OpenAPI v3 document of one group-version, or one of version 2.
type Document struct {
	// Path is where it is in the index, "apis/example.com/v1". Those of version 2 are in no index.
	Path string
	// Hash is SHA-512 of the JSON, in upper-case hex.
	Hash string
	// Packed is the JSON, compressed with gzip. It is the only form that is kept: documents are rarely read and compress to a
	// tenth.
	Packed []byte
}

// Source is a version 2 document that is made when it is read.
type Source struct {
	// Hash changes when the document does.
	Hash string
	// Document makes the document.
	Document func() (Document, error)
}

// Prepared returns the Source of an existing document.
func Prepared(d Document) Source {
	return Source{Hash: d.Hash, Document: func() (Document, error) { return d, nil }}
}

// NewDocument compresses a document.
func NewDocument(path string, asJSON []byte) (Document, error) {
	packed, err := pack(asJSON)
	if err != nil {
		return Document{}, fmt.Errorf("compress the document of %s: %w", path, err)
	}
	return Document{Path: path, Hash: hash(asJSON), Packed: packed}, nil
}

func hash(body []byte) string { return fmt.Sprintf("%X", sha512.Sum512(body)) }

func pack(body []byte) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// unpack returns a reader, so that copying does not need memory for the whole document.
func unpack(packed []byte) (io.Reader, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.LimitReader(r, maxMerged), nil
}

// size is the uncompressed size of the document, which gzip stores at the end.
func (d Document) size() int {
	if len(d.Packed) < 4 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(d.Packed[len(d.Packed)-4:]))
}

// unpacked returns the whole document.
func (d Document) unpacked() ([]byte, error) {
	r, err := unpack(d.Packed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// open reads a document of version 2.
func (d Document) open() (*swagger, error) {
	body, err := d.unpacked()
	if err != nil {
		return nil, err
	}
	return openSwagger(body)
}

// index is all documents at one moment. It is immutable.
type index struct {
	documents map[string]Document
	body      []byte
	packed    []byte // nil for a small index
	etag      string
}

// compressAbove is the size from which upstream compresses for those who can read it.
const compressAbove = 128 << 10

func newIndex(documents []Document) (*index, error) {
	i := &index{documents: make(map[string]Document, len(documents))}
	list := root{Paths: make(map[string]rootEntry, len(documents))}
	for _, d := range documents {
		i.documents[d.Path] = d
		list.Paths[d.Path] = rootEntry{ServerRelativeURL: d.url()}
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode the index: %w", err)
	}
	i.body = append(body, '\n')
	i.etag = `"` + hash(i.body) + `"`
	if len(i.body) > compressAbove {
		if i.packed, err = pack(i.body); err != nil {
			return nil, fmt.Errorf("compress the index: %w", err)
		}
	}
	return i, nil
}

func (d Document) url() string {
	u := url.URL{Path: "/openapi/v3/" + d.Path, RawQuery: url.Values{"hash": {d.Hash}}.Encode()}
	return u.String()
}
