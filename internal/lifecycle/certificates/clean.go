package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"

	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/lifecycle/reconcile"
	"portico.dev/internal/run"
)

// Retention times of requests and the interval between cleanups, as in kube-controller-manager.
const (
	cleanInterval = time.Hour
	keptDecided   = time.Hour
	keptPending   = 24 * time.Hour
)

// RunCleaner deletes old requests until ctx ends: an hour after they were signed, denied or failed, a day after their creation
// if no decision was made, a day after their approval if they were not signed, and when their certificate has expired.
func RunCleaner(ctx context.Context, c Config) error {
	for c.Election.Wait(ctx) {
		now := time.Now()
		for _, obj := range c.Informer.GetStore().List() {
			r, ok := obj.(*certificatesv1.CertificateSigningRequest)
			if !ok || ctx.Err() != nil {
				continue
			}
			why := outdated(r, now)
			if why == "" {
				continue
			}
			err := c.Requests.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
			if err = reconcile.Ignoring(err, reconcile.IsOutdated); err != nil {
				c.Logger.Warn("failed to delete an old CertificateSigningRequest", zap.String("name", r.Name), zap.Error(err))
				continue
			}
			c.Logger.Info("deleted an old CertificateSigningRequest", zap.String("name", r.Name), zap.String("reason", why))
		}
		if !run.Pause(ctx, cleanInterval) {
			break
		}
	}
	return nil
}

// outdated returns the reason why a request is no longer needed, or "" if it is.
func outdated(r *certificatesv1.CertificateSigningRequest, now time.Time) string {
	older := func(t metav1.Time, age time.Duration) bool { return !t.IsZero() && now.Sub(t.Time) > age }
	said := func(kind certificatesv1.RequestConditionType, age time.Duration) bool {
		return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == kind && older(c.LastUpdateTime, age)
		})
	}
	issued := len(r.Status.Certificate) > 0
	switch {
	case issued && said(certificatesv1.CertificateApproved, keptDecided):
		return "it was signed long ago"
	case said(certificatesv1.CertificateDenied, keptDecided):
		return "it was denied long ago"
	case said(certificatesv1.CertificateFailed, keptDecided):
		return "it failed long ago"
	case len(r.Status.Conditions) == 0 && older(r.CreationTimestamp, keptPending):
		return "nobody has decided about it"
	case issued && hasCondition(r, certificatesv1.CertificateApproved) && expired(r.Status.Certificate, now):
		return "its certificate has expired"
	case !issued && said(certificatesv1.CertificateApproved, keptPending):
		return "it was approved long ago, and nobody has signed it"
	}
	return ""
}

func expired(certificate []byte, now time.Time) bool {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return false
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.After(parsed.NotAfter)
}
