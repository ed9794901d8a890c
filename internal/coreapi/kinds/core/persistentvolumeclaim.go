package core

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func prepareClaim(obj runtime.Object) {
	claim := obj.(*corev1.PersistentVolumeClaim)
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	fillFrom(&claim.Spec, nil)
}

func updateClaim(obj, old runtime.Object) {
	before := &old.(*corev1.PersistentVolumeClaim).Spec
	fillFrom(&obj.(*corev1.PersistentVolumeClaim).Spec, before)
	sameSource(before) // a claim stored by an older server may have only one of the fields
}

// fillFrom determines the data source of a claim. dataSource has always dropped unknown kinds. The newer dataSourceRef
// (KEP-1495) keeps them.
func fillFrom(s, old *corev1.PersistentVolumeClaimSpec) {
	if s.DataSourceRef != nil && s.DataSourceRef.Namespace != nil && *s.DataSourceRef.Namespace != "" {
		// Sources in other namespaces (CrossNamespaceVolumeDataSource) are alpha, and off.
		if old == nil || old.DataSourceRef == nil {
			s.DataSourceRef = nil
		}
	}
	inUse := old != nil && (old.DataSource != nil || old.DataSourceRef != nil)
	if !inUse && s.DataSourceRef == nil && s.DataSource != nil {
		group := ""
		if s.DataSource.APIGroup != nil {
			group = *s.DataSource.APIGroup
		}
		claim := group == "" && s.DataSource.Kind == "PersistentVolumeClaim"
		if snapshot := group == "snapshot.storage.k8s.io" && s.DataSource.Kind == "VolumeSnapshot"; !claim && !snapshot {
			s.DataSource = nil
		}
	}
	sameSource(s)
}

// sameSource copies the one field that is set to the other.
func sameSource(s *corev1.PersistentVolumeClaimSpec) {
	source, ref := s.DataSource, s.DataSourceRef
	switch {
	case source != nil && ref == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && (ref.Namespace == nil || *ref.Namespace == ""):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

// dropVolumeHealth drops the health status, as kube-apiserver does: CSIVolumeHealth is alpha, and off.
func dropVolumeHealth(obj, old runtime.Object) {
	if old.(*corev1.PersistentVolumeClaim).Status.HealthStatus == nil {
		obj.(*corev1.PersistentVolumeClaim).Status.HealthStatus = nil
	}
}

func persistentVolumeClaimResource() registry.Resource {
	return registry.Resource{
		Name: "persistentvolumeclaims", Singular: "persistentvolumeclaim", ShortNames: []string{"pvc"},
		Object: &corev1.PersistentVolumeClaim{}, List: &corev1.PersistentVolumeClaimList{}, WatchCache: true, ReturnDeletedObject: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: data, namespace: ns}\n" +
				"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}",
		},
		Rules:    validate.WithStatus(validatePersistentVolumeClaim, validatePersistentVolumeClaimUpdate, validatePersistentVolumeClaimStatus),
		Defaults: defaults.Of(defaultPersistentVolumeClaim),
		Warnings: validate.Warn(persistentVolumeClaimWarnings),
		Columns:  persistentVolumeClaimColumns,
		Spec:     registry.SpecOf(func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec { return &c.Spec }),
		Status:   registry.StatusOf(func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimStatus { return &c.Status }), StatusChangesMetadata: true,
		PrepareCreate: prepareClaim, PrepareUpdate: updateClaim, PrepareStatus: dropVolumeHealth,
	}
}

func persistentVolumeClaimColumns() columns.Printer {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	return columns.Show(func(c *corev1.PersistentVolumeClaim, now time.Time) []any {
		capacity, modes := "", "" // of the volume, if there is one
		if c.Spec.VolumeName != "" {
			size := c.Status.Capacity[corev1.ResourceStorage]
			capacity, modes = size.String(), shortModes(c.Status.AccessModes)
		}
		return []any{
			c.Name, volumePhase(string(c.Status.Phase), c), c.Spec.VolumeName, capacity, modes,
			classOf(c.Annotations, c.Spec.StorageClassName), orUnset(c.Spec.VolumeAttributesClassName), columns.AgeOf(c, now),
			orUnset(c.Spec.VolumeMode),
		}
	}, columns.Name(), columns.Text("Status", status["phase"]), columns.Text("Volume", spec["volumeName"]), columns.Text("Capacity", status["capacity"]),
		columns.Text("Access Modes", status["accessModes"]), columns.Text("StorageClass", "The storage class of the claim"),
		columns.Text("VolumeAttributesClass", "The attributes class of the claim"), columns.Age(), columns.Wide(columns.Text("VolumeMode", spec["volumeMode"])))
}

func defaultPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	defaults.Set(&c.Status.Phase, corev1.ClaimPending)
	claimSpec(&c.Spec)
	defaults.Milli(c.Status.Capacity)
	defaults.Milli(c.Status.AllocatedResources)
}

// claimSpec sets the defaults of claims and of claim templates.
func claimSpec(s *corev1.PersistentVolumeClaimSpec) {
	defaults.Point(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	defaults.Milli(s.Resources.Limits)
	defaults.Milli(s.Resources.Requests)
}

func validatePersistentVolumeClaim(c *corev1.PersistentVolumeClaim) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, validate.ClaimSpec(&c.Spec, field.NewPath("spec"))...)
}

// validatePersistentVolumeClaimUpdate makes a claim immutable, because quotas and limits were checked against it. A bound claim
// may request more storage, and may reduce the request again if it stays above the capacity of its volume. The volume name can
// be set once.
func validatePersistentVolumeClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	errs := validatePersistentVolumeClaim(c)
	next, before := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	before.VolumeName = cmp.Or(before.VolumeName, next.VolumeName)
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
	errs = append(errs, validate.Immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
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

// claimClass allows the class to move from the annotation that preceded the field to the field, and a claim without a class to
// get one later, such as the default class. It reverts in next the changes that it allows.
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

func validatePersistentVolumeClaimStatus(c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
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
		errs = append(errs, validate.OneOf(state, at, corev1.PersistentVolumeClaimControllerResizeInProgress,
			corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
			corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible)...)
	}
	for name, quantity := range c.Status.AllocatedResources {
		at := status.Child("allocatedResources")
		errs = append(errs, claimResource(name, at)...)
		errs = append(errs, validate.NotNegative(quantity, at.Key(string(name)))...)
	}
	return errs
}

// claimResource allows storage, and names with a domain outside Kubernetes.
func claimResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := validate.Qualified(string(name), path); len(errs) > 0 {
		return errs
	}
	if validate.NativeResource(name) && name != corev1.ResourceStorage {
		return field.ErrorList{field.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
}

func persistentVolumeClaimWarnings(c *corev1.PersistentVolumeClaim) []string {
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
