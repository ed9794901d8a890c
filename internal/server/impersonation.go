package server

import (
	"errors"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
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

// impersonationFilter lets a caller act as somebody else when every part of that identity (user, each group, uid, each
// extra value) is allowed to them. The headers end here: a backend that saw them would impersonate a second time.
func impersonationFilter(a authorizer.UnconditionalAuthorizer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			caller, _ := apirequest.UserFrom(ctx)
			for _, question := range wanted.questions(caller) {
				decision, reason, err := a.Authorize(ctx, question)
				if err != nil || decision != authorizer.DecisionAllow {
					respond.Error(w, r, forbidden(question, reason))
					return
				}
			}
			effective := wanted.identity()
			recordFrom(ctx).impersonated = effective
			r = r.WithContext(apirequest.WithUser(ctx, effective))
			r.Header = withoutImpersonation(r.Header)
			next.ServeHTTP(w, r)
		})
	}
}

// impersonation is the identity that the headers ask for.
type impersonation struct {
	user   string
	uid    string
	groups []string
	extra  map[string][]string
}

func impersonationOf(h http.Header) (*impersonation, error) {
	i := &impersonation{
		user:   h.Get(impersonateUser),
		uid:    h.Get(impersonateUID),
		groups: h[impersonateGroup],
	}
	for name, values := range h {
		if len(name) <= len(impersonateExtra) || !strings.EqualFold(name[:len(impersonateExtra)], impersonateExtra) {
			continue
		}
		key := strings.ToLower(name[len(impersonateExtra):])
		if decoded, err := url.PathUnescape(key); err == nil {
			key = decoded
		}
		if i.extra == nil {
			i.extra = map[string][]string{}
		}
		i.extra[key] = append(i.extra[key], values...)
	}
	if i.user != "" {
		return i, nil
	}
	if i.uid != "" || len(i.groups) > 0 || len(i.extra) > 0 {
		return nil, errors.New("requested impersonation of groups, uid or extra without impersonating a user: send Impersonate-User too")
	}
	return nil, nil
}

// questions are what the caller must be allowed, in upstream's attributes.
func (i *impersonation) questions(caller user.Info) []*authorizer.AttributesRecord {
	ask := func(group, resource, subresource, namespace, name string) *authorizer.AttributesRecord {
		return &authorizer.AttributesRecord{
			User: caller, Verb: "impersonate", ResourceRequest: true, APIVersion: "v1",
			APIGroup: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name,
		}
	}
	var all []*authorizer.AttributesRecord
	if namespace, name, err := serviceaccount.SplitUsername(i.user); err == nil {
		all = append(all, ask("", "serviceaccounts", "", namespace, name))
	} else {
		all = append(all, ask("", "users", "", "", i.user))
	}
	for _, g := range i.groups {
		all = append(all, ask("", "groups", "", "", g))
	}
	if i.uid != "" {
		all = append(all, ask("authentication.k8s.io", "uids", "", "", i.uid))
	}
	for key, values := range i.extra {
		for _, v := range values {
			all = append(all, ask("authentication.k8s.io", "userextras", key, "", v))
		}
	}
	return all
}

// identity is the user that the request goes on as, with the groups that its kind of user always has.
func (i *impersonation) identity() user.Info {
	groups := append([]string(nil), i.groups...)
	if namespace, _, err := serviceaccount.SplitUsername(i.user); err == nil && len(groups) == 0 {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	base := user.AllAuthenticated
	if i.user == user.Anonymous {
		base = user.AllUnauthenticated
	}
	if !slices.Contains(groups, base) {
		groups = append(groups, base)
	}
	return &user.DefaultInfo{Name: i.user, UID: i.uid, Groups: groups, Extra: i.extra}
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
