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
	// rememberGood is how long a verified signature is cached, even if the token is valid for longer, so that a
	// retired key does not remain effective in the cache.
	rememberGood = 10 * time.Second
	// rememberBad is how long a refusal is cached, so that a retry costs a hash instead of a signature verification.
	rememberBad = 2 * time.Second
)

// cachedSignature is the result of verifying the bytes of a token: the claims or an error. It does not depend on the
// time or on live objects.
type cachedSignature struct {
	claims *claims       // nil for the token of a Secret
	legacy *legacyClaims // nil for other tokens
	user   user.Info     // the user in the claims, immutable; nil if the claims are inconsistent
	err    error
}

var (
	// errOtherIssuer is returned for tokens of another issuer, which another authenticator may accept.
	errOtherIssuer = errors.New("not a token of this issuer")
	errUnknownKey  = errors.New("its key id is unknown")
)

// AuthenticateToken implements [authenticator.Token]. It returns false without an error for a token of another
// issuer, and an error for an invalid token of this issuer. Audiences in ctx replace the configured ones; the
// response contains the ones for which the token is valid.
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

// verified checks the immutable properties of a token: its format, its issuer, and its signature by one of our keys.
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
		return cachedSignature{err: errOtherIssuer} // every cluster uses this issuer; only the key identifies the cluster
	case err != nil:
		return cachedSignature{err: err}
	}
	return cachedSignature{legacy: c, err: c.checkConsistent()}
}

// checkSignature verifies the signature of a token and decodes its claims into into.
func (t *Tokens) checkSignature(token, head string, into jwt.Claims) error {
	h, err := peekHeader(head)
	if err != nil {
		return err
	}
	key, ok := t.keys[h.KeyID]
	if !ok {
		// Upstream tries every key for a token without a key id. All tokens issued here have one, so a token without
		// it is from another issuer (B2). The exceptions are Secrets written before kube-controller-manager set key
		// ids.
		return errUnknownKey
	}
	if h.Algorithm != key.method.Alg() {
		return errors.New("its algorithm is not that of its key")
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{key.method.Alg()}),
		jwt.WithStrictDecoding(),
		jwt.WithoutClaimsValidation(), // times are not cached; see current
	)
	if _, err := parser.ParseWithClaims(token, into, func(*jwt.Token) (any, error) { return key.public, nil }); err != nil {
		return errors.New("its signature is not valid")
	}
	return nil
}

// current checks the variable properties of a token: the time, the requested audience and the live objects.
func (t *Tokens) current(ctx context.Context, v cachedSignature) (*authenticator.Response, error) {
	c := v.claims
	if err := t.validator.Validate(c); err != nil { // also calls claims.Validate
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

// noteExtended records uses of a token with extended lifetime, and whether the requested lifetime has passed.
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

// Lookup finds the live objects on which tokens depend. Each method returns the object, or an error for which
// apierrors.IsNotFound reports whether the object is missing. Other errors make the authentication fail temporarily.
// Callers do not modify the objects. Results may lag behind the store, but only for as long as a revoked token may
// remain valid.
type Lookup interface {
	GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
}

// deletionGrace is how long tokens remain valid after the end of a deleted object's grace period, so that a
// terminating pod can finish its last calls (kubernetes/kubernetes#122568).
const deletionGrace = time.Minute

// checkBound returns an error if the token of k is no longer valid: its service account or bound object is gone, has
// been replaced by one of the same name, or has been terminating for too long.
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
		// The node of a pod-bound token is informational; the token's lifetime is bound to the pod's.
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

// stillExists returns an error unless live is the object to which a token refers.
func stillExists(what string, live *metav1.ObjectMeta, want ref) error {
	if string(live.UID) != want.UID {
		return fmt.Errorf("the %s %q it was issued for is gone; there is another one by that name", what, want.Name)
	}
	if d := live.DeletionTimestamp; d != nil && time.Since(d.Time) > deletionGrace {
		return fmt.Errorf("the %s %q it was issued for is being deleted", what, want.Name)
	}
	return nil
}
