package validate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ClaimSpec checks what is asked for; templates of claims ask by the same rules.
func ClaimSpec(s *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), "at least 1 access mode is required"))
	}
	if s.Selector != nil {
		errs = append(errs, Selector(s.Selector, path.Child("selector"))...)
	}
	errs = append(errs, AccessModes(s.AccessModes, path.Child("accessModes"))...)
	size, asked := s.Resources.Requests[corev1.ResourceStorage]
	if at := path.Child("resources").Key(string(corev1.ResourceStorage)); !asked {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, Positive(size, at)...)
	}
	if class := s.StorageClassName; class != nil && *class != "" {
		errs = append(errs, DnsSubdomain(*class, path.Child("storageClassName"))...)
	}
	errs = append(errs, VolumeMode(s.VolumeMode, path.Child("volumeMode"))...)
	errs = append(errs, dataSources(s, path)...)
	if class := s.VolumeAttributesClassName; class != nil && *class != "" {
		errs = append(errs, DnsSubdomain(*class, path.Child("volumeAttributesClassName"))...)
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
		errs = append(errs, Invalid(path.Child("dataSourceRef", "namespace"), *ref.Namespace,
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
	errs := append(Present(name, path.Child("name")), Present(kind, path.Child("kind"))...)
	switch {
	case groupOf(group) != "":
		errs = append(errs, DnsSubdomain(*group, path.Child("apiGroup"))...)
	case kind != "PersistentVolumeClaim":
		errs = append(errs, field.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}

// Native names have no domain, or one of Kubernetes'.
func Native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
