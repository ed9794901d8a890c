package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1" // RFC 5280 names SHA-1 for key identifiers; nothing is trusted by it
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// AuthorityTTL is the lifetime of a certificate authority.
	AuthorityTTL = 10 * 365 * 24 * time.Hour
	// LeafTTL is the default lifetime of a leaf certificate. Leaves are renewed after two thirds of it.
	LeafTTL = 365 * 24 * time.Hour
	// backdate tolerates clocks that are behind.
	backdate = 5 * time.Minute
)

// Authority is a certificate authority with an ECDSA P-256 key.
type Authority struct {
	Certificate *x509.Certificate
	key         crypto.Signer
	// others are accepted too during a rotation (Rotate): the previous or the next certificate.
	others []*x509.Certificate
}

// Leaf describes a leaf certificate to issue.
type Leaf struct {
	// CommonName is the user name of a client. It is informative for a server.
	CommonName string
	// Organizations are the groups of a client.
	Organizations []string
	// DNSNames and IPs are the names and addresses of a server.
	DNSNames []string
	IPs      []net.IP
	// Client and Server select the extended key usages. At least one is required.
	Client, Server bool
	// TTL is the certificate's lifetime. Default LeafTTL. It is limited by the authority's expiry.
	TTL time.Duration
}

// NewAuthority returns a self-signed authority with a new key and a lifetime of AuthorityTTL.
func NewAuthority(commonName string) (*Authority, error) {
	return NewAuthorityFor(commonName, AuthorityTTL)
}

// NewAuthorityFor is like NewAuthority with a custom lifetime.
func NewAuthorityFor(commonName string, ttl time.Duration) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of authority %q: %w", commonName, err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(ttl),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
		SubjectKeyId:          keyID(&key.PublicKey),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %q: %w", commonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse authority %q: %w", commonName, err)
	}
	return &Authority{Certificate: cert, key: key}, nil
}

// ParseAuthority parses an authority from the contents of its PEM files. Of several certificates, the one that
// matches the key is the authority's.
func ParseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	certs, err := ParseBundle(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return belongs(key, c) })
	switch {
	case i < 0 && len(certs) > 1:
		return nil, errors.New("the key belongs to none of the certificates")
	case i < 0:
		return nil, errors.New("the key does not belong to the certificate")
	case !CanSign(certs[i]):
		return nil, fmt.Errorf("%q is not a certificate authority", certs[i].Subject.CommonName)
	}
	return &Authority{Certificate: certs[i], key: key, others: slices.Delete(slices.Clone(certs), i, i+1)}, nil
}

// CanSign reports whether clients accept certificates signed by c. X.509 before version 3 has no CA flag.
// kube-controller-manager signs with such a certificate, and crypto/x509 and OpenSSL accept it as a root.
func CanSign(c *x509.Certificate) bool { return c.IsCA || c.Version < 3 }

// belongs reports whether a key matches a certificate.
func belongs(key crypto.Signer, c *x509.Certificate) bool {
	public, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return encodeCertificate(a.Certificate.Raw) }

// BundlePEM returns the certificates for verification: the authority's certificate and, during a rotation, the other
// one.
func (a *Authority) BundlePEM() []byte {
	bundle := a.PEM()
	for _, c := range a.others {
		bundle = append(bundle, encodeCertificate(c.Raw)...)
	}
	return bundle
}

// KeyPEM returns the authority's private key.
func (a *Authority) KeyPEM() ([]byte, error) { return EncodeKey(a.key) }

// Issue creates a key and a certificate for it.
func (a *Authority) Issue(l Leaf) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key of %q: %w", l.CommonName, err)
	}
	template, err := a.template(l)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %q: %w", l.CommonName, err)
	}
	keyPEM, err = EncodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	return encodeCertificate(der), keyPEM, nil
}

func (a *Authority) template(l Leaf) (*x509.Certificate, error) {
	var usages []x509.ExtKeyUsage
	if l.Client {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	if l.Server {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	if usages == nil {
		return nil, fmt.Errorf("certificate of %q is neither for a client nor for a server", l.CommonName)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	ttl := l.TTL
	if ttl <= 0 {
		ttl = LeafTTL
	}
	now := time.Now()
	notAfter := now.Add(ttl)
	if notAfter.After(a.Certificate.NotAfter) {
		notAfter = a.Certificate.NotAfter
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: l.CommonName, Organization: l.Organizations},
		NotBefore:    now.Add(-backdate),
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  usages,
		DNSNames:     l.DNSNames,
		IPAddresses:  l.IPs,
	}, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func keyID(public *ecdsa.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil // the identifier is optional; P-256 keys can always be marshaled
	}
	sum := sha1.Sum(der)
	return sum[:]
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
