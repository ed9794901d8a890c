package storage

import (
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func dropStorageHealth(obj, old runtime.Object) {
	if old.(*storagev1.CSINode).Status.StorageHealth == nil {
		obj.(*storagev1.CSINode).Status.StorageHealth = nil
	}
}

func csiNodeResource() registry.Resource {
	return registry.Resource{
		Name: "csinodes", Singular: "csinode", ClusterScoped: true,
		Object: &storagev1.CSINode{}, List: &storagev1.CSINodeList{}, ReturnDeletedObject: true, WatchCache: true,
		Samples: []string{
			"metadata: {name: n1}\n" +
				"spec: {drivers: [{name: csi.example.com, nodeID: i-1, topologyKeys: [zone]}]}",
		},
		Rules:         validate.OnUpdate(validateCSINode, validateCSINodeUpdate),
		Columns:       csiNodeColumns,
		Spec:          registry.SpecOf(func(o *storagev1.CSINode) *storagev1.CSINodeSpec { return &o.Spec }),
		Status:        registry.StatusOf(func(o *storagev1.CSINode) *storagev1.CSINodeStatus { return &o.Status }),
		PrepareStatus: dropStorageHealth,
	}
}

func csiNodeColumns() columns.Printer {
	return columns.Show(func(n *storagev1.CSINode, now time.Time) []any {
		return []any{n.Name, int64(len(n.Spec.Drivers)), columns.AgeOf(n, now)}
	}, columns.Name(), columns.Number("Drivers", "How many storage drivers the node has"), columns.Age())
}

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	errs := validate.ObjectMeta(&n.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
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
	errs := append(validate.DriverName(d.Name, path.Child("name")), validate.RequiredName(d.NodeID, path.Child("nodeID"))...)
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
		errs = append(errs, validate.Qualified(key, path)...)
	}
	return errs
}

// validateCSINodeUpdate allows drivers to be added and removed, and their number of volumes to change. Other fields of a driver
// are immutable.
func validateCSINodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs := validateCSINode(n)
	for _, before := range old.Spec.Drivers {
		for _, driver := range n.Spec.Drivers {
			if driver.Name != before.Name {
				continue
			}
			driver.Allocatable, before.Allocatable = nil, nil
			errs = append(errs, validate.Immutable(driver, before, field.NewPath("spec", "drivers"))...)
		}
	}
	return errs
}
