package transport

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// endpoint is one place where a backend may be reached, with what is known of it.
type endpoint struct {
	address  string
	backend  *Backend
	dialer   *dialer
	requests *lane
	probes   *lane
	health   health
	inFlight atomic.Int64 // requests, without probes
	notAfter atomic.Int64 // expiry of the serving certificate last seen, Unix seconds, 0 when none was
}

// member is an endpoint as the latest EndpointSlices describe it.
type member struct {
	*endpoint
	zone        string
	terminating bool
}

func newEndpoint(b *Backend, address string) *endpoint {
	o := &b.set.options
	e := &endpoint{address: address, backend: b}
	e.dialer = &dialer{
		address: address,
		guard: guard{
			loopback: o.AllowLoopback || b.key.loopback,
			allow:    o.Allow,
			own:      o.OwnAddresses,
			local:    net.InterfaceAddrs,
		},
		dial:     o.DialTimeout,
		tls:      o.TLSTimeout,
		config:   b.tls,
		scans:    o.Engine.ScansHTTP1(),
		notAfter: &e.notAfter,
	}
	e.requests = newLane(e.dialer, o, &b.set.rounds, b.identity, e.dialled)
	e.probes = newLane(e.dialer, o, &b.set.rounds, b.identity, e.dialled)
	e.requests.violated = e.brokeProtocol
	e.probes.violated = e.brokeProtocol
	e.probes.lost = b.missed
	e.probes.silence = e.requests.doubt
	e.requests.asleep = e.probes.awake
	e.probes.calm = func() bool { return !e.requests.awake() }
	return e
}

func (b *Backend) identity() *x509.Certificate {
	if k := b.set.options.Certificate; k != nil {
		return k.Leaf()
	}
	return nil
}

// dialled is told the outcome of every connection attempt, whoever asked for it.
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

// brokeProtocol is told of a connection that ended because its server broke the protocol, or flooded it: whatever requests
// there were on it, that counts as a connection that failed.
func (e *endpoint) brokeProtocol(err error) {
	if e.requests.ctx.Err() == nil {
		e.failed(err, true)
	}
}

// failed counts a failure against the endpoint; hard ones eject it at once.
func (e *endpoint) failed(err error, hard bool) {
	out := e.health.failed(time.Now(), hard, err.Error())
	if out {
		e.backend.metrics.Ejected()
		level := zap.WarnLevel
		if e.health.relapsed() {
			level = zap.DebugLevel // it is known to be dead; saying so every two seconds helps nobody
		}
		e.backend.set.options.Logger.Log(level, "endpoint ejected",
			zap.String("backend", e.backend.Name()), zap.String("endpoint", e.address), zap.Error(err))
	}
	if hard && unheard(err) {
		e.backend.silence.broke(time.Now())
	}
	if out || hard {
		e.backend.notify(err)
	}
}

// leave stops taking requests; those in flight have the grace.
func (e *endpoint) leave() {
	e.requests.leave()
	e.probes.leave()
}

// idle reports, after leave, whether everything ended.
func (e *endpoint) idle() bool { return e.requests.idle() && e.probes.idle() }

func (e *endpoint) close() {
	e.requests.close()
	e.probes.close()
}

func clone(c *tls.Config, protos ...string) *tls.Config {
	c = c.Clone()
	c.NextProtos = protos
	return c
}
