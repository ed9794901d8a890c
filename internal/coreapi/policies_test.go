package coreapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
)

const validatingPolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sizes}
spec:
  paramKind: {apiVersion: sea.example.com/v1, kind: Boat}
  matchConstraints:
    objectSelector: {matchLabels: {topic: size}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  variables: [{name: size, expression: "size(object.data)"}]
  validations:
  - expression: variables.size <= params.spec.crew
    messageExpression: "'at most ' + string(params.spec.crew) + ' keys, not ' + string(variables.size)"
    reason: Invalid
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: sizes}
spec:
  policyName: sizes
  paramRef: {name: limit, namespace: ns, parameterNotFoundAction: Deny}
  validationActions: [Deny]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: homes}
spec:
  matchConstraints:
    objectSelector: {matchLabels: {topic: home}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  validations:
  - {expression: "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == object.metadata.namespace", message: not at home}
  - {expression: "authorizer.group('').resource('secrets').namespace('ns').check('get').allowed()", message: may not read secrets}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: homes}
spec: {policyName: homes, validationActions: [Deny]}
`

const mutatingPolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: apply}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    objectSelector: {matchLabels: {topic: apply}}
    resourceRules: [{apiGroups: ["", sea.example.com], apiVersions: [v1], resources: [configmaps, boats], operations: [CREATE]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: {'by': 'apply'}}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: apply}
spec: {policyName: apply}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: patch}
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints:
    objectSelector: {matchLabels: {topic: patch}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/data', value: {'by': 'patch'}}]"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: patch}
spec: {policyName: patch}
`

func (h *host) putAll(t *testing.T, text string) {
	t.Helper()
	for _, one := range strings.Split(text, "---\n") {
		h.put(t, one)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	h := startHost(t)
	h.define(t, boats)
	h.put(t, "{apiVersion: sea.example.com/v1, kind: Boat, metadata: {namespace: ns, name: limit}, spec: {crew: 2}}")
	h.putAll(t, validatingPolicies)
	h.putAll(t, mutatingPolicies)
	ctx := within(t)
	maps := h.client.CoreV1().ConfigMaps("ns")
	sized := func(name string, keys ...string) *corev1.ConfigMap {
		cm := h.configMap(name, map[string]string{"topic": "size"})
		cm.Data = map[string]string{}
		for _, key := range keys {
			cm.Data[key] = ""
		}
		return cm
	}

	t.Run("refuses, by a custom resource as parameter", func(t *testing.T) {
		poll(t, "the policy takes effect", func(ctx context.Context) bool {
			_, err := maps.Create(ctx, sized("large", "a", "b", "c"), metav1.CreateOptions{DryRun: []string{"All"}})
			return refusedWith("ValidatingAdmissionPolicy 'sizes' with binding 'sizes' denied request: at most 2 keys, not 3")(nil, err)
		})
		if _, err := maps.Create(ctx, sized("small", "a", "b"), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("knows the namespace, and what its author may", func(t *testing.T) {
		cm := h.configMap("home", map[string]string{"topic": "home"})
		nobody := h.typed(t, &user.DefaultInfo{Name: "nobody"}).CoreV1().ConfigMaps("ns")
		poll(t, "the policy takes effect on who may nothing", func(ctx context.Context) bool {
			_, err := nobody.Create(ctx, cm, metav1.CreateOptions{DryRun: []string{"All"}})
			return refusedWith("may not read secrets")(nil, err)
		})
		if _, err := maps.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Errorf("create by the administrator failed: %v, want no error", err)
		}
	})
	t.Run("changes by a patch", func(t *testing.T) {
		h.submit(t, "patch", func(made *corev1.ConfigMap, err error) bool { return err == nil && made.Data["by"] == "patch" })
	})
	t.Run("changes by an apply configuration", func(t *testing.T) {
		h.submit(t, "apply", func(made *corev1.ConfigMap, err error) bool { return err == nil && made.Annotations["by"] == "apply" })
	})
	t.Run("changes custom resources", func(t *testing.T) {
		// The policy reads the OpenAPI document every five seconds.
		poll(t, "a boat is changed", func(ctx context.Context) bool {
			boat := unlabelled("")
			boat.SetGenerateName("b-")
			boat.SetLabels(map[string]string{"topic": "apply"})
			made, err := h.dynamic.Resource(boatsV1).Namespace("ns").Create(ctx, boat, metav1.CreateOptions{})
			return err == nil && annotation(made, "by") == "apply"
		})
	})
}

const everySubresource = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: every-subresource}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: [CREATE, UPDATE, CONNECT]}]
  matchConditions: [{name: who, expression: "request.userInfo.username == 'mallory'"}]
  validations: [{expression: "false", message: not by mallory}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: every-subresource}
spec: {policyName: every-subresource, validationActions: [Deny]}
`

// C3: a subresource that writes the same object does not bypass a policy.
func TestC3PoliciesApplyToSubresources(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	ctx := within(t)
	h.put(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: ns, name: one}}")
	h.put(t, "{apiVersion: v1, kind: Service, metadata: {namespace: ns, name: one}, spec: {ports: [{port: 80}]}}")
	h.put(t, "{apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: one}, spec: {containers: [{name: a, image: a, resources: {requests: {cpu: 500m}}}]}}")
	const template = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}"
	for _, kind := range []string{"Deployment", "ReplicaSet", "StatefulSet"} {
		h.put(t, "{apiVersion: apps/v1, kind: "+kind+", metadata: {namespace: ns, name: one}, spec: {"+template+"}}")
	}
	h.define(t, boats)
	h.put(t, "{apiVersion: sea.example.com/v1, kind: Boat, metadata: {namespace: ns, name: one}, spec: {crew: 2, replicas: 1}}")
	h.putAll(t, everySubresource)

	mallory := rawClientOf(t, h.ClientConfig(&user.DefaultInfo{Name: "mallory", Groups: []string{user.AllAuthenticated}}))
	denied := func(err error) bool {
		return refusedWith("ValidatingAdmissionPolicy 'every-subresource' with binding 'every-subresource' denied request: not by mallory")(nil, err)
	}
	poll(t, "the policy takes effect", func(ctx context.Context) bool {
		return denied(mallory.Patch(types.MergePatchType).AbsPath("/api/v1/namespaces/ns/pods/one").Body([]byte(`{"metadata":{"labels":{"a":"b"}}}`)).Do(ctx).Error())
	})
	const labels = `{"metadata":{"labels":{"a":"b"}}}`
	for path, patch := range map[string]string{
		"/api/v1/namespaces/ns/pods/one/status":                                                `{"status":{"reason":"a"}}`,
		"/api/v1/namespaces/ns/pods/one/ephemeralcontainers":                                   `{"spec":{"ephemeralContainers":[{"name":"e","image":"a"}]}}`,
		"/api/v1/namespaces/ns/pods/one/resize":                                                `{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}}]}}`,
		"/api/v1/namespaces/ns/services/one/status":                                            labels,
		"/api/v1/namespaces/ns/status":                                                         labels,
		"/apis/apps/v1/namespaces/ns/deployments/one/scale":                                    `{"spec":{"replicas":9}}`,
		"/apis/apps/v1/namespaces/ns/deployments/one/status":                                   `{"status":{"replicas":9}}`,
		"/apis/apps/v1/namespaces/ns/replicasets/one/scale":                                    `{"spec":{"replicas":9}}`,
		"/apis/apps/v1/namespaces/ns/statefulsets/one/scale":                                   `{"spec":{"replicas":9}}`,
		"/apis/sea.example.com/v1/namespaces/ns/boats/one":                                     `{"spec":{"crew":3}}`,
		"/apis/sea.example.com/v1/namespaces/ns/boats/one/status":                              `{"status":{"afloat":true}}`,
		"/apis/sea.example.com/v1/namespaces/ns/boats/one/scale":                               `{"spec":{"replicas":9}}`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.sea.example.com/status": labels,
	} {
		t.Run("patch of "+path, func(t *testing.T) {
			if err := mallory.Patch(types.MergePatchType).AbsPath(path).Body([]byte(patch)).Do(ctx).Error(); !denied(err) {
				t.Errorf("patch of %s: error = %v, want a denial", path, err)
			}
		})
	}
	for path, body := range map[string]string{
		"/api/v1/namespaces/ns/pods/one/binding":          `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"one"},"target":{"kind":"Node","name":"n"}}`,
		"/api/v1/namespaces/ns/pods/one/eviction":         `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"one"}}`,
		"/api/v1/namespaces/ns/serviceaccounts/one/token": `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`,
	} {
		t.Run("post to "+path, func(t *testing.T) {
			err := mallory.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
			if !denied(err) {
				t.Errorf("POST to %s: error = %v, want a denial", path, err)
			}
		})
	}
	t.Run("finalize of a namespace", func(t *testing.T) {
		err := mallory.Put().AbsPath("/api/v1/namespaces/ns/finalize").SetHeader("Content-Type", "application/json").
			Body([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns"},"spec":{"finalizers":[]}}`)).Do(ctx).Error()
		if !denied(err) {
			t.Errorf("finalize of a namespace: error = %v, want a denial", err)
		}
	})
}

const auditedPolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: audited}
spec:
  matchConstraints:
    objectSelector: {matchLabels: {topic: audit}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  validations: [{expression: "false", message: never}]
  auditAnnotations: [{key: who, valueExpression: "request.userInfo.username"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: audited}
spec: {policyName: audited, validationActions: [Audit]}
`

// The audit event of a request contains the annotations of policies, webhooks and PodSecurity.
func TestAuditAnnotations(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	h.putAll(t, auditedPolicies)
	h.put(t, hook(mutating, "audit", fmt.Sprintf(byURL, "/label")))
	if _, err := h.client.CoreV1().Namespaces().Patch(within(t), "ns", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/audit":"restricted"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n := 0
	post := func(resource, body string) map[string]string {
		ctx := audit.WithAuditContext(within(t))
		event := audit.AuditContextFrom(ctx)
		if err := event.Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
			t.Fatal(err)
		}
		n++
		r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/"+resource, strings.NewReader(strings.ReplaceAll(body, "NAME", fmt.Sprintf("audited-%d", n))))
		r.Header.Set("Content-Type", "application/json")
		info, err := request.NewResolver().Info(r)
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		h.Handler().ServeHTTP(answer, r.WithContext(apirequest.WithUser(apirequest.WithRequestInfo(ctx, info), admin)))
		if answer.Code != http.StatusCreated {
			t.Fatalf("POST to %s = %d %s, want 201", resource, answer.Code, answer.Body)
		}
		return event.GetEventAnnotations()
	}
	var said map[string]string
	poll(t, "policy and webhook take effect", func(context.Context) bool {
		said = post("configmaps", `{"metadata":{"name":"NAME","labels":{"topic":"audit"}}}`)
		return said["audited/who"] != "" && said["mutation.webhook.admission.k8s.io/round_0_index_0"] != ""
	})
	if said["audited/who"] != "admin" || !strings.Contains(said["validation.policy.admission.k8s.io/validation_failure"], `"message":"never"`) ||
		!strings.Contains(said["mutation.webhook.admission.k8s.io/round_0_index_0"], `"mutated":true`) {
		t.Errorf("audit annotations of a config map = %v, want those of the policies and of the webhook", said)
	}
	said = post("pods", `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"a","image":"a"}]}}`)
	if said["pod-security.kubernetes.io/enforce-policy"] != "privileged:latest" ||
		!strings.Contains(said["pod-security.kubernetes.io/audit-violations"], `would violate PodSecurity "restricted:latest"`) {
		t.Errorf("audit annotations of a pod = %v, want enforce-policy and audit-violations", said)
	}
}

func annotation(obj *unstructured.Unstructured, key string) string { return obj.GetAnnotations()[key] }
