// Package bootstraptoken authenticates bootstrap tokens: short secrets by which a machine that has no certificate yet asks for one.
//
// # What is trusted
//
// Secrets of type bootstrap.kubernetes.io/token in kube-system, named after the token's id. Who may write these may be any
// member of the groups system:bootstrappers and system:bootstrappers:..., and nobody else: other groups are refused (attack row B16).
//
// # What is promised to callers
//
// A token counts as long as its Secret is there and says so: its type, its id, usage-bootstrap-authentication, its expiration. Nothing is
// remembered. What is no bootstrap token, or one of no Secret, is for the next authenticator, as in kube-apiserver.
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
		a.Logger.Debug("a bootstrap token is not accepted", zap.String("secret", name), zap.Error(err))
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrapapi.BootstrapUserPrefix + id, Groups: groups}}, true, nil
}

// groupsOf returns the groups of a token, or why its Secret does not make it valid.
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
