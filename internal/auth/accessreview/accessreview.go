// Package accessreview authorizes requests by SubjectAccessReviews of an API server, and caches the decisions.
package accessreview

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/auth/ttlcache"
)

// Path is where SubjectAccessReviews are created.
const Path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

const (
	// rememberAllowed and rememberDenied are how long decisions are cached.
	rememberAllowed = 10 * time.Second
	rememberDenied  = 5 * time.Second
	// rememberDecisions is the number of cached decisions.
	rememberDecisions = 8192
	// maxReason limits the reason of a decision, which the API server chooses.
	maxReason = 256
)

// Send creates a SubjectAccessReview and decodes the response into reply. It must return within a time limit.
type Send func(ctx context.Context, review, reply *authorizationv1.SubjectAccessReview) error

// Reviewer authorizes requests. It is safe for concurrent use.
type Reviewer struct {
	send      Send
	decisions *ttlcache.Cache[[sha256.Size]byte, decision]
	inFlight  singleflight.Group
}

// decision is the result of a SubjectAccessReview.
type decision struct {
	allowed bool
	reason  string
}

// New returns a Reviewer.
func New(send Send) *Reviewer {
	return &Reviewer{send: send, decisions: ttlcache.New[[sha256.Size]byte, decision](rememberDecisions)}
}

// Authorize reports whether u may perform the request described by info, and the reason. An error means that the API server made no
// decision. Concurrent equal reviews are merged.
func (r *Reviewer) Authorize(ctx context.Context, u user.Info, info *apirequest.RequestInfo) (allowed bool, reason string, err error) {
	spec := specOf(u, info)
	encoded, err := json.Marshal(spec)
	if err != nil {
		return false, "", fmt.Errorf("encode access review: %w", err)
	}
	if bytes.Contains(encoded, []byte(`\ufffd`)) { // package json has replaced bytes: the decision would be about another name
		return false, "a name in the request is not UTF-8", nil
	}
	key := sha256.Sum256(encoded)
	known, ok := r.decisions.Get(key)
	if !ok {
		// The review is detached from the context of the first request, because other requests wait for its result.
		v, err, _ := r.inFlight.Do(string(key[:]), func() (any, error) {
			return r.review(context.WithoutCancel(ctx), spec, key)
		})
		if err != nil {
			return false, "", fmt.Errorf("review access: %w", err)
		}
		known = v.(decision)
	}
	return known.allowed, known.reason, nil
}

func (r *Reviewer) review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec, key [sha256.Size]byte) (decision, error) {
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     spec,
	}
	var reply authorizationv1.SubjectAccessReview
	if err := r.send(ctx, review, &reply); err != nil {
		return decision{}, err
	}
	if reply.Status.Allowed && reply.Status.Denied {
		return decision{}, errors.New("the API server both allowed and denied")
	}
	made, ttl := decision{allowed: reply.Status.Allowed, reason: reply.Status.Reason}, rememberDenied
	if made.allowed {
		ttl = rememberAllowed
	}
	if len(made.reason) > maxReason {
		made.reason = strings.ToValidUTF8(made.reason[:maxReason], "")
	}
	r.decisions.Add(key, made, time.Now().Add(ttl))
	return made, nil
}

// specOf converts a request to the spec of a SubjectAccessReview.
func specOf(u user.Info, info *apirequest.RequestInfo) authorizationv1.SubjectAccessReviewSpec {
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
