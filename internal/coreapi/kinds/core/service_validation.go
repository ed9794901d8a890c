package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"portico.dev/internal/coreapi/validate"
)

// ipList checks a list of addresses. Addresses in the stored object are exempt from the current, stricter parsing.
func ipList(values, stored []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, value := range values {
		if bad := utilvalidation.IsValidIPForLegacyField(path.Index(i), value, true, stored); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		errs = append(errs, validate.EndpointIP(value, path.Index(i))...)
	}
	return errs
}

func validateService(s *corev1.Service) field.ErrorList { return serviceRules(s, &corev1.Service{}) }

func validateServiceUpdate(s, old *corev1.Service) field.ErrorList {
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

// checkedByPort reports whether a Service has a health check port on every node. The port reports whether the node has
// endpoints of the Service.
func checkedByPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// serviceRules exempts values in the stored service, old, from some rules.
func serviceRules(s, old *corev1.Service) field.ErrorList {
	// Since 1.37 names are DNS-1123 labels and may begin with a digit. Before, they were DNS-1035 labels.
	errs := validate.ObjectMeta(&s.ObjectMeta, validate.Namespaced, validation.NameIsDNSLabel)
	spec := field.NewPath("spec")
	errs = append(errs, validate.Required(s.Spec.Type, spec.Child("type"), corev1.ServiceTypeClusterIP,
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
	name := strings.TrimSuffix(s.ExternalName, ".") // a trailing dot is allowed
	if name == "" {
		return append(errs, field.Required(path, ""))
	}
	return append(errs, validate.DnsSubdomain(name, path)...)
}

func clusterIP(s, old *corev1.ServiceSpec, spec *field.Path) field.ErrorList {
	path := spec.Child("clusterIP")
	if s.Type == corev1.ServiceTypeExternalName {
		return nil // externalName refuses a cluster IP
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
	errs := validate.Required(s.SessionAffinity, spec.Child("sessionAffinity"), corev1.ServiceAffinityClientIP,
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

// trafficPolicies checks that only externally accessible services have an external policy, and only services with a cluster IP
// have an internal policy.
func trafficPolicies(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	policy, path := s.Spec.ExternalTrafficPolicy, spec.Child("externalTrafficPolicy")
	switch outside := reachedFromOutside(&s.Spec); {
	case outside:
		errs = append(errs, validate.Required(policy, path, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)...)
	case policy != "":
		errs = append(errs, field.Invalid(path, policy, "may only be set for externally-accessible services"))
	}
	internal, path := s.Spec.InternalTrafficPolicy, spec.Child("internalTrafficPolicy")
	switch {
	case internal != nil:
		errs = append(errs, validate.OneOf(*internal, path, corev1.ServiceInternalTrafficPolicyCluster,
			corev1.ServiceInternalTrafficPolicyLocal)...)
	case slices.Contains(withinCluster, s.Spec.Type):
		errs = append(errs, field.Required(path, ""))
	}
	if s.Spec.TrafficDistribution != nil {
		errs = append(errs, validate.OneOf(*s.Spec.TrafficDistribution, spec.Child("trafficDistribution"),
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	checked := s.Spec.Type == corev1.ServiceTypeLoadBalancer && policy == corev1.ServiceExternalTrafficPolicyLocal
	if port, path := s.Spec.HealthCheckNodePort, spec.Child("healthCheckNodePort"); port != 0 {
		if !checked {
			errs = append(errs, field.Invalid(path, port,
				"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		}
		errs = append(errs, validate.PortNumber(port, path)...)
	}
	return errs
}

// withinCluster contains the types with a cluster IP.
var withinCluster = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}

func reachedFromOutside(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeLoadBalancer || s.Type == corev1.ServiceTypeNodePort ||
		s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0
}

// loadBalancer checks the fields that only load balancers may have.
func loadBalancer(s, old *corev1.ServiceSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	const only = "may only be used when `type` is 'LoadBalancer'"
	balancer := s.Type == corev1.ServiceTypeLoadBalancer
	ranges := spec.Child("LoadBalancerSourceRanges") // as kube-apiserver spells it
	if !balancer && len(s.LoadBalancerSourceRanges) > 0 {
		errs = append(errs, field.Forbidden(ranges, only))
	}
	for i, cidr := range s.LoadBalancerSourceRanges {
		// Surrounding space has always been allowed here.
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
		errs = append(errs, validate.Qualified(*s.LoadBalancerClass, spec.Child("loadBalancerClass"))...)
	}
	if s.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(spec.Child("allocateLoadBalancerNodePorts"), ""))
	}
	return errs
}

// validateServiceStatus checks the addresses that a load balancer controller has assigned to the service.
func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
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
			errs = append(errs, validate.OneOf(*ingress.IPMode, path.Index(i).Child("ipMode"), corev1.LoadBalancerIPModeProxy,
				corev1.LoadBalancerIPModeVIP)...)
		}
		if ingress.Hostname != "" {
			errs = append(errs, validate.DnsSubdomain(ingress.Hostname, path.Index(i).Child("hostname"))...)
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

// serviceAnnotations checks the annotations that preceded fields.
func serviceAnnotations(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata", "annotations")
	mode, moded := s.Annotations[corev1.AnnotationTopologyMode]
	hints, hinted := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if moded && hinted && mode != hints {
		errs = append(errs, field.Invalid(path.Key(corev1.AnnotationTopologyMode), mode,
			"must match annotations["+corev1.DeprecatedAnnotationTopologyAwareHints+"] when both are specified"))
	}
	const ranges = corev1.AnnotationLoadBalancerSourceRangesKey
	value, set := s.Annotations[ranges]
	if !set || len(s.Spec.LoadBalancerSourceRanges) > 0 {
		return errs
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path.Key(ranges), "may only be used when `type` is 'LoadBalancer'"))
	}
	if value = strings.TrimSpace(value); value == "" || old.Annotations[ranges] == s.Annotations[ranges] {
		return errs
	}
	for cidr := range strings.SplitSeq(value, ",") {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path.Key(ranges), strings.TrimSpace(cidr), true, nil)...)
	}
	return errs
}

// kubeletPort is open on every node. A load balancer on it would expose the kubelet.
const kubeletPort = 10250

func servicePorts(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.Ports) == 0 && s.Spec.ClusterIP != corev1.ClusterIPNone && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path, ""))
	}
	names := sets.New[string]()
	type pair struct {
		protocol corev1.Protocol
		port     int32
	}
	ports, nodePorts := sets.New[pair](), sets.New[pair]()
	for i, p := range s.Spec.Ports {
		at := path.Index(i)
		errs = append(errs, servicePort(&p, len(s.Spec.Ports) > 1, at)...)
		errs = append(errs, publishedPort(s.Spec.Type, &p, at)...)
		if p.Name != "" && names.Has(p.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names.Insert(p.Name)
		if key := (pair{p.Protocol, p.Port}); ports.Has(key) {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		} else {
			ports.Insert(key)
		}
		if key := (pair{p.Protocol, p.NodePort}); p.NodePort != 0 && nodePorts.Has(key) {
			errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
		} else {
			nodePorts.Insert(key)
		}
	}
	return errs
}

func servicePort(p *corev1.ServicePort, several bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Name != "":
		errs = append(errs, validate.DnsLabel(p.Name, path.Child("name"))...)
	case several:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, validate.PortNumber(p.Port, path.Child("port"))...)
	errs = append(errs, validate.Protocol(p.Protocol, path.Child("protocol"))...)
	errs = append(errs, validate.PortOrName(p.TargetPort, path.Child("targetPort"))...)
	if p.AppProtocol != nil {
		errs = append(errs, validate.Qualified(*p.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}

func publishedPort(kind corev1.ServiceType, p *corev1.ServicePort, path *field.Path) field.ErrorList {
	switch {
	case kind == corev1.ServiceTypeLoadBalancer && p.Port == kubeletPort:
		return field.ErrorList{field.Invalid(path, p.Port,
			fmt.Sprintf("may not expose port %d externally since it is used by kubelet", kubeletPort))}
	case kind == corev1.ServiceTypeClusterIP && p.NodePort != 0:
		return field.ErrorList{field.Forbidden(path.Child("nodePort"), "may not be used when `type` is 'ClusterIP'")}
	}
	return nil
}

func warningsOfService(s *corev1.Service) []string {
	return append(serviceWarnings(&s.Spec), serviceValueWarnings(s)...)
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

// serviceValueWarnings warns about deprecated values, and about values that programs parse differently.
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
	if netutils.ParseIPSloppy(s.Spec.LoadBalancerIP) != nil { // not validated
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
