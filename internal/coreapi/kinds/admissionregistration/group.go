// Package admissionregistration has the kinds of admissionregistration.k8s.io, a file for each.
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
