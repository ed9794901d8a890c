package coreapi

import (
	"context"
	"errors"
	"fmt"
	"time"

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

const (
	defaultTokenSeconds = 3600
	minTokenSeconds     = 600
	maxTokenSeconds     = 1 << 32
)

// TokenIssuer signs tokens of service accounts.
type TokenIssuer interface {
	// IssueToken signs a token for what has been checked to exist. The answer may be shorter-lived than was asked for,
	// and names the audiences when none were asked for.
	IssueToken(ctx context.Context, subject TokenSubject, audiences []string, lifetime time.Duration) (IssuedToken, error)
}

// TokenSubject is who a token speaks for. At most one of Pod, Secret and Node is set: the token ends with it.
type TokenSubject struct {
	Account *corev1.ServiceAccount
	Pod     *corev1.Pod
	Secret  *corev1.Secret
	Node    *corev1.Node
}

// IssuedToken is a token as it was signed.
type IssuedToken struct {
	Token     string
	Expires   time.Time
	Audiences []string
}

// tokens serves serviceaccounts/token.
type tokens struct {
	issuer                         TokenIssuer
	accounts, pods, secrets, nodes *stored
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
	account, err := t.account(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := prepareTokenRequest(request, account); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, request.DeepCopy()); err != nil {
			return nil, err
		}
	}
	subject := TokenSubject{Account: account}
	if ref := request.Spec.BoundObjectRef; ref != nil {
		if err := t.bind(ctx, namespace, ref, &subject); err != nil {
			return nil, err
		}
	}
	if len(options.DryRun) > 0 {
		return request, nil // a token that works is not a dry run
	}
	lifetime := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
	issued, err := t.issuer.IssueToken(ctx, subject, request.Spec.Audiences, lifetime)
	if err != nil {
		return nil, asAPIError(fmt.Errorf("issue a token for service account %s/%s: %w", namespace, name, err))
	}
	request.Spec.Audiences = issued.Audiences
	request.Status = authenticationv1.TokenRequestStatus{Token: issued.Token, ExpirationTimestamp: metav1.NewTime(issued.Expires)}
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

func (t *tokens) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	obj, err := t.accounts.Get(readContext(ctx, "", "serviceaccounts", namespace, name), name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.ServiceAccount), nil
}

// prepareTokenRequest fills in what may be left out and refuses what contradicts the URL.
func prepareTokenRequest(r *authenticationv1.TokenRequest, account *corev1.ServiceAccount) error {
	var errs field.ErrorList
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	if r.Name != "" && r.Name != account.Name {
		errs = append(errs, field.Invalid(meta.Child("name"), r.Name, "must match the service account name if specified"))
	}
	if r.Namespace != "" && r.Namespace != account.Namespace {
		errs = append(errs, field.Invalid(meta.Child("namespace"), r.Namespace, "must match the service account namespace if specified"))
	}
	r.Name, r.Namespace = account.Name, account.Namespace
	r.CreationTimestamp = metav1.Now()
	r.Status = authenticationv1.TokenRequestStatus{}
	if r.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultTokenSeconds)
		r.Spec.ExpirationSeconds = &seconds
	}
	switch seconds := *r.Spec.ExpirationSeconds; {
	case seconds < minTokenSeconds:
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"))
	case seconds > maxTokenSeconds:
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(tokenRequestKind.GroupKind(), "", errs)
	}
	return nil
}

// bind finds the object that a token is to end with. A name is not enough: the object may have been replaced by
// another of the same name, which must not inherit the token.
func (t *tokens) bind(ctx context.Context, namespace string, ref *authenticationv1.BoundObjectReference, subject *TokenSubject) error {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	var uid types.UID
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		obj, err := t.pods.Get(readContext(ctx, "", "pods", namespace, ref.Name), ref.Name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		subject.Pod = obj.(*corev1.Pod)
		if subject.Pod.Spec.ServiceAccountName != subject.Account.Name {
			return apierrors.NewBadRequest(fmt.Sprintf(
				"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", subject.Account.Name))
		}
		uid = subject.Pod.UID
	case schema.GroupKind{Kind: "Secret"}:
		obj, err := t.secrets.Get(readContext(ctx, "", "secrets", namespace, ref.Name), ref.Name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		subject.Secret = obj.(*corev1.Secret)
		uid = subject.Secret.UID
	case schema.GroupKind{Kind: "Node"}:
		obj, err := t.nodes.Get(readContext(ctx, "", "nodes", "", ref.Name), ref.Name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		subject.Node = obj.(*corev1.Node)
		uid = subject.Node.UID
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind))
	}
	if ref.UID != "" && ref.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, ref.Name, fmt.Errorf(
			"the UID in the bound object reference (%s) does not match the UID in record. "+
				"The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}
