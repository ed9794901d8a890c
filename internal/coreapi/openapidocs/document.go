package openapidocs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"io"
)

// Document is the OpenAPI v3 document of one group-version, prepared or of custom resources, or the version 2 document of all
// prepared ones.
type Document struct {
	// Path is the path in the index: "api/v1", "apis/rbac.authorization.k8s.io/v1". The version 2 document has none.
	Path string
	// Hash is the SHA-512 of the JSON in upper-case hex.
	Hash string
	// Packed is the gzipped JSON. A prepared document is part of the binary, so its bytes must not be changed.
	Packed []byte
}

// New returns a compressed document.
func New(path string, asJSON []byte) Document {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(asJSON) // a buffer accepts every write
	_ = w.Close()
	return Document{Path: path, Hash: fmt.Sprintf("%X", sha512.Sum512(asJSON)), Packed: packed.Bytes()}
}

// OptInDocument is the document of a group-version that is off by default, with its OpenAPI v2 document.
type OptInDocument struct {
	Document
	Swagger Document
}

// Documents returns all prepared documents of group-versions that are on by default, ordered by path.
func Documents() []Document { return documents() }

// Swagger returns the OpenAPI v2 document of all local groups that are on by default.
func Swagger() Document { return swagger() }

// OptIn returns the prepared documents of group-versions that are off by default, ordered by path.
func OptIn() []OptInDocument { return optIn() }

// JSON returns the uncompressed document.
func (d Document) JSON() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(d.Packed))
	if err != nil {
		return nil, fmt.Errorf("unpack the OpenAPI document of %s: %w", d.Path, err)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("unpack the OpenAPI document of %s: %w", d.Path, err)
	}
	return body, nil
}
