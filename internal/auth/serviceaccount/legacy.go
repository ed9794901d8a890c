package serviceaccount

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
)

const (
	// legacyIssuer is the issuer that kube-controller-manager writes into tokens in Secrets of type
	// kubernetes.io/service-account-token. Such tokens are not issued here.
	legacyIssuer = "kubernetes/serviceaccount"
	// invalidLabel marks a Secret if its token was not used for a year (KEP-2799).
	invalidLabel = "kubernetes.io/legacy-token-invalid-since"
)

// legacyClaims are the claims of a legacy token. It has no audience and no expiry, and is valid as long as the Secret
// contains it.
type legacyClaims struct {
	Issuer     string `json:"iss"`
	Subject    string `json:"sub"`
	Namespace  string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret     string `json:"kubernetes.io/serviceaccount/secret.name"`
	Account    string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// The methods of jwt.Claims.

func (c *legacyClaims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil }
func (c *legacyClaims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (c *legacyClaims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (c *legacyClaims) GetIssuer() (string, error)                   { return c.Issuer, nil }
func (c *legacyClaims) GetSubject() (string, error)                  { return c.Subject, nil }
func (c *legacyClaims) GetAudience() (jwt.ClaimStrings, error)       { return nil, nil }

// checkConsistent returns an error if the claims contradict each other.
func (c *legacyClaims) checkConsistent() error {
	switch {
	case c.Issuer != legacyIssuer:
		return errors.New("its issuer is another one in the signed part")
	case c.Namespace == "" || c.Secret == "" || c.Account == "" || c.AccountUID == "":
		return errors.New("it does not name a service account and its secret")
	case c.Subject != serviceaccount.MakeUsername(c.Namespace, c.Account):
		return fmt.Errorf("the subject %q is not the service account that it names", c.Subject)
	}
	return nil
}

func (c *legacyClaims) user() user.Info {
	return (&serviceaccount.ServiceAccountInfo{Namespace: c.Namespace, Name: c.Account, UID: c.AccountUID}).UserInfo()
}

// currentLegacy checks the variable properties of a legacy token: the Secret must contain it, and the service account
// must exist. The token names no audience, so it is valid for this server's audiences.
func (t *Tokens) currentLegacy(ctx context.Context, v cachedSignature, token string) (*authenticator.Response, error) {
	c := v.legacy
	t.metrics.Legacy.Inc()
	audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token", c.Subject)
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = t.audiences
	}
	audiences := audience(t.audiences).intersect(wanted)
	if len(audiences) == 0 {
		return nil, fmt.Errorf("it is of a secret, and so for none of the audiences %q", []string(wanted))
	}
	account, err := t.lookup.GetServiceAccount(ctx, c.Namespace, c.Account)
	if err != nil {
		return nil, fmt.Errorf("look up its service account: %w", err)
	}
	if err := stillExists("service account", &account.ObjectMeta, ref{Name: c.Account, UID: c.AccountUID}); err != nil {
		return nil, err
	}
	if account.DeletionTimestamp != nil {
		return nil, errors.New("its service account is being deleted") // the grace period is for terminating pods, which do not use this token
	}
	secret, err := t.lookup.GetSecret(ctx, c.Namespace, c.Secret)
	if err != nil {
		return nil, fmt.Errorf("look up its secret: %w", err)
	}
	if err := holds(secret, token); err != nil {
		return nil, err
	}
	t.used(secret) // even if invalid: kube-controller-manager deletes invalid Secrets that are not used
	if since := secret.Labels[invalidLabel]; since != "" {
		t.metrics.Invalid.Inc()
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token-invalidated", secret.Name+"/"+secret.Namespace)
		return nil, fmt.Errorf("the secret %q says that its token is invalid since %s: nobody had used it for long; use tokens of the TokenRequest API, or remove the label %s",
			secret.Name, since, invalidLabel)
	}
	t.noteLegacy(ctx, account, secret)
	return &authenticator.Response{Audiences: audiences, User: v.user}, nil
}

// noteLegacy distinguishes tokens of manually created Secrets from auto-generated ones, and adds a warning for the
// latter.
func (t *Tokens) noteLegacy(ctx context.Context, account *corev1.ServiceAccount, secret *corev1.Secret) {
	if !slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret.Name }) {
		t.metrics.Manual.Inc()
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token-manual-secret", secret.Name)
		return
	}
	t.metrics.AutoGenerated.Inc()
	audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token-autogenerated-secret", secret.Name)
	warning.AddWarning(ctx, "", "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.")
}

// holds returns an error if a Secret does not contain the token. Deleting the Secret revokes the token immediately,
// regardless of finalizers.
func holds(secret *corev1.Secret, token string) error {
	switch {
	case secret.Type != corev1.SecretTypeServiceAccountToken:
		return fmt.Errorf("the secret %q is not one of a token", secret.Name)
	case subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) != 1:
		return fmt.Errorf("the secret %q has another token", secret.Name)
	case secret.DeletionTimestamp != nil:
		return fmt.Errorf("the secret %q is being deleted", secret.Name)
	}
	return nil
}
