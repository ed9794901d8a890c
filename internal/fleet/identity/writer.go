package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
)

// Writer writes the identity of a request into its header for the API servers. The header has neither credentials nor identity
// headers of the client: package proxy removes them in every spelling.
type Writer func(header http.Header, r *filters.Request) error

var impersonationHeaders = proxy.IdentityHeaders{
	User: authenticationv1.ImpersonateUserHeader, UID: authenticationv1.ImpersonateUIDHeader, Group: authenticationv1.ImpersonateGroupHeader,
	ExtraPrefix: authenticationv1.ImpersonateUserExtraHeaderPrefix,
}

// Impersonation returns a Writer for API servers that let the front door impersonate users. credentials writes the credentials of
// the front door, such as a bearer token.
func Impersonation(rules Rules, credentials func(ctx context.Context, header http.Header) error) Writer {
	return func(header http.Header, r *filters.Request) error {
		sent, err := rules.Of(r.User)
		if err != nil {
			return err
		}
		if err := credentials(r.Context(), header); err != nil {
			return fmt.Errorf("%w: %w", apierrors.NewServiceUnavailable("the credentials of the front door for the cluster are not available"), err)
		}
		return proxy.WriteIdentity(header, impersonationHeaders, sent)
	}
}

// FrontProxy returns a Writer for API servers that trust the certificate of the connection as a front proxy's.
func FrontProxy(rules Rules) Writer {
	return func(header http.Header, r *filters.Request) error {
		sent, err := rules.Of(r.User)
		if err != nil {
			return err
		}
		return proxy.WriteIdentity(header, proxy.RequestHeaders, sent)
	}
}

// Token returns a Writer for users that Tokens has authenticated. The API servers authenticate the token again. They also authorize
// the impersonation that the client requests, with the rights of its user.
//
// The connection must have no client certificate: kube-apiserver authenticates a certificate before a token, so the client would act,
// and impersonate any user, as the front door.
func Token() Writer {
	return func(header http.Header, r *filters.Request) error {
		u, ok := r.User.(*tokenUser)
		if !ok {
			return errors.New("the user was not authenticated by the cluster, so there is no token to send")
		}
		header["Authorization"] = []string{"Bearer " + *u.token}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				header[name] = values
			}
		}
		return nil
	}
}
