package clients

import (
	"context"
	"reflect"

	admissionregistrationapi "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	admissionregistrationv1 "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/informers/flowcontrol"
	flowcontrolv1 "k8s.io/client-go/informers/flowcontrol/v1"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	admissionregistrationlisters "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// ForLibrary returns c for library functions that require a complete kubernetes.Interface: the admission plugins for policies
// and webhooks, which read namespaces and the OpenAPI documents, and PodSecurity, which lists pods. It provides only the groups
// that these use. Other groups are nil, because linking all of them costs 4.7 MB (docs/decisions/0005-binary-size.md).
// TestLinkedPackagesUseOnlyImplementedClients checks every linked package for calls of other groups.
func ForLibrary(c Interface) kubernetes.Interface {
	if whole, ok := c.(kubernetes.Interface); ok {
		return whole
	}
	return libraryClient{clients: c}
}

type libraryClient struct {
	kubernetes.Interface // nil
	clients              Interface
}

func (l libraryClient) Discovery() discovery.DiscoveryInterfaces { return l.clients.Discovery() }
func (l libraryClient) CoreV1() coreclient.CoreV1Interface       { return l.clients.CoreV1() }
func (l libraryClient) FlowcontrolV1() flowcontrolclient.FlowcontrolV1Interface {
	return l.clients.FlowcontrolV1()
}

// ForLibrary returns i for library functions that require a complete informer factory: the admission plugins for policies and
// webhooks, and the controller of API Priority and Fairness. It provides only the kinds that these read. Other kinds are nil,
// because linking all of them costs 7.5 MB. The same test checks this.
func (i *Informers) ForLibrary() informers.SharedInformerFactory { return libraryInformers{of: i} }

// The adapters below do not embed Informers, because each embedded method would be linked again.
type (
	libraryInformers struct {
		informers.SharedInformerFactory // nil
		of                              *Informers
	}
	libraryAdmissionregistration struct {
		admissionregistration.Interface // nil
		of                              *Informers
	}
	libraryAdmissionregistrationV1 struct {
		admissionregistrationv1.Interface // nil
		of                                *Informers
	}
	libraryCore struct {
		core.Interface // nil
		of             *Informers
	}
	libraryCoreV1 struct {
		corev1.Interface // nil
		of               *Informers
	}
	libraryFlowcontrol struct {
		flowcontrol.Interface // nil
		of                    *Informers
	}
)

func (l libraryInformers) InformerName() *cache.InformerName { return l.of.InformerName() }
func (l libraryInformers) InformerFor(object runtime.Object, newInformer internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return l.of.InformerFor(object, newInformer)
}
func (l libraryInformers) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	return l.of.ForResource(r)
}
func (l libraryInformers) Start(stop <-chan struct{})           { l.of.Start(stop) }
func (l libraryInformers) StartWithContext(ctx context.Context) { l.of.StartWithContext(ctx) }
func (l libraryInformers) Shutdown()                            { l.of.Shutdown() }
func (l libraryInformers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return l.of.WaitForCacheSync(stop)
}
func (l libraryInformers) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	return l.of.WaitForCacheSyncWithContext(ctx)
}

func (l libraryInformers) Admissionregistration() admissionregistration.Interface {
	return libraryAdmissionregistration{of: l.of}
}
func (l libraryInformers) Core() core.Interface               { return libraryCore{of: l.of} }
func (l libraryInformers) Flowcontrol() flowcontrol.Interface { return libraryFlowcontrol{of: l.of} }

func (g libraryAdmissionregistration) V1() admissionregistrationv1.Interface {
	return libraryAdmissionregistrationV1{of: g.of}
}
func (g libraryCore) V1() corev1.Interface { return libraryCoreV1{of: g.of} }
func (g libraryFlowcontrol) V1() flowcontrolv1.Interface {
	return flowcontrolv1.New(g.of, metav1.NamespaceAll, nil)
}

func (v libraryCoreV1) Namespaces() corev1.TypedNamespaceInformer {
	return corev1.ToTypedNamespaceInformer(v.of.Namespaces())
}

func (v libraryAdmissionregistrationV1) MutatingAdmissionPolicies() admissionregistrationv1.TypedMutatingAdmissionPolicyInformer {
	return admissionregistrationv1.ToTypedMutatingAdmissionPolicyInformer(informerOf(v.of, admissionregistrationapi.SchemeGroupVersion, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", &admissionregistrationapi.MutatingAdmissionPolicy{}, admissionregistrationlisters.NewMutatingAdmissionPolicyLister))
}
func (v libraryAdmissionregistrationV1) MutatingAdmissionPolicyBindings() admissionregistrationv1.TypedMutatingAdmissionPolicyBindingInformer {
	return admissionregistrationv1.ToTypedMutatingAdmissionPolicyBindingInformer(informerOf(v.of, admissionregistrationapi.SchemeGroupVersion, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", &admissionregistrationapi.MutatingAdmissionPolicyBinding{}, admissionregistrationlisters.NewMutatingAdmissionPolicyBindingLister))
}
func (v libraryAdmissionregistrationV1) MutatingWebhookConfigurations() admissionregistrationv1.TypedMutatingWebhookConfigurationInformer {
	return admissionregistrationv1.ToTypedMutatingWebhookConfigurationInformer(informerOf(v.of, admissionregistrationapi.SchemeGroupVersion, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", &admissionregistrationapi.MutatingWebhookConfiguration{}, admissionregistrationlisters.NewMutatingWebhookConfigurationLister))
}
func (v libraryAdmissionregistrationV1) ValidatingAdmissionPolicies() admissionregistrationv1.TypedValidatingAdmissionPolicyInformer {
	return admissionregistrationv1.ToTypedValidatingAdmissionPolicyInformer(informerOf(v.of, admissionregistrationapi.SchemeGroupVersion, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", &admissionregistrationapi.ValidatingAdmissionPolicy{}, admissionregistrationlisters.NewValidatingAdmissionPolicyLister))
}
func (v libraryAdmissionregistrationV1) ValidatingAdmissionPolicyBindings() admissionregistrationv1.TypedValidatingAdmissionPolicyBindingInformer {
	return admissionregistrationv1.ToTypedValidatingAdmissionPolicyBindingInformer(informerOf(v.of, admissionregistrationapi.SchemeGroupVersion, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", &admissionregistrationapi.ValidatingAdmissionPolicyBinding{}, admissionregistrationlisters.NewValidatingAdmissionPolicyBindingLister))
}
func (v libraryAdmissionregistrationV1) ValidatingWebhookConfigurations() admissionregistrationv1.TypedValidatingWebhookConfigurationInformer {
	return admissionregistrationv1.ToTypedValidatingWebhookConfigurationInformer(informerOf(v.of, admissionregistrationapi.SchemeGroupVersion, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", &admissionregistrationapi.ValidatingWebhookConfiguration{}, admissionregistrationlisters.NewValidatingWebhookConfigurationLister))
}
