package coreapi

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

const defaultTokenSeconds = 3600

// TokenIssuer signs tokens of service accounts.
type TokenIssuer interface {
	// IssueToken checks what spec asks for, that the account is there (with uid, unless that is empty) and that what the
	// token is to be bound to is there with its UID, and signs. It also returns the audiences of the token, for when
	// spec names none. What the client did wrong is an API status error, wrapped or not.
	IssueToken(ctx context.Context, namespace, name string, uid types.UID, spec authenticationv1.TokenRequestSpec) (
		status authenticationv1.TokenRequestStatus, audiences []string, err error)
}

// tokens serves serviceaccounts/token.
type tokens struct {
	issuer TokenIssuer
	pods   *stored
	// namespace reads a namespace as it is now.
	namespace namespaceGetter
}

var (
	_ rest.NamedCreater             = (*tokens)(nil)
	_ rest.GroupVersionKindProvider = (*tokens)(nil)
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

func (t *tokens) New() runtime.Object { return &authenticationv1.TokenRequest{} }
func (t *tokens) Destroy()            {}

func (t *tokens) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return tokenRequestKind
}

// Create answers with the request and a signed token in its status.
func (t *tokens) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	request := obj.(*authenticationv1.TokenRequest)
	namespace := apirequest.NamespaceValue(ctx)
	if namespace == "" {
		return nil, apierrors.NewBadRequest("namespace is required")
	}
	if err := prepareTokenRequest(request, namespace, name); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, request.DeepCopy()); err != nil {
			return nil, err
		}
	}
	if err := t.mayBind(ctx, namespace, name, request.Spec.BoundObjectRef); err != nil {
		return nil, err
	}
	status, audiences, err := t.issuer.IssueToken(ctx, namespace, name, "", request.Spec)
	if err != nil {
		return nil, asAPIError(fmt.Errorf("issue a token for service account %s/%s: %w", namespace, name, err))
	}
	// An account of the same name in the next namespace of that name is somebody else's.
	if err := sameNamespace(ctx, namespace, t.namespace); err != nil {
		return nil, err
	}
	if len(options.DryRun) > 0 {
		return request, nil // a token that works is not a dry run
	}
	request.Spec.Audiences, request.Status = audiences, status
	return request, nil
}

// asAPIError brings a Status inside err to the outside, where the library looks for it.
func asAPIError(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status
	}
	return err
}

// prepareTokenRequest fills in what may be left out and refuses what contradicts the URL.
func prepareTokenRequest(r *authenticationv1.TokenRequest, namespace, name string) error {
	var errs field.ErrorList
	meta := field.NewPath("metadata")
	if r.Name != "" && r.Name != name {
		errs = append(errs, field.Invalid(meta.Child("name"), r.Name, "must match the service account name if specified"))
	}
	if r.Namespace != "" && r.Namespace != namespace {
		errs = append(errs, field.Invalid(meta.Child("namespace"), r.Namespace, "must match the service account namespace if specified"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(tokenRequestKind.GroupKind(), "", errs)
	}
	r.Name, r.Namespace = name, namespace
	rest.FillObjectMetaSystemFields(r)
	r.Status = authenticationv1.TokenRequestStatus{}
	if r.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultTokenSeconds)
		r.Spec.ExpirationSeconds = &seconds
	}
	return nil
}

// mayBind refuses what kube-apiserver calls a bad request. Everything else about a binding is the issuer's to check.
func (t *tokens) mayBind(ctx context.Context, namespace, account string, ref *authenticationv1.BoundObjectReference) error {
	if ref == nil {
		return nil
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "Node"}:
		return nil
	case schema.GroupKind{Kind: "Pod"}:
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind))
	}
	obj, err := t.pods.Get(readContext(ctx, "", "pods", namespace, ref.Name), ref.Name, &metav1.GetOptions{})
	if err != nil {
		return err
	}
	if obj.(*corev1.Pod).Spec.ServiceAccountName != account {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account))
	}
	return nil
}
