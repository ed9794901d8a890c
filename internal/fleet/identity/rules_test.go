package identity

import (
	"bufio"
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/proxy"
)

func groupsAnd(groups ...string) []string { return append(groups, user.AllAuthenticated) }

// TestA59SystemUsersAndGroupsAreNotSent checks that users of the front door do not get the rights of system users of a cluster.
func TestA59SystemUsersAndGroupsAreNotSent(t *testing.T) {
	prefixed := Rules{UserPrefix: "front:", GroupPrefix: "front:"}
	admins := Rules{GroupPrefix: "front:", SystemGroups: []string{"system:masters", "ops"}}
	named := func(name string, groups ...string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: name, Groups: groups}
	}
	extra := func(key string, values ...string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: "alice", Groups: groupsAnd(), Extra: map[string][]string{key: values}}
	}
	for name, tt := range map[string]struct {
		rules Rules
		user  *user.DefaultInfo
		want  *user.DefaultInfo // nil: refused
	}{
		"user without prefixes": {Rules{}, named("alice", groupsAnd("dev")...), named("alice", groupsAnd("dev")...)},
		"user with prefixes":    {prefixed, named("alice", groupsAnd("dev")...), named("front:alice", "front:dev", user.AllAuthenticated)},
		"UID and extra": {prefixed, &user.DefaultInfo{Name: "a", UID: "u", Groups: groupsAnd(), Extra: map[string][]string{"scopes.authorization.openshift.io": {"user:info", ""}}},
			&user.DefaultInfo{Name: "front:a", UID: "u", Groups: groupsAnd(), Extra: map[string][]string{"scopes.authorization.openshift.io": {"user:info", ""}}}},
		"no name":              {prefixed, named("", "dev"), nil},
		"anonymous":            {prefixed, named(user.Anonymous, user.AllUnauthenticated), named(user.Anonymous, user.AllUnauthenticated)},
		"anonymous, no groups": {Rules{}, named(user.Anonymous), named(user.Anonymous, user.AllUnauthenticated)},
		"no groups":            {Rules{}, named("alice"), named("alice", user.AllAuthenticated)},

		"service account":               {Rules{}, named("system:serviceaccount:kube-system:x", groupsAnd()...), nil},
		"service account with a prefix": {prefixed, named("system:serviceaccount:kube-system:x", groupsAnd()...), nil},
		"node":                          {Rules{}, named("system:node:n1", "system:nodes"), nil},
		"scheduler":                     {Rules{}, named("system:kube-scheduler"), nil},
		"administrator":                 {admins, named("system:admin", "system:masters"), nil},
		"system name in another case":   {Rules{}, named("System:Kube-Scheduler"), nil},
		"only the prefix":               {Rules{}, named("system:"), nil},
		"anonymous in another case":     {Rules{}, named("system:Anonymous"), nil},
		"prefix completes system:":      {Rules{UserPrefix: "sys"}, named("tem:kube-scheduler"), nil},
		"prefix is system:":             {Rules{UserPrefix: "system:"}, named("kube-scheduler"), nil},
		"name contains system:":         {Rules{}, named("a/system:x"), named("a/system:x", user.AllAuthenticated)},

		"system groups":                    {Rules{}, named("alice", "system:masters", "system:nodes", "SYSTEM:masters", "system:serviceaccounts"), named("alice", user.AllAuthenticated)},
		"listed system group":              {admins, named("alice", "system:masters", "System:masters", "system:nodes"), named("alice", "system:masters", user.AllAuthenticated)},
		"listed group that is not system:": {admins, named("alice", "ops"), named("alice", "front:ops", user.AllAuthenticated)},
		"group prefix completes system:":   {Rules{GroupPrefix: "sys", SystemGroups: []string{"system:masters"}}, named("alice", "tem:masters"), nil},
		"repeated and empty groups":        {prefixed, named("alice", "dev", "", "dev", user.AllAuthenticated, user.AllAuthenticated), named("front:alice", "front:dev", user.AllAuthenticated)},
		"unauthenticated with a name":      {Rules{}, named("alice", user.AllUnauthenticated), named("alice", user.AllUnauthenticated)},

		"credential ID":            {Rules{}, extra(user.CredentialIDKey, "X509SHA256=1"), extra(user.CredentialIDKey, "X509SHA256=1")},
		"key without a value":      {Rules{}, extra("scopes"), named("alice", groupsAnd()...)},
		"empty key":                {Rules{}, extra("", "v"), nil},
		"node of a pod":            {Rules{}, extra("authentication.kubernetes.io/node-name", "n1"), nil},
		"pod":                      {Rules{}, extra("authentication.kubernetes.io/pod-name", "p"), nil},
		"node in another case":     {Rules{}, extra("Authentication.Kubernetes.io/node-name", "n1"), nil},
		"key of k8s.io":            {Rules{}, extra("k8s.io/x", "v"), nil},
		"domain that ends with it": {Rules{}, extra("notkubernetes.io/x", "v"), extra("notkubernetes.io/x", "v")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.rules.Of(tt.user)
			if tt.want == nil {
				var status *apierrors.StatusError
				if !errors.As(err, &status) || status.ErrStatus.Code != http.StatusForbidden {
					t.Fatalf("Of(%+v) = %+v, %v, want a 403", tt.user, got, err)
				}
				return
			}
			if err != nil || !sameUser(got, tt.want) {
				t.Fatalf("Of(%+v) = %+v, %v, want %+v", tt.user, got, err, tt.want)
			}
		})
	}
}

func TestRefusalNamesReasonAndRemedy(t *testing.T) {
	_, err := Rules{}.Of(&user.DefaultInfo{Name: "system:serviceaccount:a:b"})
	for _, want := range []string{`"system:serviceaccount:a:b"`, "clusters give rights", "service account of the cluster"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Of(service account) = %v, want %q in it", err, want)
		}
	}
}

func sameUser(a, b user.Info) bool {
	sameExtra := maps.EqualFunc(a.GetExtra(), b.GetExtra(), slices.Equal)
	return a.GetName() == b.GetName() && a.GetUID() == b.GetUID() && slices.Equal(a.GetGroups(), b.GetGroups()) && sameExtra
}

// onWire returns the header as a server reads it.
func onWire(t testing.TB, header http.Header) http.Header {
	var wire bytes.Buffer
	r := httptest.NewRequest(http.MethodGet, "https://cluster/api/v1/pods", nil)
	r.Header = header
	if err := r.Write(&wire); err != nil {
		t.Fatal(err)
	}
	read, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatalf("ReadRequest of %q: %v", wire.String(), err)
	}
	read.Header.Del("User-Agent") // net/http's
	return read.Header
}

// impersonatedUser returns the user that kube-apiserver reads from headers of impersonation. The caller may impersonate any user.
func impersonatedUser(t testing.TB, header http.Header, constrained bool) user.Info {
	var got user.Info
	reached := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = apirequest.UserFrom(r.Context()) })
	with := func(h http.Handler, a authorizer.UnconditionalAuthorizer, s runtime.NegotiatedSerializer) http.Handler {
		if constrained {
			return impersonation.WithConstrainedImpersonation(h, a, s)
		}
		return impersonation.WithImpersonation(h, a, s)
	}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header = header
	ctx := apirequest.WithUser(r.Context(), &user.DefaultInfo{Name: "portico-front"})
	ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{IsResourceRequest: true, Verb: "list", Resource: "pods", APIVersion: "v1"})
	w := httptest.NewRecorder()
	with(reached, authorizerfactory.NewAlwaysAllowAuthorizer(), serializer.NewCodecFactory(runtime.NewScheme())).ServeHTTP(w, r.WithContext(ctx))
	if got == nil {
		t.Fatalf("impersonation with the header %v = %d %s, want a user", header, w.Code, w.Body)
	}
	return got
}

// proxiedUser returns the user that kube-apiserver reads from the headers of a front proxy.
func proxiedUser(t testing.TB, header http.Header) user.Info {
	a, err := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
	if err != nil {
		t.Fatal(err)
	}
	response, ok, err := a.AuthenticateRequest(&http.Request{Header: header})
	if err != nil || !ok {
		t.Fatalf("authentication with the header %v = %t, %v, want a user", header, ok, err)
	}
	return response.User
}

// FuzzA59Identity checks that kube-apiserver reads exactly the user that Rules.Of returns, or that the user is refused.
func FuzzA59Identity(f *testing.F) {
	f.Add("", "", "alice", "u-1", "dev,system:masters", "scopes", "a,b")
	f.Add("front:", "front:", "alice", "", "dev,,dev", "X%2fY", "")
	f.Add("sys", "sys", "tem:masters", "", "tem:masters", "Key", "v")
	f.Add("", "", " system:masters", "\t", " system:masters", "a\r\nImpersonate-Group: system:masters", "v")
	f.Add("", "", "a\r\nImpersonate-Group: system:masters", "", "a\nb", "-", "v\r\nX-Remote-Group: system:masters")
	f.Add("é", "", "system:anonymous", "", "system:unauthenticated", "Ünï\x00", "\xff")
	f.Add("", "", "a", "", "System:masters", "Authentication.kubernetes.io/node-name", "n")
	f.Fuzz(func(t *testing.T, userPrefix, groupPrefix, name, uid, groups, key, values string) {
		rules := Rules{UserPrefix: userPrefix, GroupPrefix: groupPrefix, SystemGroups: []string{"system:monitoring"}}
		u := &user.DefaultInfo{Name: name, UID: uid, Groups: strings.Split(groups, ","), Extra: map[string][]string{
			key: strings.Split(values, ","), strings.ToUpper(key): {"upper"}, strings.ReplaceAll(key, "/", "%2f"): {"escaped"},
		}}
		sent, err := rules.Of(u)
		if err != nil {
			return
		}
		checkNoSystemName(t, u, sent)
		impersonate, remote := http.Header{}, http.Header{}
		if proxy.WriteIdentity(impersonate, impersonationHeaders, sent) != nil {
			return
		}
		if err := proxy.WriteIdentity(remote, proxy.RequestHeaders, sent); err != nil {
			t.Fatalf("WriteIdentity(X-Remote) = %v, want no error as for Impersonate", err)
		}
		for decoder, got := range map[string]user.Info{
			"impersonation":             impersonatedUser(t, onWire(t, impersonate), false),
			"constrained impersonation": impersonatedUser(t, onWire(t, impersonate), true),
			"front proxy":               proxiedUser(t, onWire(t, remote)),
		} {
			if !sameUser(got, sent) {
				t.Errorf("user read by %s = %+v, want %+v", decoder, got, sent)
			}
		}
	})
}

func checkNoSystemName(t *testing.T, from, sent user.Info) {
	if name := sent.GetName(); strings.HasPrefix(name, "system:") && name != user.Anonymous {
		t.Errorf("Of(%+v) has the name %q, want none that begins with system:", from, name)
	}
	kept := []string{user.AllAuthenticated, user.AllUnauthenticated, "system:monitoring"}
	for _, group := range sent.GetGroups() {
		if strings.HasPrefix(group, "system:") && !slices.Contains(kept, group) {
			t.Errorf("Of(%+v) has the group %q, want none that begins with system:, except %q", from, group, kept)
		}
	}
	if got := slices.Compact(slices.Sorted(slices.Values(sent.GetGroups()))); len(got) != len(sent.GetGroups()) {
		t.Errorf("groups of Of(%+v) = %q, want each once", from, sent.GetGroups())
	}
}
