package validate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidatePersistentVolumeClaim(c *corev1.PersistentVolumeClaim) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, claimSpec(&c.Spec, field.NewPath("spec"))...)
}

// claimSpec checks what is asked for; templates of claims ask by the same rules.
func claimSpec(s *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), "at least 1 access mode is required"))
	}
	if s.Selector != nil {
		errs = append(errs, selector(s.Selector, path.Child("selector"))...)
	}
	errs = append(errs, accessModes(s.AccessModes, path.Child("accessModes"))...)
	size, asked := s.Resources.Requests[corev1.ResourceStorage]
	if at := path.Child("resources").Key(string(corev1.ResourceStorage)); !asked {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, positive(size, at)...)
	}
	if class := s.StorageClassName; class != nil && *class != "" {
		errs = append(errs, dnsSubdomain(*class, path.Child("storageClassName"))...)
	}
	errs = append(errs, volumeMode(s.VolumeMode, path.Child("volumeMode"))...)
	errs = append(errs, dataSources(s, path)...)
	if class := s.VolumeAttributesClassName; class != nil && *class != "" {
		errs = append(errs, dnsSubdomain(*class, path.Child("volumeAttributesClassName"))...)
	}
	return errs
}

// dataSources checks what the volume is to be filled from. The two fields say the same: the second came later, and may
// name more kinds. The strategy has copied either into the other.
func dataSources(s *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if source := s.DataSource; source != nil {
		errs = append(errs, dataSource(source.APIGroup, source.Kind, source.Name, path.Child("dataSource"))...)
	}
	ref := s.DataSourceRef
	if ref == nil {
		return errs
	}
	errs = append(errs, dataSource(ref.APIGroup, ref.Kind, ref.Name, path.Child("dataSourceRef"))...)
	if ref.Namespace != nil && *ref.Namespace != "" {
		errs = append(errs, invalid(path.Child("dataSourceRef", "namespace"), *ref.Namespace,
			validation.ValidateNamespaceName(*ref.Namespace, false))...)
		if s.DataSource != nil {
			errs = append(errs, field.Invalid(path, path.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
		}
		return errs
	}
	if s.DataSource != nil && (s.DataSource.Kind != ref.Kind || s.DataSource.Name != ref.Name || groupOf(s.DataSource.APIGroup) != groupOf(ref.APIGroup)) {
		errs = append(errs, field.Invalid(path, path.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

func groupOf(group *string) string {
	if group == nil {
		return ""
	}
	return *group
}

func dataSource(group *string, kind, name string, path *field.Path) field.ErrorList {
	errs := append(present(name, path.Child("name")), present(kind, path.Child("kind"))...)
	switch {
	case groupOf(group) != "":
		errs = append(errs, dnsSubdomain(*group, path.Child("apiGroup"))...)
	case kind != "PersistentVolumeClaim":
		errs = append(errs, field.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}

// ValidatePersistentVolumeClaimUpdate keeps a claim as it was granted: quotas and limits were held against it. A bound claim may
// grow, and shrink again as far as its volume has not grown; the volume is named once.
func ValidatePersistentVolumeClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	errs := ValidatePersistentVolumeClaim(c)
	next, before := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if before.VolumeName == "" {
		before.VolumeName = next.VolumeName
	}
	errs = append(errs, claimClass(c, old, next)...)
	if c.Status.Phase == corev1.ClaimBound {
		if next.Resources.Requests != nil {
			next.Resources.Requests[corev1.ResourceStorage] = before.Resources.Requests[corev1.ResourceStorage]
		}
		next.VolumeAttributesClassName = before.VolumeAttributesClassName
	}
	spec := field.NewPath("spec")
	if !apiequality.Semantic.DeepEqual(next, before) {
		errs = append(errs, field.Forbidden(spec, fmt.Sprintf("spec is immutable after creation except resources.requests and "+
			"volumeAttributesClassName for bound claims\n%v", diff.Diff(before, next))))
	}
	asked, had := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if got := old.Status.Capacity[corev1.ResourceStorage]; asked.Cmp(had) < 0 && asked.Cmp(got) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	class := c.Spec.VolumeAttributesClassName
	if old.Status.CurrentVolumeAttributesClassName != nil && !apiequality.Semantic.DeepEqual(class, old.Spec.VolumeAttributesClassName) {
		at := spec.Child("volumeAttributesClassName")
		switch {
		case class == nil:
			errs = append(errs, field.Forbidden(at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"))
		case *class == "":
			errs = append(errs, field.Forbidden(at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"))
		}
	}
	return errs
}

// claimClass lets the class move from the annotation that it was in once to the field, and a claim without a class get
// one later: the default class, when there is one. What it allows is taken back in next.
func claimClass(c, old *corev1.PersistentVolumeClaim, next *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	const annotation = corev1.BetaStorageClassAnnotation
	before, annotated := old.Annotations[annotation]
	now, still := c.Annotations[annotation]
	class := c.Spec.StorageClassName
	gets := class != nil && old.Spec.StorageClassName == nil
	if gets && annotated && *class == before && (!still || now == before) {
		next.StorageClassName = nil
		return nil
	}
	if gets && (!annotated || *class == before) {
		next.StorageClassName = nil
	}
	if now != before {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(annotation), now, validation.FieldImmutableErrorMsg)}
	}
	return nil
}

func ValidatePersistentVolumeClaimStatus(c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("Spec", "accessModes"), ""))
	}
	status := field.NewPath("status")
	for name, quantity := range c.Status.Capacity {
		if quantity.Sign() < 0 {
			errs = append(errs, field.Invalid(status.Child("capacity").Key(string(name)), quantity.Value(), "must be a valid resource quantity"))
		}
	}
	for name, state := range c.Status.AllocatedResourceStatuses {
		at := status.Child("allocatedResourceStatuses")
		errs = append(errs, claimResource(name, at)...)
		errs = append(errs, oneOf(state, at, corev1.PersistentVolumeClaimControllerResizeInProgress,
			corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
			corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible)...)
	}
	for name, quantity := range c.Status.AllocatedResources {
		at := status.Child("allocatedResources")
		errs = append(errs, claimResource(name, at)...)
		errs = append(errs, notNegative(quantity, at.Key(string(name)))...)
	}
	return errs
}

// claimResource allows storage, and what others have named under domains of their own.
func claimResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := qualified(string(name), path); len(errs) > 0 {
		return errs
	}
	if native(name) && name != corev1.ResourceStorage {
		return field.ErrorList{field.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
}

// native names have no domain, or one of Kubernetes'.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func PersistentVolumeClaimWarnings(c *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, set := c.Annotations[corev1.BetaStorageClassAnnotation]; set {
		warnings = append(warnings, fmt.Sprintf(`%s: deprecated since v1.8; use "storageClassName" attribute instead`,
			field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation)))
	}
	for _, list := range []struct {
		name   string
		values corev1.ResourceList
	}{{"requests", c.Spec.Resources.Requests}, {"limits", c.Spec.Resources.Limits}} {
		if size := list.values[corev1.ResourceStorage]; size.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				field.NewPath("spec", "resources", list.name).Key(string(corev1.ResourceStorage)), size.String()))
		}
	}
	return warnings
}
