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

// forms are what each signer accepts.
var forms = map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error{
	certificatesv1.KubeletServingSignerName:             checkKubeletServing,
	certificatesv1.KubeAPIServerClientKubeletSignerName: checkKubeletClient,
	certificatesv1.KubeAPIServerClientSignerName:        checkClient,
}

// CheckAuthority returns why a certificate and its key cannot sign: they must be of one CA.
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

// RunSigners signs approved requests until ctx ends. A request that its signer does not accept gets the condition Failed. longest is
// how long certificates are valid that do not say; who asks for less gets less.
func RunSigners(ctx context.Context, c Config, signers []Signer, longest time.Duration) error {
	return c.follow(ctx, "certificatesigningrequest-signing", func(ctx context.Context, r *certificatesv1.CertificateSigningRequest) (time.Duration, error) {
		if !has(r, certificatesv1.CertificateApproved) || has(r, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed) {
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
	// backdate is how far certificates begin in the past: clocks differ.
	backdate = 5 * time.Minute
	// shortLived certificates do not end earlier for it.
	shortLived = 8 * time.Hour
	// leastValidity is what who asks for less gets.
	leastValidity = 2 * backdate
)

// validity is what is asked for, within bounds.
func validity(seconds *int32, longest time.Duration) time.Duration {
	if seconds == nil {
		return longest
	}
	return min(longest, max(leastValidity, time.Duration(*seconds)*time.Second))
}

// serialNumbers is one more than the greatest serial number.
var serialNumbers = new(big.Int).Lsh(big.NewInt(1), 128)

// sign returns a certificate with the subject, names and key of the request, and the usages that were approved. Extensions that the
// request has, such as being a CA, are left out. It ends no later than its authority.
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

// usagesOf are usages in the words of x509. The signers accept no others than these.
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
