package openapidocs

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Document is the OpenAPI v3 document of one local group-version, or the version 2 document of all of them.
type Document struct {
	// Path is where it is in the index: "api/v1", "apis/rbac.authorization.k8s.io/v1". The version 2 document has none.
	Path string
	// Hash is SHA-512 of the JSON, in upper-case hex.
	Hash string
	// Packed is the JSON, compressed with gzip. It is part of the binary and must not be changed.
	Packed []byte
}

// Documents returns every document, by path.
func Documents() []Document { return documents() }

// Swagger returns the OpenAPI v2 document, which describes all the local groups in one.
func Swagger() Document { return swagger() }

// JSON unpacks the document.
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
