package coreapi

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

func certificateSigningRequestResource() resource {
	return resource{
		name: "certificatesigningrequests", singular: "certificatesigningrequest", shortNames: []string{"csr"}, clusterScoped: true,
		object: &certificatesv1.CertificateSigningRequest{}, list: &certificatesv1.CertificateSigningRequestList{}, blindUpdate: true,
		rules:   validate.Full(validate.ValidateCertificateSigningRequest, validate.ValidateCertificateSigningRequestUpdate, validate.ValidateCertificateSigningRequestStatus),
		columns: columns.CertificateSigningRequestColumns,
		fields:  selectable.CertificateSigningRequestFields(),
		spec: specOf(func(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequestSpec {
			return &o.Spec
		}),
		status: statusOf(func(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequestStatus {
			return &o.Status
		}), statusMeta: true,
		specOnce: true, stamp: stampRequester,
	}
}

func clusterTrustBundleResource() resource {
	return resource{
		name: "clustertrustbundles", singular: "clustertrustbundle", clusterScoped: true,
		object: &certificatesv1.ClusterTrustBundle{}, list: &certificatesv1.ClusterTrustBundleList{},
		rules:   validate.Changing(validate.ValidateClusterTrustBundle, validate.ValidateClusterTrustBundleUpdate),
		columns: columns.ClusterTrustBundleColumns,
		fields:  selectable.ClusterTrustBundleFields(),
	}
}

func podCertificateRequestResource() resource {
	return resource{
		name: "podcertificaterequests", singular: "podcertificaterequest",
		object: &certificatesv1.PodCertificateRequest{}, list: &certificatesv1.PodCertificateRequestList{},
		rules:    validate.Full(validate.ValidatePodCertificateRequest, validate.ValidatePodCertificateRequestUpdate, validate.ValidatePodCertificateRequestStatus),
		defaults: defaults.Of(defaults.DefaultPodCertificateRequest),
		columns:  columns.PodCertificateRequestColumns,
		fields:   selectable.PodCertificateRequestFields(),
		spec: specOf(func(o *certificatesv1.PodCertificateRequest) *certificatesv1.PodCertificateRequestSpec {
			return &o.Spec
		}),
		status: statusOf(func(o *certificatesv1.PodCertificateRequest) *certificatesv1.PodCertificateRequestStatus {
			return &o.Status
		}),
	}
}
