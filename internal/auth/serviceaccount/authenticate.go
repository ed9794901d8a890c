package serviceaccount

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/request"
)

const (
	// A signature is verified again after this long even if the token is still valid, so that a key that was taken out of
	// service does not live on in the cache.
	rememberGood = 10 * time.Second
	// A bad one is refused from the cache for this long, so that a client that keeps trying costs a hash and not a signature.
	rememberBad = 2 * time.Second
)

// cachedSignature is what is known of the bytes of a token: its verified claims, or why they are not ours or not
// verified. Nothing in it depends on the time or on live objects.
type cachedSignature struct {
	claims *claims       // nil for the token of a Secret
	legacy *legacyClaims // nil for any other
	user   user.Info     // the user that the claims name, nil when they are inconsistent; never changed
	err    error
}

var (
	// errOtherIssuer is for tokens that are not of this issuer. They may be another issuer's and are no failure.
	errOtherIssuer = errors.New("not a token of this issuer")
	errUnknownKey  = errors.New("its key id is unknown")
)

// AuthenticateToken implements [authenticator.Token]. It returns false without an error for a token that is not of this
// issuer, and an error for one that names it and is invalid. The audiences in ctx, if any, replace the configured ones;
// the response has those that the token is for.
func (t *Tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) > authn.MaxTokenBytes {
		return nil, false, authn.ErrInvalidToken
	}
	v := t.verified(token)
	switch {
	case errors.Is(v.err, errOtherIssuer):
		return nil, false, nil
	case v.err != nil:
		return nil, false, fmt.Errorf("service account token: %w", v.err)
	}
	if v.legacy != nil {
		response, err := t.currentLegacy(ctx, v, token)
		if err != nil {
			return nil, false, fmt.Errorf("service account token: %w", err)
		}
		return response, true, nil
	}
	response, err := t.current(ctx, v)
	if err != nil {
		return nil, false, fmt.Errorf("service account token: %w", err)
	}
	request.NoteExpiry(ctx, v.claims.Expires.Time().Add(authn.ClockSkew))
	return response, true, nil
}

// verified checks what never changes about a token: that it is well formed, of this issuer, and signed by one of our
// keys.
func (t *Tokens) verified(token string) cachedSignature {
	key := sha256.Sum256([]byte(token))
	if v, ok := t.seen.Get(key); ok {
		return v
	}
	v, until := t.verify(token), t.now().Add(rememberGood)
	switch {
	case v.err != nil:
		until = t.now().Add(rememberBad)
	case v.legacy != nil:
		v.user = v.legacy.user()
	default:
		if v.claims.Validate() == nil {
			v.user = v.claims.user()
		}
		if end := v.claims.Expires.Time().Add(authn.ClockSkew); end.Before(until) {
			until = end
		}
	}
	t.seen.Add(key, v, until)
	return v
}

func (t *Tokens) verify(token string) cachedSignature {
	head, body, err := authn.SplitToken(token)
	if err != nil {
		return cachedSignature{err: errOtherIssuer}
	}
	issuer, err := authn.TokenIssuer(body)
	switch {
	case errors.Is(err, authn.ErrMalformedToken), err == nil && issuer != t.issuer && issuer != legacyIssuer:
		return cachedSignature{err: errOtherIssuer}
	case err != nil:
		return cachedSignature{err: err}
	case issuer == t.issuer:
		c := &claims{}
		return cachedSignature{claims: c, err: t.checkSignature(token, head, c)}
	}
	c := &legacyClaims{}
	switch err := t.checkSignature(token, head, c); {
	case errors.Is(err, errUnknownKey):
		return cachedSignature{err: errOtherIssuer} // every cluster has this issuer; only the key says whose token it is
	case err != nil:
		return cachedSignature{err: err}
	}
	return cachedSignature{legacy: c, err: c.checkConsistent()}
}

// checkSignature reads the claims of a token that one of our keys has signed.
func (t *Tokens) checkSignature(token, head string, into jwt.Claims) error {
	h, err := peekHeader(head)
	if err != nil {
		return err
	}
	key, ok := t.keys[h.KeyID]
	if !ok {
		// Upstream tries every key for a token without an id. What is issued here has one, so that a token without it is not
		// of here (B2). Of Secrets, only those that were filled before kube-controller-manager wrote ids have tokens without.
		return errUnknownKey
	}
	if h.Algorithm != key.method.Alg() {
		return errors.New("its algorithm is not that of its key")
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{key.method.Alg()}),
		jwt.WithStrictDecoding(),
		jwt.WithoutClaimsValidation(), // times are not remembered; see current
	)
	if _, err := parser.ParseWithClaims(token, into, func(*jwt.Token) (any, error) { return key.public, nil }); err != nil {
		return errors.New("its signature is not valid")
	}
	return nil
}

// current checks what changes: the time, the audience that is asked for, and the live objects.
func (t *Tokens) current(ctx context.Context, v cachedSignature) (*authenticator.Response, error) {
	c := v.claims
	if err := t.validator.Validate(c); err != nil { // calls claims.Validate too
		return nil, err
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = t.audiences
	}
	audiences := c.Audience.intersect(wanted)
	if len(audiences) == 0 {
		return nil, fmt.Errorf("it is for the audiences %q and not for any of %q", []string(c.Audience), []string(wanted))
	}
	if err := t.checkBound(ctx, c.Kubernetes); err != nil {
		return nil, err
	}
	t.noteExtended(ctx, c)
	return &authenticator.Response{Audiences: audiences, User: v.user}, nil
}

// noteExtended records whether a token that lives longer than was asked for should have been replaced by now.
func (t *Tokens) noteExtended(ctx context.Context, c *claims) {
	after := c.Kubernetes.WarnAfter
	if after == 0 {
		return
	}
	late := t.now().Sub(after.Time())
	if late <= 0 {
		t.metrics.Valid.Inc()
		return
	}
	t.metrics.Stale.Inc()
	audit.AddAuditAnnotation(ctx, "authentication.k8s.io/stale-token",
		fmt.Sprintf("subject: %s, seconds after warning threshold: %d", c.Subject, int64(late.Seconds())))
}

// Lookup finds the live objects that tokens depend on. Each method returns the object, or an error that
// apierrors.IsNotFound recognises when there is none; any other error makes the token fail for now. Objects are not
// changed by the caller. An answer may lag behind the store by as much as a revoked token may live on.
type Lookup interface {
	GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
}

// deletionGrace is how long after the end of an object's own grace period its tokens still work, so that a pod can
// finish its last calls while it is being torn down (kubernetes/kubernetes#122568).
const deletionGrace = time.Minute

// checkBound reports why the token of k is not valid any more: its service account or the object it is bound to is
// gone, is another one by the same name, or has been terminating for too long.
func (t *Tokens) checkBound(ctx context.Context, k *kubernetes) error {
	account, err := t.lookup.GetServiceAccount(ctx, k.Namespace, k.ServiceAccount.Name)
	if err != nil {
		return fmt.Errorf("look up its service account: %w", err)
	}
	if err := stillExists("service account", &account.ObjectMeta, k.ServiceAccount); err != nil {
		return err
	}
	if k.Secret != nil {
		secret, err := t.lookup.GetSecret(ctx, k.Namespace, k.Secret.Name)
		if err != nil {
			return fmt.Errorf("look up the secret it is bound to: %w", err)
		}
		if err := stillExists("secret", &secret.ObjectMeta, *k.Secret); err != nil {
			return err
		}
	}
	if k.Pod != nil {
		pod, err := t.lookup.GetPod(ctx, k.Namespace, k.Pod.Name)
		if err != nil {
			return fmt.Errorf("look up the pod it is bound to: %w", err)
		}
		// The node of a pod-bound token only says where the pod ran; the token's life is bound to the pod's.
		return stillExists("pod", &pod.ObjectMeta, *k.Pod)
	}
	if k.Node != nil {
		node, err := t.lookup.GetNode(ctx, k.Node.Name)
		if err != nil {
			return fmt.Errorf("look up the node it is bound to: %w", err)
		}
		return stillExists("node", &node.ObjectMeta, *k.Node)
	}
	return nil
}

// stillExists is an error unless live is the object that a token refers to.
func stillExists(what string, live *metav1.ObjectMeta, want ref) error {
	if string(live.UID) != want.UID {
		return fmt.Errorf("the %s %q it was issued for is gone; there is another one by that name", what, want.Name)
	}
	if d := live.DeletionTimestamp; d != nil && time.Since(d.Time) > deletionGrace {
		return fmt.Errorf("the %s %q it was issued for is being deleted", what, want.Name)
	}
	return nil
}
