// Package certificates has the kinds of the group of certificates: a file for each, which says everything about it.
package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: certificatesv1.SchemeGroupVersion, AddToScheme: certificatesv1.AddToScheme, Resources: []registry.Resource{certificateSigningRequestResource(), clusterTrustBundleResource(), podCertificateRequestResource()}}
}
