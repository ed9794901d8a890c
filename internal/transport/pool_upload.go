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
	if _, whole := r.Body.(*client.Whole); whole || r.ContentLength > 0 && r.ContentLength < longUpload {
		return upload{need: max(1, r.ContentLength)}
	}
	return upload{need: longUpload, long: true}
}

// reserve takes room for a request. It is called with the lane's mu held, as what follows.
func (c *conn) reserve(u upload) {
	c.active++
	c.used = true
	if u.long {
		c.uploads++
	}
}

// How a body fares on a connection, best first.
const (
	uploadFits = iota
	uploadShares
	uploadWaits
)

// fares says whether the window is open for u: as far as u needs it, or half of what it was at its widest, for windows that never
// were that wide.
func (c *conn) fares(u upload) int {
	if u.need == 0 {
		return uploadFits
	}
	switch now, widest := c.Window(); {
	case now < min(u.need, widest/2):
		return uploadWaits
	case u.long && c.uploads > 0:
		return uploadShares
	}
	return uploadFits
}

// before reports whether a request does better on c than on other, which is older. Requests without a body stay together, so that
// connections that were made for uploads become idle.
func (c *conn) before(other *conn, u upload) bool {
	if u.need == 0 && 2*other.active < other.Streams() {
		return false
	}
	if mine, theirs := c.fares(u), other.fares(u); mine != theirs {
		return mine < theirs
	}
	return c.active < other.active
}

// uploadNeedsAnother reports whether another connection is worth dialling for u, where c is the best that there is.
func (l *lane) uploadNeedsAnother(c *conn, u upload) bool {
	most := l.options.MaxConns
	switch c.fares(u) {
	case uploadFits:
		return false
	case uploadShares:
		most = min(most, maxUploadConns)
	}
	live := 0
	for _, c := range l.conns {
		if !c.retired && !c.Ended() && c.Available() {
			live++
		}
	}
	return live < most && len(l.conns) < maxDraining*l.options.MaxConns
}
