// Package plugins implements the admission plugins that upstream keeps in k8s.io/kubernetes, with upstream's rules and
// messages, and contains the table of all plugins. A file is named after its plugin, or after the subject of its plugins.
package plugins

import (
	"bytes"
	"fmt"
	"io"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	library "k8s.io/apiserver/pkg/admission"
	policyconfig "k8s.io/apiserver/pkg/admission/plugin/policy/config"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookconfig "k8s.io/apiserver/pkg/admission/plugin/webhook/config"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/quota"
)

// All returns the table in upstream's order: webhooks and policies see the changes of all plugins before them, and quotas do
// not count refused requests.
func All() []admission.Plugin {
	return []admission.Plugin{
		namespaceLifecycleRow(),
		{Name: "LimitRanger", Default: true, New: withoutConfig(newLimitRanger)},
		{Name: "ServiceAccount", Default: true, New: withoutConfig(newServiceAccount)},
		{Name: "NodeRestriction", New: withoutConfig(newNodeRestriction)},
		{Name: "TaintNodesByCondition", Default: true, New: withoutConfig(func(admission.Deps) library.Interface { return taintNodesByCondition{} })},
		{Name: "PodSecurity", Default: true, Check: checkPodSecurity, New: podSecurityPlugin},
		{Name: "Priority", Default: true, New: withoutConfig(newPodPriority)},
		{Name: "DefaultTolerationSeconds", Default: true, New: withoutConfig(func(admission.Deps) library.Interface {
			return defaultTolerationSeconds{}
		})},
		{Name: "DefaultStorageClass", Default: true, New: withoutConfig(newDefaultStorageClass)},
		{Name: "StorageObjectInUseProtection", New: withoutConfig(func(admission.Deps) library.Interface { return storageProtection{} })},
		{Name: "OwnerReferencesPermissionEnforcement", New: withoutConfig(func(d admission.Deps) library.Interface {
			return newOwnerReferencesPermission(d.Authorizer, d.RESTMapper)
		})},
		{Name: "PersistentVolumeClaimResize", Default: true, New: withoutConfig(newPersistentVolumeClaimResize)},
		{Name: "RuntimeClass", Default: true, New: withoutConfig(newRuntimeClass)},
		{Name: "CertificateApproval", Default: true, New: withoutConfig(func(d admission.Deps) library.Interface {
			return certificateApproval{Authorizer: d.Authorizer}
		})},
		{Name: "CertificateSigning", Default: true, New: withoutConfig(func(d admission.Deps) library.Interface {
			return certificateSigning{Authorizer: d.Authorizer}
		})},
		{Name: "ClusterTrustBundleAttest", Default: true, New: withoutConfig(func(d admission.Deps) library.Interface {
			return clusterTrustBundleAttest{Authorizer: d.Authorizer}
		})},
		{Name: "CertificateSubjectRestriction", Default: true, New: withoutConfig(func(admission.Deps) library.Interface {
			return certificateSubjectRestriction{}
		})},
		{Name: "DefaultIngressClass", Default: true, New: withoutConfig(newDefaultIngressClass)},
		{Name: "DenyServiceExternalIPs", New: withoutConfig(func(admission.Deps) library.Interface { return denyServiceExternalIPs{} })},
		{Name: "PodTopologyLabels", Default: true, New: withoutConfig(newPodTopologyLabels)},
		{Name: "PodResizeValidator", Default: true, New: withoutConfig(newPodResizeValidator)},
		{Name: "MutatingAdmissionPolicy", Default: true, SkipBootstrap: true, Check: checkedByMaking(staticMutating, mutatingPolicy),
			New: ifServed("mutatingadmissionpolicies", mutatingPolicy)},
		{Name: "MutatingAdmissionWebhook", Default: true, SkipBootstrap: true, Check: checkedByMaking(staticWebhooks, mutatingWebhook),
			New: ifServed("mutatingwebhookconfigurations", mutatingWebhook)},
		{Name: "ValidatingAdmissionPolicy", Default: true, SkipBootstrap: true, Check: checkedByMaking(staticValidating, validatingPolicy),
			New: ifServed("validatingadmissionpolicies", validatingPolicy)},
		{Name: "ValidatingAdmissionWebhook", Default: true, SkipBootstrap: true, Check: checkedByMaking(staticWebhooks, validatingWebhook),
			New: ifServed("validatingwebhookconfigurations", validatingWebhook)},
		{Name: "ResourceQuota", Default: true, Check: quota.CheckConfiguration, New: newResourceQuota},
	}
}

// NamespaceLifecycle returns the smallest table: without this plugin, namespaces could not be deleted safely.
func NamespaceLifecycle() []admission.Plugin { return []admission.Plugin{namespaceLifecycleRow()} }

func namespaceLifecycleRow() admission.Plugin {
	return admission.Plugin{Name: "NamespaceLifecycle", Default: true, New: withoutConfig(func(d admission.Deps) library.Interface {
		return newNamespaceLifecycle(d.NamespaceOfCreate)
	})}
}

// withoutConfig adapts the constructor of a plugin that has no configuration and cannot fail.
func withoutConfig(f func(admission.Deps) library.Interface) func(admission.Deps, io.Reader) (library.Interface, error) {
	return func(d admission.Deps, _ io.Reader) (library.Interface, error) { return f(d), nil }
}

// checkedByMaking validates a configuration by creating a plugin that is not started. static returns its staticManifestsDir,
// which is not supported and therefore an error.
func checkedByMaking(static func(io.Reader) (string, error), f func(io.Reader) (library.Interface, error)) func(io.Reader) error {
	return func(config io.Reader) error {
		data, err := io.ReadAll(config)
		if err != nil {
			return err
		}
		dir, err := static(bytes.NewReader(data))
		if err != nil {
			return err
		}
		if dir != "" {
			return fmt.Errorf("staticManifestsDir %s: this server takes policies and webhooks from its API only; remove the field", dir)
		}
		_, err = f(bytes.NewReader(data))
		return err
	}
}

func staticWebhooks(config io.Reader) (string, error) {
	c, err := webhookconfig.LoadConfig(config)
	if err != nil {
		return "", err
	}
	return c.StaticManifestsDir, nil
}

func staticValidating(config io.Reader) (string, error) {
	c, err := policyconfig.LoadValidatingConfig(config)
	if err != nil {
		return "", err
	}
	return c.StaticManifestsDir, nil
}

func staticMutating(config io.Reader) (string, error) {
	c, err := policyconfig.LoadMutatingConfig(config)
	if err != nil {
		return "", err
	}
	return c.StaticManifestsDir, nil
}

// ifServed creates a plugin of k8s.io/apiserver if its resource is served here. The initializers set its dependencies.
func ifServed(resource string, f func(io.Reader) (library.Interface, error)) func(admission.Deps, io.Reader) (library.Interface, error) {
	return func(d admission.Deps, config io.Reader) (library.Interface, error) {
		if !d.Served(admissionregistrationv1.SchemeGroupVersion.WithResource(resource)) {
			return nil, nil
		}
		return f(config)
	}
}

func mutatingPolicy(config io.Reader) (library.Interface, error) {
	return mutatingpolicy.NewPlugin(config)
}

func mutatingWebhook(config io.Reader) (library.Interface, error) {
	return mutatingwebhook.NewMutatingWebhook(config)
}

func validatingPolicy(config io.Reader) (library.Interface, error) {
	return validatingpolicy.NewPlugin(config)
}

func validatingWebhook(config io.Reader) (library.Interface, error) {
	return validatingwebhook.NewValidatingAdmissionWebhook(config)
}
