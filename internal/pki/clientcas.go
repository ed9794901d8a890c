package pki

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync/atomic"
)

// maxNamedAuthorities bounds the names of authorities in a handshake, in bytes. TLS allows 64 KiB, and fails beyond it. An
// incomplete list would keep clients of the other authorities from sending their certificates, so there is none then.
const maxNamedAuthorities = 16 << 10

// NameClientCAs returns c with the authorities of client certificates in its CertificateRequest, by which browsers, curl and
// Java choose a certificate. They are read for every handshake. If authorities returns nil, none are named. Certificates are
// verified later, as without the names.
func NameClientCAs(c *tls.Config, authorities func(*tls.ClientHelloInfo) *x509.CertPool) *tls.Config {
	type named struct {
		authorities *x509.CertPool
		config      *tls.Config
	}
	var last atomic.Pointer[named]
	base := c
	c = base.Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		pool := authorities(hello)
		if pool == nil {
			return nil, nil
		}
		if n := last.Load(); n != nil && n.authorities == pool {
			return n.config, nil
		}
		n := &named{pool, base.Clone()}
		if nameBytes(pool) <= maxNamedAuthorities {
			n.config.ClientCAs = pool
		}
		last.Store(n)
		return n.config, nil
	}
	return c
}

// nameBytes is the length of the names of authorities in a handshake.
func nameBytes(pool *x509.CertPool) (n int) {
	//lint:ignore SA1019 crypto/tls uses it too: these are not the authorities of the system
	for _, name := range pool.Subjects() {
		n += 2 + len(name)
	}
	return n
}

// JoinPools returns a function that returns the certificates of all bundles in one pool. The pool is another one after a
// bundle has changed.
func JoinPools(bundles ...*Bundle) func() *x509.CertPool {
	type joined struct {
		parts []*x509.CertPool
		all   *x509.CertPool
	}
	var last atomic.Pointer[joined]
	return func() *x509.CertPool {
		j := last.Load()
		if j != nil && slices.EqualFunc(bundles, j.parts, func(b *Bundle, part *x509.CertPool) bool { return b.Pool() == part }) {
			return j.all
		}
		j = &joined{all: x509.NewCertPool()}
		for _, b := range bundles {
			state := b.current.Load()
			j.parts = append(j.parts, state.pool)
			for _, c := range state.certs {
				j.all.AddCert(c)
			}
		}
		last.Store(j)
		return j.all
	}
}
