// Package admissionregistration has the kinds of the group of admissionregistration: a file for each, which says everything about it.
package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: admissionregistrationv1.SchemeGroupVersion, AddToScheme: admissionregistrationv1.AddToScheme, Resources: []registry.Resource{validatingWebhookConfigurationResource(), mutatingWebhookConfigurationResource(), validatingAdmissionPolicyResource(), validatingAdmissionPolicyBindingResource(), mutatingAdmissionPolicyResource(), mutatingAdmissionPolicyBindingResource()}}
}
