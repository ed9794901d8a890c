// Package definitions holds the OpenAPI schemas of every kind that the local groups serve, generated from the Go types.
//
// Upstream ships the types and the names of their schemas, not the schemas: those live in k8s.io/kubernetes, which is not a
// library. They are needed twice: server-side apply reads them to know which lists are keyed by what, and the OpenAPI v3
// documents are made from them. The list below must hold every package that a served type reaches; a gap costs a whole
// group its document, which TestEveryReferenceIsDefined turns into a failing test instead.
package definitions

// Violations of upstream's API naming rules are in types that cannot be changed from here: they are not reported.
//go:generate go tool openapi-gen --output-dir . --output-pkg portico.dev/internal/coreapi/definitions --output-file zz_generated.openapi.go --report-filename /dev/null k8s.io/api/admissionregistration/v1 k8s.io/api/apps/v1 k8s.io/api/authentication/v1 k8s.io/api/authorization/v1 k8s.io/api/autoscaling/v1 k8s.io/api/autoscaling/v2 k8s.io/api/batch/v1 k8s.io/api/certificates/v1 k8s.io/api/coordination/v1 k8s.io/api/core/v1 k8s.io/api/discovery/v1 k8s.io/api/events/v1 k8s.io/api/flowcontrol/v1 k8s.io/api/networking/v1 k8s.io/api/node/v1 k8s.io/api/policy/v1 k8s.io/api/rbac/v1 k8s.io/api/resource/v1 k8s.io/api/scheduling/v1 k8s.io/api/scheduling/v1alpha3 k8s.io/api/storage/v1 k8s.io/api/storagemigration/v1 k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version k8s.io/kube-aggregator/pkg/apis/apiregistration/v1 portico.dev/internal/fleet/v1alpha1 portico.dev/internal/routes/v1alpha1
