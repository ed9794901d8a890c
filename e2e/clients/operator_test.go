package clients

import (
	"context"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/e2e/compat"
)

// operator is e2e/clients/operator.
type operator struct{ *program }

func (*operator) party() *compat.Party { return clientGo }

// The service account of the operator.
const (
	operators    = "operators"
	operatorName = "operator"
	tokenFile    = "operator.token"
)

// begin grants the operator the minimal permissions and starts it.
func (o *operator) begin(t *testing.T, w *testEnv) {
	ctx, name := context.Background(), operatorName
	o.identify(t, w)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"get", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}, // the rights that it may grant
	}}
	if _, err := w.typed.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: operators, Name: name}},
	}
	if _, err := w.typed.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o.program = w.start(t, "operator", nil, "operator", w.kubeconfig(t, "operator", &api.AuthInfo{TokenFile: w.path(tokenFile)}))
	clientGo.LogsIn(o.log)
	book.Step(t, clientGo, grants, func(t *testing.T) {
		o.awaits(t, "operator: watches")
		o.works(t, w, "begun", "asking")
	})
	book.Step(t, clientGo, refuses, func(t *testing.T) {
		o.ask(t, w, "begun", "greedy", "get secrets")
		o.awaits(t, "begun/greedy refused get secrets", "attempting to grant RBAC permissions not currently held")
		may(t, w, "begun", "greedy", "secrets", false)
		if _, err := w.typed.RbacV1().Roles("begun").Get(ctx, "greedy-may", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get of a Role with more rights than the operator's = %v, want NotFound", err)
		}
	})
}

// identify creates the operator's service account, and writes its token to the operator's token file.
func (o *operator) identify(t *testing.T, w *testEnv) {
	t.Helper()
	w.namespace(t, operators)
	ctx, accounts := context.Background(), w.typed.CoreV1().ServiceAccounts(operators)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: operatorName}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(ctx, operatorName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, tokenFile, []byte(token.Status.Token))
}

// ask creates an account that requests rights.
func (o *operator) ask(t *testing.T, w *testEnv, namespace, name, what string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"clients.portico.dev/may": what}}}
	if _, err := w.typed.CoreV1().ServiceAccounts(namespace).Create(context.Background(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (o *operator) works(t *testing.T, w *testEnv, namespace, name string) {
	w.namespace(t, namespace)
	ctx, first, second := context.Background(), name+"-first", name+"-second"
	for _, account := range []string{first, second, name + "-kept"} {
		o.ask(t, w, namespace, account, "get,list configmaps")
		o.awaits(t, namespace+"/"+account+" may get,list configmaps")
		may(t, w, namespace, account, "configmaps", true)
	}
	may(t, w, namespace, first, "secrets", false)

	accounts := w.typed.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Patch(ctx, first, types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	o.awaits(t, namespace+"/"+first+" may no more")
	may(t, w, namespace, first, "configmaps", false)

	// The second account is deleted with its Role and RoleBinding.
	if err := accounts.Delete(ctx, second, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what account "+second+" was given", func(ctx context.Context) error {
		_, role := w.typed.RbacV1().Roles(namespace).Get(ctx, second+"-may", metav1.GetOptions{})
		_, binding := w.typed.RbacV1().RoleBindings(namespace).Get(ctx, second+"-may", metav1.GetOptions{})
		if !apierrors.IsNotFound(role) || !apierrors.IsNotFound(binding) {
			return fmt.Errorf("%w: role %v, binding %v", errStill, role, binding)
		}
		return nil
	})
}

// emptied deletes the operator's namespace too, and with it the service account: its token is invalid until the next one.
func (o *operator) emptied(t *testing.T, w *testEnv, namespace, name string) {
	w.empty(t, operators)
	o.awaits(t, "Unauthorized")
	o.identify(t, w)
	may(t, w, namespace, name+"-kept", "configmaps", false)
	w.namespace(t, namespace)
}

// may waits until an account may, or may not, list a resource in its namespace.
func may(t *testing.T, w *testEnv, namespace, account, resource string, want bool) {
	t.Helper()
	review := &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + namespace + ":" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: resource},
		},
	}
	eventually(t, "the rights of "+account, func(ctx context.Context) error {
		got, err := w.typed.AuthorizationV1().LocalSubjectAccessReviews(namespace).Create(ctx, review, metav1.CreateOptions{})
		if err == nil && got.Status.Allowed != want {
			err = fmt.Errorf("may list %s: %v, want %v", resource, got.Status.Allowed, want)
		}
		return err
	})
}
