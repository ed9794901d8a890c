package clients

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// SigningRequests writes CertificateSigningRequests. It implements only the methods that controllers use, because client-go's
// client of that group would be linked completely.
type SigningRequests struct{ client rest.Interface }

// NewSigningRequests returns a client that shares the connections and the rate limit of c.
func NewSigningRequests(c Interface) SigningRequests {
	return SigningRequests{c.CoreV1().RESTClient()}
}

const signingRequestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// UpdateApproval writes the conditions.
func (s SigningRequests) UpdateApproval(ctx context.Context, name string, r *certificatesv1.CertificateSigningRequest, o metav1.UpdateOptions) (*certificatesv1.CertificateSigningRequest, error) {
	return s.put(ctx, r, o, name, "approval")
}

// UpdateStatus writes the certificate, or the condition Failed.
func (s SigningRequests) UpdateStatus(ctx context.Context, r *certificatesv1.CertificateSigningRequest, o metav1.UpdateOptions) (*certificatesv1.CertificateSigningRequest, error) {
	return s.put(ctx, r, o, r.Name, "status")
}

func (s SigningRequests) put(ctx context.Context, r *certificatesv1.CertificateSigningRequest, o metav1.UpdateOptions, name, subresource string) (*certificatesv1.CertificateSigningRequest, error) {
	stored := &certificatesv1.CertificateSigningRequest{}
	err := s.client.Put().AbsPath(signingRequestsPath, name, subresource).VersionedParams(&o, scheme.ParameterCodec).Body(r).Do(ctx).Into(stored)
	return stored, err
}

// Delete deletes a request.
func (s SigningRequests) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return s.client.Delete().AbsPath(signingRequestsPath, name).Body(&o).Do(ctx).Error()
}
