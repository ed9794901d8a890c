package authorization

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/registry"
)

func newSubjectAccessReviews(e *registry.Environment) rest.Storage {
	return &registry.Review{
		Singular: "subjectaccessreview",
		Empty:    func() runtime.Object { return &authorizationv1.SubjectAccessReview{} },
		Check: func(_ context.Context, obj runtime.Object) error {
			r := obj.(*authorizationv1.SubjectAccessReview)
			return invalid("SubjectAccessReview", append(checkSubject(&r.Spec), checkBareMeta(&r.ObjectMeta)...))
		},
		Answer: func(ctx context.Context, obj runtime.Object) error {
			r := obj.(*authorizationv1.SubjectAccessReview)
			r.Status = decide(ctx, e.Authorizer, subjectOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			return nil
		},
	}
}

func newLocalSubjectAccessReviews(e *registry.Environment) rest.Storage {
	return &registry.Review{
		Singular: "localsubjectaccessreview", Namespaced: true,
		Empty: func() runtime.Object { return &authorizationv1.LocalSubjectAccessReview{} },
		Check: checkLocal,
		Answer: func(ctx context.Context, obj runtime.Object) error {
			r := obj.(*authorizationv1.LocalSubjectAccessReview)
			r.Status = decide(ctx, e.Authorizer, subjectOf(&r.Spec), r.Spec.ResourceAttributes, nil)
			return nil
		},
	}
}

func newSelfSubjectAccessReviews(e *registry.Environment) rest.Storage {
	return &registry.Review{
		Singular: "selfsubjectaccessreview",
		Empty:    func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} },
		Check: func(_ context.Context, obj runtime.Object) error {
			r := obj.(*authorizationv1.SelfSubjectAccessReview)
			return invalid("SelfSubjectAccessReview", append(
				checkAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), checkBareMeta(&r.ObjectMeta)...))
		},
		Answer: func(ctx context.Context, obj runtime.Object) error {
			u, ok := apirequest.UserFrom(ctx)
			if !ok {
				return apierrors.NewBadRequest("no user present on request")
			}
			r := obj.(*authorizationv1.SelfSubjectAccessReview)
			r.Status = decide(ctx, e.Authorizer, u, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			return nil
		},
	}
}

func newSelfSubjectRulesReviews(e *registry.Environment) rest.Storage {
	return &registry.Review{
		Singular: "selfsubjectrulesreview",
		Empty:    func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} },
		Answer: func(ctx context.Context, obj runtime.Object) error {
			return listRules(ctx, e.Rules, obj.(*authorizationv1.SelfSubjectRulesReview))
		},
	}
}

// decide runs the authorizer. Denied is set only for an explicit deny; a status that is not allowed alone means no opinion.
func decide(ctx context.Context, a authorizer.Authorizer, u user.Info, resource *authorizationv1.ResourceAttributes,
	path *authorizationv1.NonResourceAttributes,
) authorizationv1.SubjectAccessReviewStatus {
	record := attributesOf(u, resource, path)
	decision, reason, err := a.Authorize(ctx, record)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	var problems []error
	for _, problem := range []error{err, labelled("spec.resourceAttributes.fieldSelector", record.FieldSelectorParsingErr),
		labelled("spec.resourceAttributes.labelSelector", record.LabelSelectorParsingErr)} {
		if problem != nil {
			problems = append(problems, problem)
		}
	}
	if problem := utilerrors.NewAggregate(problems); problem != nil {
		status.EvaluationError = problem.Error()
	}
	return status
}

func labelled(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s ignored due to parse error: %w", what, err)
}

func subjectOf(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	extra := map[string][]string{}
	for key, values := range spec.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: extra}
}

func invalid(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", errs)
}

func checkSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := checkAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func checkAttributes(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	spec := field.NewPath("spec")
	switch {
	case resource != nil && path != nil:
		return field.ErrorList{field.Invalid(spec.Child("nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes")}
	case resource == nil && path == nil:
		return field.ErrorList{field.Invalid(spec.Child("resourceAttributes"), resource, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	case resource != nil:
		return checkSelectors(resource)
	}
	return nil
}

func checkSelectors(resource *authorizationv1.ResourceAttributes) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "resourceAttributes")
	exclusive := "cannot be specified at the same time as requirements"
	if s := resource.FieldSelector; s != nil && s.RawSelector != "" && len(s.Requirements) > 0 {
		errs = append(errs, field.Invalid(path.Child("fieldSelector", "rawSelector"), s.RawSelector, exclusive))
	}
	if s := resource.LabelSelector; s != nil && s.RawSelector != "" && len(s.Requirements) > 0 {
		errs = append(errs, field.Invalid(path.Child("labelSelector", "rawSelector"), s.RawSelector, exclusive))
	}
	return errs
}

// checkBareMeta refuses metadata, because reviews are not stored.
func checkBareMeta(m *metav1.ObjectMeta) field.ErrorList {
	bare := m.DeepCopy()
	bare.ManagedFields = nil
	if apiequality.Semantic.DeepEqual(*bare, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), m, "must be empty")}
}

// checkLocal requires the review to be for the namespace in which the request was authorized.
func checkLocal(ctx context.Context, obj runtime.Object) error {
	r := obj.(*authorizationv1.LocalSubjectAccessReview)
	errs := checkSubject(&r.Spec)
	meta := r.ObjectMeta
	meta.Namespace = ""
	errs = append(errs, checkBareMeta(&meta)...)
	if r.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec", "nonResourceAttributes"), r.Spec.NonResourceAttributes,
			"disallowed on this kind of request"))
	}
	if r.Spec.ResourceAttributes != nil && r.Spec.ResourceAttributes.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"),
			r.Spec.ResourceAttributes.Namespace, "must match metadata.namespace"))
	}
	if err := invalid("LocalSubjectAccessReview", errs); err != nil {
		return err
	}
	namespace := apirequest.NamespaceValue(ctx)
	if namespace == "" {
		return apierrors.NewBadRequest("namespace is required on this type: ")
	}
	if namespace != r.Namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("spec.resourceAttributes.namespace must match namespace: %v", namespace))
	}
	return nil
}

// listRules returns the rules of the caller in a namespace, as a help for user interfaces. The list is incomplete if an
// authorizer cannot enumerate its rules.
func listRules(ctx context.Context, resolver authorizer.RuleResolver, r *authorizationv1.SelfSubjectRulesReview) error {
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewBadRequest("no user present on request")
	}
	if r.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	resources, paths, incomplete, err := resolver.RulesFor(ctx, u, r.Spec.Namespace)
	r.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    make([]authorizationv1.ResourceRule, 0, len(resources)),
		NonResourceRules: make([]authorizationv1.NonResourceRule, 0, len(paths)),
		Incomplete:       incomplete,
	}
	for _, rule := range resources {
		r.Status.ResourceRules = append(r.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range paths {
		r.Status.NonResourceRules = append(r.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs(),
		})
	}
	if err != nil {
		r.Status.EvaluationError = err.Error()
	}
	return nil
}
