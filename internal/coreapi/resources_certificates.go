package coreapi

import certificatesv1 "k8s.io/api/certificates/v1"

func certificatesResources() []resource {
	return []resource{
		{
			name: "certificatesigningrequests", singular: "certificatesigningrequest", shortNames: []string{"csr"}, clusterScoped: true,
			object: &certificatesv1.CertificateSigningRequest{}, list: &certificatesv1.CertificateSigningRequestList{}, blindUpdate: true,
			spec: specOf(func(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequestSpec {
				return &o.Spec
			}),
			status: statusOf(func(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequestStatus {
				return &o.Status
			}), statusMeta: true,
			specOnce: true, stamp: stampRequester,
		},
		{
			name: "clustertrustbundles", singular: "clustertrustbundle", clusterScoped: true,
			object: &certificatesv1.ClusterTrustBundle{}, list: &certificatesv1.ClusterTrustBundleList{},
		},
		{
			name: "podcertificaterequests", singular: "podcertificaterequest",
			object: &certificatesv1.PodCertificateRequest{}, list: &certificatesv1.PodCertificateRequestList{},
			spec: specOf(func(o *certificatesv1.PodCertificateRequest) *certificatesv1.PodCertificateRequestSpec {
				return &o.Spec
			}),
			status: statusOf(func(o *certificatesv1.PodCertificateRequest) *certificatesv1.PodCertificateRequestStatus {
				return &o.Status
			}),
		},
	}
}
