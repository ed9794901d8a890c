package apps

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func controllerRevisionResource() registry.Resource {
	return registry.Resource{
		Name: "controllerrevisions", Singular: "controllerrevision",
		Object: &appsv1.ControllerRevision{}, List: &appsv1.ControllerRevisionList{}, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"revision: 1\n" +
				"data: {}",
		},
		Rules:   validate.OnUpdate(validateControllerRevision, validateControllerRevisionUpdate),
		Columns: controllerRevisionColumns,
	}
}

func controllerRevisionColumns() columns.Printer {
	return columns.Show(func(r *appsv1.ControllerRevision, now time.Time) []any {
		return []any{r.Name, controllerOf(r), r.Revision, columns.AgeOf(r, now)}
	}, columns.Name(), columns.Text("Controller", "Controller of the object"),
		columns.Text("Revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]), columns.Age())
}

// controllerOf returns the managing owner of an object in the form that kubectl accepts, such as deployment.apps/web.
func controllerOf(object metav1.Object) string {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return columns.None
	}
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
	if kind.Empty() {
		return owner.Name
	}
	return strings.ToLower(kind.String()) + "/" + owner.Name
}

func validateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	errs, path := revisionMeta(r), field.NewPath("data")
	if r.Data.Raw == nil {
		return append(errs, field.Required(path, "data is mandatory"))
	}
	var data any
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data: %v", err)))
	}
	if data == nil {
		return append(errs, field.Required(path, "data is mandatory"))
	}
	if _, isObject := data.(map[string]any); !isObject {
		return append(errs, field.Required(path, "data must be a valid JSON object"))
	}
	return errs
}

// validateControllerRevisionUpdate makes the data immutable. The revision number may change: a rollback makes an old revision
// the newest.
func validateControllerRevisionUpdate(r, old *appsv1.ControllerRevision) field.ErrorList {
	return append(revisionMeta(r), validate.Immutable(r.Data, old.Data, field.NewPath("data"))...)
}

func revisionMeta(r *appsv1.ControllerRevision) field.ErrorList {
	errs := validate.ObjectMeta(&r.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, validation.ValidateNonnegativeField(r.Revision, field.NewPath("revision"))...)
}
