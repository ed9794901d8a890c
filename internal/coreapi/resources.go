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

// groups is the table of everything that is served here. A new kind is a new entry.
//
// What may be created by PUT, and what may be replaced without a resourceVersion, is upstream's choice per kind:
// clients have come to rely on both.
func groups() []group {
	return []group{
		{
			version: corev1.SchemeGroupVersion, addToScheme: corev1.AddToScheme, resources: coreResources(),
			transient: []runtime.Object{&corev1.ComponentStatus{}, &corev1.ComponentStatusList{}, &corev1.Binding{}},
		},
		{version: apiregistrationv1.SchemeGroupVersion, addToScheme: apiregistrationv1.AddToScheme, resources: registrationResources()},
		{version: eventsv1.SchemeGroupVersion, addToScheme: eventsv1.AddToScheme, register: addEventConversions}, // shows core's Events: install.go
		{
			version: authenticationv1.SchemeGroupVersion, addToScheme: authenticationv1.AddToScheme,
			transient: []runtime.Object{&authenticationv1.TokenReview{}, &authenticationv1.SelfSubjectReview{}, &authenticationv1.TokenRequest{}},
		},
		{
			version: authorizationv1.SchemeGroupVersion, addToScheme: authorizationv1.AddToScheme,
			transient: []runtime.Object{
				&authorizationv1.SubjectAccessReview{}, &authorizationv1.LocalSubjectAccessReview{},
				&authorizationv1.SelfSubjectAccessReview{}, &authorizationv1.SelfSubjectRulesReview{},
			},
		},
		{version: rbacv1.SchemeGroupVersion, addToScheme: rbacv1.AddToScheme, resources: rbacResources()},
		{version: admissionregistrationv1.SchemeGroupVersion, addToScheme: admissionregistrationv1.AddToScheme, resources: admissionResources()},
		{version: coordinationv1.SchemeGroupVersion, addToScheme: coordinationv1.AddToScheme, resources: []resource{{
			name: "leases", singular: "lease", object: &coordinationv1.Lease{}, list: &coordinationv1.LeaseList{},
			rules:   validate.Same(validate.ValidateLease),
			columns: columns.LeaseColumns,
			cached:  true, createOnUpdate: true, prepareCreate: func(obj runtime.Object) { uncoordinated(obj, nil) }, prepareUpdate: uncoordinated,
		}}},
		{version: discoveryv1.SchemeGroupVersion, addToScheme: discoveryv1.AddToScheme, resources: []resource{{
			name: "endpointslices", singular: "endpointslice", object: &discoveryv1.EndpointSlice{}, list: &discoveryv1.EndpointSliceList{},
			rules:    validate.Changing(validate.ValidateEndpointSlice, validate.ValidateEndpointSliceUpdate),
			defaults: defaults.Of(defaults.DefaultEndpointSlice),
			columns:  columns.EndpointSliceColumns,
			cached:   true, blindUpdate: true, generations: true, sameContent: sameEndpoints,
		}}},
		{version: flowcontrolv1.SchemeGroupVersion, addToScheme: flowcontrolv1.AddToScheme, resources: flowResources()},
		{version: appsv1.SchemeGroupVersion, addToScheme: appsv1.AddToScheme, resources: appsResources()},
		{version: autoscalingv2.SchemeGroupVersion, addToScheme: autoscalingv2.AddToScheme, resources: autoscalingResources()},
		{ // shows the objects of v2: workloads.go
			version: autoscalingv1.SchemeGroupVersion, addToScheme: autoscalingv1.AddToScheme, register: addAutoscalerConversions, transient: []runtime.Object{&autoscalingv1.Scale{}},
		},
		{version: batchv1.SchemeGroupVersion, addToScheme: batchv1.AddToScheme, resources: batchResources()},
		{version: certificatesv1.SchemeGroupVersion, addToScheme: certificatesv1.AddToScheme, resources: certificatesResources()},
		{version: networkingv1.SchemeGroupVersion, addToScheme: networkingv1.AddToScheme, resources: networkingResources()},
		{
			version: policyv1.SchemeGroupVersion, addToScheme: policyv1.AddToScheme, resources: policyResources(),
			transient: []runtime.Object{&policyv1.Eviction{}},
		},
		{version: storagev1.SchemeGroupVersion, addToScheme: storagev1.AddToScheme, resources: storageResources()},
		{version: schedulingv1.SchemeGroupVersion, addToScheme: schedulingv1.AddToScheme, resources: schedulingResources()},
		{version: nodev1.SchemeGroupVersion, addToScheme: nodev1.AddToScheme, resources: nodeResources()},
	}
}
