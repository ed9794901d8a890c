package identity

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/fleet/v1alpha1"
)

// TestClusterRoleHasExactlyTheRightsThatAreChecked checks deploy/front/cluster-rbac.yaml and Missing against each other.
func TestClusterRoleHasExactlyTheRightsThatAreChecked(t *testing.T) {
	f := newFront(t, v1alpha1.Impersonate, Rules{})
	missing := func() []string {
		t.Helper()
		got, err := Missing(t.Context(), f.own(v1alpha1.Impersonate), Needs{Mode: v1alpha1.Impersonate, Tokens: v1alpha1.AllTokens, Access: true})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := missing(); len(got) != 0 {
		t.Fatalf("Missing with the rights of the file = %q, want none", got)
	}
	role := roleOf(t)
	for i, rule := range role.Rules {
		if len(rule.ResourceNames)+len(rule.NonResourceURLs) != 0 || len(rule.Verbs) != 1 || len(rule.APIGroups) != 1 {
			t.Errorf("rule %v, want one verb and one group, for all names", rule)
		}
		for j, resource := range rule.Resources {
			fewer := *role.DeepCopy()
			fewer.Rules[i].Resources = slices.Delete(slices.Clone(rule.Resources), j, j+1)
			f.rules = rbac.NewRules(fewer.Rules)
			want := rule.Verbs[0] + " " + resource
			got := missing()
			if len(got) == 0 || resource != "*" && !strings.HasPrefix(got[0], want) {
				t.Errorf("Missing without the right to %s = %q, want %q in it", want, got, want)
			}
		}
	}
	f.rules = rbac.NewRules(nil)
	if got, want := missing(), []string{"impersonate users", "impersonate groups", "impersonate uids.authentication.k8s.io",
		"impersonate userextras/*.authentication.k8s.io", "create tokenreviews.authentication.k8s.io",
		"create subjectaccessreviews.authorization.k8s.io"}; !slices.Equal(got, want) {
		t.Errorf("Missing without any right = %q, want %q", got, want)
	}
}

// TestLiteralWildcardOfExtraIsNotEnough checks that a rule for "userextras/*", which permits no key, is reported.
func TestLiteralWildcardOfExtraIsNotEnough(t *testing.T) {
	f := newFront(t, v1alpha1.Impersonate, Rules{})
	f.rules = rbac.NewRules([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"users", "groups"}, Verbs: []string{"impersonate"}},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"uids", "userextras/*"}, Verbs: []string{"impersonate"}},
	})
	got, err := Missing(t.Context(), f.own(v1alpha1.Impersonate), Needs{Mode: v1alpha1.Impersonate, Tokens: v1alpha1.NoTokens})
	if want := []string{"impersonate userextras/*.authentication.k8s.io"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Missing = %q, %v, want %q", got, err, want)
	}
	if code := f.send(t, "Accept: application/json"); code != http.StatusForbidden {
		t.Errorf("status of a request with extra = %d, want 403: the right is missing", code)
	}
}

func TestUntrustedFrontProxyIsReported(t *testing.T) {
	const mode = v1alpha1.FrontProxy
	f := newFront(t, mode, Rules{})
	check := func(situation, want string) {
		t.Helper()
		got, err := Missing(t.Context(), f.own(mode), Needs{Mode: mode, Tokens: v1alpha1.ServiceAccountTokens})
		if err != nil || (want == "") != (len(got) == 0) || !strings.Contains(strings.Join(got, ", "), want) {
			t.Errorf("Missing %s = %q, %v, want %q", situation, got, err, want)
		}
	}
	check("with trust", "")
	f.rules = rbac.NewRules(nil)
	check("without the right to review tokens", "create tokenreviews.authentication.k8s.io")
	f.trusts = false
	check("without trust", "--requestheader-client-ca-file")
	f.refuse = func(string) int { return http.StatusServiceUnavailable }
	f.trusts = true
	if got, err := Missing(t.Context(), f.own(mode), Needs{Mode: mode, Tokens: v1alpha1.NoTokens}); err == nil {
		t.Errorf("Missing without a response = %q, want an error", got)
	}
}

func TestMessageNamesTheFile(t *testing.T) {
	got := Message([]string{"impersonate groups", "impersonate users"})
	for _, want := range []string{"impersonate groups, impersonate users", "deploy/front/cluster-rbac.yaml"} {
		if !strings.Contains(got, want) {
			t.Errorf("Message = %q, want %q in it", got, want)
		}
	}
}

func TestSharedResourcesNeedRights(t *testing.T) {
	f := newFront(t, v1alpha1.Impersonate, Rules{})
	got, err := Missing(t.Context(), f.own(v1alpha1.Impersonate), Needs{Mode: v1alpha1.Impersonate, Tokens: v1alpha1.AllTokens, Shared: []v1alpha1.SharedResources{
		{Resources: []string{"pods"}}, {Resources: []string{"deployments.apps"}, Watches: true},
	}})
	want := []string{"get pods", "list pods", "get deployments.apps", "list deployments.apps", "watch deployments.apps"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Missing() = %q, %v; want %q", got, err, want)
	}
}
