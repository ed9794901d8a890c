package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"

	"portico.dev/internal/coreapi/validate"
)

// A hook contains the fields that both kinds of webhook share. Only mutating webhooks have reinvocation.
type hook struct {
	name         string
	client       *admissionregistrationv1.WebhookClientConfig
	rules        []admissionregistrationv1.RuleWithOperations
	failure      *admissionregistrationv1.FailurePolicyType
	match        *admissionregistrationv1.MatchPolicyType
	effects      *admissionregistrationv1.SideEffectClass
	reinvocation *admissionregistrationv1.ReinvocationPolicyType
	timeout      *int32
	namespaces   *metav1.LabelSelector
	objects      *metav1.LabelSelector
	versions     []string
	conditions   []admissionregistrationv1.MatchCondition
}

// webhookConfiguration checks all hooks. A stored configuration with side effects, with unsupported review versions or with a
// duplicate name may keep them, so that the rest of it remains editable.
func webhookConfiguration(m *metav1.ObjectMeta, hooks, stored []hook) field.ErrorList {
	errs := validate.PlainMeta(m, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	quiet := !slices.ContainsFunc(stored, func(h hook) bool { return !h.quiet() })
	understood := !slices.ContainsFunc(stored, func(h hook) bool { return len(h.versions) > 0 && !h.understood() })
	unique := uniqueNames(stored)
	names := sets.New[string]()
	for i, h := range hooks {
		path := field.NewPath("webhooks").Index(i)
		errs = append(errs, h.errors(quiet, path)...)
		errs = append(errs, h.versionErrors(understood, path.Child("admissionReviewVersions"))...)
		if unique && h.name != "" && names.Has(h.name) {
			errs = append(errs, field.Duplicate(path.Child("name"), h.name))
		}
		names.Insert(h.name)
	}
	return errs
}

func uniqueNames(hooks []hook) bool {
	names := sets.New[string]()
	for _, h := range hooks {
		names.Insert(h.name)
	}
	return names.Len() == len(hooks)
}

func (h hook) errors(quiet bool, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsFullyQualifiedName(path.Child("name"), h.name)
	errs = append(errs, validate.Each(h.rules, path.Child("rules"), matchRule)...)
	if h.failure != nil {
		errs = append(errs, validate.OneOf(*h.failure, path.Child("failurePolicy"), admissionregistrationv1.Fail,
			admissionregistrationv1.Ignore)...)
	}
	if h.match != nil {
		errs = append(errs, validate.OneOf(*h.match, path.Child("matchPolicy"), admissionregistrationv1.Equivalent,
			admissionregistrationv1.Exact)...)
	}
	if h.reinvocation != nil {
		errs = append(errs, validate.OneOf(*h.reinvocation, path.Child("reinvocationPolicy"),
			admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	}
	if t := h.timeout; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *t,
			"the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, h.effectErrors(quiet, path.Child("sideEffects"))...)
	errs = append(errs, validate.Selector(h.namespaces, path.Child("namespaceSelector"))...)
	errs = append(errs, validate.Selector(h.objects, path.Child("objectSelector"))...)
	errs = append(errs, h.clientErrors(path.Child("clientConfig"))...)
	return append(errs, matchConditions(h.conditions, path.Child("matchConditions"))...)
}

// clientErrors requires https, because the webhook receives every object that it matches, including Secrets.
func (h hook) clientErrors(path *field.Path) field.ErrorList {
	switch url, service := h.client.URL, h.client.Service; {
	case (url == nil) == (service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case url != nil:
		return webhook.ValidateWebhookURL(path.Child("url"), *url, true)
	default:
		port := int32(443)
		if service.Port != nil {
			port = *service.Port
		}
		return webhook.ValidateWebhookService(path.Child("service"), service.Namespace, service.Name, service.Path, port)
	}
}

func (h hook) quiet() bool {
	return h.effects != nil && (*h.effects == admissionregistrationv1.SideEffectClassNone ||
		*h.effects == admissionregistrationv1.SideEffectClassNoneOnDryRun)
}

// effectErrors requires a webhook that dry runs may call. If quiet is false, the other values are allowed too.
func (h hook) effectErrors(quiet bool, path *field.Path) field.ErrorList {
	allowed := []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone,
		admissionregistrationv1.SideEffectClassNoneOnDryRun}
	if !quiet {
		allowed = append(allowed, admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
	}
	if h.effects == nil {
		names := make([]string, 0, len(allowed))
		for _, class := range allowed {
			names = append(names, string(class))
		}
		return field.ErrorList{field.Required(path, "must specify one of "+strings.Join(names, ", "))}
	}
	return validate.OneOf(*h.effects, path, allowed...)
}

// reviewVersions returns the versions of AdmissionReview that the server sends.
func reviewVersions() []string { return []string{"v1", "v1beta1"} }

func (h hook) understood() bool {
	return slices.ContainsFunc(h.versions, func(v string) bool { return slices.Contains(reviewVersions(), v) })
}

func (h hook) versionErrors(demanded bool, path *field.Path) field.ErrorList {
	ours := strings.Join(reviewVersions(), ", ")
	if len(h.versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+ours)}
	}
	var errs field.ErrorList
	for i, version := range h.versions {
		if slices.Contains(h.versions[:i], version) {
			errs = append(errs, field.Invalid(path.Index(i), version, "duplicate version"))
			continue
		}
		errs = append(errs, validate.Invalid(path.Index(i), version, utilvalidation.IsDNS1035Label(version))...)
	}
	if demanded && !h.understood() {
		errs = append(errs, field.Invalid(path, h.versions, fmt.Sprintf("must include at least one of %s", ours)))
	}
	return errs
}
