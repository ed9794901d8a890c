package coreapi

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

// eventLifetime is kube-apiserver's --event-ttl.
const eventLifetime = time.Hour

// groups is the table of everything that is served here, in the order in which clients should prefer the groups. The file
// of a kind says everything about it; a new kind is a new file.
//
// What may be created by PUT, and what may be replaced without a resourceVersion, is upstream's choice per kind:
// clients have come to rely on both.
func groups() []group {
	return []group{
		coreGroup(),
		apiregistrationGroup(),
		eventsGroup(),
		authenticationGroup(),
		authorizationGroup(),
		rbacGroup(),
		admissionregistrationGroup(),
		coordinationGroup(),
		discoveryGroup(),
		flowcontrolGroup(),
		appsGroup(),
		autoscalingGroup(),
		autoscalingV1Group(),
		batchGroup(),
		certificatesGroup(),
		networkingGroup(),
		policyGroup(),
		storageGroup(),
		schedulingGroup(),
		nodeGroup(),
	}
}

func coreGroup() group {
	return group{
		version: corev1.SchemeGroupVersion, addToScheme: corev1.AddToScheme, resources: []resource{namespaceResource(), configMapResource(), secretResource(), serviceAccountResource(), serviceResource(), endpointsResource(), eventResource(), nodeResource(), podResource(), persistentVolumeResource(), persistentVolumeClaimResource(), limitRangeResource(), resourceQuotaResource(), podTemplateResource(), replicationControllerResource()},
		transient: []runtime.Object{&corev1.ComponentStatus{}, &corev1.ComponentStatusList{}, &corev1.Binding{}},
	}
}

func apiregistrationGroup() group {
	return group{version: apiregistrationv1.SchemeGroupVersion, addToScheme: apiregistrationv1.AddToScheme, resources: []resource{apiServiceResource()}}
}

func eventsGroup() group {
	return group{version: eventsv1.SchemeGroupVersion, addToScheme: eventsv1.AddToScheme, register: addEventConversions}
}

func authenticationGroup() group {
	return group{
		version: authenticationv1.SchemeGroupVersion, addToScheme: authenticationv1.AddToScheme,
		transient: []runtime.Object{&authenticationv1.TokenReview{}, &authenticationv1.SelfSubjectReview{}, &authenticationv1.TokenRequest{}},
	}
}

func authorizationGroup() group {
	return group{
		version: authorizationv1.SchemeGroupVersion, addToScheme: authorizationv1.AddToScheme,
		transient: []runtime.Object{
			&authorizationv1.SubjectAccessReview{}, &authorizationv1.LocalSubjectAccessReview{},
			&authorizationv1.SelfSubjectAccessReview{}, &authorizationv1.SelfSubjectRulesReview{},
		},
	}
}

func rbacGroup() group {
	return group{version: rbacv1.SchemeGroupVersion, addToScheme: rbacv1.AddToScheme, resources: []resource{clusterRoleResource(), clusterRoleBindingResource(), roleResource(), roleBindingResource()}}
}

func admissionregistrationGroup() group {
	return group{version: admissionregistrationv1.SchemeGroupVersion, addToScheme: admissionregistrationv1.AddToScheme, resources: []resource{validatingWebhookConfigurationResource(), mutatingWebhookConfigurationResource(), validatingAdmissionPolicyResource(), validatingAdmissionPolicyBindingResource(), mutatingAdmissionPolicyResource(), mutatingAdmissionPolicyBindingResource()}}
}

func leaseResource() resource {
	return resource{
		name: "leases", singular: "lease", object: &coordinationv1.Lease{}, list: &coordinationv1.LeaseList{},
		rules:   validate.Same(validate.ValidateLease),
		columns: columns.LeaseColumns,
		cached:  true, createOnUpdate: true, prepareCreate: func(obj runtime.Object) { uncoordinated(obj, nil) }, prepareUpdate: uncoordinated,
	}
}

func coordinationGroup() group {
	return group{version: coordinationv1.SchemeGroupVersion, addToScheme: coordinationv1.AddToScheme, resources: []resource{leaseResource()}}
}

func endpointSliceResource() resource {
	return resource{
		name: "endpointslices", singular: "endpointslice", object: &discoveryv1.EndpointSlice{}, list: &discoveryv1.EndpointSliceList{},
		rules:    validate.Changing(validate.ValidateEndpointSlice, validate.ValidateEndpointSliceUpdate),
		defaults: defaults.Of(defaults.DefaultEndpointSlice),
		columns:  columns.EndpointSliceColumns,
		cached:   true, blindUpdate: true, generations: true, sameContent: sameEndpoints,
	}
}

func discoveryGroup() group {
	return group{version: discoveryv1.SchemeGroupVersion, addToScheme: discoveryv1.AddToScheme, resources: []resource{endpointSliceResource()}}
}

func flowcontrolGroup() group {
	return group{version: flowcontrolv1.SchemeGroupVersion, addToScheme: flowcontrolv1.AddToScheme, resources: []resource{flowSchemaResource(), priorityLevelConfigurationResource()}}
}

func appsGroup() group {
	return group{version: appsv1.SchemeGroupVersion, addToScheme: appsv1.AddToScheme, resources: []resource{deploymentResource(), replicaSetResource(), statefulSetResource(), daemonSetResource(), controllerRevisionResource()}}
}

func autoscalingGroup() group {
	return group{version: autoscalingv2.SchemeGroupVersion, addToScheme: autoscalingv2.AddToScheme, resources: []resource{horizontalPodAutoscalerResource()}}
}

func autoscalingV1Group() group {
	return group{ // shows the objects of v2: workloads.go
		version: autoscalingv1.SchemeGroupVersion, addToScheme: autoscalingv1.AddToScheme, register: addAutoscalerConversions, transient: []runtime.Object{&autoscalingv1.Scale{}},
	}
}

func batchGroup() group {
	return group{version: batchv1.SchemeGroupVersion, addToScheme: batchv1.AddToScheme, resources: []resource{jobResource(), cronJobResource()}}
}

func certificatesGroup() group {
	return group{version: certificatesv1.SchemeGroupVersion, addToScheme: certificatesv1.AddToScheme, resources: []resource{certificateSigningRequestResource(), clusterTrustBundleResource(), podCertificateRequestResource()}}
}

func networkingGroup() group {
	return group{version: networkingv1.SchemeGroupVersion, addToScheme: networkingv1.AddToScheme, resources: []resource{ingressResource(), ingressClassResource(), networkPolicyResource(), ipAddressResource(), serviceCIDRResource()}}
}

func policyGroup() group {
	return group{
		version: policyv1.SchemeGroupVersion, addToScheme: policyv1.AddToScheme, resources: []resource{podDisruptionBudgetResource()},
		transient: []runtime.Object{&policyv1.Eviction{}},
	}
}

func storageGroup() group {
	return group{version: storagev1.SchemeGroupVersion, addToScheme: storagev1.AddToScheme, resources: []resource{storageClassResource(), volumeAttachmentResource(), csiDriverResource(), csiNodeResource(), csiStorageCapacityResource(), volumeAttributesClassResource()}}
}

func schedulingGroup() group {
	return group{version: schedulingv1.SchemeGroupVersion, addToScheme: schedulingv1.AddToScheme, resources: []resource{priorityClassResource()}}
}

func nodeGroup() group {
	return group{version: nodev1.SchemeGroupVersion, addToScheme: nodev1.AddToScheme, resources: []resource{runtimeClassResource()}}
}
