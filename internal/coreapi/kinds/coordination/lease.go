package coordination

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

// uncoordinated drops the fields of coordinated leader election (KEP-4355), which is off, unless the stored lease has them.
func uncoordinated(obj, old runtime.Object) {
	spec := &obj.(*coordinationv1.Lease).Spec
	before, ok := old.(*coordinationv1.Lease)
	if !ok || before.Spec.Strategy == nil {
		spec.Strategy = nil
	}
	if !ok || before.Spec.PreferredHolder == nil {
		spec.PreferredHolder = nil
	}
}

func leaseResource() registry.Resource {
	return registry.Resource{
		Name: "leases", Singular: "lease", Object: &coordinationv1.Lease{}, List: &coordinationv1.LeaseList{},
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {leaseDurationSeconds: 15}",
		},
		Rules:      validate.SameOnUpdate(validateLease),
		Columns:    leaseColumns,
		WatchCache: true, AllowCreateOnUpdate: true, PrepareCreate: func(obj runtime.Object) { uncoordinated(obj, nil) }, PrepareUpdate: uncoordinated,
	}
}

func leaseColumns() columns.Printer {
	return columns.Show(func(l *coordinationv1.Lease, now time.Time) []any {
		holder := ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		return []any{l.Name, holder, columns.AgeOf(l, now)}
	}, columns.Name(), columns.Text("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]), columns.Age())
}

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	errs := validate.PlainMeta(&l.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	var strategy coordinationv1.CoordinatedLeaseStrategy
	if l.Spec.Strategy != nil {
		strategy = *l.Spec.Strategy
		errs = append(errs, leaseStrategy(strategy, spec.Child("strategy"))...)
	}
	if holder := l.Spec.PreferredHolder; holder != nil && *holder != "" && strategy == "" {
		errs = append(errs, field.Forbidden(spec.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

// leaseStrategy accepts Kubernetes' strategies by their bare names and other strategies by qualified names.
func leaseStrategy(s coordinationv1.CoordinatedLeaseStrategy, path *field.Path) field.ErrorList {
	if strings.Contains(string(s), "/") {
		return validate.Qualified(string(s), path)
	}
	return validate.OneOf(s, path, coordinationv1.OldestEmulationVersion)
}
