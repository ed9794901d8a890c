package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func validatePod(p *corev1.Pod) field.ErrorList {
	errs := validate.Pod(p)
	spec := field.NewPath("spec")
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	errs = append(errs, appArmorAgrees(p.Annotations, &p.Spec)...)
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

// appArmorAgrees refuses a profile if its field and its annotation differ.
func appArmorAgrees(annotations map[string]string, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	check := func(c *corev1.Container, at *field.Path) {
		annotation, said := annotations[validate.AppArmorContainerPrefix+c.Name]
		var profile *corev1.AppArmorProfile
		if spec.SecurityContext != nil {
			profile = spec.SecurityContext.AppArmorProfile
		}
		if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			profile = c.SecurityContext.AppArmorProfile
		}
		if !said || profile == nil {
			return
		}
		at = at.Child("securityContext", "appArmorProfile")
		local, isLocal := strings.CutPrefix(annotation, validate.AppArmorProfilePrefix)
		switch profile.Type {
		case corev1.AppArmorProfileTypeUnconfined:
			if annotation != validate.AppArmorUnconfined {
				errs = append(errs, field.Forbidden(at.Child("type"), "apparmor type in annotation and field must match"))
			}
		case corev1.AppArmorProfileTypeRuntimeDefault:
			if annotation != validate.AppArmorRuntimeDefault {
				errs = append(errs, field.Forbidden(at.Child("type"), "apparmor type in annotation and field must match"))
			}
		case corev1.AppArmorProfileTypeLocalhost:
			switch {
			case !isLocal:
				errs = append(errs, field.Forbidden(at.Child("type"), "apparmor type in annotation and field must match"))
			case profile.LocalhostProfile == nil || *profile.LocalhostProfile != local:
				errs = append(errs, field.Forbidden(at.Child("localhostProfile"), "apparmor profile in annotation and field must match"))
			}
		}
	}
	for i := range spec.InitContainers {
		check(&spec.InitContainers[i], field.NewPath("spec", "initContainers").Index(i))
	}
	for i := range spec.Containers {
		check(&spec.Containers[i], field.NewPath("spec", "containers").Index(i))
	}
	return errs
}

// PodDevices checks the status fields about allocated devices, which controllers and kubelets write.
func PodDevices(p *corev1.Pod, status *field.Path) field.ErrorList {
	errs := claimStatuses(p.Status.ResourceClaimStatuses, p.Spec.ResourceClaims, status.Child("resourceClaimStatuses"))
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		errs = append(errs, extendedClaim(s, &p.Spec, status.Child("extendedResourceClaimStatus"))...)
	}
	for i, c := range p.Status.EphemeralContainerStatuses {
		if len(c.AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(status.Child("ephemeralContainerStatuses").Index(i).Child("allocatedResourcesStatus"),
				"must not be specified in container status"))
		}
	}
	errs = append(errs, deviceHealth(p.Status.ContainerStatuses, p.Spec.Containers, status.Child("containerStatuses"))...)
	errs = append(errs, deviceHealth(p.Status.InitContainerStatuses, p.Spec.InitContainers, status.Child("initContainerStatuses"))...)
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		for name, list := range map[string][]corev1.ContainerStatus{"containerStatuses": p.Status.ContainerStatuses,
			"initContainerStatuses": p.Status.InitContainerStatuses, "ephemeralContainerStatuses": p.Status.EphemeralContainerStatuses} {
			for i, c := range list {
				if c.User != nil && c.User.Linux != nil {
					errs = append(errs, field.Forbidden(status.Child(name).Index(i).Child("user", "linux"), "cannot be set for a windows pod"))
				}
			}
		}
	}
	return errs
}

func claimStatuses(statuses []corev1.PodResourceClaimStatus, claims []corev1.PodResourceClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, s := range statuses {
		at := path.Index(i)
		if !slices.ContainsFunc(claims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if seen.Has(s.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		seen.Insert(s.Name)
		if s.ResourceClaimName != nil {
			errs = append(errs, validate.DnsSubdomain(*s.ResourceClaimName, at.Child("resourceClaimName"))...)
		}
	}
	return errs
}

func extendedClaim(s *corev1.PodExtendedResourceClaimStatus, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	requests := map[string]corev1.ResourceList{}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		requests[c.Name] = c.Resources.Requests
	}
	var errs field.ErrorList
	mappings := path.Child("requestMappings")
	if len(s.RequestMappings) == 0 {
		errs = append(errs, field.Required(mappings, "at least one request mapping is required"))
	}
	seen := sets.New[corev1.ContainerExtendedResourceRequest]()
	for i, m := range s.RequestMappings {
		at := mappings.Index(i)
		switch asked, known := requests[m.ContainerName]; {
		case !known:
			errs = append(errs, field.Invalid(at.Child("containerName"), m.ContainerName,
				"must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		case !listsResource(asked, m.ResourceName):
			errs = append(errs, field.Invalid(at.Child("resourceName"), m.ResourceName,
				"must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
		}
		errs = append(errs, validate.DnsLabel(m.RequestName, path.Child("requestName"))...)
		if seen.Has(m) {
			errs = append(errs, field.Duplicate(at.Child("containerName"), m.ContainerName),
				field.Duplicate(at.Child("resourceName"), m.ResourceName), field.Duplicate(at.Child("requestName"), m.RequestName))
		}
		seen.Insert(m)
	}
	if s.ResourceClaimName == "" {
		return append(errs, field.Required(path.Child("resourceClaimName"), ""))
	}
	return append(errs, validate.DnsSubdomain(s.ResourceClaimName, path.Child("resourceClaimName"))...)
}

func listsResource(list corev1.ResourceList, name string) bool {
	_, ok := list[corev1.ResourceName(name)]
	return ok
}

// deviceHealth requires the devices in a status to be unique and to belong to a resource that the container requests. Statuses
// of containers that are not in the spec are allowed (kubernetes/kubernetes#124915).
func deviceHealth(statuses []corev1.ContainerStatus, containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range statuses {
		c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
		for j, r := range s.AllocatedResourcesStatus {
			at := path.Index(i).Child("allocatedResourcesStatus").Index(j)
			if c >= 0 && !strings.HasPrefix(string(r.Name), "claim:") && !listsResource(containers[c].Resources.Requests, string(r.Name)) {
				errs = append(errs, field.Invalid(at.Child("name"), r.Name, "must match one of the container's resource requests"))
			}
			seen := sets.New[corev1.ResourceID]()
			for k, device := range r.Resources {
				if seen.Has(device.ResourceID) {
					errs = append(errs, field.Duplicate(at.Child("resources").Index(k).Child("resourceID"), device.ResourceID))
				}
				seen.Insert(device.ResourceID)
				errs = append(errs, validate.OneOf(device.Health, at.Child("resources").Index(k).Child("health"),
					corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
			}
		}
	}
	return errs
}

// validatePodStatus refuses to restart a container that has terminated for good, because controllers have counted its exit.
func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	status := field.NewPath("status")
	errs := validate.PodAnnotationsUpdate(p, old, field.NewPath("metadata", "annotations"))
	for i, c := range p.Status.Conditions {
		at := status.Child("conditions").Index(i)
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer"))
		}
		if c.Type != corev1.PodScheduled && c.Type != corev1.PodReady && c.Type != corev1.PodInitialized {
			errs = append(errs, validate.Qualified(string(c.Type), at.Child("Type"))...)
		}
	}
	errs = append(errs, nominated(p, old, status.Child("nominatedNodeName"))...)
	if p.Status.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(status.Child("observedGeneration"), p.Status.ObservedGeneration, "must be a non-negative integer"))
	}
	errs = append(errs, validate.Immutable(p.Status.QOSClass, old.Status.QOSClass, status.Child("qosClass"))...)
	errs = append(errs, stoppedContainers(p.Status.ContainerStatuses, old.Status.ContainerStatuses, &old.Spec, old.Spec.Containers,
		status.Child("containerStatuses"))...)
	errs = append(errs, stoppedContainers(p.Status.InitContainerStatuses, old.Status.InitContainerStatuses, &old.Spec, old.Spec.InitContainers,
		status.Child("initContainerStatuses"))...)
	errs = append(errs, stoppedContainers(p.Status.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, nil, nil,
		status.Child("ephemeralContainerStatuses"))...)
	errs = append(errs, PodDevices(p, status)...)
	errs = append(errs, podAddresses(p, old, status.Child("podIPs"))...)
	return append(errs, hostAddresses(p, old, status.Child("hostIPs"))...)
}

// nominated allows a nominated node, for which the scheduler reserves resources, only for a pod that is not bound yet.
func nominated(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	next := p.Status.NominatedNodeName
	if next == "" || next == old.Status.NominatedNodeName {
		return nil
	}
	errs := validate.DnsSubdomain(next, path)
	if old.Spec.NodeName != "" {
		errs = append(errs, field.Forbidden(path, "may not be set on pods that are already bound to a node"))
	}
	return errs
}

// stoppedContainers compares statuses. spec is nil for containers that are never restarted.
func stoppedContainers(next, old []corev1.ContainerStatus, spec *corev1.PodSpec, containers []corev1.Container, path *field.Path) field.ErrorList {
	if spec != nil && allMayRestart(spec) {
		return nil
	}
	var errs field.ErrorList
	for i, before := range old {
		ended := before.State.Terminated
		if ended == nil {
			continue
		}
		at := slices.IndexFunc(next, func(c corev1.ContainerStatus) bool { return c.Name == before.Name })
		if at < 0 || next[at].State.Terminated != nil || spec != nil && mayRestart(spec, containers, before.Name, ended.ExitCode) {
			continue
		}
		errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
	}
	return errs
}

// allMayRestart reports whether the exit of a container can restart all containers.
func allMayRestart(s *corev1.PodSpec) bool {
	found := false
	validate.EachContainer(s, nil, func(c *corev1.Container, _ *field.Path) {
		found = found || slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
	return found
}

// mayRestart evaluates the container's rules, then its policy, then the pod's policy.
func mayRestart(s *corev1.PodSpec, containers []corev1.Container, name string, code int32) bool {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return false
	}
	for _, rule := range containers[i].RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(rule.ExitCodes.Values, code)
		if listed == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true
		}
	}
	policy := s.RestartPolicy
	if own := containers[i].RestartPolicy; own != nil {
		policy = corev1.RestartPolicy(*own)
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && code != 0
}

func podAddresses(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	var next, before []string
	for _, ip := range p.Status.PodIPs {
		next = append(next, ip.IP)
	}
	for _, ip := range old.Status.PodIPs {
		before = append(before, ip.IP)
	}
	errs := addresses(next, before, p.Status.PodIPs, path)
	switch {
	case (p.Status.PodIP != "") != (len(next) > 0):
		errs = append(errs, field.Invalid(path, p.Status.PodIPs, "podIP and podIPs must either both be set or both be unset"))
	case len(next) > 0 && p.Status.PodIP != next[0]:
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), next[0], "must be equal to `podIP`"))
	}
	return errs
}

func hostAddresses(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	var next, before []string
	for _, ip := range p.Status.HostIPs {
		next = append(next, ip.IP)
	}
	for _, ip := range old.Status.HostIPs {
		before = append(before, ip.IP)
	}
	if len(next) == 0 {
		return nil
	}
	errs := addresses(next, before, p.Status.HostIPs, path)
	if p.Status.HostIP != next[0] {
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), next[0], "must be equal to `hostIP`"))
	}
	return errs
}

// addresses allows at most one address of each family.
func addresses(next, old []string, all any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sixes := 0
	for i, ip := range next {
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(path.Index(i), ip, true, old)...)
		if strings.Contains(ip, ":") {
			sixes++
		}
	}
	if len(next) > 2 || len(next) == 2 && sixes != 1 {
		errs = append(errs, field.Invalid(path, all, "may specify no more than one IP for each IP family"))
	}
	return errs
}

const changeable = "pod updates may not change fields other than " +
	"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// validatePodUpdate allows only a few fields of a pod to change, because scheduling and startup depend on the others.
func validatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	errs := validate.Pod(p)
	errs = append(errs, validate.PodAnnotationsUpdate(p, old, field.NewPath("metadata", "annotations"))...)
	spec := field.NewPath("spec")
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(spec.Child("containers"), "pod updates may not add or remove containers"))
	}
	if len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(spec.Child("initContainers"), "pod updates may not add or remove containers"))
	}
	errs = append(errs, changedDeadline(p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds,
		spec.Child("activeDeadlineSeconds"))...)
	errs = append(errs, addedTolerations(p.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"))...)
	errs = append(errs, removedGates(p.Spec.SchedulingGates, old.Spec.SchedulingGates, spec.Child("schedulingGates"))...)
	if apiequality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return errs
	}
	left := withoutAllowedChanges(&p.Spec, &old.Spec)
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, narrowed(left, &old.Spec, spec)...)
	}
	if !apiequality.Semantic.DeepEqual(*left, old.Spec) {
		errs = append(errs, field.Forbidden(spec, changeable+"\n"+diff.Diff(old.Spec, *left)))
	}
	return errs
}

// withoutAllowedChanges returns the new spec with the old value of every field that may change. If the two specs still differ,
// another field was changed.
func withoutAllowedChanges(next, old *corev1.PodSpec) *corev1.PodSpec {
	left := next.DeepCopy()
	for i := range left.Containers {
		left.Containers[i].Image = old.Containers[i].Image
	}
	for i := range left.InitContainers {
		left.InitContainers[i].Image = old.InitContainers[i].Image
	}
	left.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	left.Tolerations = old.Tolerations
	left.SchedulingGates = old.SchedulingGates
	before, after := old.TerminationGracePeriodSeconds, next.TerminationGracePeriodSeconds
	if before != nil && *before < 0 && after != nil && *after == 1 {
		left.TerminationGracePeriodSeconds = before
	}
	return left
}

// narrowed lets the owners of a pod's scheduling gates restrict the nodes for the pod, never extend them. It reverts in left
// the changes that it allows.
func narrowed(left, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, value := range old.NodeSelector {
		if next, kept := left.NodeSelector[key]; !kept || next != value {
			errs = append(errs, field.Invalid(path.Child("nodeSelector"), left.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	left.NodeSelector = old.NodeSelector
	next, before := nodeAffinity(left), nodeAffinity(old)
	if apiequality.Semantic.DeepEqual(next, before) {
		return errs
	}
	errs = append(errs, narrowedAffinity(next, before, path.Child("affinity", "nodeAffinity"))...)
	switch {
	case left.Affinity == nil:
		left.Affinity = &corev1.Affinity{NodeAffinity: before}
	case old.Affinity == nil && left.Affinity.PodAffinity == nil && left.Affinity.PodAntiAffinity == nil:
		left.Affinity = nil
	default:
		left.Affinity.NodeAffinity = before
	}
	return errs
}

func nodeAffinity(s *corev1.PodSpec) *corev1.NodeAffinity {
	if s.Affinity == nil {
		return nil
	}
	return s.Affinity.NodeAffinity
}

func narrowedAffinity(next, old *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	before := requiredTerms(old)
	if len(before) == 0 {
		return nil
	}
	after, at := requiredTerms(next), path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if len(after) != len(before) {
		return field.ErrorList{field.Invalid(at, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	var errs field.ErrorList
	for i := range before {
		if !onlyAdds(&after[i], &before[i]) {
			errs = append(errs, field.Invalid(at.Index(i), after[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

func requiredTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// onlyAdds reports whether next selects a subset of old. An empty term selects nothing, and must stay empty.
func onlyAdds(next, old *corev1.NodeSelectorTerm) bool {
	if len(old.MatchExpressions) == 0 && len(old.MatchFields) == 0 {
		return len(next.MatchExpressions) == 0 && len(next.MatchFields) == 0
	}
	prefix := func(next, old []corev1.NodeSelectorRequirement) bool {
		return len(next) >= len(old) && apiequality.Semantic.DeepEqual(next[:len(old)], old)
	}
	return prefix(next.MatchExpressions, old.MatchExpressions) && prefix(next.MatchFields, old.MatchFields)
}

// changedDeadline allows a deadline to become earlier, never to be removed or become later.
func changedDeadline(next, old *int64, path *field.Path) field.ErrorList {
	switch {
	case next == nil && old != nil:
		return field.ErrorList{field.Invalid(path, next, "must not update from a positive integer to nil value")}
	case next != nil && old != nil && *next > *old:
		return field.ErrorList{field.Invalid(path, *next, "must be less than or equal to previous value")}
	}
	return nil
}

// addedTolerations requires every old toleration; only its tolerationSeconds may change.
func addedTolerations(next, old []corev1.Toleration, path *field.Path) field.ErrorList {
	for _, before := range old {
		before.TolerationSeconds = nil
		kept := slices.ContainsFunc(next, func(t corev1.Toleration) bool {
			t.TolerationSeconds = nil
			return t == before
		})
		if !kept {
			return field.ErrorList{field.Forbidden(path,
				"existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

func removedGates(next, old []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range next {
		if !slices.Contains(old, gate) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("name"), "only deletion is allowed, but found new scheduling gate '"+gate.Name+"'"))
		}
	}
	return errs
}

func warningsOfPod(o *corev1.Pod) []string {
	return append(validate.NameWarning(o.Name, "the Pod's hostname"), validate.PodWarnings(&o.Spec, &o.ObjectMeta, nil)...)
}
