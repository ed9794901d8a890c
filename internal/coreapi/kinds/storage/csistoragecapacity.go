package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func csiStorageCapacityResource() registry.Resource {
	return registry.Resource{
		Name: "csistoragecapacities", Singular: "csistoragecapacity",
		Object: &storagev1.CSIStorageCapacity{}, List: &storagev1.CSIStorageCapacityList{},
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"storageClassName: fast\n" +
				"capacity: 10Gi",
		},
		Rules:   validate.OnUpdate(validateCSIStorageCapacity, validateCSIStorageCapacityUpdate),
		Columns: csiStorageCapacityColumns,
	}
}

func csiStorageCapacityColumns() columns.Printer {
	doc := storagev1.CSIStorageCapacity{}.SwaggerDoc()
	return columns.Show(func(c *storagev1.CSIStorageCapacity, _ time.Time) []any {
		capacity := columns.Unset
		if c.Capacity != nil {
			capacity = c.Capacity.String()
		}
		return []any{c.Name, c.StorageClassName, capacity}
	}, columns.Name(), columns.Text("StorageClassName", doc["storageClassName"]), columns.Text("Capacity", doc["capacity"]))
}

func validateCSIStorageCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, validate.Selector(c.NodeTopology, field.NewPath("nodeTopology"))...)
	errs = append(errs, validate.DnsSubdomain(c.StorageClassName, field.NewPath("storageClassName"))...)
	if c.Capacity != nil {
		errs = append(errs, validate.NotNegative(*c.Capacity, field.NewPath("capacity"))...)
	}
	return errs
}

// validateCSIStorageCapacityUpdate makes the topology and the storage class of a capacity immutable.
func validateCSIStorageCapacityUpdate(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := validateCSIStorageCapacity(c)
	errs = append(errs, validate.Immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...)
	return append(errs, validate.Immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
}
