package storagemigration

import (
	"strings"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func storageVersionMigrationResource() registry.Resource {
	return registry.Resource{
		Name: "storageversionmigrations", Singular: "storageversionmigration", ClusterScoped: true,
		Object: &storagemigrationv1.StorageVersionMigration{}, List: &storagemigrationv1.StorageVersionMigrationList{},
		Samples: []string{
			"metadata: {name: deployments}\n" +
				"spec: {resource: {group: apps, resource: deployments}}",
		},
		Rules:   validate.WithStatus(validateMigration, validateMigrationUpdate, validateMigrationStatus).CheckFinalizers(),
		Columns: migrationColumns,
		Spec: registry.SpecOf(func(m *storagemigrationv1.StorageVersionMigration) *storagemigrationv1.StorageVersionMigrationSpec {
			return &m.Spec
		}),
		Status: registry.StatusOf(func(m *storagemigrationv1.StorageVersionMigration) *storagemigrationv1.StorageVersionMigrationStatus {
			return &m.Status
		}),
	}
}

func migrationColumns() columns.Printer {
	name := columns.Name()
	name.Format = "" // kube-apiserver has none here
	return columns.Show(func(m *storagemigrationv1.StorageVersionMigration, _ time.Time) []any {
		state := "Unknown"
		for _, c := range m.Status.Conditions {
			if c.Status != metav1.ConditionTrue {
				continue
			}
			switch storagemigrationv1.MigrationConditionType(c.Type) {
			case storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationFailed, storagemigrationv1.MigrationSucceeded:
				state = c.Type
			}
		}
		return []any{m.Name, m.Spec.Resource.String(), state}
	}, name, columns.Text("Resource", "GroupResource to migrate"), columns.Text("Status", "Status of the migration"))
}

func validateMigration(m *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	errs := validate.ObjectMeta(&m.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	path := field.NewPath("spec", "resource")
	check := func(name, value string, wrong func(string) []string) {
		if messages := wrong(value); len(messages) > 0 {
			errs = append(errs, field.Invalid(path.Child(name), value, strings.Join(messages, ",")))
		}
	}
	if m.Spec.Resource.Resource == "" {
		errs = append(errs, field.Required(path.Child("resource"), "resource is required to be set"))
	} else {
		check("resource", m.Spec.Resource.Resource, utilvalidation.IsDNS1035Label)
	}
	if m.Spec.Resource.Group != "" {
		check("group", m.Spec.Resource.Group, utilvalidation.IsDNS1123Subdomain)
	}
	return errs
}

func validateMigrationUpdate(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	return append(validateMigration(m), validate.Immutable(m.Spec, old.Spec, field.NewPath("spec"))...)
}

// validateMigrationStatus allows a migration to succeed or fail once, at the resource version of its start.
func validateMigrationStatus(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	var errs field.ErrorList
	status := field.NewPath("status")
	at, version := status.Child("resourceVersion"), m.Status.ResourceVersion
	if version != "" {
		if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
			errs = append(errs, field.Invalid(at, version, err.Error()))
		}
	}
	conditions := status.Child("conditions")
	errs = append(errs, metav1validation.ValidateConditions(m.Status.Conditions, conditions)...)
	if before := old.Status.ResourceVersion; before != "" && before != version {
		errs = append(errs, field.Invalid(at, version, "field is immutable"))
	}
	is := func(of *storagemigrationv1.StorageVersionMigration, end storagemigrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(of.Status.Conditions, string(end))
	}
	const succeeded, failed = storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed
	if is(m, succeeded) && is(m, failed) {
		errs = append(errs, field.Invalid(conditions, m.Status.Conditions, "Both success and failed conditions cannot be true at the same time"))
	}
	if is(old, succeeded) && !is(m, succeeded) {
		errs = append(errs, field.Invalid(conditions, m.Status.Conditions, "Success condition cannot be set to false once it is true"))
	}
	if is(old, failed) && !is(m, failed) {
		errs = append(errs, field.Invalid(conditions, m.Status.Conditions, "Failed condition cannot be set to false once it is true"))
	}
	return errs
}
