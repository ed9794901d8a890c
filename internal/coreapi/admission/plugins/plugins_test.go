package plugins

import (
	"slices"
	"strings"
	"testing"

	"portico.dev/internal/coreapi/admission"
)

// upstream is the order of kube-apiserver 1.37, and what is off by default there.
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

func TestTheTableIsInUpstreamsOrder(t *testing.T) {
	last := -1
	for _, p := range All() {
		at := slices.Index(upstream, p.Name)
		if at <= last {
			t.Errorf("%s is not upstream's, is there twice, or in another place", p.Name)
		}
		last = at
		if p.Default == slices.Contains(off, p.Name) {
			t.Errorf("%s: on by default %v", p.Name, p.Default)
		}
		if p.New == nil {
			t.Errorf("%s cannot be made", p.Name)
		}
	}
}

// What upstream has is here, or there is a message that says it is not.
func TestEveryPluginOfUpstreamHasAnAnswer(t *testing.T) {
	for _, name := range upstream {
		config, complaint := admission.Config{Plugins: All(), Enable: []string{name}}, ""
		config.Validate(func(_, format string, args ...any) { complaint = format })
		if strings.Contains(complaint, "there is no plugin") {
			t.Errorf("nothing is known of %s", name)
		}
	}
}
