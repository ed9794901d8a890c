package pki

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.uber.org/zap"
)

// Bundle is CA certificates that may be replaced while in use. It always holds at least one.
type Bundle struct {
	file    string
	current atomic.Pointer[bundleState]
	stale   atomic.Pointer[error]
}

type bundleState struct {
	pem   []byte
	certs []*x509.Certificate
	pool  *x509.CertPool
	// verified is until when chains are valid, by their digests. A verification costs as much as a request.
	verified *lru.Cache[[sha256.Size]byte, time.Time]
	// recent are some of them by the certificates themselves, which saves the digest. asked counts those that were not among them.
	recent [8]atomic.Pointer[recentChain]
	asked  atomic.Uint32
}

// recentChain is a chain that was verified. All requests of a connection have the same certificates, not only equal ones.
type recentChain struct {
	certs []*x509.Certificate
	until time.Time
}

// remembers reports whether chain is among the recent ones, and still valid.
func (s *bundleState) remembers(chain []*x509.Certificate, now time.Time) bool {
	for i := range s.recent {
		if r := s.recent[i].Load(); r != nil && slices.Equal(r.certs, chain) {
			return now.Before(r.until)
		}
	}
	return false
}

// remember puts one in sixteen of the chains that are asked for among the recent ones: a few connections are soon there, and many do not
// replace each other with every request.
func (s *bundleState) remember(chain []*x509.Certificate, until time.Time) {
	if n := s.asked.Add(1); n%16 == 0 {
		s.recent[n/16%uint32(len(s.recent))].Store(&recentChain{slices.Clone(chain), until})
	}
}

// rememberVerified bounds the chains of clients that are remembered.
const rememberVerified = 1024

// LoadBundle reads a bundle from a file, which Run follows.
func LoadBundle(file string) (*Bundle, error) {
	b := &Bundle{file: file}
	if err := b.reload(); err != nil {
		return nil, fmt.Errorf("CA bundle %s: %w", file, err)
	}
	return b, nil
}

// StaticBundle is a bundle without a file.
func StaticBundle(pem []byte) (*Bundle, error) {
	b := &Bundle{}
	if err := b.Set(pem); err != nil {
		return nil, err
	}
	return b, nil
}

// Set replaces the certificates. A bundle that is empty or does not parse is refused and the last good one stays.
func (b *Bundle) Set(pem []byte) error {
	certs, err := ParseBundle(pem)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	verified, err := lru.New[[sha256.Size]byte, time.Time](rememberVerified)
	if err != nil {
		return err // of a size that is not positive
	}
	b.current.Store(&bundleState{pem: bytes.Clone(pem), certs: certs, pool: pool, verified: verified})
	return nil
}

// Pool is the current certificates as a pool. Callers must not change it.
func (b *Bundle) Pool() *x509.CertPool { return b.current.Load().pool }

// PEM is the current certificates as they were read. Callers must not change it.
func (b *Bundle) PEM() []byte { return b.current.Load().pem }

// Certificates is the current certificates. Callers must not change the slice.
func (b *Bundle) Certificates() []*x509.Certificate { return b.current.Load().certs }

// Stale is why the last reload was refused, nil when the bundle is what its file says.
func (b *Bundle) Stale() error { return loadError(&b.stale) }

// VerifyClient reports why a client's chain, leaf first, is not one of this bundle's clients, or nil. That a chain is valid is remembered
// until it expires or the bundle is replaced.
func (b *Bundle) VerifyClient(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("no client certificate was presented")
	}
	now, state := time.Now(), b.current.Load()
	if state.remembers(chain, now) {
		return nil
	}
	key := digest(chain)
	if until, ok := state.verified.Get(key); ok && now.Before(until) {
		state.remember(chain, until)
		return nil
	}
	var intermediates *x509.CertPool
	if len(chain) > 1 {
		intermediates = x509.NewCertPool()
		for _, c := range chain[1:] {
			intermediates.AddCert(c)
		}
	}
	chains, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         state.pool,
		Intermediates: intermediates,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("verify client certificate of %q (serial %s): %w", chain[0].Subject.CommonName, chain[0].SerialNumber, err)
	}
	state.verified.Add(key, validUntil(chains))
	return nil
}

// digest tells chains apart: certificates say in DER how long they are.
func digest(chain []*x509.Certificate) (key [sha256.Size]byte) {
	if len(chain) == 1 {
		return sha256.Sum256(chain[0].Raw)
	}
	h := sha256.New()
	for _, c := range chain {
		h.Write(c.Raw)
	}
	h.Sum(key[:0])
	return key
}

// validUntil is when the last of the chains expires: each when its first certificate does.
func validUntil(chains [][]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		ends := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(ends) {
				ends = c.NotAfter
			}
		}
		if ends.After(until) {
			until = ends
		}
	}
	return until
}

// Run follows the file until ctx ends. A static bundle has nothing to follow and just waits.
func (b *Bundle) Run(ctx context.Context, log *zap.Logger) error {
	return WatchFiles(ctx, log, []string{b.file}, func() (bool, error) {
		before := b.PEM()
		err := b.reload()
		storeError(&b.stale, err)
		return err == nil && !bytes.Equal(before, b.PEM()), err
	})
}

func (b *Bundle) reload() error {
	data, err := readFile(b.file)
	if err != nil {
		return err
	}
	return b.Set(data)
}

func loadError(p *atomic.Pointer[error]) error {
	if e := p.Load(); e != nil {
		return *e
	}
	return nil
}

func storeError(p *atomic.Pointer[error], err error) {
	if err == nil {
		p.Store(nil)
		return
	}
	p.Store(&err)
}

// pollInterval is the backstop for changes that the file system does not announce.
const pollInterval = time.Minute

// Inspection is what a server presented in a handshake without verification.
type Inspection struct {
	// Version is the version of TLS, 0 when the server never said.
	Version uint16
	// Chain is the certificates it showed, the leaf first, whatever became of the handshake after that.
	Chain []*x509.Certificate
	// Asked is that the server asked for a client certificate, and AcceptableCAs are the DER subjects of the authorities
	// that it said it takes; none means that it did not say.
	Asked         bool
	AcceptableCAs [][]byte
}

// InspectionConfig is the client side of a handshake that only looks: it accepts any certificate and, beside the
// versions and suites that we support, the old ones, so that a server that supports nothing better can be reported.
// Nothing confidential may be sent on such a connection, and nothing that it sends may be trusted. What is presented is
// noted in seen, which must not be read before the handshake has returned.
func InspectionConfig(serverName string, present *KeyPair, seen *Inspection) *tls.Config {
	suites := aeadSuites()
	for _, s := range tls.CipherSuites() {
		suites = append(suites, s.ID)
	}
	for _, s := range tls.InsecureCipherSuites() {
		suites = append(suites, s.ID)
	}
	return &tls.Config{
		ServerName:         serverName,
		MinVersion:         tls.VersionTLS10,
		CipherSuites:       suites,
		NextProtos:         []string{"h2", "http/1.1"},
		InsecureSkipVerify: true, // it is the certificate that is looked at
		VerifyConnection: func(s tls.ConnectionState) error {
			seen.Version, seen.Chain = s.Version, s.PeerCertificates
			return nil
		},
		GetClientCertificate: func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			seen.Asked, seen.AcceptableCAs = true, asked.AcceptableCAs
			if present != nil {
				return present.GetClientCertificate(asked)
			}
			return &tls.Certificate{}, nil
		},
	}
}
