package listcache

import (
	"compress/gzip"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"
)

const (
	// chunk is the size of writes: a list of 10,000 objects does not cause 10,000 writes.
	chunk = 64 << 10
	// gzipThreshold is the length above which k8s.io/apiserver compresses.
	gzipThreshold = 128 << 10
)

// buffers are pools for reuse between responses.
type buffers struct {
	chunks, gzip *sync.Pool
}

func newBuffers() buffers {
	return buffers{
		chunks: &sync.Pool{New: func() any { b := make([]byte, 0, chunk); return &b }},
		gzip:   responsewriters.NewGzipWriterPoolOrDie(),
	}
}

// output writes a response in large chunks. It compresses a long response if the client supports it, like k8s.io/apiserver.
// After the first error it writes no more.
type output struct {
	to       http.ResponseWriter
	from     buffers
	compress bool // if the response becomes long
	begun    bool
	gzip     *gzip.Writer
	buffer   *[]byte
	err      error
}

func (b buffers) output(w http.ResponseWriter, r *http.Request) *output {
	return &output{
		to: w, from: b, buffer: b.chunks.Get().(*[]byte),
		compress: responsewriters.ContentEncodingSupported(r, features.APIResponseCompression) == "gzip",
	}
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.write(p)
	return len(p), o.err
}

func (o *output) write(p []byte) {
	if o.err != nil {
		return
	}
	b := *o.buffer
	switch {
	case o.compress && !o.begun:
		b = append(b, p...)
		if len(b) > gzipThreshold {
			o.begin(true)
			o.pass(b)
			b = b[:0]
		}
	case len(b)+len(p) <= chunk:
		b = append(b, p...)
	default:
		o.begin(false)
		if len(b) > 0 {
			room := chunk - len(b)
			b, p = append(b, p[:room]...), p[room:]
		}
		o.pass(b)
		b = b[:0]
		for len(p) > chunk {
			o.pass(p[:chunk])
			p = p[chunk:]
		}
		b = append(b, p...)
	}
	*o.buffer = b
}

func (o *output) begin(long bool) {
	if o.begun {
		return
	}
	o.begun = true
	if long {
		o.to.Header().Set("Content-Encoding", "gzip")
		o.to.Header().Add("Vary", "Accept-Encoding")
		o.gzip = o.from.gzip.Get().(*gzip.Writer)
		o.gzip.Reset(o.to)
	}
	o.to.WriteHeader(http.StatusOK)
}

func (o *output) pass(p []byte) {
	if o.err != nil || len(p) == 0 {
		return
	}
	if o.gzip != nil {
		_, o.err = o.gzip.Write(p)
		return
	}
	_, o.err = o.to.Write(p)
}

func (o *output) close() {
	o.begin(false)
	o.pass(*o.buffer)
	*o.buffer = (*o.buffer)[:0]
	if o.gzip != nil && o.err == nil {
		o.err = o.gzip.Close()
	}
}

// release returns the buffers to their pools. It is also called after an aborted response.
func (o *output) release() {
	if cap(*o.buffer) <= chunk {
		*o.buffer = (*o.buffer)[:0]
		o.from.chunks.Put(o.buffer)
	}
	if o.gzip != nil {
		o.gzip.Reset(nil)
		o.from.gzip.Put(o.gzip)
	}
}
