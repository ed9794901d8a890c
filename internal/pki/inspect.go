package pki

import (
	"crypto/tls"
	"crypto/x509"
)

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
