package validate

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxParameterBytes   = 256 << 10 // of all parameters of a class, or the metadata of an attachment
	maxParameters       = 512
	maxVolumeErrorBytes = 1024
)

func ValidateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	errs = append(errs, provisioner(c.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, parameters(c.Parameters, field.NewPath("parameters"))...)
	if c.ReclaimPolicy != nil && *c.ReclaimPolicy != "" {
		errs = append(errs, oneOf(*c.ReclaimPolicy, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete,
			corev1.PersistentVolumeReclaimRetain)...)
	}
	if c.VolumeBindingMode == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	} else {
		errs = append(errs, oneOf(*c.VolumeBindingMode, field.NewPath("volumeBindingMode"), storagev1.VolumeBindingImmediate,
			storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return append(errs, topologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

// ValidateStorageClassUpdate keeps what volumes were made by: a class that changed would say something untrue of them.
func ValidateStorageClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := ValidateStorageClass(c)
	errs = append(errs, immutable(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	errs = append(errs, immutable(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, immutable(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs, immutable(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

func provisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return qualified(strings.ToLower(name), path)
}

func parameters(values map[string]string, path *field.Path) field.ErrorList {
	if len(values) > maxParameters {
		return field.ErrorList{field.TooLong(path, "", maxParameters)}
	}
	var errs field.ErrorList
	if _, nameless := values[""]; nameless {
		errs = append(errs, field.Invalid(path, "", "field can not be empty."))
	}
	if bytesOf(values) > maxParameterBytes {
		errs = append(errs, field.TooLong(path, "", maxParameterBytes))
	}
	return errs
}

func bytesOf(values map[string]string) int {
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
	}
	return size
}

func topologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := make([]map[string]sets.Set[string], len(terms)) // those to come are empty, so that an empty one repeats them
	for i, term := range terms {
		at := path.Index(i).Child("matchLabelExpressions")
		said := map[string]sets.Set[string]{}
		for j, requirement := range term.MatchLabelExpressions {
			errs = append(errs, topologyRequirement(&requirement, at.Index(j))...)
			if _, twice := said[requirement.Key]; twice {
				errs = append(errs, field.Duplicate(at.Index(j).Child("key"), requirement.Key))
			}
			said[requirement.Key] = sets.New(requirement.Values...)
		}
		for _, before := range seen {
			if apiequality.Semantic.DeepEqual(said, before) {
				errs = append(errs, field.Duplicate(at, ""))
			}
		}
		seen[i] = said
	}
	return errs
}

func topologyRequirement(r *corev1.TopologySelectorLabelRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Values) == 0 {
		errs = append(errs, field.Required(path.Child("values"), ""))
	}
	seen := sets.New[string]()
	for i, value := range r.Values {
		if seen.Has(value) {
			errs = append(errs, field.Duplicate(path.Child("values").Index(i), value))
		}
		seen.Insert(value)
	}
	return append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
}

func ValidateVolumeAttributesClass(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	errs = append(errs, provisioner(c.DriverName, field.NewPath("driverName"))...)
	errs = append(errs, parameters(c.Parameters, field.NewPath("parameters"))...)
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(field.NewPath("parameters"), "must contain at least one key/value pair"))
	}
	return errs
}

func ValidateVolumeAttributesClassUpdate(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !apiequality.Semantic.DeepEqual(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return append(errs, ValidateVolumeAttributesClass(c)...)
}

func ValidateVolumeAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	errs := objectMeta(&a.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, driverName(a.Spec.Attacher, spec.Child("attacher"))...)
	errs = append(errs, attachmentSource(&a.Spec.Source, spec.Child("source"))...)
	errs = append(errs, dnsSubdomain(a.Spec.NodeName, spec.Child("nodeName"))...)
	status := field.NewPath("status")
	if bytesOf(a.Status.AttachmentMetadata) > maxParameterBytes {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", maxParameterBytes))
	}
	errs = append(errs, volumeError(a.Status.AttachError, status.Child("attachError"))...)
	return append(errs, volumeError(a.Status.DetachError, status.Child("detachError"))...)
}

func attachmentSource(s *storagev1.VolumeAttachmentSource, path *field.Path) field.ErrorList {
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		return field.ErrorList{field.Required(path, exactlyOne)}
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		return field.ErrorList{field.Forbidden(path, exactlyOne)}
	case s.InlineVolumeSpec != nil:
		return inlineVolumeSpec(s.InlineVolumeSpec, path.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		return field.ErrorList{field.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")}
	}
	return dnsSubdomain(*s.PersistentVolumeName, path.Child("persistentVolumeName"))
}

func volumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxVolumeErrorBytes {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxVolumeErrorBytes))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(path.Child("errorCode"), *e.ErrorCode, utilvalidation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}

func ValidateVolumeAttachmentUpdate(a, old *storagev1.VolumeAttachment) field.ErrorList {
	return append(ValidateVolumeAttachment(a), immutable(a.Spec, old.Spec, field.NewPath("spec"))...)
}

func ValidateCSIStorageCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, selector(c.NodeTopology, field.NewPath("nodeTopology"))...)
	errs = append(errs, dnsSubdomain(c.StorageClassName, field.NewPath("storageClassName"))...)
	if c.Capacity != nil {
		errs = append(errs, notNegative(*c.Capacity, field.NewPath("capacity"))...)
	}
	return errs
}

// ValidateCSIStorageCapacityUpdate keeps the question that the capacity answers.
func ValidateCSIStorageCapacityUpdate(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := ValidateCSIStorageCapacity(c)
	errs = append(errs, immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...)
	return append(errs, immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
}

func StorageClassWarnings(c *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range c.AllowedTopologies {
		for j, expression := range term.MatchLabelExpressions {
			if message, old := oldNodeLabels[expression.Key]; old {
				at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key")
				warnings = append(warnings, at.String()+": "+message)
			}
		}
	}
	return warnings
}
