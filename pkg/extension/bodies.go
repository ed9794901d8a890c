package extension

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/respond"
)

// maxBodies limits the number of cached lists, in addition to the limit on their total size.
const maxBodies = 1024

// bodyKey identifies one encoding of one list of one view. A view belongs to one audience, so a cached list of a PerCaller
// resource is only served to the caller that it was encoded for.
type bodyKey struct {
	view      uint64
	namespace string
	rep       representation
	include   metav1.IncludeObjectPolicy
	gzip      bool
}

type body struct {
	version uint64
	bytes   []byte
}

// bodies caches encoded lists, so that a list with many clients is encoded once until it changes.
type bodies struct {
	limit  int
	making singleflight.Group

	mu   sync.Mutex // guards the fields below
	kept *simplelru.LRU[bodyKey, body]
	size int
}

func newBodies(limit int) *bodies {
	b := &bodies{limit: limit}
	kept, err := simplelru.NewLRU(maxBodies, func(_ bodyKey, gone body) { b.size -= len(gone.bytes) })
	if err != nil {
		panic("extension: " + err.Error()) // fails only for a size below one
	}
	b.kept = kept
	return b
}

// get returns the body of k at version. If it is not cached, get calls make; concurrent calls for the same body share one
// call of make.
func (b *bodies) get(k bodyKey, version uint64, make func() ([]byte, error)) ([]byte, error) {
	if found, ok := b.find(k, version); ok {
		return found, nil
	}
	made, err, _ := b.making.Do(fmt.Sprintf("%d %v", version, k), func() (any, error) {
		if found, ok := b.find(k, version); ok {
			return found, nil
		}
		raw, err := make()
		if err == nil {
			b.keep(k, body{version, raw})
		}
		return raw, err
	})
	if err != nil {
		return nil, err
	}
	return made.([]byte), nil
}

func (b *bodies) find(k bodyKey, version uint64) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.kept.Get(k)
	return found.bytes, ok && found.version == version
}

func (b *bodies) keep(k bodyKey, made body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept.Remove(k) // Add would replace the value without calling the eviction callback
	if len(made.bytes) > b.limit {
		return
	}
	b.kept.Add(k, made)
	b.size += len(made.bytes)
	for b.size > b.limit {
		b.kept.RemoveOldest()
	}
}

// scratch pools the buffers and gzip writers of the encoders. Without it, each list of thousands of objects would leave
// megabytes of garbage.
type scratch struct{ buffers, zips sync.Pool }

// maxScratch is the capacity above which a buffer is not returned to the pool.
const maxScratch = 16 << 20

func (s *scratch) buffer() *bytes.Buffer {
	if b, ok := s.buffers.Get().(*bytes.Buffer); ok {
		b.Reset()
		return b
	}
	return &bytes.Buffer{}
}

func (s *scratch) release(b *bytes.Buffer) {
	if b.Cap() <= maxScratch {
		s.buffers.Put(b)
	}
}

// compress writes the gzip encoding of raw to into.
func (s *scratch) compress(into *bytes.Buffer, raw []byte) error {
	z, ok := s.zips.Get().(*gzip.Writer)
	if !ok {
		z, _ = gzip.NewWriterLevel(into, gzip.BestSpeed) // fails only for an invalid level
	}
	defer s.zips.Put(z)
	z.Reset(into)
	if _, err := z.Write(raw); err != nil {
		return err
	}
	return z.Close()
}

const (
	// gzipThreshold is kube-apiserver's minimum size for compression: smaller responses are not worth the CPU time.
	gzipThreshold = 128 << 10
	codingGzip    = "gzip"
)

// writeBody writes a complete response body, which is already encoded with coding.
func writeBody(w http.ResponseWriter, r *http.Request, code int, contentType, coding string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if h.Get("Cache-Control") == "" {
		// A shared cache must not store a response that depends on the caller's permissions.
		h.Set("Cache-Control", "no-cache, private")
	}
	if len(body) >= gzipThreshold || coding != "" {
		h.Add("Vary", "Accept-Encoding")
	}
	if coding != "" {
		h.Set("Content-Encoding", coding)
	}
	respond.Body(w, r, code, body)
}

// compresses reports whether a response of size bytes is worth compressing and the client accepts gzip.
func compresses(r *http.Request, size int) bool {
	return size >= gzipThreshold && respond.AcceptsGzip(r)
}

// isGzip reports whether body is compressed. None of the host's encodings begins with the gzip magic number.
func isGzip(body []byte) bool { return bytes.HasPrefix(body, []byte{0x1f, 0x8b}) }
