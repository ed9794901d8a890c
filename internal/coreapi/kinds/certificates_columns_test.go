package kinds_test

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestCertificatesClusterTables(t *testing.T) {
	const spec = "spec: {signerName: example.com/s, username: jane, expirationSeconds: 86400, request: eA==}\n"
	const ofPod = "spec: {signerName: example.com/s, podName: p, serviceAccountName: s, nodeName: node-1, unverifiedUserAnnotations: {example.com/b: '2', example.com/a: '1'}}\n"
	kindtest.Table[certificatesv1.CertificateSigningRequest](t,
		"metadata: {name: pending}\nspec: {signerName: '', request: eA==}",
		"metadata: {name: approved}\n"+spec+"status: {conditions: [{type: Approved, status: 'True'}]}",
		"metadata: {name: issued}\n"+spec+"status: {certificate: eA==, conditions: [{type: Approved, status: 'True'}]}",
		"metadata: {name: denied}\n"+spec+"status: {conditions: [{type: Approved, status: 'True'}, {type: Denied, status: 'True'}]}",
		"metadata: {name: failed}\n"+spec+"status: {conditions: [{type: Approved, status: 'True'}, {type: Failed, status: 'True'}]}")
	kindtest.Table[certificatesv1.ClusterTrustBundle](t,
		"metadata: {name: a}\nspec: {trustBundle: x}", "metadata: {name: 'example.com:s:a'}\nspec: {signerName: example.com/s, trustBundle: x}")
	kindtest.Table[certificatesv1.PodCertificateRequest](t,
		"metadata: {name: pending}\n"+ofPod, "metadata: {name: issued}\n"+ofPod+"status: {conditions: [{type: Issued, status: 'True'}]}")
}
