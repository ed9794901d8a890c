package transport

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
)

// BackendWithTLS is like Backend for a caller that already has a TLS configuration for the server. It ignores
// CABundle, Insecure and LoopbackOK of spec, and Options.Certificate. id identifies config among configurations with
// the same Name and ServerName: calls with the same id share connections. config is copied, and the copy offers
// HTTP/2 and HTTP/1.1.
func (s *Set) BackendWithTLS(spec Spec, id string, config *tls.Config) (*Backend, error) {
	k := key{name: spec.Name, serverName: spec.ServerName, ca: sha256.Sum256([]byte(id)), certificate: s.options.Certificate}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("backend %s: %w", spec.Name, ErrClosed)
	}
	b, ok := s.backends[k]
	if !ok {
		var err error
		if b, err = newBackend(s, k, Spec{ServerName: spec.ServerName}); err != nil {
			return nil, fmt.Errorf("backend %s: %w", spec.Name, err)
		}
		b.tls = clone(config, b.tls.NextProtos...)
		b.tls.ServerName = spec.ServerName
		s.backends[k] = b
	}
	b.setLimit(spec.MaxInFlight)
	b.setEndpoints(spec.Endpoints)
	return b, nil
}
