// Package plugins is the table of admission plugins.
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
	"portico.dev/internal/coreapi/admission/certificates"
	"portico.dev/internal/coreapi/admission/externalips"
	"portico.dev/internal/coreapi/admission/lifecycle"
	"portico.dev/internal/coreapi/admission/nodes"
	"portico.dev/internal/coreapi/admission/owners"
	"portico.dev/internal/coreapi/admission/podsecurity"
	"portico.dev/internal/coreapi/admission/tolerations"
	"portico.dev/internal/coreapi/quota"
)

// All returns the table, in upstream's order: webhooks and policies see what every plugin before them made of an object,
// and nothing is counted that was refused.
func All() []admission.Plugin {
	return []admission.Plugin{
		namespaceLifecycle(),
		{Name: "LimitRanger", Default: true, New: plain(limitRanger)},
		{Name: "ServiceAccount", Default: true, New: plain(serviceAccount)},
		{Name: "TaintNodesByCondition", Default: true, New: plain(func(admission.Deps) library.Interface { return nodes.Taint{} })},
		{Name: "PodSecurity", Default: true, Check: podsecurity.Check, New: podSecurity},
		{Name: "Priority", Default: true, New: plain(podPriority)},
		{Name: "DefaultTolerationSeconds", Default: true, New: plain(func(admission.Deps) library.Interface {
			return tolerations.Plugin{}
		})},
		{Name: "DefaultStorageClass", Default: true, New: plain(storageClass)},
		{Name: "OwnerReferencesPermissionEnforcement", New: plain(func(d admission.Deps) library.Interface {
			return owners.New(d.Authorizer, d.RESTMapper)
		})},
		{Name: "PersistentVolumeClaimResize", Default: true, New: plain(claimResize)},
		{Name: "RuntimeClass", Default: true, New: plain(runtimeClass)},
		{Name: "CertificateApproval", Default: true, New: plain(func(d admission.Deps) library.Interface {
			return certificates.Approval{Authorizer: d.Authorizer}
		})},
		{Name: "CertificateSigning", Default: true, New: plain(func(d admission.Deps) library.Interface {
			return certificates.Signing{Authorizer: d.Authorizer}
		})},
		{Name: "ClusterTrustBundleAttest", Default: true, New: plain(func(d admission.Deps) library.Interface {
			return certificates.Attesting{Authorizer: d.Authorizer}
		})},
		{Name: "CertificateSubjectRestriction", Default: true, New: plain(func(admission.Deps) library.Interface {
			return certificates.Subjects{}
		})},
		{Name: "DefaultIngressClass", Default: true, New: plain(ingressClass)},
		{Name: "DenyServiceExternalIPs", New: plain(func(admission.Deps) library.Interface { return externalips.Plugin{} })},
		{Name: "PodTopologyLabels", Default: true, New: plain(podTopology)},
		{Name: "PodResizeValidator", Default: true, New: plain(podResize)},
		{Name: "MutatingAdmissionPolicy", Default: true, Foreign: true, Check: made(staticMutating, mutatingPolicy),
			New: ifServed("mutatingadmissionpolicies", mutatingPolicy)},
		{Name: "MutatingAdmissionWebhook", Default: true, Foreign: true, Check: made(staticWebhooks, mutatingWebhook),
			New: ifServed("mutatingwebhookconfigurations", mutatingWebhook)},
		{Name: "ValidatingAdmissionPolicy", Default: true, Foreign: true, Check: made(staticValidating, validatingPolicy),
			New: ifServed("validatingadmissionpolicies", validatingPolicy)},
		{Name: "ValidatingAdmissionWebhook", Default: true, Foreign: true, Check: made(staticWebhooks, validatingWebhook),
			New: ifServed("validatingwebhookconfigurations", validatingWebhook)},
		{Name: "ResourceQuota", Default: true, Check: quota.CheckConfiguration, New: resourceQuota},
	}
}

// NamespaceLifecycle is the table of a server that has nothing else. Without this plugin there is no way to have
// namespaces that end.
func NamespaceLifecycle() []admission.Plugin { return []admission.Plugin{namespaceLifecycle()} }

func namespaceLifecycle() admission.Plugin {
	return admission.Plugin{Name: "NamespaceLifecycle", Default: true, New: plain(func(d admission.Deps) library.Interface {
		return lifecycle.New(d.NamespaceOfCreate)
	})}
}

// plain is for a plugin that takes no configuration and cannot fail.
func plain(f func(admission.Deps) library.Interface) func(admission.Deps, io.Reader) (library.Interface, error) {
	return func(d admission.Deps, _ io.Reader) (library.Interface, error) { return f(d), nil }
}

// made checks a configuration by making a plugin of it, which nobody starts. static finds the directory of manifests in it:
// those are not read here, and whoever relies on them must be told.
func made(static func(io.Reader) (string, error), f func(io.Reader) (library.Interface, error)) func(io.Reader) error {
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

// ifServed makes a plugin of the library's, which take what they need by its initializers, unless what it goes by is
// not served here.
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
