package authorization

import (
	"cmp"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// attributesOf converts the spec of an access review to authorizer attributes.
func attributesOf(u user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizer.AttributesRecord {
	if resource == nil {
		return authorizer.AttributesRecord{User: u, Verb: path.Verb, Path: path.Path}
	}
	record := authorizer.AttributesRecord{
		User:            u,
		Verb:            resource.Verb,
		Namespace:       resource.Namespace,
		APIGroup:        resource.Group,
		APIVersion:      resource.Version,
		Resource:        resource.Resource,
		Subresource:     resource.Subresource,
		Name:            resource.Name,
		ResourceRequest: true,
	}
	// RBAC ignores versions. An authorizer that does not must get "*" if the review leaves the version empty.
	record.APIVersion = cmp.Or(record.APIVersion, "*")
	record.FieldSelectorRequirements, record.FieldSelectorParsingErr = fieldRequirements(resource.FieldSelector)
	record.LabelSelectorRequirements, record.LabelSelectorParsingErr = labelRequirements(resource.LabelSelector)
	return record
}

// fieldRequirements returns the requirements that it can parse, and an error for the rest. Dropping a requirement widens the
// requested access, so the decision can only become stricter.
func fieldRequirements(in *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if in == nil {
		return nil, nil
	}
	if in.RawSelector != "" {
		selector, err := fields.ParseSelector(in.RawSelector)
		if err != nil {
			return nil, err
		}
		return selector.Requirements(), nil
	}
	var found fields.Requirements
	var errs []error
	for _, r := range in.Requirements {
		if len(r.Values) > 1 {
			errs = append(errs, fmt.Errorf("fieldSelectors do not yet support multiple values"))
			continue
		}
		operator, ok := map[metav1.FieldSelectorOperator]selection.Operator{
			metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals,
		}[r.Operator]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("fieldSelectors do not yet support %v", r.Operator))
		case len(r.Values) == 0:
			errs = append(errs, fmt.Errorf("fieldSelectors %v must have one value", r.Operator))
		default:
			found = append(found, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
		}
	}
	return found, utilerrors.NewAggregate(errs)
}

func labelRequirements(in *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if in == nil {
		return nil, nil
	}
	if in.RawSelector != "" {
		selector, err := labels.Parse(in.RawSelector)
		if err != nil {
			return nil, err
		}
		requirements, _ := selector.Requirements()
		return requirements, nil
	}
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	var found labels.Requirements
	var errs []error
	for _, r := range in.Requirements {
		operator, ok := operators[r.Operator]
		if !ok {
			errs = append(errs, fmt.Errorf("%q is not a valid label selector operator", r.Operator))
			continue
		}
		requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, *requirement)
	}
	return found, utilerrors.NewAggregate(errs)
}
