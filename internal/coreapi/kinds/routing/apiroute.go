package routing

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
	"portico.dev/internal/pki"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
)

func apiRouteResource() registry.Resource {
	return registry.Resource{
		Name: "apiroutes", Singular: "apiroute", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &v1alpha1.APIRoute{}, List: &v1alpha1.APIRouteList{},
		Samples: []string{
			"metadata: {name: v1beta1.custom.metrics.k8s.io}\n" +
				"spec:\n" +
				"  backends: [{name: adapter}, {name: queues, service: {namespace: ns, name: s}}]\n" +
				"  rules: [{name: queues, matches: [{metrics: [\"queue_*\"]}], backendRefs: [{name: queues}]}]",
			"metadata: {name: v1.metrics.k8s.io}\n" +
				"spec: {backends: [{name: server, version: v1beta1}]}",
		},
		Rules:    validate.WithStatus(validateAPIRoute, validateAPIRouteUpdate, validateAPIRouteStatus),
		Defaults: defaults.Of(defaultAPIRoute),
		Warnings: validate.Warn(warningsOfAPIRoute),
		Columns:  apiRouteColumns,
		// Kubernetes does not have this kind. The directory is the one for custom resources.
		Directory: v1alpha1.GroupVersion.Group + "/apiroutes", WatchCache: true, Generations: true,
		Spec:   registry.SpecOf(func(r *v1alpha1.APIRoute) *v1alpha1.APIRouteSpec { return &r.Spec }),
		Status: registry.StatusOf(func(r *v1alpha1.APIRoute) *v1alpha1.APIRouteStatus { return &r.Status }),
		Warn:   warnAPIRoute,
	}
}

func apiRouteColumns() columns.Printer {
	return columns.Show(func(r *v1alpha1.APIRoute, now time.Time) []any {
		names := make([]string, 0, len(r.Spec.Backends))
		for _, b := range r.Spec.Backends {
			names = append(names, b.Name)
		}
		return []any{
			r.Name, strings.Join(names, ","), columns.Condition(r.Status.Conditions, v1alpha1.ConditionAccepted),
			columns.Condition(r.Status.Conditions, v1alpha1.ConditionAvailable),
			columns.AgeOf(r, now),
		}
	}, columns.Name(), columns.Text("Backends", "The backends, the first one of which gets what no rule matches"),
		columns.Text("Accepted", "Whether the route is in effect, and why not"),
		columns.Text("Available", "Whether all backends are available, and why not"), columns.Age())
}

func defaultAPIRoute(r *v1alpha1.APIRoute) {
	for i := range r.Spec.Backends {
		if s := r.Spec.Backends[i].Service; s != nil {
			defaults.Point(&s.Port, 443)
		}
	}
	for i := range r.Spec.Rules {
		for j := range r.Spec.Rules[i].BackendRefs {
			defaults.Point(&r.Spec.Rules[i].BackendRefs[j].Weight, 1)
		}
		if m := r.Spec.Rules[i].Mirror; m != nil {
			defaults.Point(&m.Percent, 100)
		}
		if b := r.Spec.Rules[i].Rollback; b != nil {
			defaults.Point(&b.MinRequests, routing.DefaultMinRequests)
			defaults.Point(&b.Interval, metav1.Duration{Duration: routing.DefaultRollbackInterval})
		}
	}
}

func validateAPIRoute(r *v1alpha1.APIRoute) field.ErrorList {
	return append(validate.PlainMeta(&r.ObjectMeta, validate.ClusterScoped, routing.CheckName), routing.Validate(r)...)
}

func validateAPIRouteUpdate(r, _ *v1alpha1.APIRoute) field.ErrorList { return validateAPIRoute(r) }

func validateAPIRouteStatus(r, _ *v1alpha1.APIRoute) field.ErrorList {
	at := field.NewPath("status")
	errs := metav1validation.ValidateConditions(r.Status.Conditions, at.Child("conditions"))
	check := func(at *field.Path, name string, conditions []metav1.Condition) {
		errs = append(errs, validate.DnsLabel(name, at.Child("name"))...)
		errs = append(errs, metav1validation.ValidateConditions(conditions, at.Child("conditions"))...)
	}
	for i, b := range r.Status.Backends {
		check(at.Child("backends").Index(i), b.Name, b.Conditions)
	}
	for i, rule := range r.Status.Rules {
		check(at.Child("rules").Index(i), rule.Name, rule.Conditions)
		errs = append(errs, validate.EachValue(rule.RolledBack, at.Child("rules").Index(i).Child("rolledBack"), validate.DnsLabel)...)
	}
	return errs
}

func warningsOfAPIRoute(r *v1alpha1.APIRoute) []string {
	warnings := routing.Warnings(r)
	for _, b := range r.Spec.Backends {
		if len(b.CABundle) == 0 || b.Service == nil { // validation refuses a caBundle without a service
			continue
		}
		if _, err := pki.ParseBundle(b.CABundle); err != nil {
			warnings = append(warnings, fmt.Sprintf("backend %s: caBundle: %v; no connection to service %s/%s will succeed until it holds "+
				"the PEM certificates of the authority that signed the service's certificate", b.Name, err, b.Service.Namespace, b.Service.Name))
		}
	}
	return warnings
}

// warnAPIRoute warns about a route to an APIService or Service that does not exist.
func warnAPIRoute(ctx context.Context, e *registry.Environment, obj runtime.Object) []string {
	r := obj.(*v1alpha1.APIRoute)
	var warnings []string
	apiServices := apiregistrationv1.Resource("apiservices")
	found, err := e.Storage(apiServices).Get(registry.ReadContext(ctx, apiServices.Group, apiServices.Resource, "", r.Name), r.Name, &metav1.GetOptions{})
	if service, ok := found.(*apiregistrationv1.APIService); apierrors.IsNotFound(err) || err == nil && ok && service.Spec.Service == nil {
		warnings = append(warnings, fmt.Sprintf("there is no APIService %s with a Service: the route has no effect until there is one", r.Name))
	}
	for _, b := range r.Spec.Backends {
		if b.Service == nil {
			continue
		}
		_, err := e.Storage(corev1.Resource("services")).Get(registry.ReadContext(ctx, "", "services", b.Service.Namespace, b.Service.Name), b.Service.Name, &metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			warnings = append(warnings, fmt.Sprintf("backend %s: service %s/%s does not exist", b.Name, b.Service.Namespace, b.Service.Name))
		}
	}
	return warnings
}
