// Package defaults fills in what a client may leave out of an object of the local groups, with kube-apiserver's values.
//
// k8s.io/api marks only a few of them; the others live in kube-apiserver, and objects without them break things at a
// distance: a policy without a namespace selector fails every request, a Service port without a protocol merges wrongly.
//
// Defaulting runs on everything that is decoded: what clients send, and also what is read from storage. So it must be
// idempotent and cheap, and must never allocate anything (a cluster IP, a node port) that another object could hold.
package defaults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Register adds the defaulting functions of every kind that has defaults, and of its list. ConfigMap, ServiceAccount,
// Lease, Role, ClusterRole and both kinds of Event have none.
func Register(scheme *runtime.Scheme) {
	register(scheme, namespace, &corev1.NamespaceList{})
	register(scheme, secret, &corev1.SecretList{})
	register(scheme, service, &corev1.ServiceList{})
	register(scheme, endpoints, &corev1.EndpointsList{})
	register(scheme, node, &corev1.NodeList{})
	register(scheme, pod, &corev1.PodList{})
	register(scheme, endpointSlice, &discoveryv1.EndpointSliceList{})
	register(scheme, apiService, &apiregistrationv1.APIServiceList{})
	register(scheme, roleBinding, &rbacv1.RoleBindingList{})
	register(scheme, clusterRoleBinding, &rbacv1.ClusterRoleBindingList{})
	register(scheme, flowSchema, &flowcontrolv1.FlowSchemaList{})
	register(scheme, priorityLevel, &flowcontrolv1.PriorityLevelConfigurationList{})
	register(scheme, validatingWebhooks, &admissionregistrationv1.ValidatingWebhookConfigurationList{})
	register(scheme, mutatingWebhooks, &admissionregistrationv1.MutatingWebhookConfigurationList{})
	register(scheme, validatingPolicy, &admissionregistrationv1.ValidatingAdmissionPolicyList{})
	register(scheme, validatingBinding, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{})
	register(scheme, mutatingPolicy, &admissionregistrationv1.MutatingAdmissionPolicyList{})
	register(scheme, mutatingBinding, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{})
	registerWorkloads(scheme)
	registerCluster(scheme)
}

// register adds one kind and its list. The scheme hands each function only the type it was registered for.
func register[T any, P interface {
	*T
	runtime.Object
}](scheme *runtime.Scheme, fill func(P), list runtime.Object) {
	scheme.AddTypeDefaultingFunc(P(new(T)), func(obj any) { fill(obj.(P)) })
	scheme.AddTypeDefaultingFunc(list, func(obj any) {
		// The error of EachListItem is for things that are no lists, and of the callback, which has none.
		_ = meta.EachListItem(obj.(runtime.Object), func(item runtime.Object) error {
			fill(item.(P))
			return nil
		})
	})
}

// set gives a field its default if it is empty.
func set[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// point gives an optional field its default if it is absent; an explicit zero is the client's choice and stays.
func point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
