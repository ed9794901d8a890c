package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// ServerConfig returns the TLS configuration of servers: TLS 1.2 or later, only forward secrecy and AEAD, HTTP/2 and
// HTTP/1.1.
//
// Client certificates are requested but not verified here. Authentication verifies them on every request against the
// current authorities. Session tickets are disabled, so that no handshake can omit the certificate.
func ServerConfig(cert *KeyPair) *tls.Config { return ServerConfigFor(cert.GetCertificate) }

// ServerConfigFor is like ServerConfig with a function that returns the certificate.
func ServerConfigFor(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		GetCertificate:         certificate,
		ClientAuth:             tls.RequestClientCert,
		MinVersion:             tls.VersionTLS12,
		CipherSuites:           aeadSuites(),
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		// Small records would cost a system call each, and most responses are written at once.
		DynamicRecordSizingDisabled: true,
	}
}

// MutualServerConfig returns the TLS configuration of servers for internal clients, which must present a certificate
// of one of authorities.
func MutualServerConfig(cert *KeyPair, authorities *x509.CertPool) *tls.Config {
	c := ServerConfig(cert)
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, authorities
	return c
}

// Restrict applies an operator's restrictions to a server's TLS configuration: a minimum version (VersionTLS12,
// VersionTLS13), and names of TLS 1.2 cipher suites. Unsafe suites are refused.
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

// ClientOptions configure TLS clients.
type ClientOptions struct {
	// ServerName is the required name in the server's certificate, independent of the dialed address.
	ServerName string
	// Roots is a PEM bundle with the roots of the server's certificate. If nil, the system's roots are used.
	Roots []byte
	// Pool contains the parsed Roots. May be nil.
	Pool *x509.CertPool
	// Insecure accepts any certificate. It is required for APIServices with insecureSkipTLSVerify.
	Insecure bool
	// Certificate is the client certificate. May be nil.
	Certificate *KeyPair
	// HTTP1Only offers only HTTP/1.1, for upgrades.
	HTTP1Only bool
}

// ClientConfig returns the TLS configuration of clients. It returns an error if Roots cannot be parsed.
func ClientConfig(o ClientOptions) (*tls.Config, error) {
	c := &tls.Config{
		ServerName:         o.ServerName,
		MinVersion:         tls.VersionTLS12,
		CipherSuites:       clientSuites,
		NextProtos:         clientProtocols,
		InsecureSkipVerify: o.Insecure, // set only by insecureSkipTLSVerify, which is reported by a condition and a metric
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

// Shared by all clients; crypto/tls does not modify them.
var (
	clientSuites    = aeadSuites()
	clientProtocols = []string{"h2", "http/1.1"}
)

// aeadSuites returns the TLS 1.2 suites with forward secrecy and authenticated encryption. All TLS 1.3 suites have
// both.
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

// PinnedClientConfig returns the configuration of a client that accepts servers by their certificate only, using
// accept. No authority is involved.
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

// SPKIHash returns the SHA-256 of a certificate's public key, like kubeadm's --discovery-token-ca-cert-hash.
func SPKIHash(c *x509.Certificate) [sha256.Size]byte { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// AuthorityPinnedConfig returns a TLS 1.3 configuration for a client that knows only the hash of an authority's
// public key. The server must present a certificate for serverName followed by the authority that signed it.
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

// ErrOtherAuthority means that a server's certificate is not signed by the expected authority.
var ErrOtherAuthority = errors.New("the server's certificate is not signed by the expected authority")
