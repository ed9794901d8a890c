package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

var (
	serviceCount = generic.ObjectCountQuotaResourceNameFor(corev1.Resource("services"))
	claimCount   = generic.ObjectCountQuotaResourceNameFor(corev1.Resource("persistentvolumeclaims"))
)

func chargesWrites(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

func services(list lister) *evaluator {
	names := []corev1.ResourceName{serviceCount, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers}
	return &evaluator{
		resource: corev1.Resource("services"), charges: chargesWrites, list: list,
		names: func(name corev1.ResourceName) bool { return slices.Contains(names, name) },
		usage: func(obj runtime.Object) (corev1.ResourceList, error) {
			s, ok := obj.(*corev1.Service)
			if !ok {
				return nil, unexpectedType("Service", obj)
			}
			return serviceUsage(s), nil
		},
	}
}

func serviceUsage(s *corev1.Service) corev1.ResourceList {
	published, balancers := 0, 0
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		published = len(s.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		balancers = 1
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 || s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts {
				published++
			}
		}
	}
	return corev1.ResourceList{
		serviceCount: one(), corev1.ResourceServices: one(),
		corev1.ResourceServicesNodePorts: quantity(published), corev1.ResourceServicesLoadBalancers: quantity(balancers),
	}
}

// perClass separates a storage class from the counted resource.
const perClass = ".storageclass.storage.k8s.io/"

func volumeClaims(list lister) *evaluator {
	return &evaluator{
		resource: corev1.Resource("persistentvolumeclaims"), charges: chargesVolumeClaim, names: isClaimName, inScope: claimInScope, list: list,
		usage: func(obj runtime.Object) (corev1.ResourceList, error) {
			c, ok := obj.(*corev1.PersistentVolumeClaim)
			if !ok {
				return nil, unexpectedType("PersistentVolumeClaim", obj)
			}
			return claimUsage(c), nil
		},
	}
}

func chargesVolumeClaim(a admission.Attributes) bool {
	if a.GetSubresource() != "status" {
		return chargesWrites(a)
	}
	now, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	old, okOld := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	return ok && okOld && (!apiequality.Semantic.DeepEqual(now.Status.AllocatedResources, old.Status.AllocatedResources) ||
		!slices.Equal(attributesClasses(now), attributesClasses(old)))
}

func isClaimName(name corev1.ResourceName) bool {
	if name == claimCount || name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage {
		return true
	}
	return strings.HasSuffix(string(name), perClass+string(corev1.ResourcePersistentVolumeClaims)) ||
		strings.HasSuffix(string(name), perClass+string(corev1.ResourceRequestsStorage))
}

func claimUsage(c *corev1.PersistentVolumeClaim) corev1.ResourceList {
	usage := corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: one(), claimCount: one()}
	class := c.Annotations[corev1.BetaStorageClassAnnotation] // takes precedence over the newer field
	if _, annotated := c.Annotations[corev1.BetaStorageClassAnnotation]; !annotated && c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	ofClass := func(name corev1.ResourceName) corev1.ResourceName { return corev1.ResourceName(class+perClass) + name }
	if class != "" {
		usage[ofClass(corev1.ResourcePersistentVolumeClaims)] = one()
	}
	wanted, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return usage
	}
	// Storage allocated for an expansion that is being reverted is still in use.
	if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(wanted) > 0 {
		wanted = allocated
	}
	wanted = wholeBytes(wanted)
	usage[corev1.ResourceRequestsStorage] = wanted
	if class != "" {
		usage[ofClass(corev1.ResourceRequestsStorage)] = wanted
	}
	return usage
}

// wholeBytes rounds up, because the status of a quota must not contain fractions of bytes.
func wholeBytes(q resource.Quantity) resource.Quantity {
	q = q.DeepCopy()
	q.RoundUp(0)
	return q
}

func claimInScope(s corev1.ScopedResourceSelectorRequirement, obj runtime.Object) (bool, error) {
	c, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return false, unexpectedType("PersistentVolumeClaim", obj)
	}
	if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	classes := attributesClasses(c)
	if s.Operator == corev1.ScopeSelectorOpExists {
		return len(classes) > 0, nil
	}
	return matchesSelector(s, classes...)
}

// attributesClasses returns the current, requested and target classes of a claim.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	var all []string
	for _, name := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if name != nil && *name != "" {
			all = append(all, *name)
		}
	}
	if m := c.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		all = append(all, m.TargetVolumeAttributesClassName)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
