// Package authtest provides valid and invalid certificates, and a TLS server that receives them, for authentication
// tests.
package authtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"portico.dev/internal/pki"
)

// CA signs certificates without any checks.
type CA struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns a new authority.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	key := newKey(t)
	template := caTemplate(name)
	return &CA{Cert: sign(t, template, template, key, key), key: key}
}

// CrossSign returns a certificate of the authority other, signed by ca.
func (ca *CA) CrossSign(t testing.TB, other *CA) *x509.Certificate {
	t.Helper()
	return sign(t, caTemplate(other.Cert.Subject.CommonName), ca.Cert, other.key, ca.key)
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte { return PEM(ca.Cert) }

// PEM encodes certificates.
func PEM(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

// Bundle returns a bundle of the given authorities.
func Bundle(t testing.TB, certs ...*x509.Certificate) *pki.Bundle {
	t.Helper()
	b, err := pki.StaticBundle(PEM(certs...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Client issues a client certificate that is valid now. The change functions modify the template.
func (ca *CA) Client(t testing.TB, name string, change ...func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(template)
	}
	key := newKey(t)
	leaf := sign(t, template, ca.Cert, key, ca.key)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// Groups puts the client in groups.
func Groups(groups ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.Organization = groups }
}

// UIDs adds UIDs to the certificate, in the attribute that kube-apiserver uses.
func UIDs(uids ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for _, uid := range uids {
			c.Subject.ExtraNames = append(c.Subject.ExtraNames, pkix.AttributeTypeAndValue{
				Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: uid,
			})
		}
	}
}

// Expired sets the end of validity to a minute ago.
func Expired(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }

// NotYetValid sets the start of validity to a minute from now.
func NotYetValid(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }

// ServerOnly restricts the certificate to server authentication.
func ServerOnly(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Server is a TLS server with the TLS configuration of pki.
type Server struct {
	URL string
	// RootPEM is the root of the server's certificate.
	RootPEM []byte
	roots   *x509.CertPool
}

// Serve runs h until the test ends.
func Serve(t testing.TB, h http.Handler) *Server {
	t.Helper()
	authority, err := pki.NewAuthority("server CA")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "server", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:           h,
		TLSConfig:         pki.ServerConfig(pair),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // handshake failures are expected in these tests
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "") // always http.ErrServerClosed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate)
	return &Server{URL: "https://" + listener.Addr().String(), RootPEM: authority.PEM(), roots: roots}
}

// Client returns a client of s that presents cert, or no certificate if cert is nil.
func (s *Server) Client(t testing.TB, cert *tls.Certificate) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: s.roots}
	if cert != nil {
		// Present cert regardless of the server's list of acceptable authorities, as an attacker would.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}
