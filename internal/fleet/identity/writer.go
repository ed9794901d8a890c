package identity

import (
	"errors"
	"maps"
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

// Impersonation returns a Writer for API servers that let the front door impersonate users. The header has the credentials of the
// front door already.
func Impersonation(rules Rules) Writer { return rules.writer(impersonationHeaders) }

// FrontProxy returns a Writer for API servers that trust the certificate of the connection as a front proxy's. It refuses credentials
// that are a token: API servers would ignore the user in the header, and every user would have the rights of the token.
func FrontProxy(rules Rules) Writer {
	write := rules.writer(proxy.RequestHeaders)
	return func(header http.Header, r *filters.Request) error {
		if len(header["Authorization"]) > 0 {
			return apierrors.NewServiceUnavailable("the credentials of the front door for this cluster are a token, and spec.identity.mode FrontProxy requires a certificate")
		}
		return write(header, r)
	}
}

// writer returns a Writer of the user in the cluster.
func (r Rules) writer(names proxy.IdentityHeaders) Writer {
	isIdentity := names.Contain
	return func(header http.Header, asked *filters.Request) error {
		sent, err := r.Of(asked.User)
		if err != nil {
			return err
		}
		asked.Record.ClusterUser = sent.GetName()
		maps.DeleteFunc(header, isIdentity) // the identity of the front door itself
		return proxy.WriteIdentity(header, names, sent)
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
		r.Record.ClusterUser = u.GetName()
		header["Authorization"] = []string{"Bearer " + *u.token}
		for name, values := range r.Header {
			if isImpersonation(name) {
				header[name] = values
			}
		}
		return nil
	}
}

// Impersonates reports whether a client asks the cluster to impersonate a user.
func Impersonates(header http.Header) bool {
	for name := range header {
		if isImpersonation(name) {
			return true
		}
	}
	return false
}

// isImpersonation reports whether the canonical name of a field begins with "Impersonate-".
func isImpersonation(name string) bool { return strings.HasPrefix(name, "Impersonate-") }
