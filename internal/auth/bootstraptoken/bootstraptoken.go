// Package bootstraptoken authenticates bootstrap tokens: short secrets with which a machine without a certificate
// requests one.
//
// # Trust
//
// The package trusts Secrets of type bootstrap.kubernetes.io/token in kube-system, which are named after the token's
// id. A user who can write them can become a member of system:bootstrappers and system:bootstrappers:..., but not of
// other groups, which are refused (attack row B16).
//
// # Guarantees
//
// A token is valid as long as its Secret exists with the right type, id, usage-bootstrap-authentication and
// expiration. Nothing is cached. If the string is not a bootstrap token or has no Secret, the next authenticator
// runs, as in kube-apiserver.
package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
)

// Authenticator authenticates bootstrap tokens. It is safe for concurrent use.
type Authenticator struct {
	// Secret returns a Secret in kube-system by name, or an error that is a NotFound.
	Secret func(name string) (*corev1.Secret, error)
	Now    func() time.Time
	Logger *zap.Logger
}

var _ authenticator.Token = (*Authenticator)(nil)

// AuthenticateToken implements [authenticator.Token]. Bootstrap tokens have no audience.
func (a *Authenticator) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	id, secretPart, err := tokens.ParseToken(token)
	if err != nil {
		return nil, false, nil // a token of another kind
	}
	name := bootstrapapi.BootstrapTokenSecretPrefix + id
	secret, err := a.Secret(name)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look up secret %s of a bootstrap token: %w", name, err)
	}
	groups, err := a.groupsOf(secret, id, secretPart)
	if err != nil {
		a.Logger.Debug("bootstrap token rejected", zap.String("secret", name), zap.Error(err))
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrapapi.BootstrapUserPrefix + id, Groups: groups}}, true, nil
}

// groupsOf returns the groups of a token, or an error if its Secret does not make it valid.
func (a *Authenticator) groupsOf(s *corev1.Secret, id, secretPart string) ([]string, error) {
	switch {
	case s.DeletionTimestamp != nil:
		return nil, errors.New("the secret is being deleted")
	case s.Type != bootstrapapi.SecretTypeBootstrapToken:
		return nil, fmt.Errorf("the type of the secret is not %s", bootstrapapi.SecretTypeBootstrapToken)
	case subtle.ConstantTimeCompare(s.Data[bootstrapapi.BootstrapTokenSecretKey], []byte(secretPart)) != 1:
		return nil, fmt.Errorf("the secret has another %s", bootstrapapi.BootstrapTokenSecretKey)
	case secrets.GetData(s, bootstrapapi.BootstrapTokenIDKey) != id:
		return nil, fmt.Errorf("the secret has another %s", bootstrapapi.BootstrapTokenIDKey)
	case secrets.HasExpired(s, a.Now()):
		return nil, fmt.Errorf("it has expired, or its %s is not a time", bootstrapapi.BootstrapTokenExpirationKey)
	case secrets.GetData(s, bootstrapapi.BootstrapTokenUsageAuthentication) != "true":
		return nil, fmt.Errorf("the secret does not say %s: true", bootstrapapi.BootstrapTokenUsageAuthentication)
	}
	groups, err := secrets.GetGroups(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", bootstrapapi.BootstrapTokenExtraGroupsKey, err)
	}
	return groups, nil
}
