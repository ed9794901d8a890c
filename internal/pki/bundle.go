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

// Bundle holds CA certificates that may be replaced while in use. It is never empty.
type Bundle struct {
	file    string
	current atomic.Pointer[bundleState]
	stale   atomic.Pointer[error]
}

type bundleState struct {
	pem   []byte
	certs []*x509.Certificate
	pool  *x509.CertPool
	// verified maps digests of verified chains to their expiry. A verification costs as much as a request.
	verified *lru.Cache[[sha256.Size]byte, time.Time]
	// recent holds some verified chains for comparison without a digest. asked counts lookups that missed it.
	recent [8]atomic.Pointer[recentChain]
	asked  atomic.Uint32
}

// recentChain is a verified chain. All requests of a connection have the identical certificates, so pointers are
// compared.
type recentChain struct {
	certs []*x509.Certificate
	until time.Time
}

// remembers reports whether chain is a recent one and still valid.
func (s *bundleState) remembers(chain []*x509.Certificate, now time.Time) bool {
	for i := range s.recent {
		if r := s.recent[i].Load(); r != nil && slices.Equal(r.certs, chain) {
			return now.Before(r.until)
		}
	}
	return false
}

// remember adds one in sixteen missed chains to the recent ones. A few connections are soon included, and many
// connections do not replace each other with every request.
func (s *bundleState) remember(chain []*x509.Certificate, until time.Time) {
	if n := s.asked.Add(1); n%16 == 0 {
		s.recent[n/16%uint32(len(s.recent))].Store(&recentChain{slices.Clone(chain), until})
	}
}

// rememberVerified is the number of cached chains.
const rememberVerified = 1024

// LoadBundle reads a bundle from a file, which Run watches.
func LoadBundle(file string) (*Bundle, error) {
	b := &Bundle{file: file}
	if err := b.reload(); err != nil {
		return nil, fmt.Errorf("CA bundle %s: %w", file, err)
	}
	return b, nil
}

// StaticBundle returns a bundle without a file.
func StaticBundle(pem []byte) (*Bundle, error) {
	b := &Bundle{}
	if err := b.Set(pem); err != nil {
		return nil, err
	}
	return b, nil
}

// Set replaces the certificates. It refuses an empty or invalid bundle and keeps the last valid one.
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
		return err // only for a size that is not positive
	}
	b.current.Store(&bundleState{pem: bytes.Clone(pem), certs: certs, pool: pool, verified: verified})
	return nil
}

// Pool returns the current certificates as a pool. Callers must not change it.
func (b *Bundle) Pool() *x509.CertPool { return b.current.Load().pool }

// PEM returns the current certificates as they were read. Callers must not change it.
func (b *Bundle) PEM() []byte { return b.current.Load().pem }

// Certificates returns the current certificates. Callers must not change the slice.
func (b *Bundle) Certificates() []*x509.Certificate { return b.current.Load().certs }

// Stale returns why the last reload was refused, or nil if the bundle matches its file.
func (b *Bundle) Stale() error { return loadError(&b.stale) }

// VerifyClient verifies a client's chain, leaf first. A successful result is cached until the chain expires or the
// bundle is replaced.
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

// digest returns a hash of the chain. It is unambiguous because DER contains the lengths of the certificates.
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

// validUntil returns the latest expiry of the chains. A chain expires with its first certificate.
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

// Run watches the file until ctx ends. For a static bundle it only waits.
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

// pollInterval is the polling interval for changes that the file system does not report.
const pollInterval = time.Minute

// Inspection is the result of a handshake without verification.
type Inspection struct {
	// Version is the TLS version, 0 if the server did not send it.
	Version uint16
	// Chain contains the presented certificates, leaf first, even if the handshake failed afterwards.
	Chain []*x509.Certificate
	// Asked is set if the server requested a client certificate. AcceptableCAs are the DER subjects of the
	// authorities that it listed; empty if it listed none.
	Asked         bool
	AcceptableCAs [][]byte
}

// InspectionConfig returns a client configuration for inspecting a server. It accepts any certificate and also
// obsolete versions and cipher suites, so that servers without better support can be reported. Do not send
// confidential data on such a connection or trust received data. The result is stored in seen, which must not be read
// before the handshake has returned.
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
		InsecureSkipVerify: true, // the certificate is only inspected
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
