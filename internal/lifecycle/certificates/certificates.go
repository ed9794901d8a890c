// Package certificates contains kube-controller-manager's controllers for CertificateSigningRequests. They approve requests
// that kubelets make for themselves, sign approved requests, and delete old ones.
//
// # Trust
//
// The signers check that a request has the form required by its signer. They do not check whether its author may use the
// requested name: the approver decides that. The approver of this package decides about client certificates of nodes only,
// based on the RBAC permissions of the author (create certificatesigningrequests/nodeclient and /selfnodeclient). Serving
// certificates of kubelets require an approver that knows the addresses of the nodes (attack row B17).
package certificates

//lint:file-ignore ST1005 the errors are kube-controller-manager's, which a failed request shows

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
	"portico.dev/internal/request"
)

// Requests writes CertificateSigningRequests, as the typed client does.
type Requests interface {
	UpdateApproval(ctx context.Context, name string, r *certificatesv1.CertificateSigningRequest, o metav1.UpdateOptions) (*certificatesv1.CertificateSigningRequest, error)
	UpdateStatus(ctx context.Context, r *certificatesv1.CertificateSigningRequest, o metav1.UpdateOptions) (*certificatesv1.CertificateSigningRequest, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// Config configures the controllers. Every field is required.
type Config struct {
	// Client creates SubjectAccessReviews.
	Client   clients.Interface
	Requests Requests
	// Informer caches CertificateSigningRequests. It is shared with the rest of the server, which runs it.
	Informer cache.SharedIndexInformer
	Election reconcile.Election
	Logger   *zap.Logger
}

// workers is the number of requests decided or signed concurrently, as in kube-controller-manager.
const workers = 5

// follow calls do with a copy of each changed request that has no certificate, until ctx ends.
func (c *Config) follow(ctx context.Context, name string, do func(context.Context, *certificatesv1.CertificateSigningRequest) (again time.Duration, err error)) error {
	l := &reconcile.Loop{
		Name: name, Workers: workers, Election: c.Election, Log: c.Logger,
		Reconcile: func(ctx context.Context, name string) (time.Duration, error) {
			obj, exists, err := c.Informer.GetStore().GetByKey(name)
			if !exists || err != nil {
				return 0, err
			}
			r, ok := obj.(*certificatesv1.CertificateSigningRequest)
			if !ok || len(r.Status.Certificate) > 0 {
				return 0, nil
			}
			again, err := do(ctx, r.DeepCopy())
			return again, reconcile.Ignoring(err, reconcile.IsOutdated)
		},
	}
	return l.Run(ctx, reconcile.Source{Informer: c.Informer, Key: reconcile.NameOf})
}

func hasCondition(r *certificatesv1.CertificateSigningRequest, kinds ...certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return slices.Contains(kinds, c.Type)
	})
}

// askAgain is the delay before a request whose author lacks the permission is checked again. The permission may be granted
// later, without a notification.
const askAgain = 30 * time.Second

// RunApprover approves client certificates that kubelets request, until ctx ends. It leaves a request unchanged if the author
// lacks the permission, because another approver may approve it.
func RunApprover(ctx context.Context, c Config) error {
	return c.follow(ctx, "certificatesigningrequest-approving", func(ctx context.Context, r *certificatesv1.CertificateSigningRequest) (time.Duration, error) {
		if hasCondition(r, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied) {
			return 0, nil
		}
		requested, err := parse(r)
		if err != nil {
			return 0, err
		}
		rights := rightsFor(r, requested)
		for _, right := range rights {
			allowed, err := c.may(ctx, r, right.subresource)
			if err != nil {
				return 0, err
			}
			if !allowed {
				continue
			}
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: right.message,
			})
			_, err = c.Requests.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
			return 0, err
		}
		if len(rights) > 0 {
			return askAgain, nil
		}
		return 0, nil
	})
}

// right is a permission of the author that allows the approval of a request.
type right struct{ subresource, message string }

// rightsFor returns the permissions of which the author needs one. It returns none if the request is not for a client
// certificate of a kubelet.
func rightsFor(r *certificatesv1.CertificateSigningRequest, requested *x509.CertificateRequest) []right {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || checkKubeletClient(requested, r.Spec.Usages) != nil {
		return nil
	}
	everybody := right{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."}
	if r.Spec.Username == requested.Subject.CommonName {
		return []right{{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."}, everybody}
	}
	return []right{everybody}
}

// may reports whether the author of a request is allowed to have it approved.
func (c *Config) may(ctx context.Context, r *certificatesv1.CertificateSigningRequest, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range r.Spec.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: r.Spec.Username, UID: r.Spec.UID, Groups: r.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Subresource: subresource, Verb: "create",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may have certificatesigningrequest %s approved: %w", r.Spec.Username, r.Name, err)
	}
	return answer.Status.Allowed, nil
}

func parse(r *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("certificatesigningrequest %s: PEM block type must be CERTIFICATE REQUEST", r.Name)
	}
	requested, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificatesigningrequest %s: %w", r.Name, err)
	}
	return requested, nil
}

// The following functions check requests for each signer. Their errors equal kube-controller-manager's, because a failed
// request shows them.

func checkKubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{"system:nodes"}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames) == 0 && len(r.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !kubeletUsages(usages, certificatesv1.UsageServerAuth):
		return errors.New("usages did not match [digital signature key encipherment server auth]")
	case !strings.HasPrefix(r.Subject.CommonName, request.NodeUserPrefix):
		return errors.New("subject common name does not begin with system:node:")
	}
	return nil
}

func checkKubeletClient(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{"system:nodes"}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(r.Subject.CommonName, request.NodeUserPrefix):
		return errors.New("subject common name does not begin with system:node:")
	case !kubeletUsages(usages, certificatesv1.UsageClientAuth):
		return errors.New("usages did not match [client auth digital signature key encipherment]")
	}
	return nil
}

// kubeletUsages reports whether usages consist of a digital signature and auth, and optionally key encipherment, which RSA keys
// need.
func kubeletUsages(usages []certificatesv1.KeyUsage, auth certificatesv1.KeyUsage) bool {
	required := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, auth}
	for _, usage := range usages {
		if usage != certificatesv1.UsageKeyEncipherment && !slices.Contains(required, usage) {
			return false
		}
	}
	return slices.Contains(usages, required[0]) && slices.Contains(usages, required[1])
}

func checkClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", usage)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}
