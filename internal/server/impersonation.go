package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

const (
	impersonateUser  = "Impersonate-User"
	impersonateUID   = "Impersonate-Uid"
	impersonateGroup = "Impersonate-Group"
	impersonateExtra = "Impersonate-Extra-"
)

// maxImpersonated bounds the groups and extra values of one request. Each is a question for the authorizer, which may be
// a webhook; one request must not become a flood of them.
const maxImpersonated = 1024

// impersonationFilter lets a caller act as somebody else when one of the modes of impersonation allows it. The headers
// end here: a backend that saw them would impersonate a second time.
func impersonationFilter(a authorizer.UnconditionalAuthorizer) func(http.Handler) http.Handler {
	modes := newImpersonationModes(a)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !wantsImpersonation(r.Header) {
				next.ServeHTTP(w, r)
				return
			}
			wanted, err := impersonationOf(r.Header)
			if err != nil {
				respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
				return
			}
			if wanted == nil {
				next.ServeHTTP(w, r)
				return
			}
			ctx := r.Context()
			asked, err := attributesOf(ctx)
			if err != nil {
				respond.Error(w, r, apierrors.NewInternalError(err))
				return
			}
			rec := recordFrom(ctx)
			granted, constraint, err := modes.grant(ctx, wanted, asked)
			if err != nil {
				rec.decision, rec.reason = "forbid", "impersonation"
				respond.Error(w, r, err)
				return
			}
			rec.impersonated, rec.constraint = granted, constraint
			r = r.WithContext(apirequest.WithUser(ctx, granted))
			r.Header = withoutImpersonation(r.Header)
			next.ServeHTTP(w, r)
		})
	}
}

// wantsImpersonation reports whether a header might ask for it, without a cost for the many requests that do not.
func wantsImpersonation(h http.Header) bool {
	for name := range h {
		if name != "" && name[0]|0x20 == 'i' && strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Impersonate-") {
			return true
		}
	}
	return false
}

// impersonationOf is the identity that the headers ask for, nil when they ask for none.
func impersonationOf(h http.Header) (*user.DefaultInfo, error) {
	wanted := &user.DefaultInfo{Groups: append([]string(nil), h[impersonateGroup]...)}
	var err error
	if wanted.Name, err = single(h, impersonateUser); err != nil {
		return nil, err
	}
	if wanted.UID, err = single(h, impersonateUID); err != nil {
		return nil, err
	}
	if wanted.Extra, err = impersonatedExtra(h); err != nil {
		return nil, err
	}
	values := len(wanted.Groups)
	for _, v := range wanted.Extra {
		values += len(v)
	}
	switch {
	case values > maxImpersonated:
		return nil, fmt.Errorf("impersonation of more than %d groups and extra values", maxImpersonated)
	case wanted.Name != "":
		return wanted, nil
	case wanted.UID != "" || values > 0:
		return nil, errors.New("requested impersonation of groups, uid or extra without impersonating a user: send Impersonate-User too")
	}
	return nil, nil
}

// single is the value of a header that must not be repeated.
func single(h http.Header, name string) (string, error) {
	switch values := h[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", fmt.Errorf("%s stands more than once; send it once", name)
}

func impersonatedExtra(h http.Header) (map[string][]string, error) {
	var extra map[string][]string
	for name, values := range h {
		key, found := strings.CutPrefix(textproto.CanonicalMIMEHeaderKey(name), impersonateExtra)
		if !found || len(values) == 0 {
			continue
		}
		key = strings.ToLower(key)
		if decoded, err := url.PathUnescape(key); err == nil {
			key = decoded
		}
		if key == "" {
			// Leaving it out could drop a restriction: scopes of tokens are in extra.
			return nil, errors.New("Impersonate-Extra- without a key: send Impersonate-Extra-KEY")
		}
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = append(extra[key], values...)
	}
	return extra, nil
}

func withoutImpersonation(h http.Header) http.Header {
	clean := make(http.Header, len(h))
	for name, values := range h {
		if !strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Impersonate-") {
			clean[name] = values
		}
	}
	return clean
}
