package storage

import (
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

// countDriverChanges sets a generation at the first change of a CSIDriver. As in kube-apiserver, a new one has none.
func countDriverChanges(obj, old runtime.Object) {
	if !apiequality.Semantic.DeepEqual(obj.(*storagev1.CSIDriver).Spec, old.(*storagev1.CSIDriver).Spec) {
		registry.SetGeneration(obj, registry.Generation(old)+1)
	}
}

func csiDriverResource() registry.Resource {
	return registry.Resource{
		Name: "csidrivers", Singular: "csidriver", ClusterScoped: true,
		Object: &storagev1.CSIDriver{}, List: &storagev1.CSIDriverList{}, ReturnDeletedObject: true, WatchCache: true,
		Samples:  []string{"metadata: {name: csi.example.com}"},
		Rules:    validate.OnUpdate(validateCSIDriver, validateCSIDriverUpdate),
		Defaults: defaults.Of(defaultCSIDriver),
		Warnings: validate.Warn(csiDriverWarnings),
		Columns:  csiDriverColumns,
		Spec:     registry.SpecOf(func(o *storagev1.CSIDriver) *storagev1.CSIDriverSpec { return &o.Spec }), PrepareUpdate: countDriverChanges,
	}
}

func csiDriverColumns() columns.Printer {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return columns.Show(func(d *storagev1.CSIDriver, now time.Time) []any {
		s := d.Spec
		audiences := columns.Unset
		if s.TokenRequests != nil {
			var list []string
			for _, request := range s.TokenRequests {
				list = append(list, request.Audience)
			}
			audiences = strings.Join(list, ",")
		}
		var modes []string
		for _, mode := range s.VolumeLifecycleModes {
			modes = append(modes, string(mode))
		}
		return []any{
			d.Name, s.AttachRequired == nil || *s.AttachRequired, s.PodInfoOnMount != nil && *s.PodInfoOnMount,
			s.StorageCapacity != nil && *s.StorageCapacity, audiences, s.RequiresRepublish != nil && *s.RequiresRepublish,
			columns.OrElse(strings.Join(modes, ","), columns.None), columns.AgeOf(d, now),
		}
	}, columns.Name(), columns.YesNo("AttachRequired", doc["attachRequired"]), columns.YesNo("PodInfoOnMount", doc["podInfoOnMount"]),
		columns.YesNo("StorageCapacity", doc["storageCapacity"]), columns.Text("TokenRequests", doc["tokenRequests"]),
		columns.YesNo("RequiresRepublish", doc["requiresRepublish"]), columns.Text("Modes", doc["volumeLifecycleModes"]), columns.Age())
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	defaults.Point(&d.Spec.AttachRequired, true)
	defaults.Point(&d.Spec.PodInfoOnMount, false)
	defaults.Point(&d.Spec.StorageCapacity, false)
	defaults.Point(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	defaults.Point(&d.Spec.RequiresRepublish, false)
	defaults.Point(&d.Spec.SELinuxMount, false)
	defaults.Point(&d.Spec.PreventPodSchedulingIfMissing, false)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func validateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	errs := validate.ObjectMeta(&d.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	return append(errs, csiDriverSpec(&d.Spec)...)
}

func validateCSIDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	errs := csiDriverSpec(&d.Spec)
	spec := field.NewPath("spec")
	// kube-apiserver's errors name the field "attachedRequired".
	errs = append(errs, validate.Immutable(d.Spec.AttachRequired, old.Spec.AttachRequired, spec.Child("attachedRequired"))...)
	return append(errs, validate.Immutable(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, spec.Child("volumeLifecycleModes"))...)
}

func csiDriverSpec(s *storagev1.CSIDriverSpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	for _, flag := range []struct {
		name  string
		value *bool
	}{
		{"attachedRequired", s.AttachRequired}, {"podInfoOnMount", s.PodInfoOnMount}, {"storageCapacity", s.StorageCapacity},
		{"seLinuxMount", s.SELinuxMount}, {"preventPodSchedulingIfMissing", s.PreventPodSchedulingIfMissing},
	} {
		if flag.value == nil {
			errs = append(errs, field.Required(path.Child(flag.name), ""))
		}
	}
	if s.FSGroupPolicy != nil {
		errs = append(errs, validate.OneOf(*s.FSGroupPolicy, path.Child("fsGroupPolicy"), storagev1.FileFSGroupPolicy,
			storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	errs = append(errs, tokenRequests(s.TokenRequests, path.Child("tokenRequests"))...)
	for _, mode := range s.VolumeLifecycleModes {
		errs = append(errs, validate.OneOf(mode, path.Child("volumeLifecycleModes"), storagev1.VolumeLifecycleEphemeral,
			storagev1.VolumeLifecyclePersistent)...)
	}
	if period := s.NodeAllocatableUpdatePeriodSeconds; period != nil && *period < minAllocatableSeconds {
		errs = append(errs, field.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *period,
			"must be greater than or equal to 10 seconds"))
	}
	if s.ServiceAccountTokenInSecrets != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(path.Child("serviceAccountTokenInSecrets"), *s.ServiceAccountTokenInSecrets,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

func tokenRequests(list []storagev1.TokenRequest, path *field.Path) field.ErrorList {
	const shortest, longest = int64(10 * time.Minute / time.Second), int64(1) << 32
	var errs field.ErrorList
	audiences := sets.New[string]()
	for i, request := range list {
		if audiences.Has(request.Audience) {
			errs = append(errs, field.Duplicate(path.Index(i).Child("audience"), request.Audience))
			continue
		}
		audiences.Insert(request.Audience)
		seconds, at := request.ExpirationSeconds, path.Index(i).Child("expirationSeconds")
		switch {
		case seconds == nil:
		case *seconds < shortest:
			errs = append(errs, field.Invalid(at, *seconds, "may not specify a duration less than 10 minutes"))
		case *seconds > longest:
			errs = append(errs, field.Invalid(at, *seconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}

// tokensInSecretsAdvice is the warning for drivers that get tokens where their logs may contain them.
const tokensInSecretsAdvice = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true " +
	"to prevent possible logging of tokens in volume attributes"

func csiDriverWarnings(d *storagev1.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	return []string{tokensInSecretsAdvice}
}
