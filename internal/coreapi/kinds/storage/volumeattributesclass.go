package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func volumeAttributesClassResource() registry.Resource {
	return registry.Resource{
		Name: "volumeattributesclasses", Singular: "volumeattributesclass", ShortNames: []string{"vac"}, ClusterScoped: true,
		Object: &storagev1.VolumeAttributesClass{}, List: &storagev1.VolumeAttributesClassList{}, ReturnDeletedObject: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: gold}\n" +
				"driverName: csi.example.com\n" +
				"parameters: {iops: '3000'}",
		},
		Rules:   validate.OnUpdate(validateVolumeAttributesClass, validateVolumeAttributesClassUpdate),
		Columns: volumeAttributesClassColumns,
	}
}

func volumeAttributesClassColumns() columns.Printer {
	return columns.Show(func(c *storagev1.VolumeAttributesClass, now time.Time) []any {
		return []any{c.Name, c.DriverName, columns.AgeOf(c, now)}
	}, columns.Name(), columns.Text("DriverName", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]), columns.Age())
}

func validateVolumeAttributesClass(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	errs = append(errs, provisioner(c.DriverName, field.NewPath("driverName"))...)
	errs = append(errs, parameters(c.Parameters, field.NewPath("parameters"))...)
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(field.NewPath("parameters"), "must contain at least one key/value pair"))
	}
	return errs
}

func validateVolumeAttributesClassUpdate(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !apiequality.Semantic.DeepEqual(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return append(errs, validateVolumeAttributesClass(c)...)
}
