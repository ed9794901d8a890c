package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// ServerConfig is the one server side of TLS: TLS 1.2 and up, forward secrecy and AEAD only, HTTP/2 and HTTP/1.1.
//
// A client certificate is asked for and not verified here: authentication verifies it on every request against the
// authorities as they are then. Session tickets are off, so that no handshake can skip the certificate.
func ServerConfig(cert *KeyPair) *tls.Config { return ServerConfigFor(cert.GetCertificate) }

// ServerConfigFor is ServerConfig with certificates of any origin.
func ServerConfigFor(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		GetCertificate:         certificate,
		ClientAuth:             tls.RequestClientCert,
		MinVersion:             tls.VersionTLS12,
		CipherSuites:           aeadSuites(),
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		// Small records would be a system call each, and what we send is mostly sent whole.
		DynamicRecordSizingDisabled: true,
	}
}

// MutualServerConfig is the server side of TLS among servers of our own: whoever connects must have a certificate of one of authorities.
func MutualServerConfig(cert *KeyPair, authorities *x509.CertPool) *tls.Config {
	c := ServerConfig(cert)
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, authorities
	return c
}

// Restrict narrows a server's TLS as operators ask for it: a version by name (VersionTLS12, VersionTLS13), and cipher
// suites of TLS 1.2 by their names. Unsafe ones cannot be chosen.
func Restrict(c *tls.Config, minVersion string, suites []string) error {
	switch minVersion {
	case "", "VersionTLS12":
	case "VersionTLS13":
		c.MinVersion = tls.VersionTLS13
	default:
		return fmt.Errorf("TLS version %q: VersionTLS12 and VersionTLS13 are on offer", minVersion)
	}
	if len(suites) == 0 {
		return nil
	}
	var chosen []uint16
	for _, name := range suites {
		id, ok := suiteByName(name)
		if !ok {
			return fmt.Errorf("cipher suite %q is not on offer; these are: %s", name, strings.Join(suiteNames(), ", "))
		}
		chosen = append(chosen, id)
	}
	c.CipherSuites = chosen
	return nil
}

func suiteByName(name string) (uint16, bool) {
	for _, id := range aeadSuites() {
		if tls.CipherSuiteName(id) == name {
			return id, true
		}
	}
	return 0, false
}

func suiteNames() []string {
	var names []string
	for _, id := range aeadSuites() {
		names = append(names, tls.CipherSuiteName(id))
	}
	return names
}

// ClientOptions choose the client side of TLS.
type ClientOptions struct {
	// ServerName is the name the server must prove, whatever address was dialled.
	ServerName string
	// Roots is the PEM bundle that the server's certificate must chain to. Nil: the system's.
	Roots []byte
	// Pool is Roots parsed, if that was done before.
	Pool *x509.CertPool
	// Insecure accepts any certificate. It exists because an APIService can ask for it (insecureSkipTLSVerify).
	Insecure bool
	// Certificate is the client certificate. Nil: none.
	Certificate *KeyPair
	// HTTP1Only offers HTTP/1.1 alone, for upgrades.
	HTTP1Only bool
}

// ClientConfig is the one client side of TLS. The error names a Roots bundle that does not parse.
func ClientConfig(o ClientOptions) (*tls.Config, error) {
	c := &tls.Config{
		ServerName:         o.ServerName,
		MinVersion:         tls.VersionTLS12,
		CipherSuites:       clientSuites,
		NextProtos:         clientProtocols,
		InsecureSkipVerify: o.Insecure, // only by insecureSkipTLSVerify, which has a condition and a metric
	}
	if o.HTTP1Only {
		c.NextProtos = []string{"http/1.1"}
	}
	if c.RootCAs = o.Pool; c.RootCAs == nil && o.Roots != nil {
		certs, err := ParseBundle(o.Roots)
		if err != nil {
			return nil, fmt.Errorf("CA bundle: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		for _, cert := range certs {
			c.RootCAs.AddCert(cert)
		}
	}
	if o.Certificate != nil {
		c.GetClientCertificate = o.Certificate.GetClientCertificate
	}
	return c, nil
}

// Shared by every client; crypto/tls only reads it.
var (
	clientSuites    = aeadSuites()
	clientProtocols = []string{"h2", "http/1.1"}
)

// aeadSuites are the TLS 1.2 suites with forward secrecy and authenticated encryption; TLS 1.3 has no others.
func aeadSuites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}

// PinnedClientConfig is the client side of TLS to a server whose certificate accept knows. No authority is asked.
func PinnedClientConfig(serverName string, certificate *KeyPair, accept func(*x509.Certificate) bool) *tls.Config {
	return &tls.Config{
		ServerName:           serverName,
		MinVersion:           tls.VersionTLS13,
		NextProtos:           clientProtocols,
		GetClientCertificate: certificate.GetClientCertificate,
		InsecureSkipVerify:   true, // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !accept(state.PeerCertificates[0]) {
				return errNotPinned
			}
			return nil
		},
	}
}

var errNotPinned = errors.New("the server's certificate is not one that is expected")

// SPKIHash is the SHA-256 of a certificate's public key, as kubeadm's --discovery-token-ca-cert-hash.
func SPKIHash(c *x509.Certificate) [sha256.Size]byte { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// AuthorityPinnedConfig is the client side of TLS 1.3 to a server that shows a certificate for serverName and, after it, the authority that
// has signed it, whose public key has this hash. No other authority is asked.
func AuthorityPinnedConfig(serverName string, authority [sha256.Size]byte) *tls.Config {
	return &tls.Config{
		ServerName:         serverName,
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{"http/1.1"},
		InsecureSkipVerify: true, // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			for _, c := range state.PeerCertificates[1:] {
				if SPKIHash(c) != authority {
					continue
				}
				roots := x509.NewCertPool()
				roots.AddCert(c)
				_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: serverName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
				return err
			}
			return ErrOtherAuthority
		},
	}
}

// ErrOtherAuthority is when a server's certificate is not signed by the authority that is expected.
var ErrOtherAuthority = errors.New("the server's certificate is not signed by the expected authority")
