package respond

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"io"
	"net/http"
	"sync"
)

const (
	// CompressAbove is the size from which upstream compresses a document for clients that accept gzip.
	CompressAbove = 128 << 10
	// maxUnpacked is the maximum decompressed size of a document, in bytes.
	maxUnpacked = 64 << 20
)

// Document is an immutable document in one media type. The caller negotiates Accept and creates the Document; Serve
// sends it. It has a plain body, a compressed body or both.
type Document struct {
	// ETag includes the quotes.
	ETag        string
	ContentType string
	// CacheControl replaces the Cache-Control header. If empty, the header is not changed.
	CacheControl string
	// Vary is "Accept" if the path has several media types. Serve adds Accept-Encoding if there is a compressed body.
	Vary string
	// Plain is the body for clients that do not accept gzip. If nil, the compressed body is decompressed while it is
	// sent, without Content-Length.
	Plain []byte
	// Gzip is the compressed body. If nil, all clients receive the plain body.
	Gzip []byte
	// MakeGzip returns the compressed body. It is called only if the body is needed, so not for a 304. Its error
	// becomes the response. If nil, Gzip is used.
	MakeGzip func() ([]byte, error)
}

// Serve responds to a GET or HEAD request with the document, or with 304 if the client has it.
func (d *Document) Serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("ETag", d.ETag)
	if d.CacheControl != "" {
		h.Set("Cache-Control", d.CacheControl)
	}
	if d.Vary != "" {
		h.Add("Vary", d.Vary)
	}
	held := ETagMatches(r, d.ETag)
	if d.Gzip != nil || d.MakeGzip != nil {
		h.Add("Vary", "Accept-Encoding")
	}
	if held {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if err := d.serveBody(w, r); err != nil {
		Error(w, r, err)
	}
}

// serveBody returns an error only if it has not written anything.
func (d *Document) serveBody(w http.ResponseWriter, r *http.Request) error {
	body, packed := d.Plain, d.Gzip
	if d.MakeGzip != nil {
		var err error
		if packed, err = d.MakeGzip(); err != nil {
			return err
		}
	}
	h := w.Header()
	h.Set("Content-Type", d.ContentType)
	if packed != nil && AcceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = packed
	}
	if body == nil {
		unpacked, err := Unpack(packed)
		if err != nil {
			return err
		}
		w.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			_, _ = io.Copy(w, unpacked) // fails only if the client disconnected
		}
		return nil
	}
	Body(w, r, http.StatusOK, body)
	return nil
}

// Hash returns the SHA-512 of a body in upper-case hex. It is the ETag of a document without the quotes.
func Hash(body []byte) string { return fmt.Sprintf("%X", sha512.Sum512(body)) }

// packers holds compressors for reuse by Pack, by level. Each has about 1 MiB of tables, which is much larger than
// most documents, and the documents of a thousand backends may be compressed within seconds.
var packers [gzip.BestCompression - gzip.HuffmanOnly + 1]sync.Pool

// packer is a compressor with its output buffer.
type packer struct {
	*gzip.Writer
	packed bytes.Buffer
}

// maxKeptBuffer is the maximum size of a buffer kept with a compressor, in bytes.
const maxKeptBuffer = 1 << 20

// Pack compresses a body at a level of compress/gzip. The result has no spare capacity, because it is kept for a long
// time.
func Pack(body []byte, level int) ([]byte, error) {
	if level < gzip.HuffmanOnly || level > gzip.BestCompression {
		return nil, fmt.Errorf("gzip has no level %d", level)
	}
	pool := &packers[level-gzip.HuffmanOnly]
	p, _ := pool.Get().(*packer)
	if p == nil {
		p = &packer{}
		var err error
		if p.Writer, err = gzip.NewWriterLevel(&p.packed, level); err != nil {
			return nil, err
		}
	} else {
		p.packed.Reset()
		p.Reset(&p.packed)
	}
	if _, err := p.Write(body); err != nil {
		return nil, err
	}
	if err := p.Close(); err != nil {
		return nil, err
	}
	packed := bytes.Clone(p.packed.Bytes())
	if p.packed.Cap() <= maxKeptBuffer {
		pool.Put(p)
	}
	return packed, nil
}

// Unpack decompresses the result of Pack. It returns a reader, so that copying does not need memory for the whole
// body.
func Unpack(packed []byte) (io.Reader, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.LimitReader(r, maxUnpacked), nil
}
