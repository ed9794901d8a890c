package server

import (
	"bufio"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"pgregory.net/rapid"
	"portico.dev/internal/routetable"
)

// asked formats the attributes of a request without omitting any.
func asked(a authorizer.Attributes) string {
	return fmt.Sprintf("%s %s/%s/%s/%s ns=%q name=%q by %s %v", a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(),
		a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), a.GetUser().GetName(), a.GetUser().GetExtra())
}

// questions allows the requests that its function allows, and records the attributes of all.
type questions struct {
	allow func(a authorizer.Attributes) bool
	heard []string
}

func (q *questions) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	q.heard = append(q.heard, asked(a))
	if q.allow(a) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// impersonate sends a GET of pods in the namespace ns through f, and returns the resulting user, nil for a rejection.
func impersonate(f func(http.Handler) http.Handler, caller user.Info, headers http.Header) (as user.Info, on *http.Request, refused *httptest.ResponseRecorder) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/ns/pods/p", nil)
	maps.Copy(r.Header, headers)
	ctx := apirequest.WithUser(r.Context(), caller)
	ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{
		IsResourceRequest: true, Path: r.URL.Path, Verb: "get", APIPrefix: "api", APIVersion: "v1", Namespace: "ns", Resource: "pods", Name: "p",
	})
	w := httptest.NewRecorder()
	f(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		as, _ = apirequest.UserFrom(r.Context())
		on = r
	})).ServeHTTP(w, withRequestContext(r.WithContext(ctx)))
	return as, on, w
}

// daemon is a service account in a pod on node-1.
func daemon() *user.DefaultInfo {
	return &user.DefaultInfo{
		Name: "system:serviceaccount:kube-system:daemon", Groups: []string{"system:serviceaccounts"},
		Extra: map[string][]string{
			"authentication.kubernetes.io/node-name": {"node-1"},
			"authentication.kubernetes.io/pod-name":  {"daemon-x"},
		},
	}
}

func TestA10ConstrainedImpersonation(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice"}
	for name, c := range map[string]struct {
		caller     user.Info
		headers    http.Header
		allowed    []string // "verb resource name"
		as         []string // name and groups; nil: rejected
		constraint string
		told       string
	}{
		"a user, for this verb": {
			alice, http.Header{"Impersonate-User": {"bob"}},
			[]string{"impersonate-on:user-info:get pods p", "impersonate:user-info users bob"},
			[]string{"bob", user.AllAuthenticated}, "impersonate:user-info", "",
		},
		"a user, for another verb": {
			alice, http.Header{"Impersonate-User": {"bob"}},
			[]string{"impersonate-on:user-info:list pods p", "impersonate:user-info users bob"},
			nil, "", `User "alice" cannot impersonate-on:user-info:get resource "pods" in API group "" in the namespace "ns"`,
		},
		"a verb, but not the user": {
			alice, http.Header{"Impersonate-User": {"bob"}}, []string{"impersonate-on:user-info:get pods p"},
			nil, "", `User "alice" cannot impersonate:user-info resource "users" in API group "authentication.k8s.io"`,
		},
		"a user of the mode of old": {
			alice, http.Header{"Impersonate-User": {"bob"}}, []string{"impersonate users bob"},
			[]string{"bob", user.AllAuthenticated}, "", "",
		},
		"everything of a user": {
			alice, http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"dev"}, "Impersonate-Uid": {"7"}, "Impersonate-Extra-Example.com%2fscope": {"all"}},
			[]string{
				"impersonate-on:user-info:get pods p", "impersonate:user-info users bob", "impersonate:user-info groups dev",
				"impersonate:user-info uids 7", "impersonate:user-info userextras/example.com/scope all",
			},
			[]string{"bob", "dev", user.AllAuthenticated}, "impersonate:user-info", "",
		},
		"system:masters, whatever the rules say": {
			alice, http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"system:masters"}},
			[]string{"impersonate-on:user-info:get pods p", "impersonate:user-info users bob", "impersonate:user-info groups system:masters", "impersonate:user-info groups *"},
			nil, "", "impersonating the system:masters group is not allowed",
		},
		"many groups with one right": {
			alice, http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"a", "b", "c", "d"}},
			[]string{"impersonate-on:user-info:get pods p", "impersonate:user-info users bob", "impersonate:user-info groups *"},
			[]string{"bob", "a", "b", "c", "d", user.AllAuthenticated}, "impersonate:user-info", "",
		},
		"a service account": {
			alice, http.Header{"Impersonate-User": {"system:serviceaccount:ns:sa"}},
			[]string{"impersonate-on:serviceaccount:get pods p", "impersonate:serviceaccount serviceaccounts sa"},
			[]string{"system:serviceaccount:ns:sa", "system:serviceaccounts", "system:serviceaccounts:ns", user.AllAuthenticated}, "impersonate:serviceaccount", "",
		},
		"a service account with groups of the caller's choice": {
			alice, http.Header{"Impersonate-User": {"system:serviceaccount:ns:sa"}, "Impersonate-Group": {"dev"}},
			[]string{"impersonate-on:serviceaccount:get pods p", "impersonate:serviceaccount serviceaccounts sa", "impersonate:serviceaccount groups dev"},
			nil, "", `cannot impersonate resource "serviceaccounts"`,
		},
		"any node": {
			alice, http.Header{"Impersonate-User": {"system:node:node-2"}},
			[]string{"impersonate-on:arbitrary-node:get pods p", "impersonate:arbitrary-node nodes node-2"},
			[]string{"system:node:node-2", user.NodesGroup, user.AllAuthenticated}, "impersonate:arbitrary-node", "",
		},
		"one's own node": {
			daemon(), http.Header{"Impersonate-User": {"system:node:node-1"}},
			[]string{"impersonate-on:associated-node:get pods p", "impersonate:associated-node nodes *"},
			[]string{"system:node:node-1", user.NodesGroup, user.AllAuthenticated}, "impersonate:associated-node", "",
		},
		"another node than one's own": {
			daemon(), http.Header{"Impersonate-User": {"system:node:node-2"}},
			[]string{"impersonate-on:associated-node:get pods p", "impersonate:associated-node nodes *"},
			nil, "", `cannot impersonate-on:arbitrary-node:get resource "pods"`,
		},
		"a user may not be a node by the mode for users": {
			alice, http.Header{"Impersonate-User": {"system:node:node-1"}},
			[]string{"impersonate-on:user-info:get pods p", "impersonate:user-info users system:node:node-1"},
			nil, "", `cannot impersonate-on:arbitrary-node:get`,
		},
		"nobody": {
			alice, http.Header{"Impersonate-User": {"system:anonymous"}}, []string{"impersonate users system:anonymous"},
			[]string{"system:anonymous", user.AllUnauthenticated}, "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := &questions{allow: func(a authorizer.Attributes) bool {
				resource := strings.TrimSuffix(a.GetResource()+"/"+a.GetSubresource(), "/")
				return slices.Contains(c.allowed, fmt.Sprintf("%s %s %s", a.GetVerb(), resource, a.GetName()))
			}}
			filter := impersonationFilter(q, "")
			for _, again := range []string{"the first time", "and again"} {
				as, on, w := impersonate(filter, c.caller, c.headers)
				if c.as == nil {
					if as != nil || w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), strings.ReplaceAll(c.told, `"`, `\"`)) {
						t.Fatalf("impersonation of %v, %s = user %v with %d %s, want 403 that contains %q", c.headers, again, as, w.Code, w.Body, c.told)
					}
					continue
				}
				if as == nil {
					t.Fatalf("impersonation of %v, %s, was rejected with %s after the checks %q, want it allowed", c.headers, again, w.Body, q.heard)
				}
				if got := append([]string{as.GetName()}, as.GetGroups()...); !slices.Equal(got, c.as) {
					t.Errorf("user and groups, %s = %q, want %q", again, got, c.as)
				}
				if got := recordFrom(on.Context()).Constraint; got != c.constraint {
					t.Errorf("constraint, %s = %q, want %q", again, got, c.constraint)
				}
			}
		})
	}
}

func TestLastAllowedImpersonationModeIsCheckedFirst(t *testing.T) {
	q := &questions{allow: func(a authorizer.Attributes) bool { return a.GetVerb() == "impersonate" }}
	filter := impersonationFilter(q, "")
	for range 2 {
		q.heard = nil
		if as, _, w := impersonate(filter, &user.DefaultInfo{Name: "alice"}, http.Header{"Impersonate-User": {"bob"}}); as == nil {
			t.Fatalf("impersonation of bob was rejected with %s, want it allowed", w.Body)
		}
	}
	if len(q.heard) != 1 || !strings.HasPrefix(q.heard[0], "impersonate /v1/users/") {
		t.Errorf("authorization checks of the second request = %q, want only impersonate on /v1/users", q.heard)
	}
}

// A revoked right has no effect from then on: no decision is cached.
func TestB12ImpersonationEndsWhenRightIsRevoked(t *testing.T) {
	allowed := true
	q := &questions{allow: func(authorizer.Attributes) bool { return allowed }}
	filter := impersonationFilter(q, "")
	headers := http.Header{"Impersonate-User": {"bob"}}
	if as, _, _ := impersonate(filter, &user.DefaultInfo{Name: "alice"}, headers); as == nil {
		t.Fatal("impersonation with the right was rejected, want it allowed")
	}
	allowed = false
	if as, _, _ := impersonate(filter, &user.DefaultInfo{Name: "alice"}, headers); as != nil {
		t.Fatal("impersonation after the right was revoked is allowed, want it rejected")
	}
}

func TestA10AmbiguousImpersonationHeadersAreRejected(t *testing.T) {
	everything := &questions{allow: func(authorizer.Attributes) bool { return true }}
	for name, headers := range map[string]http.Header{
		"two users":                  {"Impersonate-User": {"bob", "carol"}},
		"two uids":                   {"Impersonate-User": {"bob"}, "Impersonate-Uid": {"1", "2"}},
		"extra without a key":        {"Impersonate-User": {"bob"}, "Impersonate-Extra-": {"x"}},
		"extra with an encoded void": {"Impersonate-Extra-Scope": {"x"}},
		"an empty user and a group":  {"Impersonate-User": {""}, "Impersonate-Group": {"dev"}},
		"groups without end":         {"Impersonate-User": {"bob"}, "Impersonate-Group": slices.Repeat([]string{"g"}, maxImpersonated+1)},
	} {
		t.Run(name, func(t *testing.T) {
			as, _, w := impersonate(impersonationFilter(everything, ""), &user.DefaultInfo{Name: "alice"}, headers)
			if as != nil || w.Code != http.StatusBadRequest {
				t.Errorf("impersonation with ambiguous fields = user %v with %d %s, want 400", as, w.Code, w.Body)
			}
		})
	}
}

// sink keeps the last event.
type sink struct{ last *auditinternal.Event }

func (s *sink) ProcessEvents(events ...*auditinternal.Event) bool {
	s.last = events[len(events)-1].DeepCopy()
	return true
}

// upstreamImpersonation wraps kube-apiserver's filter in the signature of Portico's filter. The values for the audit event are written to
// the record.
func upstreamImpersonation(a authorizer.UnconditionalAuthorizer) func(http.Handler) http.Handler {
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := audit.WithAuditContext(r.Context())
			s := &sink{}
			events := audit.AuditContextFrom(ctx)
			if err := events.Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, s); err != nil {
				panic(err)
			}
			impersonation.WithConstrainedImpersonation(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				events.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
				if m := s.last.AuthenticationMetadata; m != nil {
					recordFrom(ctx).Constraint = m.ImpersonationConstraint
				}
				next.ServeHTTP(w, r)
			}), a, codecs).ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// For all rules, Portico's filter allows the same requests as kube-apiserver's filter, with the same user and the
// same constraint.
func TestImpersonationMatchesKubeAPIServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		headers := http.Header{"Impersonate-User": {rapid.SampledFrom([]string{
			"bob", "system:anonymous", "system:node:node-1", "system:node:node-2", "system:node:", "system:node:Bad_Name",
			"system:serviceaccount:ns:sa", "system:serviceaccount:ns", "system:masters",
		}).Draw(t, "user")}}
		if groups := rapid.SliceOfN(rapid.SampledFrom([]string{
			"dev", "ops", "", "system:masters", "system:authenticated", "system:unauthenticated", "system:nodes",
		}), 0, 6).Draw(t, "groups"); len(groups) > 0 {
			headers["Impersonate-Group"] = groups
		}
		if uid := rapid.SampledFrom([]string{"", "", "7"}).Draw(t, "uid"); uid != "" {
			headers["Impersonate-Uid"] = []string{uid}
		}
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"Scope", "Example.com%2fscope", "Example.com%2FUpper", "%zz"}), 0, 3, rapid.ID).Draw(t, "extra") {
			headers["Impersonate-Extra-"+key] = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", ""}), 1, 4).Draw(t, "values")
		}
		caller := rapid.SampledFrom([]user.Info{&user.DefaultInfo{Name: "alice"}, daemon()}).Draw(t, "caller")
		seed, chance := rapid.Uint32().Draw(t, "seed"), rapid.SampledFrom([]uint32{60, 80, 95, 100}).Draw(t, "chance")
		allow := func(a authorizer.Attributes) bool {
			h := fnv.New32a()
			fmt.Fprint(h, seed, asked(a))
			return h.Sum32()%100 < chance
		}
		ours, ourRequest, w := impersonate(impersonationFilter(&questions{allow: allow}, ""), caller, headers.Clone())
		theirs, theirRequest, _ := impersonate(upstreamImpersonation(&questions{allow: allow}), caller, headers.Clone())
		if (ours == nil) != (theirs == nil) {
			t.Fatalf("impersonated user of Portico's filter = %v and of kube-apiserver's filter %v with the response %s, want both or none", ours, theirs, w.Body)
		}
		if ours == nil {
			return
		}
		if ours.GetName() != theirs.GetName() || ours.GetUID() != theirs.GetUID() || !slices.Equal(ours.GetGroups(), theirs.GetGroups()) ||
			len(ours.GetExtra())+len(theirs.GetExtra()) > 0 && !reflect.DeepEqual(ours.GetExtra(), theirs.GetExtra()) {
			t.Fatalf("impersonated user of Portico's filter = %+v and of kube-apiserver's filter %+v, want equal users", ours, theirs)
		}
		if a, b := recordFrom(ourRequest.Context()).Constraint, recordFrom(theirRequest.Context()).Constraint; a != b {
			t.Fatalf("constraint of Portico's filter = %q, want %q as in kube-apiserver's filter", a, b)
		}
	})
}

// For all headers, each part of an impersonated user was authorized, and no Impersonate header is forwarded.
func FuzzImpersonation(f *testing.F) {
	for _, seed := range []string{
		"Impersonate-User: bob\r\n",
		"impersonate-user: bob\r\nIMPERSONATE-GROUP: dev\r\nImpersonate-Group: system:masters\r\n",
		"Impersonate-User: system:serviceaccount:ns:sa\r\nImpersonate-Uid: 7\r\n",
		"Impersonate-User: system:node:node-1\r\n",
		"Impersonate-User: bob\r\nImpersonate-Extra-Example.com%2fscope: all\r\nImpersonate-Extra-%zz: x\r\n",
		"Impersonate-User: bob\r\nImpersonate-User: carol\r\n",
		"Impersonate_User: bob\r\nImpersonate-Extra-: x\r\n",
		"Impersonate-Group: dev\r\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: x\r\n" + lines + "\r\n")))
		if err != nil {
			return
		}
		caller := &user.DefaultInfo{Name: "alice"}
		for _, rule := range []func(authorizer.Attributes) bool{
			func(authorizer.Attributes) bool { return false },
			func(a authorizer.Attributes) bool { return a.GetVerb() == "impersonate" },
			func(a authorizer.Attributes) bool { return a.GetVerb() != "impersonate" },
		} {
			q := &questions{allow: rule}
			as, on, _ := impersonate(impersonationFilter(q, ""), caller, r.Header)
			if as == nil || as.GetName() == "alice" {
				continue
			}
			for name := range on.Header {
				if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
					t.Fatalf("header of the impersonated request contains %s, want no Impersonate field", name)
				}
			}
			if len(q.heard) == 0 || rule(&authorizer.AttributesRecord{Verb: "impersonate"}) && !covered(q.heard, as) {
				t.Fatalf("authorization checks for the impersonated user %+v = %q, want one for each part", as, q.heard)
			}
		}
	})
}

// covered reports whether every part of u was authorized with the verb impersonate, except the parts that follow from the kind of user.
func covered(heard []string, u user.Info) bool {
	about := func(resource, name string) bool {
		return slices.ContainsFunc(heard, func(q string) bool {
			return strings.HasPrefix(q, "impersonate ") && strings.Contains(q, resource) && strings.Contains(q, fmt.Sprintf("name=%q", name))
		})
	}
	for _, g := range u.GetGroups() {
		if !strings.HasPrefix(g, "system:") && !about("groups", g) || g == user.SystemPrivilegedGroup && !about("groups", g) {
			return false
		}
	}
	for key, values := range u.GetExtra() {
		for _, v := range values {
			if !about("userextras/"+key, v) {
				return false
			}
		}
	}
	return u.GetUID() == "" || about("uids", u.GetUID())
}

func withRequestContext(r *http.Request) *http.Request {
	_, r = newRequestContext(r)
	return r
}

// The backend receives the impersonated user, as the authorizer does.
func TestBackendReceivesImpersonatedUser(t *testing.T) {
	b := newBench("alice *", "bob *")
	b.remote(t, routetable.Options{}, nil)
	for user, header := range map[string][]string{"alice": {"Test-User: alice"}, "bob": {"Test-User: alice", "Impersonate-User: bob"}} {
		if w := b.do(t, http.MethodGet, foo, header...); w.Code != http.StatusOK || w.Body.String() != "up "+user {
			t.Errorf("response to a request with %v = %d %s, want 200 up %s", header, w.Code, w.Body, user)
		}
	}
}

// TestA69ReservedExtraIsOnlyWrittenByThisServer checks that neither authenticators nor impersonation set the key.
func TestA69ReservedExtraIsOnlyWrittenByThisServer(t *testing.T) {
	given := &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"dev"}, Extra: map[string][]string{"reserved/key": {"x"}, "other": {"y"}}}
	a := withoutExtra(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: given}, true, nil
	}), "reserved/key")
	got, ok, err := a.AuthenticateRequest(nil)
	want := &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"dev"}, Extra: map[string][]string{"other": {"y"}}}
	if err != nil || !ok || !reflect.DeepEqual(got.User, want) || len(given.Extra) != 2 {
		t.Errorf("AuthenticateRequest() = %+v, %t, %v, want %+v, and the given user unchanged", got, ok, err, want)
	}
	everything := &questions{allow: func(authorizer.Attributes) bool { return true }}
	for _, field := range []string{"Impersonate-Extra-Reserved%2fkey", "Impersonate-Extra-Reserved%2fk%65y"} {
		headers := http.Header{"Impersonate-User": {"bob"}, field: {"x"}, "Impersonate-Extra-Other": {"1", "2", "3", "4", "5"}}
		as, _, w := impersonate(impersonationFilter(everything, "reserved/key"), &user.DefaultInfo{Name: "alice"}, headers)
		if as != nil || w.Code != http.StatusForbidden {
			t.Errorf("impersonation with %s = user %v with %d, want 403", field, as, w.Code)
		}
	}
}
