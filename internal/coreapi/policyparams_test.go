package coreapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"

	"go.uber.org/zap"

	"portico.dev/internal/auth/rbac"
)

// roleTable maps a user to rules in all namespaces or in one.
type roleTable struct {
	cluster map[string][]rbacv1.PolicyRule
	inNS    map[string][]rbacv1.PolicyRule // in the namespace "ns"
}

func (t roleTable) authorizer() *rbac.RBAC {
	var p rbac.Policy
	for name, rules := range t.cluster {
		p.ClusterRoles = append(p.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + name}, Rules: rules})
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-" + name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
		})
	}
	for name, rules := range t.inNS {
		p.Roles = append(p.Roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Rules: rules})
		p.RoleBindings = append(p.RoleBindings, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
		})
	}
	r := rbac.New(zap.NewNop())
	r.Load(p)
	return r
}

func rights(verb, group, resource string, names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}}
}

func (h *host) as(t *testing.T, name string) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(h.ClientConfig(&user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// startPolicyHost starts a server where users have the rights of table. The server also maps a kind of an extension server.
func startPolicyHost(t *testing.T, table roleTable) *host {
	t.Helper()
	var own func() meta.RESTMapper
	h := start(t, func(c *Config) {
		a := table.authorizer()
		c.Authorizer, c.RuleResolver = a, a
		c.RESTMapper = func() meta.RESTMapper { return own() }
	})
	ofBackends := meta.NewDefaultRESTMapper(nil)
	metrics := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	ofBackends.AddSpecific(metrics.WithKind("PodMetrics"), metrics.WithResource("pods"), metrics.WithResource("pod"), meta.RESTScopeNamespace)
	local := &ownMapper{now: h.served.Load}
	own = func() meta.RESTMapper {
		return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{local.mapper(), ofBackends}}
	}
	host := &host{crdServerOver(t, h), h.typed(t, admin), &webhookServer{Server: &httptest.Server{}}}
	namespace(t, host.client, "ns")
	host.define(t, boats)
	return host
}

// refusedField checks that err is a 422 with one cause, with this field and message.
func refusedField(t *testing.T, err error, field, message string) {
	t.Helper()
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) {
		t.Errorf("error = %v, want Invalid for the field %s", err, field)
		return
	}
	status = err.(apierrors.APIStatus)
	causes := status.Status().Details.Causes
	if status.Status().Code != http.StatusUnprocessableEntity || len(causes) != 1 || causes[0].Field != field || causes[0].Message != "Forbidden: "+message {
		t.Errorf("details of the error = %+v, want one cause: %s: Forbidden: %s", status.Status().Details, field, message)
	}
}

func admissionPolicy(kind, name, paramKind string) string {
	apiVersion, param, _ := strings.Cut(paramKind, " ")
	text := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: %s}
spec:
  paramKind: {apiVersion: %s, kind: %s}
  matchConstraints:
    objectSelector: {matchLabels: {topic: none}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
`, kind, name, apiVersion, param)
	if kind == "ValidatingAdmissionPolicy" {
		return text + "  validations: [{expression: 'false', messageExpression: 'string(params)'}]\n"
	}
	return text + `  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: {'seen': string(params)}}}"}
`
}

// withoutParams is a merge patch that removes every reference to parameters from a policy.
func withoutParams(kind string) string {
	if kind == "ValidatingAdmissionPolicy" {
		return `{"spec":{"paramKind":null,"validations":[{"expression":"true"}]}}`
	}
	return `{"spec":{"paramKind":null,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}}`
}

func admissionBinding(kind, name, policy, ref string) string {
	text := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %sBinding
metadata: {name: %s}
spec:
  policyName: %s
  paramRef: {parameterNotFoundAction: Deny, %s}
`, kind, name, policy, ref)
	if kind == "ValidatingAdmissionPolicy" {
		text += "  validationActions: [Deny]\n"
	}
	return text
}

var policiesByKind = map[string]schema.GroupVersionResource{
	"ValidatingAdmissionPolicy": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"MutatingAdmissionPolicy":   {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"},
}

func bindingResource(kind string) schema.GroupVersionResource {
	r := policiesByKind[kind]
	r.Resource = strings.TrimSuffix(r.Resource, "policies") + "policybindings"
	return r
}

// C3: a user with no right except to write policies could read every Secret, unless the right to read params is required.
func TestC3PolicyAuthorsNeedTheRightToReadParams(t *testing.T) {
	t.Parallel()
	h := startPolicyHost(t, roleTable{
		cluster: map[string][]rbacv1.PolicyRule{
			"author": rights("get", "", "configmaps"), "reader": rights("get", "", "secrets"), "lister": rights("list", "", "secrets"),
			"one-name": rights("get", "", "secrets", "token"), "sailor": rights("get", "sea.example.com", "boats"),
			"watcher": rights("get", "metrics.k8s.io", "pods"), "pods-only": rights("get", "", "pods"), "core": rights("get", "", "*"),
		},
		inNS: map[string][]rbacv1.PolicyRule{"one-namespace": rights("get", "", "secrets")},
	})
	ctx := within(t)
	n := 0
	for kind, resource := range policiesByKind {
		for _, c := range []struct {
			who, paramKind string
			allowed        bool
		}{
			{"author", "v1 ConfigMap", true},
			{"author", "v1 Secret", false},
			{"reader", "v1 Secret", true},
			{"lister", "v1 Secret", false},
			{"one-name", "v1 Secret", false},
			{"one-namespace", "v1 Secret", false},
			{"author", "sea.example.com/v1 Boat", false},
			{"sailor", "sea.example.com/v1 Boat", true},
			{"pods-only", "metrics.k8s.io/v1beta1 PodMetrics", false},
			{"watcher", "metrics.k8s.io/v1beta1 PodMetrics", true},
			{"reader", "v1 Unheard", false},
			{"core", "v1 Unheard", true},
			{"sailor", "sea.example.com/v9 Boat", false},
		} {
			t.Run(fmt.Sprintf("%s by %s with %s", kind, c.who, c.paramKind), func(t *testing.T) {
				n++
				_, err := h.try(t, h.as(t, c.who), admissionPolicy(kind, fmt.Sprintf("p-%d", n), c.paramKind), metav1.CreateOptions{})
				if c.allowed {
					if err != nil {
						t.Error(err)
					}
					return
				}
				apiVersion, param, _ := strings.Cut(c.paramKind, " ")
				refusedField(t, err, "spec.paramKind", fmt.Sprintf("user &{%s  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)", c.who, param, apiVersion))
			})
		}
		refused := func(t *testing.T, err error) {
			t.Helper()
			refusedField(t, err, "spec.paramKind", `user &{author  [system:authenticated] map[]} must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`)
		}
		author := h.as(t, "author").Resource(resource)
		h.put(t, admissionPolicy(kind, "plain", "v1 ConfigMap"))
		h.put(t, admissionPolicy(kind, "secret", "v1 Secret"))
		secretly := object(t, admissionPolicy(kind, "plain", "v1 Secret"))
		for verb, write := range map[string]func(context.Context) error{
			"dry run": func(ctx context.Context) error {
				obj := object(t, admissionPolicy(kind, "dry", "v1 Secret"))
				_, err := author.Create(ctx, obj, metav1.CreateOptions{DryRun: []string{"All"}})
				return err
			},
			"update": func(ctx context.Context) error {
				obj, err := author.Get(ctx, "plain", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				obj.Object["spec"] = secretly.Object["spec"]
				_, err = author.Update(ctx, obj, metav1.UpdateOptions{})
				return err
			},
			"merge patch": func(ctx context.Context) error {
				_, err := author.Patch(ctx, "plain", types.MergePatchType, []byte(`{"spec":{"paramKind":{"kind":"Secret"}}}`), metav1.PatchOptions{})
				return err
			},
			"strategic merge patch": func(ctx context.Context) error {
				_, err := author.Patch(ctx, "plain", types.StrategicMergePatchType, []byte(`{"spec":{"paramKind":{"kind":"Secret"}}}`), metav1.PatchOptions{})
				return err
			},
			"JSON patch": func(ctx context.Context) error {
				_, err := author.Patch(ctx, "plain", types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/paramKind/kind","value":"Secret"}]`), metav1.PatchOptions{})
				return err
			},
			"apply of an existing policy": func(ctx context.Context) error {
				_, err := author.Apply(ctx, "plain", secretly, metav1.ApplyOptions{FieldManager: "a", Force: true})
				return err
			},
			"apply of a new policy": func(ctx context.Context) error {
				_, err := author.Apply(ctx, "applied", object(t, admissionPolicy(kind, "applied", "v1 Secret")), metav1.ApplyOptions{FieldManager: "a"})
				return err
			},
			"another expression for params of others": func(ctx context.Context) error {
				_, err := author.Patch(ctx, "secret", types.MergePatchType, []byte(`{"spec":{"variables":[{"name":"v","expression":"params.data"}]}}`), metav1.PatchOptions{})
				return err
			},
		} {
			t.Run(kind+" by "+verb, func(t *testing.T) { refused(t, write(ctx)) })
		}
		t.Run(kind+" by status", func(t *testing.T) {
			obj, err := author.Get(ctx, "plain", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			obj.Object["spec"] = secretly.Object["spec"]
			after, err := author.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
			if kind == "MutatingAdmissionPolicy" {
				if !apierrors.IsNotFound(err) {
					t.Errorf("status update of a %s: error = %v, want NotFound", kind, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := unstructured.NestedString(after.Object, "spec", "paramKind", "kind"); got != "ConfigMap" {
				t.Errorf("paramKind after an update of the status = %s, want ConfigMap", got)
			}
		})
		t.Run(kind+" whose label changes", func(t *testing.T) {
			if _, err := author.Patch(ctx, "secret", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
		t.Run(kind+" that loses its paramKind", func(t *testing.T) {
			if _, err := author.Patch(ctx, "secret", types.MergePatchType, []byte(withoutParams(kind)), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestC3BindingAuthorsNeedTheRightToReadParams(t *testing.T) {
	t.Parallel()
	h := startPolicyHost(t, roleTable{
		cluster: map[string][]rbacv1.PolicyRule{
			"author": rights("get", "", "configmaps"), "reader": rights("get", "", "secrets"), "lister": rights("list", "", "secrets"),
			"one-name": rights("get", "", "secrets", "token"), "sailor": rights("get", "sea.example.com", "boats"),
			"watcher": rights("get", "metrics.k8s.io", "pods"), "all": rights("get", "*", "*"),
		},
		inNS: map[string][]rbacv1.PolicyRule{"one-namespace": rights("get", "", "secrets"), "list-one-namespace": rights("list", "", "secrets")},
	})
	ctx := within(t)
	n := 0
	for kind := range policiesByKind {
		for name, paramKind := range map[string]string{
			"secrets": "v1 Secret", "maps": "v1 ConfigMap", "boats": "sea.example.com/v1 Boat", "pods": "metrics.k8s.io/v1beta1 PodMetrics", "unheard": "v1 Unheard",
		} {
			h.put(t, admissionPolicy(kind, name, paramKind))
		}
		h.put(t, admissionPolicy(kind, "without", "v1 Secret"))
		if _, err := h.dynamic.Resource(policiesByKind[kind]).Patch(ctx, "without", types.MergePatchType, []byte(withoutParams(kind)), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		const (
			plainly    = `user %[1]v does not have "%[2]v" permission on the object referenced by paramRef`
			everything = ` to determine minimum required permissions and user %[1]v does not have "%[2]v" permission for all groups, versions and resources`
		)
		const token, anywhere, selected, selectedAnywhere = "name: token, namespace: ns", "name: token", "selector: {matchLabels: {a: b}}, namespace: ns", "selector: {}"
		for _, c := range []struct {
			who, policy, ref, verb, message string
		}{
			{"author", "maps", token, "", ""},
			{"author", "secrets", token, "get", plainly},
			{"lister", "secrets", token, "get", plainly},
			{"reader", "secrets", token, "", ""},
			{"one-namespace", "secrets", token, "", ""},
			{"one-namespace", "secrets", "name: token, namespace: other", "get", plainly},
			{"one-namespace", "secrets", anywhere, "get", plainly},
			{"one-name", "secrets", token, "", ""},
			{"one-name", "secrets", anywhere, "", ""},
			{"one-name", "secrets", "name: other, namespace: ns", "get", plainly},
			{"reader", "secrets", selected, "list", plainly},
			{"lister", "secrets", selected, "", ""},
			{"list-one-namespace", "secrets", selected, "", ""},
			{"list-one-namespace", "secrets", selectedAnywhere, "list", plainly},
			{"lister", "secrets", selectedAnywhere, "", ""},
			{"reader", "boats", token, "get", plainly},
			{"sailor", "boats", token, "", ""},
			{"author", "pods", token, "get", plainly},
			{"watcher", "pods", token, "", ""},
			{"reader", "missing", token, "get", "unable to get policy missing" + everything},
			{"all", "missing", token, "", ""},
			{"reader", "unheard", token, "get", "unable to resolve paramKind &{v1 Unheard}" + everything},
			{"reader", "without", token, "get", plainly},
		} {
			t.Run(fmt.Sprintf("%s by %s of %s with %s", kind, c.who, c.policy, c.ref), func(t *testing.T) {
				n++
				_, err := h.try(t, h.as(t, c.who), admissionBinding(kind, fmt.Sprintf("b-%d", n), c.policy, c.ref), metav1.CreateOptions{})
				if c.message == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				who := fmt.Sprintf("&{%s  [system:authenticated] map[]}", c.who)
				message := fmt.Sprintf(c.message, who, c.verb)
				if kind == "MutatingAdmissionPolicy" && c.message == plainly {
					message = fmt.Sprintf(c.message, c.verb, who)
				}
				refusedField(t, err, "spec.paramRef", message)
			})
		}
		h.put(t, admissionBinding(kind, "own", "maps", token))
		bindings := h.as(t, "author").Resource(bindingResource(kind))
		for what, patch := range map[string]string{
			"another policy":   `{"spec":{"policyName":"secrets"}}`,
			"another name":     `{"spec":{"policyName":"secrets","paramRef":{"name":"other"}}}`,
			"more to match":    `{"spec":{"policyName":"secrets","matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}}`,
			"a selector":       `{"spec":{"paramRef":{"name":null,"selector":{}}}}`,
			"a missing policy": `{"spec":{"policyName":"missing"}}`,
		} {
			t.Run(kind+" that gets "+what, func(t *testing.T) {
				_, err := bindings.Patch(ctx, "own", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.paramRef: Forbidden") {
					t.Errorf("patch of the binding: error = %v, want Invalid for spec.paramRef", err)
				}
				obj, err := bindings.Get(ctx, "own", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				patched, err := h.dynamic.Resource(bindingResource(kind)).Patch(ctx, "own", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{"All"}})
				if err != nil {
					t.Fatal(err)
				}
				obj.Object["spec"] = patched.Object["spec"]
				if _, err := bindings.Update(ctx, obj, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
					t.Errorf("update of the binding: error = %v, want Invalid", err)
				}
				patched = &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind + "Binding", "metadata": map[string]any{"name": "own"}, "spec": patched.Object["spec"],
				}}
				if _, err := bindings.Apply(ctx, "own", patched, metav1.ApplyOptions{FieldManager: "a", Force: true}); !apierrors.IsInvalid(err) {
					t.Errorf("apply of the binding: error = %v, want Invalid", err)
				}
			})
		}
		t.Run(kind+" whose matches change, with params that may be read", func(t *testing.T) {
			if _, err := bindings.Patch(ctx, "own", types.MergePatchType, []byte(`{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}
