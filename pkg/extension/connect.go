package extension

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
)

// connects reports whether a request is a connect request, which the provider serves.
func (s *resourceHandler) connects(info *apirequest.RequestInfo) bool {
	return info.Subresource != "" && info.Name != "" && slices.Contains(s.subresources, info.Subresource)
}

// longRunning reports whether a request may outlive the request timeout: watches, and connect requests to any subresource.
func (h *Host) longRunning(info *apirequest.RequestInfo) bool {
	if info == nil || !info.IsResourceRequest {
		return false
	}
	s, ok := h.catalog.Load().find(info)
	return request.LongRunning(info) || ok && s.connects(info)
}

// connect passes the request to the provider.
func (s *resourceHandler) connect(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
	q := everything()
	q.Namespace, q.Name, q.Subresource, q.User = info.Namespace, info.Name, info.Subresource, caller(r.Context())
	if at := slices.Index(info.Parts, info.Subresource); len(info.Parts) > 3 && at == 2 {
		q.Rest = strings.Join(info.Parts[3:], "/")
	}
	s.source.connect(r.Context(), q, w, r)
}

// connections tracks hijacked connections, for which http.Server.Shutdown does not wait.
type connections struct {
	mu   sync.Mutex // guards open
	open map[*trackedConn]struct{}
}

// trackedConn is removed from its list when it is closed.
type trackedConn struct {
	net.Conn
	list *connections
}

func (c *connections) track(conn net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*trackedConn]struct{}{}
	}
	t := &trackedConn{conn, c}
	c.open[t] = struct{}{}
	return t
}

// Close closes the connection and stops tracking it.
func (t *trackedConn) Close() error {
	t.list.mu.Lock()
	delete(t.list.open, t)
	t.list.mu.Unlock()
	return t.Conn.Close()
}

// closeAll closes every tracked connection.
func (c *connections) closeAll() {
	c.mu.Lock()
	left := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, t := range left {
		_ = t.Close() // the connection is being cut off, so the error does not matter
	}
}
