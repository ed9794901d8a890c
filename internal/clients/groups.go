package clients

import (
	admissionregistrationapi "k8s.io/api/admissionregistration/v1"
	coreapi "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	networkingapi "k8s.io/api/networking/v1"
	nodeapi "k8s.io/api/node/v1"
	rbacapi "k8s.io/api/rbac/v1"
	schedulingapi "k8s.io/api/scheduling/v1"
	storageapi "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers/admissionregistration"
	admissionregistrationv1 "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/informers/discovery"
	discoveryv1 "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/informers/flowcontrol"
	flowcontrolv1 "k8s.io/client-go/informers/flowcontrol/v1"
	"k8s.io/client-go/informers/networking"
	networkingv1 "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/informers/node"
	nodev1 "k8s.io/client-go/informers/node/v1"
	"k8s.io/client-go/informers/rbac"
	rbacv1 "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/informers/scheduling"
	schedulingv1 "k8s.io/client-go/informers/scheduling/v1"
	"k8s.io/client-go/informers/storage"
	storagev1 "k8s.io/client-go/informers/storage/v1"
	admissionregistrationlisters "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
)

// Each group below has the version v1 alone, and of it the kinds that something reads; the interfaces that they embed are
// nil. The library's own groups link all kinds of all versions.
type (
	admissionregistrationGroup struct {
		admissionregistration.Interface
		of *Informers
	}
	admissionregistrationVersion struct {
		admissionregistrationv1.Interface
		of *Informers
	}
	coreGroup struct {
		core.Interface
		of *Informers
	}
	coreVersion struct {
		corev1.Interface
		of *Informers
	}
	discoveryGroup struct {
		discovery.Interface
		of *Informers
	}
	discoveryVersion struct {
		discoveryv1.Interface
		of *Informers
	}
	flowcontrolGroup struct {
		flowcontrol.Interface
		of *Informers
	}
	networkingGroup struct {
		networking.Interface
		of *Informers
	}
	networkingVersion struct {
		networkingv1.Interface
		of *Informers
	}
	nodeGroup struct {
		node.Interface
		of *Informers
	}
	nodeVersion struct {
		nodev1.Interface
		of *Informers
	}
	rbacGroup struct {
		rbac.Interface
		of *Informers
	}
	rbacVersion struct {
		rbacv1.Interface
		of *Informers
	}
	schedulingGroup struct {
		scheduling.Interface
		of *Informers
	}
	schedulingVersion struct {
		schedulingv1.Interface
		of *Informers
	}
	storageGroup struct {
		storage.Interface
		of *Informers
	}
	storageVersion struct {
		storagev1.Interface
		of *Informers
	}
)

func (i *Informers) Admissionregistration() admissionregistration.Interface {
	return admissionregistrationGroup{of: i}
}
func (i *Informers) Core() core.Interface               { return coreGroup{of: i} }
func (i *Informers) Discovery() discovery.Interface     { return discoveryGroup{of: i} }
func (i *Informers) Flowcontrol() flowcontrol.Interface { return flowcontrolGroup{of: i} }
func (i *Informers) Networking() networking.Interface   { return networkingGroup{of: i} }
func (i *Informers) Node() node.Interface               { return nodeGroup{of: i} }
func (i *Informers) Rbac() rbac.Interface               { return rbacGroup{of: i} }
func (i *Informers) Scheduling() scheduling.Interface   { return schedulingGroup{of: i} }
func (i *Informers) Storage() storage.Interface         { return storageGroup{of: i} }

func (g admissionregistrationGroup) V1() admissionregistrationv1.Interface {
	return admissionregistrationVersion{of: g.of}
}
func (g coreGroup) V1() corev1.Interface           { return coreVersion{of: g.of} }
func (g discoveryGroup) V1() discoveryv1.Interface { return discoveryVersion{of: g.of} }
func (g flowcontrolGroup) V1() flowcontrolv1.Interface {
	return flowcontrolv1.New(g.of, metav1.NamespaceAll, nil) // both of its kinds are read
}
func (g networkingGroup) V1() networkingv1.Interface { return networkingVersion{of: g.of} }
func (g nodeGroup) V1() nodev1.Interface             { return nodeVersion{of: g.of} }
func (g rbacGroup) V1() rbacv1.Interface             { return rbacVersion{of: g.of} }
func (g schedulingGroup) V1() schedulingv1.Interface { return schedulingVersion{of: g.of} }
func (g storageGroup) V1() storagev1.Interface       { return storageVersion{of: g.of} }

func (v admissionregistrationVersion) MutatingAdmissionPolicies() admissionregistrationv1.TypedMutatingAdmissionPolicyInformer {
	return informerOf[admissionregistrationv1.MutatingAdmissionPolicyIndexInformer](v.of, admissionregistrationapi.SchemeGroupVersion, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", &admissionregistrationapi.MutatingAdmissionPolicy{}, admissionregistrationlisters.NewMutatingAdmissionPolicyLister)
}
func (v admissionregistrationVersion) MutatingAdmissionPolicyBindings() admissionregistrationv1.TypedMutatingAdmissionPolicyBindingInformer {
	return informerOf[admissionregistrationv1.MutatingAdmissionPolicyBindingIndexInformer](v.of, admissionregistrationapi.SchemeGroupVersion, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", &admissionregistrationapi.MutatingAdmissionPolicyBinding{}, admissionregistrationlisters.NewMutatingAdmissionPolicyBindingLister)
}
func (v admissionregistrationVersion) MutatingWebhookConfigurations() admissionregistrationv1.TypedMutatingWebhookConfigurationInformer {
	return informerOf[admissionregistrationv1.MutatingWebhookConfigurationIndexInformer](v.of, admissionregistrationapi.SchemeGroupVersion, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", &admissionregistrationapi.MutatingWebhookConfiguration{}, admissionregistrationlisters.NewMutatingWebhookConfigurationLister)
}
func (v admissionregistrationVersion) ValidatingAdmissionPolicies() admissionregistrationv1.TypedValidatingAdmissionPolicyInformer {
	return informerOf[admissionregistrationv1.ValidatingAdmissionPolicyIndexInformer](v.of, admissionregistrationapi.SchemeGroupVersion, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", &admissionregistrationapi.ValidatingAdmissionPolicy{}, admissionregistrationlisters.NewValidatingAdmissionPolicyLister)
}
func (v admissionregistrationVersion) ValidatingAdmissionPolicyBindings() admissionregistrationv1.TypedValidatingAdmissionPolicyBindingInformer {
	return informerOf[admissionregistrationv1.ValidatingAdmissionPolicyBindingIndexInformer](v.of, admissionregistrationapi.SchemeGroupVersion, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", &admissionregistrationapi.ValidatingAdmissionPolicyBinding{}, admissionregistrationlisters.NewValidatingAdmissionPolicyBindingLister)
}
func (v admissionregistrationVersion) ValidatingWebhookConfigurations() admissionregistrationv1.TypedValidatingWebhookConfigurationInformer {
	return informerOf[admissionregistrationv1.ValidatingWebhookConfigurationIndexInformer](v.of, admissionregistrationapi.SchemeGroupVersion, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", &admissionregistrationapi.ValidatingWebhookConfiguration{}, admissionregistrationlisters.NewValidatingWebhookConfigurationLister)
}

func (v coreVersion) ConfigMaps() corev1.TypedConfigMapInformer {
	return informerOf[corev1.ConfigMapIndexInformer](v.of, coreapi.SchemeGroupVersion, "configmaps", "ConfigMap", &coreapi.ConfigMap{}, corelisters.NewConfigMapLister)
}
func (v coreVersion) LimitRanges() corev1.TypedLimitRangeInformer {
	return informerOf[corev1.LimitRangeIndexInformer](v.of, coreapi.SchemeGroupVersion, "limitranges", "LimitRange", &coreapi.LimitRange{}, corelisters.NewLimitRangeLister)
}
func (v coreVersion) Namespaces() corev1.TypedNamespaceInformer {
	return informerOf[corev1.NamespaceIndexInformer](v.of, coreapi.SchemeGroupVersion, "namespaces", "Namespace", &coreapi.Namespace{}, corelisters.NewNamespaceLister)
}
func (v coreVersion) Nodes() corev1.TypedNodeInformer {
	return informerOf[corev1.NodeIndexInformer](v.of, coreapi.SchemeGroupVersion, "nodes", "Node", &coreapi.Node{}, corelisters.NewNodeLister)
}
func (v coreVersion) Pods() corev1.TypedPodInformer {
	return informerOf[corev1.PodIndexInformer](v.of, coreapi.SchemeGroupVersion, "pods", "Pod", &coreapi.Pod{}, corelisters.NewPodLister)
}
func (v coreVersion) ResourceQuotas() corev1.TypedResourceQuotaInformer {
	return informerOf[corev1.ResourceQuotaIndexInformer](v.of, coreapi.SchemeGroupVersion, "resourcequotas", "ResourceQuota", &coreapi.ResourceQuota{}, corelisters.NewResourceQuotaLister)
}
func (v coreVersion) Secrets() corev1.TypedSecretInformer {
	return informerOf[corev1.SecretIndexInformer](v.of, coreapi.SchemeGroupVersion, "secrets", "Secret", &coreapi.Secret{}, corelisters.NewSecretLister)
}
func (v coreVersion) ServiceAccounts() corev1.TypedServiceAccountInformer {
	return informerOf[corev1.ServiceAccountIndexInformer](v.of, coreapi.SchemeGroupVersion, "serviceaccounts", "ServiceAccount", &coreapi.ServiceAccount{}, corelisters.NewServiceAccountLister)
}
func (v coreVersion) Services() corev1.TypedServiceInformer {
	return informerOf[corev1.ServiceIndexInformer](v.of, coreapi.SchemeGroupVersion, "services", "Service", &coreapi.Service{}, corelisters.NewServiceLister)
}

func (v discoveryVersion) EndpointSlices() discoveryv1.TypedEndpointSliceInformer {
	return informerOf[discoveryv1.EndpointSliceIndexInformer](v.of, discoveryapi.SchemeGroupVersion, "endpointslices", "EndpointSlice", &discoveryapi.EndpointSlice{}, discoverylisters.NewEndpointSliceLister)
}

func (v networkingVersion) IngressClasses() networkingv1.TypedIngressClassInformer {
	return informerOf[networkingv1.IngressClassIndexInformer](v.of, networkingapi.SchemeGroupVersion, "ingressclasses", "IngressClass", &networkingapi.IngressClass{}, networkinglisters.NewIngressClassLister)
}
func (v networkingVersion) ServiceCIDRs() networkingv1.TypedServiceCIDRInformer {
	return informerOf[networkingv1.ServiceCIDRIndexInformer](v.of, networkingapi.SchemeGroupVersion, "servicecidrs", "ServiceCIDR", &networkingapi.ServiceCIDR{}, networkinglisters.NewServiceCIDRLister)
}

func (v nodeVersion) RuntimeClasses() nodev1.TypedRuntimeClassInformer {
	return informerOf[nodev1.RuntimeClassIndexInformer](v.of, nodeapi.SchemeGroupVersion, "runtimeclasses", "RuntimeClass", &nodeapi.RuntimeClass{}, nodelisters.NewRuntimeClassLister)
}

func (v rbacVersion) ClusterRoleBindings() rbacv1.TypedClusterRoleBindingInformer {
	return informerOf[rbacv1.ClusterRoleBindingIndexInformer](v.of, rbacapi.SchemeGroupVersion, "clusterrolebindings", "ClusterRoleBinding", &rbacapi.ClusterRoleBinding{}, rbaclisters.NewClusterRoleBindingLister)
}
func (v rbacVersion) ClusterRoles() rbacv1.TypedClusterRoleInformer {
	return informerOf[rbacv1.ClusterRoleIndexInformer](v.of, rbacapi.SchemeGroupVersion, "clusterroles", "ClusterRole", &rbacapi.ClusterRole{}, rbaclisters.NewClusterRoleLister)
}
func (v rbacVersion) RoleBindings() rbacv1.TypedRoleBindingInformer {
	return informerOf[rbacv1.RoleBindingIndexInformer](v.of, rbacapi.SchemeGroupVersion, "rolebindings", "RoleBinding", &rbacapi.RoleBinding{}, rbaclisters.NewRoleBindingLister)
}
func (v rbacVersion) Roles() rbacv1.TypedRoleInformer {
	return informerOf[rbacv1.RoleIndexInformer](v.of, rbacapi.SchemeGroupVersion, "roles", "Role", &rbacapi.Role{}, rbaclisters.NewRoleLister)
}

func (v schedulingVersion) PriorityClasses() schedulingv1.TypedPriorityClassInformer {
	return informerOf[schedulingv1.PriorityClassIndexInformer](v.of, schedulingapi.SchemeGroupVersion, "priorityclasses", "PriorityClass", &schedulingapi.PriorityClass{}, schedulinglisters.NewPriorityClassLister)
}

func (v storageVersion) StorageClasses() storagev1.TypedStorageClassInformer {
	return informerOf[storagev1.StorageClassIndexInformer](v.of, storageapi.SchemeGroupVersion, "storageclasses", "StorageClass", &storageapi.StorageClass{}, storagelisters.NewStorageClassLister)
}
