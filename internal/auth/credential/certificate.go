package credential

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Bounds of a client's chain. Verification is quadratic at worst, and name constraints make it worse (attack row B10:
// CVE-2025-58187, CVE-2025-61729); a real chain is a tenth of this.
const (
	maxChainBytes        = 16 << 10
	maxChainCertificates = 8
)

func checkChain(chain []*x509.Certificate) error {
	if len(chain) > maxChainCertificates {
		return fmt.Errorf("the client certificate chain has %d certificates; at most %d are looked at", len(chain), maxChainCertificates)
	}
	size := 0
	for _, c := range chain {
		size += len(c.Raw)
	}
	if size > maxChainBytes {
		return fmt.Errorf("the client certificate chain has %d bytes; at most %d are looked at", size, maxChainBytes)
	}
	return nil
}

// certificateUser is the identity that a verified leaf states: its common name, in the groups of its organizations.
func certificateUser(leaf *x509.Certificate) (user.Info, error) {
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the client certificate has no common name, so it names nobody")
	}
	sum := sha256.Sum256(leaf.Raw)
	return &user.DefaultInfo{
		Name:   leaf.Subject.CommonName,
		Groups: slices.Clone(leaf.Subject.Organization),
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}
