package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"portico.dev/internal/auth/authn"
)

// Limits of a token's lifetime, as in kube-apiserver.
const (
	DefaultExpirationSeconds = 3600
	MinExpirationSeconds     = 600
	MaxExpirationSeconds     = 1 << 32

	// Kubelets request exactly KubeletExpirationSeconds for pods that do not specify a lifetime. Some of these pods
	// read their token only once. With --service-account-extend-token-expiration they get ExtendedSeconds, and uses
	// after the requested lifetime are counted (KEP-1205).
	KubeletExpirationSeconds = 3607
	ExtendedSeconds          = 365 * 24 * 60 * 60
)

// IssueRequest is a TokenRequest for a service account.
type IssueRequest struct {
	Namespace, Name string
	// UID, if not empty, is the UID of the service account. A different UID is a conflict.
	UID types.UID
	// Spec contains audiences, expirationSeconds (nil or 0 for the default) and boundObjectRef.
	Spec authenticationv1.TokenRequestSpec
}

// Issued is an issued token.
type Issued struct {
	Token string
	// CredentialID is in the user's extra for requests with the token.
	CredentialID string
	// Expires is the expiry to report in the response.
	Expires time.Time
}

// ErrCannotSign is returned if the server has no signing key.
var ErrCannotSign = errors.New("this server has no service account signing key; set --service-account-signing-key-file")

// Issue returns a token for a live service account, bound to a live object if the request names one. Errors caused by
// the client are API status errors: 404, 409 or 422.
func (t *Tokens) Issue(ctx context.Context, req IssueRequest) (Issued, error) {
	if t.signing == nil {
		return Issued{}, ErrCannotSign
	}
	if err := validate(req); err != nil {
		return Issued{}, err
	}
	account, err := t.lookup.GetServiceAccount(ctx, req.Namespace, req.Name)
	if err != nil {
		return Issued{}, statusOr(err, "look up service account")
	}
	if req.UID != "" && req.UID != account.UID {
		return Issued{}, uidConflict("serviceaccounts", req.Name, req.UID, account.UID)
	}
	private := &kubernetes{
		Namespace:      req.Namespace,
		ServiceAccount: ref{Name: account.Name, UID: string(account.UID)},
	}
	if err := t.bind(ctx, private, req.Spec.BoundObjectRef); err != nil {
		return Issued{}, err
	}
	return t.sign(private, req.Spec)
}

func (t *Tokens) sign(private *kubernetes, spec authenticationv1.TokenRequestSpec) (Issued, error) {
	lifetime := int64(DefaultExpirationSeconds)
	if s := spec.ExpirationSeconds; s != nil && *s != 0 {
		lifetime = *s
	}
	audiences := spec.Audiences
	if len(audiences) == 0 {
		audiences = t.audiences
	}
	now := authn.Seconds(t.now().Unix())
	ends := now + authn.Seconds(lifetime)
	stated := ends
	if t.extended(private, lifetime, audiences) {
		private.WarnAfter, ends = ends, now+ExtendedSeconds
	}
	c := &claims{
		Issuer:     t.issuer,
		Subject:    serviceaccount.MakeUsername(private.Namespace, private.ServiceAccount.Name),
		Audience:   slices.Clone(audiences),
		ID:         uuid.NewString(),
		IssuedAt:   now,
		NotBefore:  now,
		Expires:    ends,
		Kubernetes: private,
	}
	unsigned := &jwt.Token{
		Header: map[string]any{"alg": t.signing.method.Alg(), "kid": t.signing.id},
		Claims: c,
		Method: t.signing.method,
	}
	token, err := unsigned.SignedString(t.signing.private)
	if err != nil {
		return Issued{}, fmt.Errorf("sign service account token: %w", err)
	}
	return Issued{Token: token, CredentialID: c.credentialID(), Expires: stated.Time()}, nil
}

// extended reports whether a token gets the extended lifetime. It must be bound to a pod, only for this server's
// audiences, and requested with the kubelet's lifetime.
func (t *Tokens) extended(private *kubernetes, lifetime int64, audiences []string) bool {
	return t.extend && private.Pod != nil && lifetime == KubeletExpirationSeconds &&
		!slices.ContainsFunc(audiences, func(a string) bool { return !slices.Contains(t.audiences, a) })
}

// bind adds the object to which the token is bound to private.
func (t *Tokens) bind(ctx context.Context, private *kubernetes, to *authenticationv1.BoundObjectReference) error {
	if to == nil {
		return nil
	}
	switch to.Kind {
	case "Pod":
		return t.bindPod(ctx, private, to)
	case "Secret":
		secret, err := t.lookup.GetSecret(ctx, private.Namespace, to.Name)
		if err != nil {
			return statusOr(err, "look up secret")
		}
		private.Secret = &ref{Name: secret.Name, UID: string(secret.UID)}
		return checkUID("secrets", to, secret.UID)
	default: // validate permits only Node here
		node, err := t.lookup.GetNode(ctx, to.Name)
		if err != nil {
			return statusOr(err, "look up node")
		}
		private.Node = &ref{Name: node.Name, UID: string(node.UID)}
		return checkUID("nodes", to, node.UID)
	}
}

func (t *Tokens) bindPod(ctx context.Context, private *kubernetes, to *authenticationv1.BoundObjectReference) error {
	pod, err := t.lookup.GetPod(ctx, private.Namespace, to.Name)
	if err != nil {
		return statusOr(err, "look up pod")
	}
	if err := checkUID("pods", to, pod.UID); err != nil {
		return err
	}
	// Otherwise a client that may request tokens of one account could bind them to the lifetime of another account's
	// pod.
	if pod.Spec.ServiceAccountName != private.ServiceAccount.Name {
		return invalid(to.Name, field.Invalid(field.NewPath("spec", "boundObjectRef", "name"), to.Name,
			fmt.Sprintf("the pod runs as service account %q, not as %q", pod.Spec.ServiceAccountName, private.ServiceAccount.Name)))
	}
	private.Pod = &ref{Name: pod.Name, UID: string(pod.UID)}
	return t.addNode(ctx, private, pod)
}

// addNode adds the pod's node. A missing node is not an error; the token then has no node reference.
func (t *Tokens) addNode(ctx context.Context, private *kubernetes, pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return nil
	}
	node, err := t.lookup.GetNode(ctx, pod.Spec.NodeName)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return statusOr(err, "look up node")
	}
	private.Node = &ref{Name: node.Name, UID: string(node.UID)}
	return nil
}

func validate(req IssueRequest) error {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if s := req.Spec.ExpirationSeconds; s != nil && *s != 0 {
		at := spec.Child("expirationSeconds")
		if *s < MinExpirationSeconds {
			errs = append(errs, field.Invalid(at, *s, "may not specify a duration less than 10 minutes"))
		} else if *s > MaxExpirationSeconds {
			errs = append(errs, field.Invalid(at, *s, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	for i, a := range req.Spec.Audiences {
		if a == "" {
			errs = append(errs, field.Invalid(spec.Child("audiences").Index(i), a, "must not be empty"))
		}
	}
	if to := req.Spec.BoundObjectRef; to != nil {
		errs = append(errs, validateBound(spec.Child("boundObjectRef"), to)...)
	}
	return invalid(req.Name, errs...)
}

func validateBound(at *field.Path, to *authenticationv1.BoundObjectReference) field.ErrorList {
	var errs field.ErrorList
	if to.APIVersion != "v1" || !slices.Contains([]string{"Pod", "Secret", "Node"}, to.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), to.APIVersion+", Kind="+to.Kind,
			[]string{"v1, Kind=Pod", "v1, Kind=Secret", "v1, Kind=Node"}))
	}
	if to.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	return errs
}

func invalid(name string, errs ...*field.Error) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}, name, errs)
}

func checkUID(resource string, to *authenticationv1.BoundObjectReference, live types.UID) error {
	if to.UID != "" && to.UID != live {
		return uidConflict(resource, to.Name, to.UID, live)
	}
	return nil
}

func uidConflict(resource, name string, want, live types.UID) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, name,
		fmt.Errorf("the UID in the request (%s) does not match the UID of the live object (%s)", want, live))
}

// statusOr returns an API status error unchanged, so that its code reaches the client, and wraps other errors.
func statusOr(err error, doing string) error {
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}
