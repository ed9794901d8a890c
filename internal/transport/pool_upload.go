package transport

import (
	"net/http"

	"portico.dev/internal/http2/client"
)

// A server that does not read a body lets it use up the window of the whole connection, and all other bodies on that connection
// wait for it (RFC 9113, 5.2.1). So a body goes where the window is open, and a long one where no other long one is, as long as
// there may be further connections. Requests without a body go anywhere.

const (
	// longUpload is a body that may use up a window by itself. Of a length that is not known, it may be one.
	longUpload = 64 << 10
	// maxUploadConns bounds the connections that are made so that long bodies need not share them. Where bodies wait for
	// windows there may be more: Options.MaxConns.
	maxUploadConns = 8
)

// upload is what matters of a request's body to those that share a connection with it.
type upload struct {
	need int64 // how much of a window it is to find open; 0: it has no body
	long bool
}

func uploadOf(r *http.Request) upload {
	if r.Body == nil || r.Body == http.NoBody {
		return upload{}
	}
	if _, whole := r.Body.(*client.BytesBody); whole || r.ContentLength > 0 && r.ContentLength < longUpload {
		return upload{need: max(1, r.ContentLength)}
	}
	return upload{need: longUpload, long: true}
}

// reserve takes a stream for a request. It is called with the pool's mu held, as are the methods below.
func (c *http2Conn) reserve(u upload) {
	c.active++
	c.used = true
	if u.long {
		c.uploads++
	}
}

// How a body fares on a connection, best first.
const (
	uploadFits = iota
	uploadSharesConn
	uploadBlocked
)

// uploadFit says whether the flow control window is open for u: as far as u needs it, or half of what it was at its
// widest, for windows that never were that wide.
func (c *http2Conn) uploadFit(u upload) int {
	if u.need == 0 {
		return uploadFits
	}
	switch now, widest := c.Window(); {
	case now < min(u.need, widest/2):
		return uploadBlocked
	case u.long && c.uploads > 0:
		return uploadSharesConn
	}
	return uploadFits
}

// betterThan reports whether a request does better on c than on other, which is older. Requests without a body stay
// together, so that connections that were made for uploads become idle.
func (c *http2Conn) betterThan(other *http2Conn, u upload) bool {
	if u.need == 0 && 2*other.active < other.MaxStreams() {
		return false
	}
	if mine, theirs := c.uploadFit(u), other.uploadFit(u); mine != theirs {
		return mine < theirs
	}
	return c.active < other.active
}

// wantsAnotherConn reports whether another connection is worth dialling for u, where c is the best that there is.
func (p *connPool) wantsAnotherConn(c *http2Conn, u upload) bool {
	most := p.options.MaxConns
	switch c.uploadFit(u) {
	case uploadFits:
		return false
	case uploadSharesConn:
		most = min(most, maxUploadConns)
	}
	live := 0
	for _, c := range p.conns {
		if !c.retired && !c.Closed() && c.Available() {
			live++
		}
	}
	return live < most && len(p.conns) < maxDraining*p.options.MaxConns
}
