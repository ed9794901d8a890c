package core

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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/coreapi/registry"
)

const defaultTokenSeconds = 3600

// tokens serves serviceaccounts/token.
type tokens struct {
	issuer         registry.TokenIssuer
	accounts, pods *registry.REST
	// sameNamespace is Environment.SameNamespace.
	sameNamespace func(ctx context.Context, name string) error
	// maxSeconds is the maximum lifetime of a token, or zero for the issuer's limit.
	maxSeconds int64
}

func serviceAccountStorages(e *registry.Environment, accounts *registry.REST) map[string]rest.Storage {
	if e.TokenIssuer == nil {
		return nil
	}
	return map[string]rest.Storage{"serviceaccounts/token": &tokens{
		issuer: e.TokenIssuer, accounts: accounts, pods: e.Storage(corev1.Resource("pods")), sameNamespace: e.SameNamespace,
		maxSeconds: int64(e.MaxTokenExpiration.Seconds()),
	}}
}

var (
	_ rest.NamedCreater                   = (*tokens)(nil)
	_ rest.GroupVersionKindProvider       = (*tokens)(nil)
	_ rest.SubresourceObjectMetaPreserver = (*tokens)(nil)
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

func (t *tokens) New() runtime.Object { return &authenticationv1.TokenRequest{} }

func (t *tokens) Destroy() {}

func (t *tokens) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return tokenRequestKind
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the uid of a request, which identifies the account.
func (t *tokens) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create returns the request with a signed token in its status.
func (t *tokens) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	request := obj.(*authenticationv1.TokenRequest)
	namespace := apirequest.NamespaceValue(ctx)
	if namespace == "" {
		return nil, apierrors.NewBadRequest("namespace is required")
	}
	meant := request.UID // any account with the name if empty
	if err := t.prepare(ctx, request, namespace, name); err != nil {
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
	t.shorten(ctx, request)
	issued, err := t.issuer.IssueToken(ctx, namespace, name, meant, request.Spec)
	if err != nil {
		return nil, asAPIError(fmt.Errorf("issue a token for service account %s/%s: %w", namespace, name, err))
	}
	// An account in a recreated namespace with the same name belongs to another owner.
	if err := t.sameNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	if len(options.DryRun) > 0 {
		return request, nil // a dry run must not return a valid token
	}
	if issued.CredentialID != "" {
		audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, issued.CredentialID)
	}
	request.Spec.Audiences, request.Status = issued.Audiences, issued.Status
	return request, nil
}

// longestRequest is the largest valid expiration, in seconds. The issuer refuses larger ones.
const longestRequest = 1 << 32

// shorten reduces the requested expiration to --service-account-max-token-expiration, with a warning.
func (t *tokens) shorten(ctx context.Context, r *authenticationv1.TokenRequest) {
	asked := *r.Spec.ExpirationSeconds
	if t.maxSeconds <= 0 || asked <= t.maxSeconds || asked > longestRequest {
		return
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, t.maxSeconds))
	shortened := t.maxSeconds
	r.Spec.ExpirationSeconds = &shortened
}

// asAPIError returns the Status that err wraps, because k8s.io/apiserver does not unwrap it.
func asAPIError(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status
	}
	return err
}

// prepare sets the defaults, and refuses fields that contradict the URL or the service account.
func (t *tokens) prepare(ctx context.Context, r *authenticationv1.TokenRequest, namespace, name string) error {
	meta := field.NewPath("metadata")
	mismatch := func(of, value, text string) error {
		return apierrors.NewInvalid(tokenRequestKind.GroupKind(), name, field.ErrorList{field.Invalid(meta.Child(of), value, text)})
	}
	switch {
	case r.Name != "" && r.Name != name:
		return mismatch("name", r.Name, "must match the service account name if specified")
	case r.Namespace != "" && r.Namespace != namespace:
		return mismatch("namespace", r.Namespace, "must match the service account namespace if specified")
	}
	account, err := t.accounts.Get(registry.ReadContext(ctx, "", "serviceaccounts", namespace, name), name, &metav1.GetOptions{})
	if err != nil {
		return err
	}
	uid := account.(*corev1.ServiceAccount).UID
	if r.UID != "" && r.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Group: tokenRequestKind.Group, Resource: tokenRequestKind.Kind}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", r.UID, uid))
	}
	r.Name, r.Namespace, r.UID = name, namespace, uid
	r.CreationTimestamp = metav1.Now()
	r.Status = authenticationv1.TokenRequestStatus{}
	if r.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultTokenSeconds)
		r.Spec.ExpirationSeconds = &seconds
	}
	return nil
}

// mayBind refuses bindings that are bad requests in kube-apiserver. The issuer checks the rest of a binding.
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
	obj, err := t.pods.Get(registry.ReadContext(ctx, "", "pods", namespace, ref.Name), ref.Name, &metav1.GetOptions{})
	if err != nil {
		return err
	}
	if obj.(*corev1.Pod).Spec.ServiceAccountName != account {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account))
	}
	return nil
}
