package openapi

import (
	"encoding/json"
	"fmt"
	"net/url"
)

// index is every document there is at one moment. It is immutable.
type index struct {
	documents map[string]Document
	body      []byte
	packed    []byte // nil when that is not worth it
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
