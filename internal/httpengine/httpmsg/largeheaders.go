package httpmsg

import (
	"crypto/tls"
	"net"
	"sync"
)

// The header of a request may always have MaxHeader bytes and MaxFields fields. A larger one is read in steps. Each step is
// granted before the memory for it is used.
const (
	// MaxHeader is the limit of a request's header without a grant, in bytes.
	MaxHeader = 64 << 10
	// MaxLargeHeader is the limit of every header of a request. It is net/http's default, and therefore kube-apiserver's.
	MaxLargeHeader = 1 << 20
	// MaxLargeFields limits the fields of every request. RFC 9113, section 6.5.2 counts 32 bytes for a field, in addition
	// to its bytes.
	MaxLargeFields = MaxFields + headerSteps*fieldsPerStep

	bytesPerStep  = 64 << 10
	fieldsPerStep = bytesPerStep / 32
	headerSteps   = (MaxLargeHeader - MaxHeader) / bytesPerStep
	// memoryPerStep is the memory that a step may use while a header is read: twice its bytes as they arrive, the decoded
	// bytes, and three times as much for the fields.
	memoryPerStep = 6 * bytesPerStep
)

// LargeHeaders grants memory for headers that are larger than MaxHeader or have more than MaxFields fields. It is safe for
// concurrent use.
type LargeHeaders interface {
	// Trusted reports whether the client of a connection is a front proxy or another replica. Its headers need no grant.
	Trusted(*tls.ConnectionState) bool
	// Take grants n bytes to the network of a client, and Give returns them.
	Take(client net.Addr, n int64) bool
	Give(client net.Addr, n int64)
}

// HeaderGrant is the memory that was granted for the header of one request.
type HeaderGrant struct {
	mu    sync.Mutex // guards the fields below
	bytes int64
	give  func(int64)
}

// Release returns the memory. It may be called for nil, and more than once.
func (g *HeaderGrant) Release() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bytes > 0 {
		g.give(g.bytes)
		g.bytes = 0
	}
}

// Size returns the granted memory in bytes.
func (g *HeaderGrant) Size() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bytes
}

// Replace returns the memory, and makes the grant hold n bytes that give returns.
func (g *HeaderGrant) Replace(n int64, give func(int64)) {
	g.Release()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bytes, g.give = n, give
}

// ConnHeaders grants steps to the headers of one connection, one header after the other. It is used by the goroutine that
// reads.
type ConnHeaders struct {
	large  LargeHeaders
	tls    *tls.ConnectionState
	client net.Addr

	asked, trusted bool
	steps          int // of the current header
	grant          *HeaderGrant
}

// NewConnHeaders returns the ConnHeaders of a connection. If large is nil, headers may not be large.
func NewConnHeaders(large LargeHeaders, state *tls.ConnectionState, client net.Addr) ConnHeaders {
	return ConnHeaders{large: large, tls: state, client: client}
}

// Trusted reports whether the client is trusted (LargeHeaders.Trusted). The result of the first call for a header is kept.
func (h *ConnHeaders) Trusted() bool {
	if !h.asked {
		h.asked, h.trusted = true, h.large != nil && h.tls != nil && h.large.Trusted(h.tls)
	}
	return h.trusted
}

// Grow reports whether the current header may have one more step.
func (h *ConnHeaders) Grow() bool {
	if h.large == nil || h.steps == headerSteps {
		return false
	}
	if !h.Trusted() {
		if !h.large.Take(h.client, memoryPerStep) {
			return false
		}
		if h.grant == nil {
			h.grant = &HeaderGrant{give: func(n int64) { h.large.Give(h.client, n) }}
		}
		h.grant.mu.Lock()
		h.grant.bytes += memoryPerStep
		h.grant.mu.Unlock()
	}
	h.steps++
	return true
}

// Large reports whether the current header has grown.
func (h *ConnHeaders) Large() bool { return h.steps > 0 }

// Extra returns how much larger the current header may be than the limits for every request.
func (h *ConnHeaders) Extra() (bytes, fields int) {
	return h.steps * bytesPerStep, h.steps * fieldsPerStep
}

// Detach ends the current header. It returns its grant, which is nil if none was needed.
func (h *ConnHeaders) Detach() *HeaderGrant {
	g := h.grant
	h.grant, h.steps, h.asked = nil, 0, false
	return g
}

// HeaderMemory returns the approximate memory that a header uses after it was read: its text, twice because it is
// forwarded, and its fields in an http.Header.
func HeaderMemory(bytes, fields int) int64 { return 2*int64(bytes) + 96*int64(fields) }
