package apiregistration

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/registry"
)

// managedLabel marks the APIServices that package apiservice registers and reverts: managedAlways at once, managedOnStart at
// server start. An APIService without the label belongs to a user.
const (
	managedLabel   = "kube-aggregator.kubernetes.io/automanaged"
	managedAlways  = "true"
	managedOnStart = "onstart"
)

// warnManaged returns the warning about an APIService that has both managedLabel and a Service, or "". atOnce reports whether
// the APIService is reverted at once, so that its Service gets no request.
func warnManaged(e *registry.Environment, a *apiregistrationv1.APIService) (text string, atOnce bool) {
	label := a.Labels[managedLabel]
	if label != managedAlways && label != managedOnStart {
		return "", false
	}
	version := schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}
	builtIn, crd := slices.Contains(e.BuiltIn, version), definitionOf(e, version.Group, version.Version)
	atOnce = label == managedAlways && !builtIn
	what, because := "makes this APIService local again", "it serves "+version.String()+" itself"
	switch {
	case builtIn:
	case crd != "":
		because = fmt.Sprintf("CustomResourceDefinition %s serves %s", crd, version)
	default:
		what, because = "deletes this APIService", "no CustomResourceDefinition serves "+version.String()
	}
	when := "at its next start"
	if atOnce {
		when = "at once"
	}
	return fmt.Sprintf("metadata.labels: with %s=%s this server %s %s, because %s; remove the label to register service %s/%s",
		managedLabel, label, what, when, because, a.Spec.Service.Namespace, a.Spec.Service.Name), atOnce
}
