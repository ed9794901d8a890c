package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// KeyPair is a certificate and its key that may be replaced while in use. The two always match.
type KeyPair struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
	roots             atomic.Pointer[pairRoots] // the last result of Roots
	stale             atomic.Pointer[error]
}

// pairRoots is a result of Roots.
type pairRoots struct {
	pair   *tls.Certificate
	bundle *bundleState
	until  time.Time
	roots  []*x509.Certificate
}

// rememberRoots is how long a result of Roots is used while neither the pair nor the bundle is replaced. Certificates expire.
const rememberRoots = time.Minute

// LoadKeyPair reads a pair from files, which Run watches.
func LoadKeyPair(certFile, keyFile string) (*KeyPair, error) {
	k := &KeyPair{certFile: certFile, keyFile: keyFile}
	if err := k.reload(); err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
	}
	return k, nil
}

// StaticKeyPair returns a pair without files.
func StaticKeyPair(certPEM, keyPEM []byte) (*KeyPair, error) {
	k := &KeyPair{}
	if err := k.Set(certPEM, keyPEM); err != nil {
		return nil, err
	}
	return k, nil
}

// Set replaces the pair. It refuses a pair that is invalid or does not match, and keeps the last valid one.
func (k *KeyPair) Set(certPEM, keyPEM []byte) error {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	return k.Use(&pair)
}

// Use is Set for a pair that is already parsed. The caller must not change it.
func (k *KeyPair) Use(pair *tls.Certificate) (err error) {
	if pair.Leaf == nil {
		parsed := *pair
		if parsed.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return err
		}
		pair = &parsed
	}
	k.current.Store(pair)
	return nil
}

// GetCertificate returns the pair. It implements tls.Config.GetCertificate.
func (k *KeyPair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return k.current.Load(), nil
}

// GetClientCertificate returns the pair. It implements tls.Config.GetClientCertificate.
func (k *KeyPair) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return k.current.Load(), nil
}

// Leaf returns the current certificate.
func (k *KeyPair) Leaf() *x509.Certificate { return k.current.Load().Leaf }

// Fingerprint returns the SHA-256 of the current certificate in hex. Connections made with another certificate should
// be closed.
func (k *KeyPair) Fingerprint() string {
	sum := sha256.Sum256(k.current.Load().Leaf.Raw)
	return hex.EncodeToString(sum[:])
}

// Roots returns the certificates of a bundle that verify the pair, or nil if it cannot be verified.
func (k *KeyPair) Roots(b *Bundle) []*x509.Certificate {
	pair, bundle, now := k.current.Load(), b.current.Load(), time.Now()
	if last := k.roots.Load(); last != nil && last.pair == pair && last.bundle == bundle && now.Before(last.until) {
		return last.roots
	}
	roots := rootsOf(pair, bundle.pool)
	k.roots.Store(&pairRoots{pair, bundle, now.Add(rememberRoots), roots})
	return roots
}

func rootsOf(pair *tls.Certificate, pool *x509.CertPool) []*x509.Certificate {
	intermediates := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(c)
		}
	}
	chains, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil
	}
	var roots []*x509.Certificate
	for _, chain := range chains {
		roots = append(roots, chain[len(chain)-1])
	}
	return roots
}

// Stale returns why the last reload was refused, or nil if the pair matches its files.
func (k *KeyPair) Stale() error { return loadError(&k.stale) }

// Run watches the files until ctx ends. For a static pair it only waits.
func (k *KeyPair) Run(ctx context.Context, log *zap.Logger) error {
	return WatchFiles(ctx, log, []string{k.certFile, k.keyFile}, func() (bool, error) {
		before := k.Fingerprint()
		err := k.reload()
		storeError(&k.stale, err)
		return err == nil && before != k.Fingerprint(), err
	})
}

func (k *KeyPair) reload() error {
	certPEM, err := readFile(k.certFile)
	if err != nil {
		return err
	}
	keyPEM, err := readFile(k.keyFile)
	if err != nil {
		return err
	}
	return k.Set(certPEM, keyPEM)
}

// MaxPEMBytes is the maximum size of files and bundles read by this package.
const MaxPEMBytes = 1 << 20

// ParseBundle parses the certificates of a PEM bundle. An empty bundle, a block that cannot be decoded and a block that
// is not a certificate are errors, because a bundle that is only partially parsed is only partially trusted. Text
// between blocks is ignored.
func ParseBundle(data []byte) ([]*x509.Certificate, error) {
	if len(data) > MaxPEMBytes {
		return nil, fmt.Errorf("the bundle is larger than %d bytes", MaxPEMBytes)
	}
	var certs []*x509.Certificate
	for rest := data; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("the bundle holds a %q block; only CERTIFICATE blocks belong here", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate %d of the bundle: %w", len(certs)+1, err)
		}
		certs = append(certs, cert)
	}
	// pem.Decode skips a block that it cannot decode.
	if blocks := bytes.Count(data, []byte("-----BEGIN ")); blocks > len(certs) {
		return nil, fmt.Errorf("%d of %d PEM blocks cannot be decoded", blocks-len(certs), blocks)
	}
	if len(certs) == 0 {
		return nil, errors.New("no PEM certificate found; expected at least one CERTIFICATE block")
	}
	return certs, nil
}

// ParseKey parses a private key in PKCS#8, SEC 1 or PKCS#1 form.
func ParseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM private key found")
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
		return nil, fmt.Errorf("private key of type %T cannot sign", key)
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	return nil, fmt.Errorf("the %q block is no private key in PKCS#8, SEC 1 or PKCS#1 form", block.Type)
}

// EncodeKey encodes a private key as PKCS#8 PEM.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
