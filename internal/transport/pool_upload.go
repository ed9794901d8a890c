package transport

import (
	"net/http"

	"portico.dev/internal/httpengine/engine"
)

// A server that does not read a request body lets it use up the flow control window of the connection, and all other
// bodies on the connection are blocked (RFC 9113, 5.2.1). So a body uses a connection with an open window, and a long
// body uses a connection without another long one while further connections are allowed. Requests without a body can
// use any connection.

const (
	// longUpload is the length of a body that may use up a window. Bodies of unknown length count as long.
	longUpload = 64 << 10
	// maxUploadConns limits the connections opened to separate long bodies. If bodies wait for windows, up to
	// Options.MaxConns are opened.
	maxUploadConns = 8
)

// upload describes a request's body as far as it affects other requests on the connection.
type upload struct {
	need int64 // required open window; 0 without a body
	long bool
}

func uploadOf(r *http.Request) upload {
	if r.Body == nil || r.Body == http.NoBody {
		return upload{}
	}
	if _, whole := r.Body.(*engine.BytesBody); whole || r.ContentLength > 0 && r.ContentLength < longUpload {
		return upload{need: max(1, r.ContentLength)}
	}
	return upload{need: longUpload, long: true}
}

// reserve reserves a stream for a request. This method and the ones below are called with the pool's mu held.
func (c *http2Conn) reserve(u upload) {
	c.active++
	c.used = true
	if u.long {
		c.uploads++
	}
}

// Suitability of a connection for a body, best first.
const (
	uploadFits = iota
	uploadSharesConn
	uploadBlocked
)

// uploadFit returns whether the flow control window is open for u. It must be as large as u needs, or half of its
// maximum so far if that is smaller.
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

// betterThan reports whether c is better for a request than other, which is older. Requests without a body are
// concentrated on few connections, so that connections opened for uploads become idle.
func (c *http2Conn) betterThan(other *http2Conn, u upload) bool {
	if u.need == 0 && 2*other.active < other.MaxStreams() {
		return false
	}
	if mine, theirs := c.uploadFit(u), other.uploadFit(u); mine != theirs {
		return mine < theirs
	}
	return c.active < other.active
}

// wantsAnotherConn reports whether to dial another connection for u, given that c is the best existing one.
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
