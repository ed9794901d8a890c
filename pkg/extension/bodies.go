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

// maxBodies bounds how many encoded lists are kept, besides the bytes they take.
const maxBodies = 1024

// bodyKey names one encoding of one list of one view. A view belongs to one audience, so what is kept of a PerCaller
// resource is found only by who it was made for.
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

// bodies keeps encoded lists, so that a list that many ask for is encoded once while it does not change.
type bodies struct {
	limit  int
	making singleflight.Group

	mu   sync.Mutex // guards what follows
	kept *simplelru.LRU[bodyKey, body]
	size int
}

func newBodies(limit int) *bodies {
	b := &bodies{limit: limit}
	kept, err := simplelru.NewLRU(maxBodies, func(_ bodyKey, gone body) { b.size -= len(gone.bytes) })
	if err != nil {
		panic("extension: " + err.Error()) // only for a limit below one
	}
	b.kept = kept
	return b
}

// get is the body of k at version, made by make when it is not kept. Those who ask together wait for one making.
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
	b.kept.Remove(k) // adding over it would not tell what it took
	if len(made.bytes) > b.limit {
		return
	}
	b.kept.Add(k, made)
	b.size += len(made.bytes)
	for b.size > b.limit {
		b.kept.RemoveOldest()
	}
}

// scratch lends what encoding needs for a moment: a list of thousands of objects would otherwise leave megabytes behind
// each time.
type scratch struct{ buffers, zips sync.Pool }

// maxScratch is the largest buffer that is kept for the next list.
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

// compress writes raw to into.
func (s *scratch) compress(into *bytes.Buffer, raw []byte) error {
	z, ok := s.zips.Get().(*gzip.Writer)
	if !ok {
		z, _ = gzip.NewWriterLevel(into, gzip.BestSpeed) // an error only for a level that does not exist
	}
	defer s.zips.Put(z)
	z.Reset(into)
	if _, err := z.Write(raw); err != nil {
		return err
	}
	return z.Close()
}

const (
	// gzipThreshold is the size from which kube-apiserver compresses: below it, the time is not worth the bytes.
	gzipThreshold = 128 << 10
	codingGzip    = "gzip"
)

// writeBody answers with a whole body, which is in coding already.
func writeBody(w http.ResponseWriter, r *http.Request, code int, contentType, coding string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if h.Get("Cache-Control") == "" {
		// What a caller may see must not be kept by a cache in between and shown to another.
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

// compresses reports whether an answer of so many bytes is worth compressing, and whether the client can read that.
func compresses(r *http.Request, size int) bool {
	return size >= gzipThreshold && respond.AcceptsGzip(r)
}

// isGzip tells a compressed body by its first bytes, with which none of our encodings begins.
func isGzip(body []byte) bool { return bytes.HasPrefix(body, []byte{0x1f, 0x8b}) }
