package credential

import (
	"bytes"
	"crypto/x509"
)

// overlap is a certificate of clients that makes some client's certificate good for the front-proxy CA as well, or
// nil. Besides the certificates that both hold, it finds what amounts to the same: a key that both hold under other
// names, and an authority of one that was signed by the other, so that any of its clients can present the cross-signed
// certificate as an intermediate (attack row A12 d).
func overlap(clients, proxies []*x509.Certificate) *x509.Certificate {
	for _, c := range clients {
		for _, p := range proxies {
			// Signatures, not chains: an authority that has expired here may have a valid twin at the client.
			if bytes.Equal(c.RawSubjectPublicKeyInfo, p.RawSubjectPublicKeyInfo) || c.CheckSignatureFrom(p) == nil {
				return c
			}
		}
	}
	return nil
}
