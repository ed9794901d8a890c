package networking

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func ingressClassResource() registry.Resource {
	return registry.Resource{
		Name: "ingressclasses", Singular: "ingressclass", ClusterScoped: true,
		Object: &networkingv1.IngressClass{}, List: &networkingv1.IngressClassList{}, Optional: true, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {controller: example.com/c, parameters: {kind: Params, name: p}}",
		},
		Rules:    validate.OnUpdate(validateIngressClass, validateIngressClassUpdate),
		Defaults: defaults.Of(defaultIngressClass),
		Columns:  ingressClassColumns,
		Spec:     registry.SpecOf(func(o *networkingv1.IngressClass) *networkingv1.IngressClassSpec { return &o.Spec }),
	}
}

func ingressClassColumns() columns.Printer {
	return columns.Show(func(c *networkingv1.IngressClass, now time.Time) []any {
		shown, parameters := c.Name, columns.None
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			shown += " (default)"
		}
		if p := c.Spec.Parameters; p != nil {
			parameters = p.Kind
			if p.APIGroup != nil {
				parameters += "." + *p.APIGroup
			}
			parameters += "/" + p.Name
		}
		return []any{shown, c.Spec.Controller, parameters, columns.AgeOf(c, now)}
	}, columns.Name(), columns.Text("Controller", "The controller that handles the class"), columns.Text("Parameters", "An object with more parameters"), columns.Age())
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		defaults.Point(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

// maxIngressController is the maximum length of the name of an ingress controller.
const maxIngressController = 250

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	if len(c.Spec.Controller) > maxIngressController {
		errs = append(errs, field.TooLong(spec.Child("controller"), "", maxIngressController))
	}
	errs = append(errs, utilvalidation.IsDomainPrefixedPath(spec.Child("controller"), c.Spec.Controller)...)
	return append(errs, ingressParameters(c.Spec.Parameters, spec.Child("parameters"))...)
}

func validateIngressClassUpdate(c, old *networkingv1.IngressClass) field.ErrorList {
	errs := validate.Immutable(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))
	return append(errs, validateIngressClass(c)...)
}

func ingressParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := localReference(p.APIGroup, p.Kind, p.Name, path)
	if p.Scope == nil {
		return append(errs, field.Required(path.Child("scope"), ""))
	}
	errs = append(errs, validate.OneOf(*p.Scope, path.Child("scope"), networkingv1.IngressClassParametersReferenceScopeCluster,
		networkingv1.IngressClassParametersReferenceScopeNamespace)...)
	at := path.Child("namespace")
	switch {
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace && p.Namespace == nil:
		errs = append(errs, field.Required(at, "`parameters.scope` is set to 'Namespace'"))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace:
		errs = append(errs, validate.Invalid(at, *p.Namespace, validation.ValidateNamespaceName(*p.Namespace, false))...)
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeCluster && p.Namespace != nil:
		errs = append(errs, field.Forbidden(at, "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}
