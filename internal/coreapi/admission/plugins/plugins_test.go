package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico.dev/internal/coreapi/admission"
)

// upstream is the order of plugins in kube-apiserver 1.37. off is the set of plugins that are disabled there by default.
var (
	upstream = strings.Fields(`AlwaysAdmit NamespaceAutoProvision NamespaceLifecycle NamespaceExists
		LimitPodHardAntiAffinityTopology LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition AlwaysPullImages
		ImagePolicyWebhook PodSecurity PodNodeSelector Priority DefaultTolerationSeconds PodTolerationRestriction
		EventRateLimit ExtendedResourceToleration DefaultStorageClass StorageObjectInUseProtection PodGroupProtection
		OwnerReferencesPermissionEnforcement PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning
		ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass DenyServiceExternalIPs PodTopologyLabels
		NodeDeclaredFeatureValidator PodResizeValidator MutatingAdmissionPolicy MutatingAdmissionWebhook
		ValidatingAdmissionPolicy ValidatingAdmissionWebhook ResourceQuota AlwaysDeny`)
	off = strings.Fields(`AlwaysAdmit NamespaceAutoProvision NamespaceExists LimitPodHardAntiAffinityTopology NodeRestriction
		AlwaysPullImages ImagePolicyWebhook PodNodeSelector PodTolerationRestriction EventRateLimit
		ExtendedResourceToleration OwnerReferencesPermissionEnforcement DenyServiceExternalIPs AlwaysDeny`)
)

func TestPluginOrderMatchesKubeAPIServer(t *testing.T) {
	last := -1
	for _, p := range All() {
		at := slices.Index(upstream, p.Name)
		if at <= last {
			t.Errorf("%s is unknown, duplicate or out of order (index %d after %d), want the order of kube-apiserver", p.Name, at, last)
		}
		last = at
		// Only kube-controller-manager removes the finalizers of StorageObjectInUseProtection.
		if p.Default == (slices.Contains(off, p.Name) || p.Name == "StorageObjectInUseProtection") {
			t.Errorf("%s: enabled by default = %v, want %v", p.Name, p.Default, !p.Default)
		}
		if p.New == nil {
			t.Errorf("%s has no constructor, want one", p.Name)
		}
	}
}

// Each plugin of kube-apiserver exists here, or a specific message reports that it does not.
func TestEveryKubeAPIServerPluginIsSupportedOrExplained(t *testing.T) {
	for _, name := range upstream {
		config, complaint := admission.Config{Plugins: All(), Enable: []string{name}}, ""
		config.Validate(func(_, format string, args ...any) { complaint = format })
		if strings.Contains(complaint, "there is no plugin") {
			t.Errorf("the message for %s reports an unknown plugin, want no message or one about kube-apiserver's plugin", name)
		}
	}
}

// A configuration error of a plugin is reported before the start. A configuration of an unused plugin is also an error.
func TestInvalidPluginConfigurationsAreReported(t *testing.T) {
	const limited = "{apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: "
	for name, c := range map[string]struct{ plugin, config, want string }{
		"quotas":                      {"ResourceQuota", limited + "[{resource: pods, matchContains: [cpu]}]}", ""},
		"quotas without a resource":   {"ResourceQuota", limited + "[{matchContains: [cpu]}]}", "limitedResources[0].resource: Required value"},
		"quotas with another field":   {"ResourceQuota", limited + "[{resource: pods, matchContain: [cpu]}]}", `unknown field "limitedResources[0].matchContain"`},
		"quotas of another kind":      {"ResourceQuota", "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration}", `no kind "WebhookAdmissionConfiguration" is registered`},
		"quotas of nothing":           {"ResourceQuota", limited + "[{resource: pods}]}", "limitedResources[0]: Required value: matchContains or matchScopes"},
		"quotas of what never counts": {"ResourceQuota", limited + "[{resource: events, matchContains: [count]}]}", `limitedResources[0].resource: Invalid value: "events": is not counted by quotas`},
		"quotas in an odd operator": {"ResourceQuota", limited + "[{resource: pods, matchScopes: [{scopeName: PriorityClass, operator: in, values: [a]}]}]}",
			`limitedResources[0].matchScopes[0].operator: Invalid value: "in": not a valid selector operator`},
		"quotas in an odd scope": {"ResourceQuota", limited + "[{resource: pods, matchScopes: [{scopeName: Priority, operator: Exists}]}]}",
			`limitedResources[0].matchScopes[0].scopeName: Invalid value: "Priority": unsupported scope`},
		"quotas with scopes of what has none": {"ResourceQuota", limited + "[{resource: services, matchScopes: [{scopeName: PriorityClass, operator: Exists}]}]}",
			`limitedResources[0].matchScopes: Invalid value: "services": only pods and persistentvolumeclaims have scopes`},
		"pod security": {"PodSecurity", "{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: baselin}}",
			`defaults.enforce: Invalid value: "baselin"`},
		"webhooks": {"MutatingAdmissionWebhook", "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: hooks.kubeconfig}",
			"kubeConfigFile: Invalid value: \"hooks.kubeconfig\": must be an absolute file path"},
		"webhooks without the file": {"ValidatingAdmissionWebhook", "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: /not/there}",
			"/not/there"},
		"policies": {"ValidatingAdmissionPolicy", "{apiVersion: apiserver.config.k8s.io/v1, kind: Policies}", `no kind "Policies" is registered`},
		"policies in files": {"MutatingAdmissionPolicy", "{apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration, staticManifestsDir: /tmp}",
			"staticManifestsDir /tmp: this server takes policies and webhooks from its API only"},
		"nobody's":    {"LimitRanger", "{a: 1}", "LimitRanger takes no configuration; remove it"},
		"not to have": {"EventRateLimit", "{a: 1}", "EventRateLimit is a plugin of kube-apiserver that this server does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "admission.yaml")
			text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: " + c.plugin + "\n  configuration: " + c.config + "\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var said []string
			admission.Config{Plugins: All(), File: file}.Validate(func(flag, format string, args ...any) {
				said = append(said, "--"+flag+": "+fmt.Sprintf(format, args...))
			})
			got := strings.Join(said, "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) ||
				got != "" && !strings.Contains(got, c.plugin) {
				t.Errorf("Validate reported %q, want a message that contains %q and %s (empty: no message)", got, c.want, c.plugin)
			}
		})
	}
}
