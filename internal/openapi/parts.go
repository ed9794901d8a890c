package openapi

import (
	"sync"
	"time"
)

// maxParts limits the documents of local sources that are kept between merges, in bytes after compression.
const maxParts = 32 << 20

// localParts contains the documents of local sources that merges have built. After a change of one source, the next merge
// builds only that one. A canceled merge leaves its parts to the next merge.
type localParts struct {
	mu        sync.Mutex
	documents map[string]Document // by the hash of the source
	bytes     int
	read      time.Time // start of the last merge
}

func newLocalParts() *localParts { return &localParts{documents: map[string]Document{}} }

// keep drops the documents of all other sources.
func (p *localParts) keep(sources []Source) {
	current := map[string]bool{}
	for _, from := range sources {
		current[from.Hash] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = time.Now()
	for hash, d := range p.documents {
		if !current[hash] {
			p.bytes -= len(d.Packed)
			delete(p.documents, hash)
		}
	}
}

// document returns the document of a source, and builds it if it is not kept.
func (p *localParts) document(from Source) (Document, error) {
	p.mu.Lock()
	d, ok := p.documents[from.Hash]
	p.mu.Unlock()
	if ok {
		return d, nil
	}
	d, err := from.Document()
	if err != nil {
		return d, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.documents[from.Hash]; !ok && p.bytes+len(d.Packed) <= maxParts {
		p.documents[from.Hash] = d
		p.bytes += len(d.Packed)
	}
	return d, nil
}

// dropIfIdle drops everything if no merge began since t.
func (p *localParts) dropIfIdle(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.read.Before(t) {
		p.documents, p.bytes = map[string]Document{}, 0
	}
}
