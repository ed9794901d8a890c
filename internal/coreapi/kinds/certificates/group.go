// Package certificates defines the kinds of the API group certificates.k8s.io, one per file.
package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: certificatesv1.SchemeGroupVersion, AddToScheme: certificatesv1.AddToScheme, Priority: 16700,
		Resources: []registry.Resource{
			certificateSigningRequestResource(), clusterTrustBundleResource(),
			podCertificateRequestResource(),
		},
	}
}
