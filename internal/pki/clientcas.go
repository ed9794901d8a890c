package pki

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync/atomic"
)

// maxNamedAuthorities limits the names of authorities in a handshake, in bytes. TLS allows 64 KiB and fails beyond
// it. Above the limit no authorities are sent, because with an incomplete list clients of the other authorities would
// not send their certificates.
const maxNamedAuthorities = 16 << 10

// NameClientCAs returns a copy of c that lists the authorities of client certificates in its CertificateRequest.
// Browsers, curl and Java use the list to select a certificate. authorities is called for every handshake; if it
// returns nil, none are listed. Certificates are not verified in the handshake.
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

// nameBytes returns the length of the names of the authorities in a handshake.
func nameBytes(pool *x509.CertPool) (n int) {
	//lint:ignore SA1019 crypto/tls uses it too: these are not the authorities of the system
	for _, name := range pool.Subjects() {
		n += 2 + len(name)
	}
	return n
}

// JoinPools returns a function that returns the certificates of all bundles in one pool. It returns a new pool after
// a bundle has changed.
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
