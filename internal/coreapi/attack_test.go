package coreapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestC1PathsOfAnotherScopeAreRejected(t *testing.T) {
	h := start(t)
	namespace(t, h.typed(t, admin), "work")
	client := rawClient(t, h)
	for _, path := range []string{
		"/api/v1/namespaces/work/nodes", "/api/v1/namespaces/work/namespaces/work", "/api/v1/namespaces/work/persistentvolumes/x",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/work/clusterroles/x",
	} {
		if err := client.Get().AbsPath(path).Do(within(t)).Error(); !apierrors.IsNotFound(err) {
			t.Errorf("GET %s: error = %v, want NotFound", path, err)
		}
	}
	// A create without a namespace would be authorized for every namespace.
	var code int
	client.Post().AbsPath("/api/v1/configmaps").Body([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"work"}}`)).
		SetHeader("Content-Type", "application/json").Do(within(t)).StatusCode(&code)
	if code != http.StatusMethodNotAllowed && code != http.StatusNotFound && code != http.StatusBadRequest {
		t.Errorf("status of a create on a path without a namespace = %d, want 400, 404 or 405", code)
	}
	var elsewhere int
	client.Post().AbsPath("/api/v1/namespaces/work/configmaps").Body([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"kube-system"}}`)).
		SetHeader("Content-Type", "application/json").Do(within(t)).StatusCode(&elsewhere)
	if elsewhere != http.StatusBadRequest {
		t.Errorf("status of a create whose object names another namespace than the path = %d, want 400", elsewhere)
	}
}

func TestC5StatusWritesChangeNothingElse(t *testing.T) {
	t.Parallel()
	h := start(t)
	root := h.typed(t, admin)
	before := namespace(t, root, "work")
	next := before.DeepCopy()
	next.Spec.Finalizers = nil
	after, err := root.CoreV1().Namespaces().UpdateStatus(within(t), next, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Spec.Finalizers) != len(before.Spec.Finalizers) {
		t.Errorf("finalizers after an update of the status = %v, want %v", after.Spec.Finalizers, before.Spec.Finalizers)
	}
}

func TestC7OversizedPatchesAreRejected(t *testing.T) {
	t.Parallel()
	h := start(t)
	root := h.typed(t, admin)
	namespace(t, root, "work")
	mustCreate(t, root, configMap("target", map[string]string{"a": strings.Repeat("x", 1<<10)}))
	operations := func(n int, op string) []byte {
		return []byte("[" + strings.TrimSuffix(strings.Repeat(op+",", n), ",") + "]")
	}
	amplification := []byte(`[{"op":"add","path":"/data/b","value":{}}`)
	for i := range 40 {
		amplification = fmt.Appendf(amplification, `,{"op":"copy","from":"/data","path":"/data/b%d"}`, i)
	}
	for name, patch := range map[string][]byte{
		"more operations than bound": operations(10_001, `{"op":"test","path":"/data/a","value":"x"}`),
		"copies of copies":           append(amplification, ']'),
		"a path without end":         operations(1, `{"op":"add","path":"/`+strings.Repeat("a/", 100_000)+`","value":1}`),
	} {
		_, err := root.CoreV1().ConfigMaps("work").Patch(within(t), "target", types.JSONPatchType, patch, metav1.PatchOptions{})
		if code := codeOf(err); code != http.StatusRequestEntityTooLarge && code != http.StatusUnprocessableEntity && code != http.StatusBadRequest {
			t.Errorf("patch %q: error = %v, want 400, 413 or 422", name, err)
		}
	}
}

func codeOf(err error) int {
	if status, ok := err.(apierrors.APIStatus); ok {
		return int(status.Status().Code)
	}
	return 0
}

func TestC8OversizedAndDeeplyNestedObjectsAreRejected(t *testing.T) {
	h := start(t)
	namespace(t, h.typed(t, admin), "work")
	client := rawClient(t, h)
	laughs := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	for name, c := range map[string]struct{ kind, body string }{
		"a billion laughs":          {"application/yaml", laughs},
		"depth without end":         {"application/json", strings.Repeat("[", 3<<20)},
		"depth in an object":        {"application/json", strings.Repeat(`{"a":`, 100_000)},
		"depth in YAML":             {"application/yaml", "a: " + strings.Repeat("[", 100_000)},
		"more than three megabytes": {"application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"` + strings.Repeat("x", 4<<20) + `"}}`},
		"not a number":              {"application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generation":NaN}}`},
		"a number without end":      {"application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generation":1e999}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var code int
			client.Post().AbsPath("/api/v1/namespaces/work/configmaps").SetHeader("Content-Type", c.kind).Body([]byte(c.body)).
				Do(within(t)).StatusCode(&code)
			if code != http.StatusBadRequest && code != http.StatusRequestEntityTooLarge {
				t.Errorf("status of the create = %d, want 400 or 413", code)
			}
		})
	}
}

func TestC12ContinueTokenOfAnotherListIsRejected(t *testing.T) {
	h := start(t)
	root := h.typed(t, admin)
	namespace(t, root, "work")
	namespace(t, root, "other")
	for i := range 3 {
		mustCreate(t, root, configMap(fmt.Sprintf("c%d", i), nil))
	}
	page, err := root.CoreV1().ConfigMaps("work").List(within(t), metav1.ListOptions{Limit: 1})
	if err != nil || page.Continue == "" {
		t.Fatalf("list with limit 1: error = %v, continue token %q, want no error and a token", err, page.Continue)
	}
	if leak, err := root.CoreV1().ConfigMaps("other").List(within(t), metav1.ListOptions{Limit: 1, Continue: page.Continue}); err == nil && len(leak.Items) > 0 {
		t.Errorf("a continue token of the namespace work returned %s/%s from the namespace other, want no object", leak.Items[0].Namespace, leak.Items[0].Name)
	}
	raw, err := base64.RawURLEncoding.DecodeString(page.Continue)
	if err != nil {
		t.Fatal(err)
	}
	var token map[string]any
	if err := json.Unmarshal(raw, &token); err != nil {
		t.Fatal(err)
	}
	token["start"] = "../other/c0\x00"
	forged, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"forged": base64.RawURLEncoding.EncodeToString(forged), "nonsense": "%%%"} {
		if _, err := root.CoreV1().ConfigMaps("work").List(within(t), metav1.ListOptions{Limit: 1, Continue: text}); codeOf(err) != http.StatusBadRequest {
			t.Errorf("list with a %s continue token: error = %v, want 400", name, err)
		}
	}
}

func TestC15WritesToDeletedObjectsAreRejected(t *testing.T) {
	h := start(t)
	root := h.typed(t, admin)
	namespace(t, root, "work")
	first := mustCreate(t, root, configMap("again", nil))
	maps := root.CoreV1().ConfigMaps("work")
	if err := maps.Delete(within(t), "again", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Update(within(t), first, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.Errorf("update of a deleted object: error = %v, want NotFound or Conflict", err)
	}
	mustCreate(t, root, configMap("again", nil))
	if _, err := maps.Update(within(t), first, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update with the UID of the deleted object: error = %v, want Conflict", err)
	}
	if err := maps.Delete(within(t), "again", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(first.UID))}); !apierrors.IsConflict(err) {
		t.Errorf("delete with the UID of the deleted object: error = %v, want Conflict", err)
	}
}
