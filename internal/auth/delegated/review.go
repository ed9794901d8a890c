package delegated

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/auth/tokenreview"
)

const (
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

	rememberDecision = 10 * time.Second

	// Decisions for larger reviews are not cached, so that a client cannot fill the memory with them.
	maxRememberedBytes = 10_000
)

// reviewToken sends a TokenReview to the front door.
func (d *Delegated) reviewToken(ctx context.Context, review, reply *authenticationv1.TokenReview) error {
	return d.client.call(ctx, http.MethodPost, tokenreview.Path, nil, review, reply)
}

// reviewAccess requests a decision from the front door.
func (d *Delegated) reviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (decision, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return decision{}, fmt.Errorf("encode access review: %w", err)
	}
	key := sha256.Sum256(encoded)
	if answer, ok := d.access.Get(key); ok {
		return answer, nil
	}
	// Concurrent identical reviews are merged into one call. It is detached from the context of the first request, because
	// other requests wait for its result. It ends after the timeout of every review.
	v, err, _ := d.inFlight.Do(string(key[:]), func() (any, error) {
		return d.askAccess(context.WithoutCancel(ctx), spec, key, len(encoded) < maxRememberedBytes)
	})
	answer, _ := v.(decision)
	return answer, err
}

func (d *Delegated) askAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec, key [sha256.Size]byte, remember bool) (decision, error) {
	review := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     spec,
	}
	var reply authorizationv1.SubjectAccessReview
	query := url.Values{"timeout": {askTimeout.String()}}
	if err := d.client.call(ctx, http.MethodPost, accessReviews, query, review, &reply); err != nil {
		return decision{}, fmt.Errorf("review access: %w", err)
	}
	answer, err := decided(reply.Status)
	if err != nil {
		return decision{}, err
	}
	if remember {
		d.access.Add(key, answer, time.Now().Add(rememberDecision))
	}
	return answer, nil
}

// accessSpec converts a request to the spec of a SubjectAccessReview.
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

// fieldAttributes converts a field selector. Requirements that cannot be parsed or converted are omitted. The review
// then covers more objects than the request reads, so the decision errs on the side of refusal.
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

// labelAttributes converts a label selector like fieldAttributes.
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
		// Sorted, so that equivalent selectors share a cache entry.
		out = append(out, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: op, Values: r.Values().List()})
	}
	if out == nil {
		return nil
	}
	return &authorizationv1.LabelSelectorAttributes{Requirements: out}
}
