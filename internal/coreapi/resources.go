package coreapi

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// eventLifetime is kube-apiserver's --event-ttl.
const eventLifetime = time.Hour

// groups is the table of everything that is served here. A new kind is a new entry.
//
// What may be created by PUT, and what may be replaced without a resourceVersion, is upstream's choice per kind:
// clients have come to rely on both.
func groups() []group {
	return []group{
		{version: corev1.SchemeGroupVersion, addToScheme: corev1.AddToScheme, resources: coreResources()},
		{version: apiregistrationv1.SchemeGroupVersion, addToScheme: apiregistrationv1.AddToScheme, resources: registrationResources()},
		{version: eventsv1.SchemeGroupVersion, addToScheme: eventsv1.AddToScheme}, // shows core's Events: install.go
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
			cached: true, createOnUpdate: true,
		}}},
		{version: discoveryv1.SchemeGroupVersion, addToScheme: discoveryv1.AddToScheme, resources: []resource{{
			name: "endpointslices", singular: "endpointslice", object: &discoveryv1.EndpointSlice{}, list: &discoveryv1.EndpointSliceList{},
			cached: true, blindUpdate: true, generations: true, sameContent: sameEndpoints,
		}}},
		{version: flowcontrolv1.SchemeGroupVersion, addToScheme: flowcontrolv1.AddToScheme, resources: flowResources()},
	}
}

func coreResources() []resource {
	return []resource{
		{
			name: "namespaces", singular: "namespace", shortNames: []string{"ns"}, clusterScoped: true,
			object: &corev1.Namespace{}, list: &corev1.NamespaceList{}, cached: true, blindUpdate: true,
			spec:   specOf(func(n *corev1.Namespace) *corev1.NamespaceSpec { return &n.Spec }),
			status: statusOf(func(n *corev1.Namespace) *corev1.NamespaceStatus { return &n.Status }), statusMeta: true,
			prepareCreate: prepareNamespace, prepareUpdate: keepNamespaceFinalizers,
		},
		{
			name: "configmaps", singular: "configmap", shortNames: []string{"cm"},
			object: &corev1.ConfigMap{}, list: &corev1.ConfigMapList{}, cached: true, blindUpdate: true,
		},
		{
			name: "secrets", singular: "secret", object: &corev1.Secret{}, list: &corev1.SecretList{},
			cached: true, blindUpdate: true,
		},
		{
			name: "serviceaccounts", singular: "serviceaccount", shortNames: []string{"sa"},
			object: &corev1.ServiceAccount{}, list: &corev1.ServiceAccountList{}, cached: true,
		},
		{
			name: "services", singular: "service", shortNames: []string{"svc"}, categories: []string{"all"},
			object: &corev1.Service{}, list: &corev1.ServiceList{}, directory: "services/specs",
			cached: true, createOnUpdate: true, blindUpdate: true,
			spec:   specOf(func(s *corev1.Service) *corev1.ServiceSpec { return &s.Spec }),
			status: statusOf(func(s *corev1.Service) *corev1.ServiceStatus { return &s.Status }), statusMeta: true,
		},
		{
			name: "endpoints", singular: "endpoints", shortNames: []string{"ep"},
			//lint:ignore SA1019 deprecated, and still read by clients from before EndpointSlices
			object: &corev1.Endpoints{}, list: &corev1.EndpointsList{}, directory: "services/endpoints",
			cached: true, createOnUpdate: true, blindUpdate: true,
		},
		{
			name: "events", singular: "event", shortNames: []string{"ev"},
			object: &corev1.Event{}, list: &corev1.EventList{}, lifetime: eventLifetime, createOnUpdate: true, blindUpdate: true,
		},
		{
			name: "nodes", singular: "node", shortNames: []string{"no"}, clusterScoped: true,
			object: &corev1.Node{}, list: &corev1.NodeList{}, directory: "minions", cached: true, blindUpdate: true,
			spec:   specOf(func(n *corev1.Node) *corev1.NodeSpec { return &n.Spec }),
			status: statusOf(func(n *corev1.Node) *corev1.NodeStatus { return &n.Status }), statusMeta: true, statusOnCreate: true,
		},
		{
			name: "pods", singular: "pod", shortNames: []string{"po"}, categories: []string{"all"},
			object: &corev1.Pod{}, list: &corev1.PodList{}, cached: true, blindUpdate: true, generations: true,
			spec:   specOf(func(p *corev1.Pod) *corev1.PodSpec { return &p.Spec }),
			status: statusOf(func(p *corev1.Pod) *corev1.PodStatus { return &p.Status }), statusMeta: true,
			prepareCreate: preparePod, deletion: withGrace,
		},
	}
}

func registrationResources() []resource {
	return []resource{{
		name: "apiservices", singular: "apiservice", categories: []string{"api-extensions"}, clusterScoped: true,
		object: &apiregistrationv1.APIService{}, list: &apiregistrationv1.APIServiceList{},
		directory: "apiregistration.k8s.io/apiservices", cached: true,
		spec:          specOf(func(a *apiregistrationv1.APIService) *apiregistrationv1.APIServiceSpec { return &a.Spec }),
		status:        statusOf(func(a *apiregistrationv1.APIService) *apiregistrationv1.APIServiceStatus { return &a.Status }),
		prepareCreate: stampLocal, warn: warnAPIService,
	}}
}

func rbacResources() []resource {
	return []resource{
		{
			name: "clusterroles", singular: "clusterrole", clusterScoped: true, cached: true, createOnUpdate: true, blindUpdate: true,
			object: &rbacv1.ClusterRole{}, list: &rbacv1.ClusterRoleList{}, guard: guardRole,
		},
		{
			name: "clusterrolebindings", singular: "clusterrolebinding", clusterScoped: true, cached: true, createOnUpdate: true, blindUpdate: true,
			object: &rbacv1.ClusterRoleBinding{}, list: &rbacv1.ClusterRoleBindingList{}, guard: guardBinding,
		},
		{
			name: "roles", singular: "role", cached: true, createOnUpdate: true, blindUpdate: true,
			object: &rbacv1.Role{}, list: &rbacv1.RoleList{}, guard: guardRole,
		},
		{
			name: "rolebindings", singular: "rolebinding", cached: true, createOnUpdate: true, blindUpdate: true,
			object: &rbacv1.RoleBinding{}, list: &rbacv1.RoleBindingList{}, guard: guardBinding,
		},
	}
}

func flowResources() []resource {
	return []resource{
		{
			name: "flowschemas", singular: "flowschema", clusterScoped: true, generations: true,
			object: &flowcontrolv1.FlowSchema{}, list: &flowcontrolv1.FlowSchemaList{},
			spec:   specOf(func(f *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaSpec { return &f.Spec }),
			status: statusOf(func(f *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaStatus { return &f.Status }),
		},
		{
			name: "prioritylevelconfigurations", singular: "prioritylevelconfiguration", clusterScoped: true, generations: true,
			object: &flowcontrolv1.PriorityLevelConfiguration{}, list: &flowcontrolv1.PriorityLevelConfigurationList{},
			spec: specOf(func(p *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationSpec {
				return &p.Spec
			}),
			status: statusOf(func(p *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationStatus {
				return &p.Status
			}),
		},
	}
}

func admissionResources() []resource {
	extensions := []string{"api-extensions"}
	return []resource{
		{
			name: "validatingwebhookconfigurations", singular: "validatingwebhookconfiguration", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.ValidatingWebhookConfiguration{}, list: &admissionregistrationv1.ValidatingWebhookConfigurationList{},
			generations: true,
			spec: partOf("webhooks", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
				return &c.Webhooks
			}),
		},
		{
			name: "mutatingwebhookconfigurations", singular: "mutatingwebhookconfiguration", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.MutatingWebhookConfiguration{}, list: &admissionregistrationv1.MutatingWebhookConfigurationList{},
			generations: true,
			spec: partOf("webhooks", func(c *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
				return &c.Webhooks
			}),
		},
		{
			name: "validatingadmissionpolicies", singular: "validatingadmissionpolicy", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.ValidatingAdmissionPolicy{}, list: &admissionregistrationv1.ValidatingAdmissionPolicyList{},
			generations: true,
			spec: specOf(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicySpec {
				return &p.Spec
			}),
			status: statusOf(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicyStatus {
				return &p.Status
			}),
		},
		{
			name: "validatingadmissionpolicybindings", singular: "validatingadmissionpolicybinding", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, list: &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
			generations: true,
			spec: specOf(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
				return &b.Spec
			}),
		},
		{
			name: "mutatingadmissionpolicies", singular: "mutatingadmissionpolicy", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.MutatingAdmissionPolicy{}, list: &admissionregistrationv1.MutatingAdmissionPolicyList{},
			generations: true,
			spec: specOf(func(p *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicySpec {
				return &p.Spec
			}),
		},
		{
			name: "mutatingadmissionpolicybindings", singular: "mutatingadmissionpolicybinding", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, list: &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
			generations: true,
			spec: specOf(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec {
				return &b.Spec
			}),
		},
	}
}
