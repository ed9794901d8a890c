package validate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxDriverName = 63
	maxNodeID     = 256
	// minAllocatableSeconds is how often a driver may at most be asked how many volumes a node takes.
	minAllocatableSeconds = 10
)

// driverName checks the name by which a storage driver is called.
func driverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(path, "", maxDriverName))
	}
	return append(errs, invalid(path, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func ValidateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	errs := objectMeta(&d.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	return append(errs, csiDriverSpec(&d.Spec)...)
}

func ValidateCSIDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	errs := csiDriverSpec(&d.Spec)
	spec := field.NewPath("spec")
	// "attachedRequired" is how kube-apiserver calls the field in its errors.
	errs = append(errs, immutable(d.Spec.AttachRequired, old.Spec.AttachRequired, spec.Child("attachedRequired"))...)
	return append(errs, immutable(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, spec.Child("volumeLifecycleModes"))...)
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
		errs = append(errs, oneOf(*s.FSGroupPolicy, path.Child("fsGroupPolicy"), storagev1.FileFSGroupPolicy,
			storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	errs = append(errs, tokenRequests(s.TokenRequests, path.Child("tokenRequests"))...)
	for _, mode := range s.VolumeLifecycleModes {
		errs = append(errs, oneOf(mode, path.Child("volumeLifecycleModes"), storagev1.VolumeLifecycleEphemeral,
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

func ValidateCSINode(n *storagev1.CSINode) field.ErrorList {
	errs := objectMeta(&n.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	names := sets.New[string]()
	for i := range n.Spec.Drivers {
		driver, at := &n.Spec.Drivers[i], field.NewPath("spec", "drivers").Index(i)
		errs = append(errs, nodeDriver(driver, at)...)
		if names.Has(driver.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), driver.Name))
		}
		names.Insert(driver.Name)
	}
	return errs
}

func nodeDriver(d *storagev1.CSINodeDriver, path *field.Path) field.ErrorList {
	errs := append(driverName(d.Name, path.Child("name")), present(d.NodeID, path.Child("nodeID"))...)
	if len(d.NodeID) > maxNodeID {
		errs = append(errs, field.Invalid(path.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
	}
	if d.Allocatable != nil && d.Allocatable.Count != nil && *d.Allocatable.Count < 0 {
		errs = append(errs, field.Invalid(path.Child("allocatable", "count"), *d.Allocatable.Count, validation.IsNegativeErrorMsg))
	}
	for i, key := range d.TopologyKeys {
		if key == "" {
			errs = append(errs, field.Required(path, ""))
		}
		if slices.Contains(d.TopologyKeys[:i], key) {
			errs = append(errs, field.Duplicate(path, key))
		}
		errs = append(errs, qualified(key, path)...)
	}
	return errs
}

// ValidateCSINodeUpdate lets a driver come and go and change how many volumes it takes; what else it said stays.
func ValidateCSINodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs := ValidateCSINode(n)
	for _, before := range old.Spec.Drivers {
		for _, driver := range n.Spec.Drivers {
			if driver.Name != before.Name {
				continue
			}
			driver.Allocatable, before.Allocatable = nil, nil
			errs = append(errs, immutable(driver, before, field.NewPath("spec", "drivers"))...)
		}
	}
	return errs
}

// tokensInSecretsAdvice is said to drivers that still get tokens where their logs may show them.
const tokensInSecretsAdvice = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true " +
	"to prevent possible logging of tokens in volume attributes"

func CSIDriverWarnings(d *storagev1.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	return []string{tokensInSecretsAdvice}
}
