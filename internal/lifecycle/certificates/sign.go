package certificates

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/pki"
)

// Signer signs approved requests of one signer name.
type Signer struct {
	Name string
	// Authority is the CA certificate and its key. It may change.
	Authority *pki.KeyPair
}

// forms maps each signer name to the check of its requests.
var forms = map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error{
	certificatesv1.KubeletServingSignerName:             checkKubeletServing,
	certificatesv1.KubeAPIServerClientKubeletSignerName: checkKubeletClient,
	certificatesv1.KubeAPIServerClientSignerName:        checkClient,
}

// CheckAuthority returns an error if the certificate and key cannot sign. They must belong to the same CA.
func CheckAuthority(pair *pki.KeyPair) error {
	_, _, err := authority(pair)
	return err
}

func authority(pair *pki.KeyPair) (*x509.Certificate, crypto.Signer, error) {
	current, err := pair.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return nil, nil, err
	}
	key, signs := current.PrivateKey.(crypto.Signer)
	switch {
	case len(current.Certificate) != 1:
		return nil, nil, fmt.Errorf("expected 1 certificate, found %d", len(current.Certificate))
	case !pki.CanSign(current.Leaf):
		return nil, nil, fmt.Errorf("the certificate of %s is not one of a CA", current.Leaf.Subject)
	case !signs:
		return nil, nil, errors.New("the key cannot sign")
	}
	return current.Leaf, key, nil
}

// RunSigners signs approved requests until ctx ends. A request that its signer rejects gets the condition Failed. Certificates
// are valid for longest, or for a shorter time if the request specifies one.
func RunSigners(ctx context.Context, c Config, signers []Signer, longest time.Duration) error {
	return c.follow(ctx, "certificatesigningrequest-signing", func(ctx context.Context, r *certificatesv1.CertificateSigningRequest) (time.Duration, error) {
		if !hasCondition(r, certificatesv1.CertificateApproved) || hasCondition(r, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed) {
			return 0, nil
		}
		at := slices.IndexFunc(signers, func(s Signer) bool { return s.Name == r.Spec.SignerName })
		if at < 0 {
			return 0, nil
		}
		requested, err := parse(r)
		if err != nil {
			return 0, err
		}
		if invalid := forms[r.Spec.SignerName](requested, r.Spec.Usages); invalid != nil {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: invalid.Error(),
				LastUpdateTime: metav1.Now(),
			})
		} else if r.Status.Certificate, err = sign(signers[at].Authority, requested, r.Spec.Usages, validity(r.Spec.ExpirationSeconds, longest), time.Now()); err != nil {
			return 0, fmt.Errorf("sign certificatesigningrequest %s: %w", r.Name, err)
		}
		_, err = c.Requests.UpdateStatus(ctx, r, metav1.UpdateOptions{})
		return 0, err
	})
}

const (
	// backdate is how far NotBefore lies in the past, to tolerate clock skew.
	backdate = 5 * time.Minute
	// shortLived is the lifetime up to which backdating does not shorten the validity.
	shortLived = 8 * time.Hour
	// leastValidity is the minimum lifetime of a certificate, even if the request specifies less.
	leastValidity = 2 * backdate
)

// validity returns the requested lifetime, limited to the range from leastValidity to longest.
func validity(seconds *int32, longest time.Duration) time.Duration {
	if seconds == nil {
		return longest
	}
	return min(longest, max(leastValidity, time.Duration(*seconds)*time.Second))
}

// serialNumbers is the exclusive upper bound of serial numbers.
var serialNumbers = new(big.Int).Lsh(big.NewInt(1), 128)

// sign returns a certificate with the subject, names and key of the request and the approved usages. It ignores extensions in
// the request, such as basic constraints that make a CA. The certificate expires no later than its CA.
func sign(by *pki.KeyPair, r *x509.CertificateRequest, usages []certificatesv1.KeyUsage, lifetime time.Duration, now time.Time) ([]byte, error) {
	ca, key, err := authority(by)
	if err != nil {
		return nil, err
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request is not signed by the key that it is for: %w", err)
	}
	if !now.Before(ca.NotAfter) {
		return nil, fmt.Errorf("the certificate of the CA has expired, at %v", ca.NotAfter)
	}
	serial, err := rand.Int(rand.Reader, serialNumbers)
	if err != nil {
		return nil, err
	}
	if lifetime >= shortLived {
		lifetime -= backdate
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: r.Subject, DNSNames: r.DNSNames, IPAddresses: r.IPAddresses, EmailAddresses: r.EmailAddresses, URIs: r.URIs,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime), BasicConstraintsValid: true,
	}
	if ca.NotAfter.Before(template.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	if template.KeyUsage, template.ExtKeyUsage, err = usagesOf(usages); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, r.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// usagesOf converts usages to those of crypto/x509. The signers accept no other usages.
func usagesOf(usages []certificatesv1.KeyUsage) (key x509.KeyUsage, extended []x509.ExtKeyUsage, err error) {
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature:
			key |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			key |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageServerAuth:
			extended = append(extended, x509.ExtKeyUsageServerAuth)
		case certificatesv1.UsageClientAuth:
			extended = append(extended, x509.ExtKeyUsageClientAuth)
		default:
			return 0, nil, fmt.Errorf("unrecognized usage values: %q", []certificatesv1.KeyUsage{usage})
		}
	}
	return key, extended, nil
}
