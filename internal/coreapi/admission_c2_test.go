package coreapi

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The object that admission admits is the object that is stored, for every verb and subresource. The old object of the
// review is the object that was stored before (CVE-2021-25735).
func TestC2AdmittedObjectEqualsStoredObject(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	h.define(t, boats)
	h.put(t, hook(validating, "look", fmt.Sprintf(byURL, "/look")))
	h.submit(t, "look", func(made *corev1.ConfigMap, err error) bool {
		return err == nil && len(h.webhookServer.requests(made.Name)) > 0
	})
	for resource, manifest := range map[schema.GroupVersionResource]string{
		boatsV1: `{"apiVersion":"sea.example.com/v1","kind":"Boat","metadata":{"name":"ada","labels":{"topic":"look"}},"spec":{"crew":3,"replicas":1,"dropped":true}}`,
		corev1.SchemeGroupVersion.WithResource("pods"): `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"ada","labels":{"topic":"look"}},"spec":{"containers":[{"name":"a","image":"a"}]}}`,
	} {
		objects := h.dynamic.Resource(resource).Namespace("ns")
		write := func(name string, do func(context.Context) error) {
			t.Run(resource.Resource+" "+name, func(t *testing.T) {
				ctx := within(t)
				before, _ := objects.Get(ctx, "ada", metav1.GetOptions{}) // nil before the object is created
				if err := do(ctx); err != nil {
					t.Fatal(err)
				}
				after, err := objects.Get(ctx, "ada", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				all := h.webhookServer.requests("ada")
				last := all[len(all)-1]
				if last.Resource.Resource != resource.Resource {
					t.Fatalf("resource of the last review = %s, want %s", last.Resource, resource.Resource)
				}
				if diff := cmp.Diff(asStored(after), read(t, last.Object)); diff != "" {
					t.Errorf("the stored object differs from the object of the review, want no difference: %s", diff)
				}
				if diff := cmp.Diff(asStored(before), read(t, last.OldObject)); diff != "" {
					t.Errorf("the old object of the review differs from the object before the write, want no difference: %s", diff)
				}
			})
		}
		patch := func(kind types.PatchType, text string, subresource ...string) func(context.Context) error {
			return func(ctx context.Context) error {
				o := metav1.PatchOptions{}
				if kind == types.ApplyPatchType {
					o.FieldManager = "somebody"
				}
				_, err := objects.Patch(ctx, "ada", kind, []byte(text), o, subresource...)
				return err
			}
		}
		write("create", func(ctx context.Context) error {
			obj := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(manifest), &obj.Object); err != nil {
				return err
			}
			_, err := objects.Create(ctx, obj, metav1.CreateOptions{})
			return err
		})
		write("update", func(ctx context.Context) error {
			obj, err := objects.Get(ctx, "ada", metav1.GetOptions{})
			if err != nil {
				return err
			}
			obj.SetAnnotations(map[string]string{"by": "update"})
			_, err = objects.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		})
		write("merge patch", patch(types.MergePatchType, `{"metadata":{"annotations":{"by":"merge"},"generation":99},"status":{"phase":"Failed","afloat":true}}`))
		write("JSON patch", patch(types.JSONPatchType, `[{"op":"replace","path":"/metadata/annotations/by","value":"json"}]`))
		write("apply", patch(types.ApplyPatchType, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"annotations":{"applied":"yes"}}}`,
			resource.GroupVersion(), map[string]string{"boats": "Boat", "pods": "Pod"}[resource.Resource])))
		write("status", patch(types.MergePatchType, `{"metadata":{"annotations":{"by":"status"}},"status":{"phase":"Running","afloat":true},"spec":{"crew":9}}`, "status"))
	}
}

// asStored removes the version, because an object gets its version when it is stored.
func asStored(obj *unstructured.Unstructured) map[string]any {
	if obj == nil {
		return nil
	}
	unstructured.RemoveNestedField(obj.Object, "metadata", "resourceVersion")
	return obj.Object
}

func read(t *testing.T, raw runtime.RawExtension) map[string]any {
	t.Helper()
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw.Raw); err != nil {
		t.Fatal(err)
	}
	return asStored(obj)
}
