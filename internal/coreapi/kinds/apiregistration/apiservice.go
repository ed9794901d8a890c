package apiregistration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
	"portico.dev/internal/pki"
)

// warnAPIService warns about a registration that takes a group-version away from a CustomResourceDefinition, or refers to a
// missing Service.
func warnAPIService(ctx context.Context, e *registry.Environment, obj runtime.Object) []string {
	service := obj.(*apiregistrationv1.APIService)
	spec := &service.Spec
	if spec.Service == nil {
		return nil
	}
	var warnings []string
	if text, atOnce := warnManaged(e, service); atOnce {
		return []string{text}
	} else if text != "" {
		warnings = append(warnings, text)
	}
	if service.Labels[managedLabel] == managedAlways { // warningsOfAPIService cannot determine whether it is reverted at once
		warnings = append(warnings, apiServiceWarnings(spec)...)
	}
	if crd := definitionOf(e, spec.Group, spec.Version); crd != "" {
		warnings = append(warnings, fmt.Sprintf("CustomResourceDefinition %s serves %s/%s too: while this APIService exists, "+
			"requests for its objects go to service %s/%s, and its kinds are not in discovery; register another version, or "+
			"delete one of the two", crd, spec.Group, spec.Version, spec.Service.Namespace, spec.Service.Name))
	}
	if lacksService(ctx, e, spec.Service.Namespace, spec.Service.Name) {
		warnings = append(warnings, fmt.Sprintf("spec.service: service %s/%s does not exist; until it does, requests for "+
			"%s/%s are answered with 503, and namespaces that may hold something of it cannot be deleted completely",
			spec.Service.Namespace, spec.Service.Name, spec.Group, spec.Version))
	}
	return warnings
}

// definitionOf returns the name of a CustomResourceDefinition that serves a group-version, or "".
func definitionOf(e *registry.Environment, group, version string) string {
	crds, err := e.Definitions.List(labels.Everything())
	if err != nil {
		return "" // not expected: the lister reads an in-memory cache
	}
	for _, crd := range crds {
		if crd.Spec.Group == group && slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version && v.Served
		}) {
			return crd.Name
		}
	}
	return ""
}

// lacksService reads from etcd: a cache may not contain a Service that the same command has just created.
func lacksService(ctx context.Context, e *registry.Environment, namespace, name string) bool {
	_, err := e.Storage(corev1.Resource("services")).Get(registry.ReadContext(ctx, "", "services", namespace, name), name, &metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// stampLocal sets a Local APIService to available immediately, because it has no backend to check.
func stampLocal(obj runtime.Object) {
	service := obj.(*apiregistrationv1.APIService)
	if service.Spec.Service != nil {
		return
	}
	service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type:               apiregistrationv1.Available,
		Status:             apiregistrationv1.ConditionTrue,
		Reason:             "Local",
		Message:            "Local APIServices are always available",
		LastTransitionTime: metav1.Now(),
	}}
}

// replaceLocal is the verb, on an APIService by name, that permits registering a backend for a group-version that this server
// serves itself. A backend for v1. receives every Secret that is written, and the rights of the writing user, so the right to
// write APIServices is not enough.
const replaceLocal = "replace-local"

// guardAPIService requires replaceLocal for sending requests for local resources to a backend. A write that leaves the Service
// unchanged takes nothing away from this server and does not require it.
func guardAPIService(ctx context.Context, e *registry.Environment, obj, old runtime.Object) error {
	service := obj.(*apiregistrationv1.APIService)
	if service.Spec.Service == nil || old != nil && apiequality.Semantic.DeepEqual(service.Spec.Service, old.(*apiregistrationv1.APIService).Spec.Service) {
		return nil
	}
	version := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
	if !slices.Contains(e.BuiltIn, version) && definitionOf(e, version.Group, version.Version) == "" {
		return nil
	}
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("no user on the request"))
	}
	resource := apiregistrationv1.Resource("apiservices")
	decision, _, err := e.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: replaceLocal, Name: service.Name, ResourceRequest: true,
		APIGroup: resource.Group, APIVersion: apiregistrationv1.SchemeGroupVersion.Version, Resource: resource.Resource,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("ask whether %s is allowed: %w", replaceLocal, err))
	}
	return apierrors.NewForbidden(resource, service.Name, fmt.Errorf(
		"this server serves %s itself, and User %q cannot %s resource %q in API group %q at the cluster scope: "+
			"a ClusterRole with the verb %[3]q for this name allows it", version, u.GetName(), replaceLocal, resource.Resource, resource.Group))
}

func apiServiceResource() registry.Resource {
	return registry.Resource{
		Name: "apiservices", Singular: "apiservice", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &apiregistrationv1.APIService{}, List: &apiregistrationv1.APIServiceList{},
		Samples: []string{
			"metadata: {name: v1.example.com}\n" +
				"spec: {group: example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 10, service: {namespace: ns, name: s}}",
			"metadata: {name: v1.}\n" +
				"spec: {version: v1, groupPriorityMinimum: 20000, versionPriority: 1000}",
		},
		Rules:     validate.WithStatus(validateAPIService, validateAPIServiceUpdate, validateAPIServiceStatus),
		Defaults:  defaults.Of(defaultAPIService),
		Warnings:  validate.Warn(warningsOfAPIService),
		Columns:   apiServiceColumns,
		Directory: "apiregistration.k8s.io/apiservices", WatchCache: true,
		Spec:          registry.SpecOf(func(a *apiregistrationv1.APIService) *apiregistrationv1.APIServiceSpec { return &a.Spec }),
		Status:        registry.StatusOf(func(a *apiregistrationv1.APIService) *apiregistrationv1.APIServiceStatus { return &a.Status }),
		PrepareCreate: stampLocal, Guard: guardAPIService, Warn: warnAPIService,
	}
}

func apiServiceColumns() columns.Printer {
	return columns.Show(func(a *apiregistrationv1.APIService, now time.Time) []any {
		service := "Local"
		if a.Spec.Service != nil {
			service = a.Spec.Service.Namespace + "/" + a.Spec.Service.Name
		}
		return []any{a.Name, service, availability(a), columns.AgeOf(a, now)}
	}, columns.Name(), columns.Text("Service", "The service behind this API, or Local when the front door itself serves it"),
		columns.Text("Available", "Whether requests for this API can be answered, and why not"), columns.Age())
}

// availability returns the status of the Available condition, with its reason unless the status is True.
func availability(a *apiregistrationv1.APIService) string {
	for _, condition := range a.Status.Conditions {
		if condition.Type != apiregistrationv1.Available {
			continue
		}
		if condition.Status == apiregistrationv1.ConditionTrue || condition.Reason == "" {
			return string(condition.Status)
		}
		return string(condition.Status) + " (" + condition.Reason + ")"
	}
	return string(apiregistrationv1.ConditionUnknown)
}

func defaultAPIService(a *apiregistrationv1.APIService) {
	if a.Spec.Service != nil {
		defaults.Point(&a.Spec.Service.Port, 443)
	}
}

func validateAPIService(a *apiregistrationv1.APIService) field.ErrorList {
	errs := validate.PlainMeta(&a.ObjectMeta, validate.ClusterScoped, func(name string, _ bool) []string {
		if messages := content.IsPathSegmentName(name); len(messages) > 0 {
			return messages
		}
		if wanted := a.Spec.Version + "." + a.Spec.Group; name != wanted {
			return []string{fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", wanted)}
		}
		return nil
	})
	spec := field.NewPath("spec")
	errs = append(errs, apiGroup(&a.Spec, spec.Child("group"))...)
	errs = append(errs, validate.Invalid(spec.Child("version"), a.Spec.Version, utilvalidation.IsDNS1035Label(a.Spec.Version))...)
	// Both messages say "less than" although the bounds are allowed. Messages and rule are kube-aggregator's.
	if p := a.Spec.GroupPriorityMinimum; p <= 0 || p > 20000 {
		errs = append(errs, field.Invalid(spec.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := a.Spec.VersionPriority; p <= 0 || p > 1000 {
		errs = append(errs, field.Invalid(spec.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	if a.Spec.Service == nil {
		return append(errs, localAPIService(&a.Spec, spec)...)
	}
	return append(errs, remoteAPIService(&a.Spec, spec)...)
}

// validateAPIServiceUpdate repeats all checks. Only the name is immutable: an API may move between this server and an extension
// server.
func validateAPIServiceUpdate(a, _ *apiregistrationv1.APIService) field.ErrorList {
	return validateAPIService(a)
}

func apiGroup(s *apiregistrationv1.APIServiceSpec, path *field.Path) field.ErrorList {
	if s.Group != "" {
		return validate.DnsSubdomain(s.Group, path)
	}
	if s.Version != "v1" {
		return field.ErrorList{field.Required(path, "only v1 may have an empty group and it better be legacy kube")}
	}
	return nil
}

func localAPIService(s *apiregistrationv1.APIServiceSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.CABundle) > 0 {
		size := fmt.Sprintf("%d bytes", len(s.CABundle))
		errs = append(errs, field.Invalid(spec.Child("caBundle"), size, "local APIServices may not have a caBundle"))
	}
	if s.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true,
			"local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func remoteAPIService(s *apiregistrationv1.APIServiceSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	service := spec.Child("service")
	if s.Service.Namespace == "" {
		errs = append(errs, field.Required(service.Child("namespace"), ""))
	}
	if s.Service.Name == "" {
		errs = append(errs, field.Required(service.Child("name"), ""))
	}
	var port int32
	if s.Service.Port != nil {
		port = *s.Service.Port
	}
	if messages := utilvalidation.IsValidPortNum(int(port)); len(messages) > 0 {
		errs = append(errs, field.Invalid(service.Child("port"), port, "port is not valid: "+strings.Join(messages, ", ")))
	}
	if s.InsecureSkipTLSVerify && len(s.CABundle) > 0 {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateAPIServiceStatus(a, _ *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	conditions := field.NewPath("status", "conditions")
	for i, condition := range a.Status.Conditions {
		errs = append(errs, validate.OneOf(condition.Status, conditions.Index(i).Child("status"),
			apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown)...)
	}
	return errs
}

// builtInPriority is the highest group priority of kube-apiserver's named groups, which apps has.
const builtInPriority = 17800

// Warnings are for valid objects that are likely mistakes. They become Warning headers of the response. Each describes the
// consequence and the remedy. They are never errors, because existing manifests must keep working.

func warningsOfAPIService(s *apiregistrationv1.APIService) []string {
	if s.Labels[managedLabel] == managedAlways && s.Spec.Service != nil {
		return nil // warnAPIService returns them unless the APIService is reverted at once
	}
	return apiServiceWarnings(&s.Spec)
}

func apiServiceWarnings(s *apiregistrationv1.APIServiceSpec) []string {
	var warnings []string
	if s.Service != nil && len(s.CABundle) > 0 {
		// kube-apiserver accepts any bytes and then fails every request to the service.
		if _, err := pki.ParseBundle(s.CABundle); err != nil {
			warnings = append(warnings, fmt.Sprintf("spec.caBundle: %v; no connection to service %s/%s will succeed until "+
				"it holds the PEM certificates of the authority that signed the service's certificate",
				err, s.Service.Namespace, s.Service.Name))
		}
	}
	if s.Service != nil && s.InsecureSkipTLSVerify {
		warnings = append(warnings, "spec.insecureSkipTLSVerify: whoever can answer in place of the service reads every "+
			"request to this API and the identity of its user; set spec.caBundle instead")
	}
	if s.Service != nil && s.GroupPriorityMinimum > builtInPriority {
		warnings = append(warnings, fmt.Sprintf("spec.groupPriorityMinimum: %d puts this group before the built-in ones: "+
			"kubectl will take short names and kinds that both have from %q; use %d or less",
			s.GroupPriorityMinimum, s.Group, builtInPriority))
	}
	return warnings
}
