package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/auth/rbac/explain"
)

func TestGrantCommands(t *testing.T) {
	p := explain.Objects{ClusterRoles: []rbacv1.ClusterRole{{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}}}
	p.Roles = []rbacv1.Role{{
		ObjectMeta: metav1.ObjectMeta{Name: "scaler", Namespace: "dev"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"update"}, APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}}},
	}}
	for _, c := range []struct {
		situation string
		q         explain.Query
		want      []string
	}{
		{"ClusterRole in a namespace", explain.Query{User: "alice", Verb: "get", Resource: "pods", Namespace: "dev"},
			[]string{"kubectl create rolebinding alice-view -n dev --clusterrole=view --user=alice"}},
		{"ClusterRole in the whole cluster", explain.Query{User: "alice", Verb: "get", Resource: "pods"},
			[]string{"kubectl create clusterrolebinding alice-view --clusterrole=view --user=alice"}},
		{"Role", explain.Query{User: "alice", Verb: "update", Group: "apps", Resource: "deployments", Subresource: "scale", Namespace: "dev"},
			[]string{"kubectl create rolebinding alice-scaler -n dev --role=scaler --user=alice"}},
		{"service account", explain.Query{User: "system:serviceaccount:ci:bot", Verb: "get", Resource: "pods", Namespace: "dev"},
			[]string{"kubectl create rolebinding bot-view -n dev --clusterrole=view --serviceaccount=ci:bot"}},
		{"no role in a namespace", explain.Query{User: "alice@example.com", Verb: "delete", Group: "apps", Resource: "deployments", Name: "web", Namespace: "dev"}, []string{
			"kubectl create role delete-deployments.apps -n dev --verb=delete --resource=deployments.apps --resource-name=web",
			"kubectl create rolebinding alice-example.com-delete-deployments.apps -n dev --role=delete-deployments.apps --user=alice@example.com",
		}},
		{"no role for a path", explain.Query{User: "a user", Verb: "get", Path: "/metrics"}, []string{
			"kubectl create clusterrole get-metrics --verb=get --non-resource-url=/metrics",
			"kubectl create clusterrolebinding a-user-get-metrics --clusterrole=get-metrics '--user=a user'",
		}},
	} {
		if got := grantCommands(p, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%s: commands =\n%s\nwant\n%s", c.situation, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// rbacServer denies or allows every request. It has one ClusterRole and no bindings.
func rbacServer(t *testing.T, allowed bool) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const list = `{"kind":%q,"apiVersion":"rbac.authorization.k8s.io/v1","items":[%s]}`
		switch r.URL.Path {
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			fmt.Fprintf(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":{"allowed":%v}}`, allowed)
		case "/apis/rbac.authorization.k8s.io/v1/roles":
			fmt.Fprintf(w, list, "RoleList", "")
		case "/apis/rbac.authorization.k8s.io/v1/rolebindings":
			fmt.Fprintf(w, list, "RoleBindingList", "")
		case "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings":
			fmt.Fprintf(w, list, "ClusterRoleBindingList", "")
		case "/apis/rbac.authorization.k8s.io/v1/clusterroles":
			fmt.Fprintf(w, list, "ClusterRoleList", `{"metadata":{"name":"prober"},"rules":[{"verbs":["get"],"nonResourceURLs":["/healthz"]}]}`)
		default:
			t.Errorf("request for %s, want a review and lists", r.URL)
		}
	}))
	t.Cleanup(server.Close)
	return writeKubeconfig(t, server.URL)
}

func TestWhyProposesRoleIfNoBindingMatches(t *testing.T) {
	const command = "kubectl create clusterrolebinding alice-prober --clusterrole=prober --user=alice"
	out, err := execute(t, "why", "alice", "get", "/healthz", "--kubeconfig", rbacServer(t, false))
	if err == nil || !strings.Contains(out, "to allow it:\n  "+command+"\n") {
		t.Errorf("why = %v: %s\nwant %q", err, out, command)
	}
	out, err = execute(t, "why", "alice", "get", "/healthz", "-o", "json", "--kubeconfig", rbacServer(t, false))
	if err == nil || !strings.Contains(out, `"grant": [`) || !strings.Contains(out, command) {
		t.Errorf("why -o json = %v: %s\nwant grant with %q", err, out, command)
	}
}

func TestWhyProposesNothingForAllowedRequest(t *testing.T) {
	out, err := execute(t, "why", "alice", "get", "/healthz", "--kubeconfig", rbacServer(t, true))
	if err != nil || strings.Contains(out, "kubectl create") {
		t.Errorf("why = %v: %s\nwant no proposal", err, out)
	}
}
