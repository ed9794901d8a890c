package validate

import (
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	netutils "k8s.io/utils/net"

	"portico.dev/internal/pki"
)

// builtInPriority is the highest group priority among kube-apiserver's own named groups (that of apps).
const builtInPriority = 17800

// Warnings are about what is allowed and yet likely to be regretted, for the Warning headers of the answer. Each says what
// will happen and what to do instead. Nothing here is ever an error: existing manifests have to keep working.

func WarningsOfAPIService(s *apiregistrationv1.APIService) []string {
	return apiServiceWarnings(&s.Spec)
}

func WarningsOfService(s *corev1.Service) []string {
	return append(serviceWarnings(&s.Spec), serviceValueWarnings(s)...)
}

// SecretWarnings tells of a certificate and a key that nobody could serve with.
func SecretWarnings(s *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func apiServiceWarnings(s *apiregistrationv1.APIServiceSpec) []string {
	var warnings []string
	if s.Service != nil && len(s.CABundle) > 0 {
		// kube-apiserver takes any bytes and then fails every request to the service, until somebody finds out why.
		if _, err := pki.ParseBundle(s.CABundle); err != nil {
			warnings = append(warnings, fmt.Sprintf("spec.caBundle: %v; no connection to service %s/%s will succeed until "+
				"it holds the PEM certificates of the authority that signed the service's certificate",
				err, s.Service.Namespace, s.Service.Name))
		}
	}
	if s.Service != nil && s.InsecureSkipTLSVerify {
		warnings = append(warnings, "spec.insecureSkipTLSVerify: whoever can answer in place of the service reads every "+
			"request to this API and the identity of its user; set spec.caBundle instead")
	}
	if s.Service != nil && s.GroupPriorityMinimum > builtInPriority {
		warnings = append(warnings, fmt.Sprintf("spec.groupPriorityMinimum: %d puts this group before the built-in ones: "+
			"kubectl will take short names and kinds that both have from %q; use %d or less",
			s.GroupPriorityMinimum, s.Group, builtInPriority))
	}
	return warnings
}

func serviceWarnings(s *corev1.ServiceSpec) []string {
	var warnings []string
	external := s.Type == corev1.ServiceTypeExternalName
	if s.ExternalName != "" && !external {
		warnings = append(warnings, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if len(s.ExternalIPs) > 0 && external {
		warnings = append(warnings, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if s.ClusterIP != corev1.ClusterIPNone {
		return warnings
	}
	if len(s.ExternalIPs) > 0 {
		warnings = append(warnings, "spec.externalIPs is ignored for headless services")
	}
	if s.SessionAffinity != "" && s.SessionAffinity != corev1.ServiceAffinityNone {
		warnings = append(warnings, "spec.SessionAffinity is ignored for headless services")
	}
	return warnings
}

// serviceValueWarnings point at values that are on their way out, or read differently by different programs.
func serviceValueWarnings(s *corev1.Service) []string {
	var warnings []string
	spec := field.NewPath("spec")
	if _, old := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; old {
		warnings = append(warnings, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	if headless && s.Spec.LoadBalancerIP != "" {
		warnings = append(warnings, "spec.loadBalancerIP is ignored for headless services")
	}
	if !headless {
		for i, ip := range s.Spec.ClusterIPs {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(spec.Child("clusterIPs").Index(i), ip)...)
		}
	}
	for i, ip := range s.Spec.ExternalIPs {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(spec.Child("externalIPs").Index(i), ip)...)
	}
	if len(s.Spec.ExternalIPs) > 0 && !headless && s.Spec.Type != corev1.ServiceTypeExternalName {
		warnings = append(warnings, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if netutils.ParseIPSloppy(s.Spec.LoadBalancerIP) != nil { // nothing else looks at it
		warnings = append(warnings, utilvalidation.GetWarningsForIP(spec.Child("loadBalancerIP"), s.Spec.LoadBalancerIP)...)
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		warnings = append(warnings, utilvalidation.GetWarningsForCIDR(spec.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q", *d, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return warnings
}
