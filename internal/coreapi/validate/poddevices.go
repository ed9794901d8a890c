package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podDevices checks what controllers and kubelets say of the devices that a pod has been given.
func podDevices(p *corev1.Pod, status *field.Path) field.ErrorList {
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
			errs = append(errs, dnsSubdomain(*s.ResourceClaimName, at.Child("resourceClaimName"))...)
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
		case !has(asked, m.ResourceName):
			errs = append(errs, field.Invalid(at.Child("resourceName"), m.ResourceName,
				"must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
		}
		errs = append(errs, dnsLabel(m.RequestName, path.Child("requestName"))...)
		if seen.Has(m) {
			errs = append(errs, field.Duplicate(at.Child("containerName"), m.ContainerName),
				field.Duplicate(at.Child("resourceName"), m.ResourceName), field.Duplicate(at.Child("requestName"), m.RequestName))
		}
		seen.Insert(m)
	}
	if s.ResourceClaimName == "" {
		return append(errs, field.Required(path.Child("resourceClaimName"), ""))
	}
	return append(errs, dnsSubdomain(s.ResourceClaimName, path.Child("resourceClaimName"))...)
}

func has(list corev1.ResourceList, name string) bool {
	_, ok := list[corev1.ResourceName(name)]
	return ok
}

// deviceHealth checks statuses of devices, each told once, of what its container asks for. Statuses of containers that are
// not in the spec are let through (kubernetes/kubernetes#124915).
func deviceHealth(statuses []corev1.ContainerStatus, containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range statuses {
		c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
		for j, r := range s.AllocatedResourcesStatus {
			at := path.Index(i).Child("allocatedResourcesStatus").Index(j)
			if c >= 0 && !strings.HasPrefix(string(r.Name), "claim:") && !has(containers[c].Resources.Requests, string(r.Name)) {
				errs = append(errs, field.Invalid(at.Child("name"), r.Name, "must match one of the container's resource requests"))
			}
			seen := sets.New[corev1.ResourceID]()
			for k, device := range r.Resources {
				if seen.Has(device.ResourceID) {
					errs = append(errs, field.Duplicate(at.Child("resources").Index(k).Child("resourceID"), device.ResourceID))
				}
				seen.Insert(device.ResourceID)
				errs = append(errs, oneOf(device.Health, at.Child("resources").Index(k).Child("health"),
					corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
			}
		}
	}
	return errs
}
