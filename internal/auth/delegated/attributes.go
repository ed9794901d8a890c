package delegated

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// accessSpec is a request as a SubjectAccessReview.
func accessSpec(u user.Info, info *apirequest.RequestInfo) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = make(map[string]authorizationv1.ExtraValue, len(u.GetExtra()))
		}
		spec.Extra[k] = v
	}
	if !info.IsResourceRequest {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: info.Path, Verb: info.Verb}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace:     info.Namespace,
		Verb:          info.Verb,
		Group:         info.APIGroup,
		Version:       info.APIVersion,
		Resource:      info.Resource,
		Subresource:   info.Subresource,
		Name:          info.Name,
		FieldSelector: fieldAttributes(info.FieldSelector),
		LabelSelector: labelAttributes(info.LabelSelector),
	}
	return spec
}

// fieldAttributes narrows the question by a selector. What does not parse or has no counterpart is left out: the
// question is then about more than the request will read, so the answer errs on the side of refusing.
func fieldAttributes(selector string) *authorizationv1.FieldSelectorAttributes {
	parsed, err := fields.ParseSelector(selector)
	if selector == "" || err != nil {
		return nil
	}
	var out []metav1.FieldSelectorRequirement
	for _, r := range parsed.Requirements() {
		op := metav1.FieldSelectorOpIn
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
		case selection.NotEquals, selection.NotIn:
			op = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: op, Values: []string{r.Value}})
	}
	if out == nil {
		return nil
	}
	return &authorizationv1.FieldSelectorAttributes{Requirements: out}
}

// labelAttributes is fieldAttributes for labels.
func labelAttributes(selector string) *authorizationv1.LabelSelectorAttributes {
	parsed, err := labels.ParseToRequirements(selector)
	if selector == "" || err != nil {
		return nil
	}
	var out []metav1.LabelSelectorRequirement
	for _, r := range parsed {
		var op metav1.LabelSelectorOperator
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			op = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			op = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			op = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			op = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		// Sorted, so that two spellings of one selector are one question.
		out = append(out, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: op, Values: r.Values().List()})
	}
	if out == nil {
		return nil
	}
	return &authorizationv1.LabelSelectorAttributes{Requirements: out}
}
