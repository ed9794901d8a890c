package transport

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"portico.dev/internal/pki"
)

// Set holds all backends of this process. A single timer checks their connections. Close waits for the goroutines of
// its backends.
type Set struct {
	options   Options
	replays   *allowance
	checker   *connChecker
	onFailure atomic.Pointer[func(*Backend, error)]

	mu               sync.Mutex // guards the fields below
	backends         map[key]*Backend
	drainingBackends []*Backend // removed backends with requests or goroutines still running
	closed           bool
}

// key is the identity of a backend: its address and how it is verified. If the CA of a backend changes, it becomes a
// different backend without connections.
type key struct {
	name, serverName string
	ca               [sha256.Size]byte
	system           bool // no CA bundle; use the system's roots
	insecure         bool
	loopback         bool
	certificate      *pki.KeyPair // presented to the server; nil for none
}

// Trust returns how a server's certificate is verified, as a label that tells apart the backends of one Service:
// "system" for the system's roots, "insecure" for no verification, or the first 8 hexadecimal digits of the SHA-256 of
// the CA bundle.
func Trust(caBundle []byte, insecure bool) string {
	return key{ca: sha256.Sum256(caBundle), system: len(caBundle) == 0, insecure: insecure}.trust()
}

func (k key) trust() string {
	switch {
	case k.insecure:
		return "insecure"
	case k.system:
		return "system"
	}
	return fmt.Sprintf("sha256:%x", k.ca[:4])
}

// New returns a Set without backends.
func New(o Options) *Set {
	o = o.withDefaults()
	s := &Set{options: o, backends: make(map[key]*Backend)}
	if o.Parent != nil {
		s.replays, s.checker = o.Parent.replays, o.Parent.checker
	} else {
		s.replays, s.checker = &allowance{limit: o.MaxReplayTotal}, &connChecker{every: o.checkInterval()}
	}
	if o.OnFailure != nil {
		s.OnFailure(o.OnFailure)
	}
	return s
}

// KeptBodies returns the number of bytes of request bodies that can be sent again, of all Sets with the same Parent.
func (s *Set) KeptBodies() int64 { return s.replays.used.Load() }

// OnFailure sets the function to call for failures, replacing Options.OnFailure, for listeners that are created after
// the Set. f must not block.
func (s *Set) OnFailure(f func(*Backend, error)) { s.onFailure.Store(&f) }

// Backend returns the backend with the identity of spec, creating it if needed, and updates its endpoints and limit.
// It returns an error if the CA bundle cannot be parsed.
func (s *Set) Backend(spec Spec) (*Backend, error) {
	k := key{
		name:       spec.Name,
		serverName: spec.ServerName,
		ca:         sha256.Sum256(spec.CABundle),
		system:     len(spec.CABundle) == 0,
		insecure:   spec.Insecure,
		loopback:   spec.LoopbackOK,

		certificate: cmp.Or(spec.Certificate, s.options.Certificate),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("backend %s: %w", spec.Name, ErrClosed)
	}
	b, ok := s.backends[k]
	if !ok {
		var err error
		if b, err = newBackend(s, k, spec); err != nil {
			return nil, fmt.Errorf("backend %s: %w", spec.Name, err)
		}
		s.backends[k] = b
	}
	b.setLimit(spec.MaxInFlight)
	b.setEndpoints(spec.Endpoints)
	return b, nil
}

// Retain removes all other backends. Removed backends accept no more requests, and are closed when their requests
// have ended or the grace period is over.
func (s *Set) Retain(keep map[*Backend]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drainingBackends = slices.DeleteFunc(s.drainingBackends, (*Backend).drained)
	for k, b := range s.backends {
		if keep[b] {
			continue
		}
		delete(s.backends, k)
		b.drain()
		s.drainingBackends = append(s.drainingBackends, b)
		s.options.Metrics.Forget(k.name, k.trust())
	}
}

// Close closes all backends and waits for their goroutines. Requests in flight fail.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, b := range s.backends {
		b.close()
	}
	for _, b := range s.drainingBackends {
		b.close()
	}
	s.backends, s.drainingBackends = nil, nil
	if s.options.Parent == nil {
		s.checker.close()
	}
}

// clientOptions returns the TLS options for a backend. It is called with mu held.
func (s *Set) clientOptions(k key, spec Spec) pki.ClientOptions {
	o := pki.ClientOptions{ServerName: spec.ServerName, Insecure: spec.Insecure, Certificate: k.certificate}
	if k.system {
		return o
	}
	o.Roots = spec.CABundle
	for other, b := range s.backends { // share the pool of equal bundles
		if other.ca == k.ca && !other.system {
			o.Pool = b.tls.RootCAs
			break
		}
	}
	return o
}
