// Package v1alpha1 contains the Go types of clusters.portico.dev/v1alpha1.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.portico.clusters.v1alpha1
// +groupName=clusters.portico.dev
package v1alpha1

//go:generate go tool deepcopy-gen --output-file zz_generated.deepcopy.go --go-header-file /dev/null .
//go:generate go tool openapi-gen --output-dir unused --output-pkg unused --output-file unused.go --report-filename /dev/null --output-model-name-file zz_generated.model_name.go --go-header-file /dev/null portico.dev/internal/fleet/v1alpha1
//go:generate rm -r unused
