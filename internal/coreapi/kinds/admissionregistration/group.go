// Package admissionregistration defines the kinds of the API group admissionregistration.k8s.io, one per file.
package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: admissionregistrationv1.SchemeGroupVersion, AddToScheme: admissionregistrationv1.AddToScheme, Priority: 17400,
		Required: "admission reads its webhooks and policies",
		Resources: []registry.Resource{
			validatingWebhookConfigurationResource(), mutatingWebhookConfigurationResource(),
			validatingAdmissionPolicyResource(), validatingAdmissionPolicyBindingResource(),
			mutatingAdmissionPolicyResource(), mutatingAdmissionPolicyBindingResource(),
		},
	}
}
