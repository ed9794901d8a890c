package validate

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// ruleset is what one kind demands at each kind of write.
type ruleset struct {
	create         func(obj runtime.Object) field.ErrorList
	update, status func(obj, old runtime.Object) field.ErrorList
}

// rulesOf is the table of contents: which kind is checked by what.
func rulesOf(obj runtime.Object) (ruleset, bool) {
	switch obj.(type) {
	case *corev1.Namespace:
		return full(namespace, namespaceUpdate, namespaceStatus), true
	case *corev1.ConfigMap:
		return changing(configMap, configMapUpdate), true
	case *corev1.Secret:
		return changing(secret, secretUpdate), true
	case *corev1.ServiceAccount:
		return same(serviceAccount), true
	case *corev1.Service:
		return full(service, serviceUpdate, serviceStatus), true
	case *corev1.Endpoints:
		return changing(endpoints, endpointsUpdate), true
	case *corev1.Event:
		return same(coreEvent), true
	case *corev1.Node:
		return full(node, nodeUpdate, nodeStatus), true
	case *corev1.Pod:
		return full(pod, podUpdate, podStatus), true
	case *apiregistrationv1.APIService:
		return full(apiService, apiServiceUpdate, apiServiceStatus), true
	case *rbacv1.Role:
		return same(role), true
	case *rbacv1.ClusterRole:
		return same(clusterRole), true
	case *rbacv1.RoleBinding:
		return changing(roleBinding, roleBindingUpdate), true
	case *rbacv1.ClusterRoleBinding:
		return changing(clusterRoleBinding, clusterRoleBindingUpdate), true
	case *coordinationv1.Lease:
		return same(lease), true
	case *discoveryv1.EndpointSlice:
		return changing(endpointSlice, endpointSliceUpdate), true
	case *eventsv1.Event:
		return changing(newEvent, newEventUpdate), true
	case *flowcontrolv1.FlowSchema:
		return full(flowSchema, flowSchemaUpdate, flowSchemaStatus), true
	case *flowcontrolv1.PriorityLevelConfiguration:
		return full(priorityLevel, priorityLevelUpdate, priorityLevelStatus), true
	}
	if rules, known := workloadRulesOf(obj); known {
		return rules, true
	}
	return admissionRulesOf(obj)
}

func admissionRulesOf(obj runtime.Object) (ruleset, bool) {
	switch obj.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return changing(validatingWebhooks, validatingWebhooksUpdate), true
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return changing(mutatingWebhooks, mutatingWebhooksUpdate), true
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return compiling(validatingPolicy, validatingExpressions), true
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return same(validatingBinding), true
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return compiling(mutatingPolicy, mutatingExpressions), true
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return same(mutatingBinding), true
	}
	return clusterRulesOf(obj)
}

// same is for kinds whose updates are checked as if they were new.
func same[T runtime.Object](create func(T) field.ErrorList) ruleset {
	return changing(create, func(obj, _ T) field.ErrorList { return create(obj) })
}

// compiling is for kinds with expressions, which are compiled in view of those that were there before.
func compiling[T runtime.Object](create func(T) field.ErrorList, expressions func(obj, old T) field.ErrorList) ruleset {
	none := *new(T)
	return changing(func(obj T) field.ErrorList { return append(create(obj), expressions(obj, none)...) },
		func(obj, old T) field.ErrorList { return append(create(obj), expressions(obj, old)...) })
}

// changing is for kinds with rules of their own for updates.
func changing[T runtime.Object](create func(T) field.ErrorList, update func(obj, old T) field.ErrorList) ruleset {
	return full(create, update, func(_, _ T) field.ErrorList { return nil })
}

func full[T runtime.Object](create func(T) field.ErrorList, update, status func(obj, old T) field.ErrorList) ruleset {
	return ruleset{
		create: func(obj runtime.Object) field.ErrorList { return create(obj.(T)) },
		update: typed(update),
		status: typed(status),
	}
}

// typed guards against an old object of another kind; the new one has been looked at by rulesOf.
func typed[T runtime.Object](check func(obj, old T) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	return func(obj, old runtime.Object) field.ErrorList {
		before, ok := old.(T)
		if !ok {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T cannot replace %T", obj, old))}
		}
		return check(obj.(T), before)
	}
}
