package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

func ValidateService(s *corev1.Service) field.ErrorList { return serviceRules(s, &corev1.Service{}) }

func ValidateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if balancer := corev1.ServiceTypeLoadBalancer; s.Spec.Type == balancer && old.Spec.Type == balancer {
		next, before := s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass
		if (next == nil) != (before == nil) || next != nil && *next != *before {
			errs = append(errs, field.Invalid(spec.Child("loadBalancerClass"), next, "may not change once set"))
		}
	}
	if port := old.Spec.HealthCheckNodePort; port != 0 && s.Spec.HealthCheckNodePort != port && checkedByPort(s) && checkedByPort(old) {
		errs = append(errs, field.Forbidden(spec.Child("healthCheckNodePort"), "field is immutable"))
	}
	return append(errs, serviceRules(s, old)...)
}

// checkedByPort Services have a port on every node that says whether it has endpoints of them.
func checkedByPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// serviceRules takes the stored service too, for the rules that older objects are not held to.
func serviceRules(s, old *corev1.Service) field.ErrorList {
	// Since 1.37 names may begin with a digit: DNS-1123 labels, where they were DNS-1035 labels before.
	errs := objectMeta(&s.ObjectMeta, namespaced, validation.NameIsDNSLabel)
	spec := field.NewPath("spec")
	errs = append(errs, required(s.Spec.Type, spec.Child("type"), corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	errs = append(errs, servicePorts(s, spec.Child("ports"))...)
	errs = append(errs, metav1validation.ValidateLabels(s.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, serviceAffinity(&s.Spec, spec)...)
	errs = append(errs, clusterIP(&s.Spec, &old.Spec, spec)...)
	errs = append(errs, ipList(s.Spec.ExternalIPs, old.Spec.ExternalIPs, spec.Child("externalIPs"))...)
	errs = append(errs, trafficPolicies(s, spec)...)
	errs = append(errs, loadBalancer(&s.Spec, &old.Spec, spec)...)
	errs = append(errs, serviceAnnotations(s, old)...)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		errs = append(errs, externalName(&s.Spec, spec)...)
	}
	return errs
}

func externalName(s *corev1.ServiceSpec, spec *field.Path) field.ErrorList {
	path := spec.Child("externalName")
	var errs field.ErrorList
	if len(s.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("clusterIPs"), "may not be set for ExternalName services"))
	}
	if len(s.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ipFamilies"), "may not be set for ExternalName services"))
	}
	if s.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(spec.Child("ipFamilyPolicy"), "may not be set for ExternalName services"))
	}
	name := strings.TrimSuffix(s.ExternalName, ".") // a fully qualified name is as good
	if name == "" {
		return append(errs, field.Required(path, ""))
	}
	return append(errs, dnsSubdomain(name, path)...)
}

func clusterIP(s, old *corev1.ServiceSpec, spec *field.Path) field.ErrorList {
	path := spec.Child("clusterIP")
	if s.Type == corev1.ServiceTypeExternalName {
		return nil // externalName says that it may have none
	}
	if len(s.ClusterIPs) > 0 && s.ClusterIPs[0] != s.ClusterIP {
		return field.ErrorList{field.Invalid(spec.Child("clusterIPs"), s.ClusterIPs,
			"first value must match `clusterIP`")}
	}
	switch s.ClusterIP {
	case "":
		return nil
	case corev1.ClusterIPNone:
		if s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer {
			return field.ErrorList{field.Invalid(path, s.ClusterIP, "may not be set to 'None' for "+string(s.Type)+" services")}
		}
		return nil
	}
	return utilvalidation.IsValidIPForLegacyField(path, s.ClusterIP, true, []string{old.ClusterIP})
}

func serviceAffinity(s *corev1.ServiceSpec, spec *field.Path) field.ErrorList {
	errs := required(s.SessionAffinity, spec.Child("sessionAffinity"), corev1.ServiceAffinityClientIP,
		corev1.ServiceAffinityNone)
	path := spec.Child("sessionAffinityConfig")
	switch s.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if s.SessionAffinityConfig != nil {
			errs = append(errs, field.Forbidden(path, "must not be set when session affinity is None"))
		}
	case corev1.ServiceAffinityClientIP:
		const when = "when session affinity type is ClientIP"
		config := s.SessionAffinityConfig
		switch {
		case config == nil:
			return append(errs, field.Required(path, when))
		case config.ClientIP == nil:
			return append(errs, field.Required(path.Child("clientIP"), when))
		}
		seconds, path := config.ClientIP.TimeoutSeconds, path.Child("clientIP", "timeoutSeconds")
		if seconds == nil {
			return append(errs, field.Required(path, when))
		}
		if *seconds <= 0 || *seconds > 86400 {
			errs = append(errs, field.Invalid(path, *seconds, "must be greater than 0 and less than 86400"))
		}
	}
	return errs
}

// trafficPolicies checks who may say how traffic is spread: the external policy belongs to services that are reached
// from outside, the internal one to services with a cluster IP.
func trafficPolicies(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	policy, path := s.Spec.ExternalTrafficPolicy, spec.Child("externalTrafficPolicy")
	switch outside := reachedFromOutside(&s.Spec); {
	case outside:
		errs = append(errs, required(policy, path, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)...)
	case policy != "":
		errs = append(errs, field.Invalid(path, policy, "may only be set for externally-accessible services"))
	}
	internal, path := s.Spec.InternalTrafficPolicy, spec.Child("internalTrafficPolicy")
	switch {
	case internal != nil:
		errs = append(errs, oneOf(*internal, path, corev1.ServiceInternalTrafficPolicyCluster,
			corev1.ServiceInternalTrafficPolicyLocal)...)
	case slices.Contains(withinCluster, s.Spec.Type):
		errs = append(errs, field.Required(path, ""))
	}
	if s.Spec.TrafficDistribution != nil {
		errs = append(errs, oneOf(*s.Spec.TrafficDistribution, spec.Child("trafficDistribution"),
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	checked := s.Spec.Type == corev1.ServiceTypeLoadBalancer && policy == corev1.ServiceExternalTrafficPolicyLocal
	if port, path := s.Spec.HealthCheckNodePort, spec.Child("healthCheckNodePort"); port != 0 {
		if !checked {
			errs = append(errs, field.Invalid(path, port,
				"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		}
		errs = append(errs, portNumber(port, path)...)
	}
	return errs
}

// withinCluster are the types with an address of the cluster.
var withinCluster = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}

func reachedFromOutside(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeLoadBalancer || s.Type == corev1.ServiceTypeNodePort ||
		s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0
}

// loadBalancer checks the fields that only load balancers may have, and what they say.
func loadBalancer(s, old *corev1.ServiceSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	const only = "may only be used when `type` is 'LoadBalancer'"
	balancer := s.Type == corev1.ServiceTypeLoadBalancer
	ranges := spec.Child("LoadBalancerSourceRanges") // as kube-apiserver spells it
	if !balancer && len(s.LoadBalancerSourceRanges) > 0 {
		errs = append(errs, field.Forbidden(ranges, only))
	}
	for i, cidr := range s.LoadBalancerSourceRanges {
		// Surrounding space has always been let through here.
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(ranges.Index(i), strings.TrimSpace(cidr), true,
			old.LoadBalancerSourceRanges)...)
	}
	if !balancer && s.LoadBalancerClass != nil {
		errs = append(errs, field.Forbidden(spec.Child("loadBalancerClass"), only))
	}
	if !balancer && s.AllocateLoadBalancerNodePorts != nil {
		errs = append(errs, field.Forbidden(spec.Child("allocateLoadBalancerNodePorts"), only))
	}
	if !balancer {
		return errs
	}
	if s.LoadBalancerClass != nil {
		errs = append(errs, qualified(*s.LoadBalancerClass, spec.Child("loadBalancerClass"))...)
	}
	if s.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(spec.Child("allocateLoadBalancerNodePorts"), ""))
	}
	return errs
}

// ValidateServiceStatus checks what a load balancer's controller says was given to the service.
func ValidateServiceStatus(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingresses := s.Status.LoadBalancer.Ingress
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if len(ingresses) > 0 && !slices.EqualFunc(ingresses, old.Status.LoadBalancer.Ingress, sameIngress) {
			errs = append(errs, field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
		}
		return errs
	}
	for i, ingress := range ingresses {
		if ingress.IP != "" {
			errs = append(errs, utilvalidation.IsValidIP(path.Index(i).Child("ip"), ingress.IP)...)
		}
		if ingress.IP != "" && ingress.IPMode == nil {
			errs = append(errs, field.Required(path.Index(i).Child("ipMode"), "must be specified when `ip` is set"))
		}
		if ingress.IP == "" && ingress.IPMode != nil {
			errs = append(errs, field.Forbidden(path.Index(i).Child("ipMode"), "may not be specified when `ip` is not set"))
		}
		if ingress.IP != "" && ingress.IPMode != nil {
			errs = append(errs, oneOf(*ingress.IPMode, path.Index(i).Child("ipMode"), corev1.LoadBalancerIPModeProxy,
				corev1.LoadBalancerIPModeVIP)...)
		}
		if ingress.Hostname != "" {
			errs = append(errs, dnsSubdomain(ingress.Hostname, path.Index(i).Child("hostname"))...)
			if netutils.ParseIPSloppy(ingress.Hostname) != nil {
				errs = append(errs, field.Invalid(path.Index(i).Child("hostname"), ingress.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}

func sameIngress(a, b corev1.LoadBalancerIngress) bool {
	return a.IP == b.IP && a.Hostname == b.Hostname
}
