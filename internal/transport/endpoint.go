package transport

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// endpoint is an address of a backend, with its connection pools and health.
type endpoint struct {
	address  string
	backend  *Backend
	dialer   *dialer
	requests *connPool
	probes   *connPool
	health   health
	silence  silence // of this endpoint; used while the backend has several endpoints
	outlier  outlier
	inFlight atomic.Int64 // requests, not probes
	notAfter atomic.Int64 // expiry of the latest server certificate, Unix seconds; 0 if unknown
}

// candidate is an endpoint with its attributes from the latest EndpointSlices.
type candidate struct {
	*endpoint
	zone        string
	terminating bool
}

// probeChunk is the read size of connections for probes and document fetches. There is one to every backend and most
// responses are short, so a smaller buffer is worth a few more system calls per document.
const probeChunk = 1 << 10

func newEndpoint(b *Backend, address string) *endpoint {
	o := &b.set.options
	e := &endpoint{address: address, backend: b, outlier: outlier{checking: make(chan struct{}, 1)}}
	e.dialer = &dialer{
		address: address,
		guard: guard{
			loopback: o.AllowLoopback || b.key.loopback,
			allow:    o.Allow,
			own:      o.OwnAddresses,
			local:    net.InterfaceAddrs,
		},
		tunnel:      o.Tunnel,
		dial:        o.DialTimeout,
		tls:         o.TLSTimeout,
		config:      b.tls,
		checksHTTP1: o.Engine.ScansHTTP1(),
		notAfter:    &e.notAfter,
		silent:      b.silence.connectionSilent,
	}
	e.requests = newConnPool(e.dialer, o, b.set.checker, b.identity, e.dialled)
	probing := *e.dialer
	probing.chunk = probeChunk
	e.probes = newConnPool(&probing, o, b.set.checker, b.identity, e.dialled)
	e.requests.onViolation = e.brokeProtocol
	e.probes.onViolation = e.brokeProtocol
	e.probes.onIdleLost = b.idleConnLost
	e.probes.onSilent = e.requests.closeIdle
	e.requests.skipPings = e.probes.hasConnections
	e.silence.overdue = e.overdue
	e.probes.unused = func() bool { return !e.requests.hasConnections() }
	return e
}

func (b *Backend) identity() *x509.Certificate {
	if k := b.key.certificate; k != nil {
		return k.Leaf()
	}
	return nil
}

// dialled is called with the result of every connection attempt, for requests and probes.
func (e *endpoint) dialled(err error) {
	e.backend.metrics.Dialled(err == nil)
	if err == nil {
		e.health.connected()
		return
	}
	if e.requests.ctx.Err() == nil {
		e.failed(err, true)
	}
}

// brokeProtocol is called when a connection ended because its server violated the protocol or flooded it. It counts
// as a failed connection even without requests on it.
func (e *endpoint) brokeProtocol(err error) {
	if e.requests.ctx.Err() == nil {
		e.failed(err, true)
	}
}

// failed records a failure of the endpoint. Hard failures eject it immediately.
func (e *endpoint) failed(err error, hard bool) {
	out := e.health.failed(time.Now(), hard, err.Error())
	if out {
		e.backend.metrics.Ejected()
		e.backend.set.options.Logger.Log(e.health.ejectionLevel(time.Now()), "endpoint ejected",
			zap.String("backend", e.backend.Name()), zap.String("endpoint", e.address), zap.Error(err))
	}
	switch {
	case IsTunnelError(err):
		e.received() // the failed tunnel hides the state of the server
	case hard && noResponse(err):
		e.backend.silence.connectionSilent(time.Now())
	}
	if out || hard {
		e.backend.notify(err)
	}
}

// received is called when anything other than a ping response is received from the server.
func (e *endpoint) received() {
	e.silence.responseReceived()
	e.backend.silence.responseReceived()
}

// drain stops accepting requests. Requests in flight may finish within the grace period.
func (e *endpoint) drain() {
	e.requests.drain()
	e.probes.drain()
}

// drained reports, after drain, whether all requests and goroutines have ended.
func (e *endpoint) drained() bool { return e.requests.drained() && e.probes.drained() }

func (e *endpoint) close() {
	e.requests.close()
	e.probes.close()
}

func clone(c *tls.Config, protos ...string) *tls.Config {
	c = c.Clone()
	c.NextProtos = protos
	return c
}
