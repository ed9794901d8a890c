package credential

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	asn1util "k8s.io/apimachinery/pkg/apis/asn1"
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

// uidAttribute is the attribute of a subject that is the user's UID, kube-apiserver's.
var uidAttribute = asn1util.X509UID()

// certificateUID returns the UID that a leaf states, empty for none. One that can be read in two ways is refused.
func certificateUID(leaf *x509.Certificate) (string, error) {
	var uids []string
	for _, attribute := range leaf.Subject.Names {
		if !attribute.Type.Equal(uidAttribute) {
			continue
		}
		uid, ok := attribute.Value.(string)
		if !ok {
			return "", errors.New("unable to parse UID into a string")
		}
		uids = append(uids, uid)
	}
	switch {
	case len(uids) == 0:
		return "", nil
	case len(uids) > 1:
		return "", fmt.Errorf("expected 1 UID, but found multiple: %v", uids)
	case uids[0] == "":
		return "", errors.New("UID cannot be an empty string")
	}
	return uids[0], nil
}

// certificateUser is the identity that a verified leaf states: its common name, in the groups of its organizations, with
// the UID that it has.
func certificateUser(leaf *x509.Certificate) (user.Info, error) {
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the client certificate has no common name, so it names nobody")
	}
	uid, err := certificateUID(leaf)
	if err != nil {
		return nil, fmt.Errorf("the client certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	sum := sha256.Sum256(leaf.Raw)
	return &user.DefaultInfo{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: slices.Clone(leaf.Subject.Organization),
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}
