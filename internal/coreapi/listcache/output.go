package listcache

import (
	"compress/gzip"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"
)

const (
	// chunk is how much is written at once: the 10,000 objects of a list are not 10,000 writes.
	chunk = 64 << 10
	// gzipThreshold is the length from which the library compresses.
	gzipThreshold = 128 << 10
)

// buffers are those of answers that are over.
type buffers struct {
	chunks, gzip *sync.Pool
}

func newBuffers() buffers {
	return buffers{
		chunks: &sync.Pool{New: func() any { b := make([]byte, 0, chunk); return &b }},
		gzip:   responsewriters.NewGzipWriterPoolOrDie(),
	}
}

// output writes an answer in large pieces, compressed if the client takes that and the answer is long, as the library
// does. The first error ends it.
type output struct {
	to       http.ResponseWriter
	from     buffers
	compress bool // if it becomes long
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

// release gives back what others may use. It is called when an answer is broken off, too.
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
