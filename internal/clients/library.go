package clients

import (
	admissionregistrationapi "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	admissionregistrationv1 "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/informers/flowcontrol"
	flowcontrolv1 "k8s.io/client-go/informers/flowcontrol/v1"
	"k8s.io/client-go/kubernetes"
	admissionregistrationlisters "k8s.io/client-go/listers/admissionregistration/v1"
)

// ForLibrary returns c for library functions that take a whole kubernetes.Interface: the admission plugins for policies and
// webhooks, which read namespaces with it, and PodSecurity, which lists pods. Groups that Interface does not list are nil in it; linking all of them costs
// 4.7 MB (see ARCHITECTURE.md). TestLibrariesCallOnlyWhatIsLinked reads every linked package for calls of them.
func ForLibrary(c Interface) kubernetes.Interface {
	if whole, ok := c.(kubernetes.Interface); ok {
		return whole
	}
	return libraryClient{Interface: c}
}

type (
	// libraryClient takes methods of Interface, which is embedded less deep, before those of unlistedGroups.
	libraryClient struct {
		Interface
		unlistedGroups
	}
	unlistedGroups struct{ kubernetes.Interface } // nil
)

// ForLibrary returns i for library functions that take a whole informer factory: the admission plugins for policies and
// webhooks, and the controller of API Priority and Fairness. It has the kinds that these read; all others are nil, and
// linking them costs 7.5 MB. The same test guards it.
func (i *Informers) ForLibrary() informers.SharedInformerFactory {
	return libraryInformers{Informers: i}
}

type (
	libraryInformers struct {
		*Informers
		unlistedInformers
	}
	unlistedInformers struct {
		informers.SharedInformerFactory
	} // nil

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

func (l libraryInformers) Admissionregistration() admissionregistration.Interface {
	return libraryAdmissionregistration{of: l.Informers}
}
func (l libraryInformers) Core() core.Interface { return libraryCore{of: l.Informers} }
func (l libraryInformers) Flowcontrol() flowcontrol.Interface {
	return libraryFlowcontrol{of: l.Informers}
}

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
