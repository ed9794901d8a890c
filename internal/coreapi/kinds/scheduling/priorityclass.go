package scheduling

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func priorityClassStorages(_ *registry.Environment, main *registry.REST) map[string]rest.Storage {
	return map[string]rest.Storage{"priorityclasses": priorityClassREST{main}}
}

// priorityClassREST refuses to delete system classes. Pods with a missing class are refused, and pods with a system class are
// critical for the cluster.
type priorityClassREST struct{ *registry.REST }

func (p priorityClassREST) Delete(ctx context.Context, name string, check rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if err := keepSystemClass(name); err != nil {
		return nil, false, err
	}
	return p.REST.Delete(ctx, name, check, options)
}

// DeleteCollection stops at a system class. kube-apiserver does not check for it.
func (p priorityClassREST) DeleteCollection(ctx context.Context, check rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *metainternalversion.ListOptions,
) (runtime.Object, error) {
	return p.REST.DeleteCollection(ctx, func(ctx context.Context, obj runtime.Object) error {
		if err := keepSystemClass(obj.(*schedulingv1.PriorityClass).Name); err != nil {
			return err
		}
		if check == nil {
			return nil
		}
		return check(ctx, obj)
	}, options, list)
}

func keepSystemClass(name string) error {
	if _, system := systemPriorities()[name]; !system {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}, name,
		errors.New("this is a system priority class and cannot be deleted"))
}

// sameAlways is for kinds that keep the generation of their creation, as in kube-apiserver.
func sameAlways(runtime.Object, runtime.Object) bool { return true }

func priorityClassResource() registry.Resource {
	return registry.Resource{
		Name: "priorityclasses", Singular: "priorityclass", ShortNames: []string{"pc"}, ClusterScoped: true,
		Object: &schedulingv1.PriorityClass{}, List: &schedulingv1.PriorityClassList{}, WatchCache: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: high}\n" +
				"value: 1000000000",
			"metadata: {name: system-node-critical}\n" +
				"value: 2000001000",
		},
		Rules:       validate.OnUpdate(validatePriorityClass, validatePriorityClassUpdate).CheckFinalizers(),
		Defaults:    defaults.Of(defaultPriorityClass),
		Columns:     priorityClassColumns,
		Generations: true, SameContent: sameAlways,
		Storages: priorityClassStorages,
	}
}

func priorityClassColumns() columns.Printer {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return columns.Show(func(c *schedulingv1.PriorityClass, now time.Time) []any {
		policy := ""
		if c.PreemptionPolicy != nil {
			policy = string(*c.PreemptionPolicy)
		}
		return []any{c.Name, int64(c.Value), c.GlobalDefault, columns.AgeOf(c, now), policy}
	}, columns.Name(), columns.Number("Value", doc["value"]), columns.YesNo("Global-Default", doc["globalDefault"]), columns.Age(),
		columns.Text("PreemptionPolicy", doc["preemptionPolicy"]))
}

func defaultPriorityClass(c *schedulingv1.PriorityClass) {
	defaults.Point(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}

const (
	systemPrefix = "system-"
	// highestUserPriority is below the priorities of system pods, so that workloads of users cannot evict them.
	highestUserPriority = 1000000000
)

// systemPriorities returns the priority classes that every cluster has, and their values.
func systemPriorities() map[string]int32 {
	return map[string]int32{
		"system-cluster-critical": 2 * highestUserPriority,
		"system-node-critical":    2*highestUserPriority + 1000,
	}
}

func validatePriorityClass(c *schedulingv1.PriorityClass) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	if strings.HasPrefix(c.Name, systemPrefix) {
		if why := unlikeSystem(c); why != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with '"+systemPrefix+
				"' prefix are reserved for system use only. error: "+why))
		}
	} else if c.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	if c.PreemptionPolicy != nil {
		errs = append(errs, validate.Required(*c.PreemptionPolicy, field.NewPath("preemptionPolicy"), corev1.PreemptNever,
			corev1.PreemptLowerPriority)...)
	}
	return errs
}

// unlikeSystem describes the difference between a class and the system class of its name, or returns "".
func unlikeSystem(c *schedulingv1.PriorityClass) string {
	value, known := systemPriorities()[c.Name]
	switch {
	case !known:
		return c.Name + " is not a known system priority class"
	case c.Value != value:
		return fmt.Sprintf("value of %v PriorityClass must be %v", c.Name, value)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %v PriorityClass must be false", c.Name)
	}
	return ""
}

func validatePriorityClassUpdate(c, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, validate.Immutable(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}
