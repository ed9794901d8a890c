package allocation

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	specPath     = field.NewPath("spec")
	addressPath  = specPath.Child("clusterIPs")
	familyPath   = specPath.Child("ipFamilies")
	policyPath   = specPath.Child("ipFamilyPolicy")
	knownFamily  = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	knownPolicy  = []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack}
	neverChanges = "may not change once set"
)

// settleFamilies determines the families of a Service among the configured ones, or returns errors for families that it cannot
// have. It changes the families of an existing Service only if the request does: PreferDualStack applies at creation, and a
// cluster that becomes dual-stack later changes no Service.
func settleFamilies(s, old *corev1.Service, configured []corev1.IPFamily) field.ErrorList {
	if !usesClusterIP(s) {
		return nil
	}
	if keepsDualPreference(s, old) {
		return nil
	}
	if s.Spec.IPFamilyPolicy == nil {
		policy := presumedPolicy(s, old)
		s.Spec.IPFamilyPolicy = &policy
	}
	if errs := checkAddresses(s, old); len(errs) > 0 {
		return errs
	}
	if errs := checkReduction(s, old); len(errs) > 0 {
		return errs
	}
	if errs := inferFamilies(s, configured); len(errs) > 0 {
		return errs
	}
	single := *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	if headless(s) && len(s.Spec.Selector) == 0 {
		// The author of its endpoints chooses their families, which need not be configured in the cluster.
		if len(s.Spec.IPFamilies) == 0 {
			s.Spec.IPFamilies = configured[:1:1]
		}
		if len(s.Spec.IPFamilies) == 1 && !single {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, otherFamily(s.Spec.IPFamilies[0]))
		}
		return nil
	}
	if errs := checkConfigured(s, configured); len(errs) > 0 {
		return errs
	}
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = configured[:1:1]
	}
	if !single && len(s.Spec.IPFamilies) == 1 && len(configured) == 2 {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, otherFamily(s.Spec.IPFamilies[0]))
	}
	return nil
}

// keepsDualPreference reports whether an update keeps PreferDualStack and the resulting addresses and families.
func keepsDualPreference(s, old *corev1.Service) bool {
	if old == nil || s.Spec.IPFamilyPolicy == nil || s.Spec.Type != old.Spec.Type || len(old.Spec.ClusterIPs) == 0 {
		return false
	}
	prefer := corev1.IPFamilyPolicyPreferDualStack
	return *s.Spec.IPFamilyPolicy == prefer && (old.Spec.IPFamilyPolicy == nil || *old.Spec.IPFamilyPolicy == prefer) &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

func presumedPolicy(s, old *corev1.Service) corev1.IPFamilyPolicy {
	switch {
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		return *old.Spec.IPFamilyPolicy
	case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
		return corev1.IPFamilyPolicyRequireDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

// checkAddresses checks clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy, individually and against each other.
func checkAddresses(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	ips := s.Spec.ClusterIPs
	switch {
	case s.Spec.ClusterIP == "" && len(ips) > 0:
		errs = append(errs, field.Invalid(addressPath, ips, "must be empty when `clusterIP` is not specified"))
	case s.Spec.ClusterIP != "" && len(ips) == 0:
		errs = append(errs, field.Required(addressPath, ""))
	case s.Spec.ClusterIP != "" && ips[0] != s.Spec.ClusterIP:
		errs = append(errs, field.Invalid(addressPath, ips, "first value must match `clusterIP`"))
	}
	for i, family := range s.Spec.IPFamilies {
		if !slices.Contains(knownFamily, family) {
			errs = append(errs, field.NotSupported(familyPath.Index(i), family, knownFamily))
		}
		if slices.Contains(s.Spec.IPFamilies[:i], family) {
			errs = append(errs, field.Duplicate(familyPath.Index(i), family))
		}
	}
	if policy := s.Spec.IPFamilyPolicy; !slices.Contains(knownPolicy, *policy) {
		errs = append(errs, field.NotSupported(policyPath, *policy, knownPolicy))
	}
	var before []string
	if old != nil {
		before = old.Spec.ClusterIPs
	}
	malformed := false
	for i, ip := range ips {
		if i == 0 && ip == corev1.ClusterIPNone {
			if malformed = len(ips) > 1; malformed {
				errs = append(errs, field.Invalid(addressPath, ips, "'None' must be the first and only value"))
			}
			continue
		}
		problems := utilvalidation.IsValidIPForLegacyField(addressPath.Index(i), ip, true, before)
		malformed = malformed || len(problems) > 0
		errs = append(errs, problems...)
	}
	if len(ips) > 2 {
		errs = append(errs, field.Invalid(addressPath, ips, "may only hold up to 2 values"))
	}
	if malformed || headless(s) {
		return errs
	}
	return append(errs, checkFamiliesOfAddresses(s)...)
}

func checkFamiliesOfAddresses(s *corev1.Service) field.ErrorList {
	var (
		errs field.ErrorList
		seen []corev1.IPFamily
	)
	for i, ip := range s.Spec.ClusterIPs {
		a, ok := parseAddress(ip)
		if !ok {
			continue // already reported
		}
		family := FamilyOf(a)
		if slices.Contains(seen, family) {
			errs = append(errs, field.Invalid(addressPath, s.Spec.ClusterIPs, "may specify no more than one IP for each IP family"))
		}
		seen = append(seen, family)
		if i < len(s.Spec.IPFamilies) && s.Spec.IPFamilies[i] != family {
			errs = append(errs, field.Invalid(addressPath.Index(i), ip,
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", s.Spec.IPFamilies[i], i)))
		}
	}
	return errs
}

// checkReduction allows an update to drop the second family only with SingleStack. It drops the family if the update changes
// only the policy.
func checkReduction(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	policy, ips, families := *s.Spec.IPFamilyPolicy, &s.Spec.ClusterIPs, &s.Spec.IPFamilies
	single := policy == corev1.IPFamilyPolicySingleStack
	if old != nil && single {
		if slices.Equal(*ips, old.Spec.ClusterIPs) && len(*ips) > 1 {
			*ips = (*ips)[:1:1]
		}
		if slices.Equal(*families, old.Spec.IPFamilies) && len(*families) > 1 {
			*families = (*families)[:1:1]
		}
	}
	if old != nil && !single {
		if len(*ips) > 0 && len(*ips) < len(old.Spec.ClusterIPs) {
			errs = append(errs, field.Invalid(policyPath, policy, "must be 'SingleStack' to release the secondary cluster IP"))
		}
		if len(*families) > 0 && len(*families) < len(old.Spec.IPFamilies) {
			errs = append(errs, field.Invalid(policyPath, policy, "must be 'SingleStack' to release the secondary IP family"))
		}
	}
	if single && len(*ips) == 2 {
		errs = append(errs, field.Invalid(policyPath, policy,
			"must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if single && len(*families) == 2 {
		errs = append(errs, field.Invalid(policyPath, policy,
			"must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	return errs
}

// inferFamilies adds the families of requested addresses.
func inferFamilies(s *corev1.Service, configured []corev1.IPFamily) field.ErrorList {
	if headless(s) {
		return nil
	}
	var errs field.ErrorList
	for i, ip := range s.Spec.ClusterIPs {
		a, ok := parseAddress(ip)
		if !ok || i < len(s.Spec.IPFamilies) {
			continue
		}
		family := FamilyOf(a)
		if !slices.Contains(configured, family) {
			errs = append(errs, field.Invalid(addressPath.Index(i), s.Spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family)))
			continue
		}
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, family)
	}
	return errs
}

func checkConfigured(s *corev1.Service, configured []corev1.IPFamily) field.ErrorList {
	var errs field.ErrorList
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(configured) < 2 {
		errs = append(errs, field.Invalid(policyPath, *s.Spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range s.Spec.IPFamilies {
		if !slices.Contains(configured, family) {
			errs = append(errs, field.Invalid(familyPath.Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}

// checkUnchanged refuses changes of addresses and families, which clients have cached. A second family may be added or removed.
func checkUnchanged(s, old *corev1.Service) field.ErrorList {
	if old == nil || !usesClusterIP(s) || !usesClusterIP(old) || headless(s) && headless(old) || len(old.Spec.ClusterIPs) == 0 {
		return nil
	}
	var errs field.ErrorList
	now, before := s.Spec.ClusterIPs, old.Spec.ClusterIPs
	switch {
	case len(now) == 0:
		errs = append(errs, field.Invalid(addressPath.Index(0), now, "primary clusterIP can not be unset"))
	default:
		for i := range min(len(now), len(before)) {
			if now[i] != before[i] {
				errs = append(errs, field.Invalid(addressPath.Index(i), now, neverChanges))
			}
		}
	}
	if headless(s) != headless(old) {
		return errs
	}
	for i := range min(len(s.Spec.IPFamilies), len(old.Spec.IPFamilies)) {
		if s.Spec.IPFamilies[i] != old.Spec.IPFamilies[i] {
			errs = append(errs, field.Invalid(familyPath.Index(0), s.Spec.IPFamilies, neverChanges))
		}
	}
	if usesHealthCheck(s) && usesHealthCheck(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(specPath.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}
