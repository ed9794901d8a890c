package frontdoor_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico.dev/pkg/frontdoor"
)

// Box is a kind that only the program defines.
type Box struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BoxSpec `json:"spec,omitempty"`
}

type BoxSpec struct {
	Size   int32    `json:"size"`
	Labels []string `json:"labels,omitempty"`
}

type BoxList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Box `json:"items"`
}

func (b *Box) DeepCopyObject() runtime.Object {
	c := *b
	b.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Labels = append([]string(nil), b.Spec.Labels...)
	return &c
}

func (l *BoxList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Box))
	}
	return &c
}

const ofTest = "portico.dev/pkg/frontdoor_test."

// definitions has the form of openapi-gen's output.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	object := func(properties map[string]spec.Schema, dependencies ...string) common.OpenAPIDefinition {
		return common.OpenAPIDefinition{
			Schema:       spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: properties}},
			Dependencies: dependencies,
		}
	}
	of := func(kind string) spec.Schema { return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{kind}}} }
	to := func(name string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Default: map[string]any{}, Ref: ref(name)}}
	}
	boxes := to(ofTest + "Box")
	words := of("string")
	return map[string]common.OpenAPIDefinition{
		ofTest + "Box": object(map[string]spec.Schema{
			"kind": of("string"), "apiVersion": of("string"), "metadata": to(metav1.ObjectMeta{}.OpenAPIModelName()), "spec": to(ofTest + "BoxSpec"),
		}, metav1.ObjectMeta{}.OpenAPIModelName(), ofTest+"BoxSpec"),
		ofTest + "BoxSpec": object(map[string]spec.Schema{"size": of("integer"), "labels": {
			VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-kubernetes-list-type": "set"}},
			SchemaProps:      spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &words}},
		}}),
		ofTest + "BoxList": object(map[string]spec.Schema{
			"kind": of("string"), "apiVersion": of("string"), "metadata": to(metav1.ListMeta{}.OpenAPIModelName()),
			"items": {SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &boxes}}},
		}, metav1.ListMeta{}.OpenAPIModelName(), ofTest+"Box"),
	}
}

var boxes = schema.GroupVersionResource{Group: "storage.example.com", Version: "v1", Resource: "boxes"}

func boxGroup() frontdoor.Group {
	return frontdoor.Group{
		Version: boxes.GroupVersion(), Priority: 1000,
		AddToScheme: func(s *runtime.Scheme) error {
			s.AddKnownTypes(boxes.GroupVersion(), &Box{}, &BoxList{})
			metav1.AddToGroupVersion(s, boxes.GroupVersion())
			return nil
		},
		Resources: []frontdoor.Resource{{
			Name: "boxes", Singular: "box", ShortNames: []string{"bx"}, Object: &Box{}, List: &BoxList{}, WatchCache: true, Generations: true,
			Spec: frontdoor.SpecOf(func(b *Box) *BoxSpec { return &b.Spec }),
			Rules: frontdoor.ValidateAlways(func(b *Box) field.ErrorList {
				if b.Spec.Size <= 0 {
					return field.ErrorList{field.Invalid(field.NewPath("spec", "size"), b.Spec.Size, "must be greater than 0")}
				}
				return nil
			}),
			Columns: func() frontdoor.Printer {
				return frontdoor.Columns(func(b *Box, now time.Time) []any {
					return []any{b.Name, strings.Repeat("#", int(b.Spec.Size)), frontdoor.Age(b, now)}
				}, frontdoor.NameColumn(), frontdoor.TextColumn("Size", "How large it is."), frontdoor.AgeColumn())
			},
		}},
	}
}

func TestProgramDefinedKindIsServed(t *testing.T) {
	t.Parallel()
	front := start(t, frontdoor.Config{Groups: []frontdoor.Group{boxGroup()}, Definitions: definitions, ServedGroups: []string{""}})
	config, err := front.RESTConfig("admin", masters)
	must(t, err)
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	ctx := context.WithoutCancel(t.Context())
	in := client.Resource(boxes).Namespace("default")
	apply := func(manager string, size int64, labels ...any) error {
		_, err := in.Apply(ctx, "b", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "storage.example.com/v1", "kind": "Box", "metadata": map[string]any{"name": "b"},
			"spec": map[string]any{"size": size, "labels": labels},
		}}, metav1.ApplyOptions{FieldManager: manager, Force: true})
		return err
	}
	must(t, apply("one", 3, "a"))
	must(t, apply("two", 3, "b"))
	got, err := in.Get(ctx, "b", metav1.GetOptions{})
	must(t, err)
	if labels, _, _ := unstructured.NestedStringSlice(got.Object, "spec", "labels"); len(labels) != 2 {
		t.Errorf("labels after two managers applied them = %v, want 2", labels)
	}
	if err := apply("one", -1); err == nil || !strings.Contains(err.Error(), "must be greater than 0") {
		t.Errorf("apply of an invalid object: error = %v, want an error that contains \"must be greater than 0\"", err)
	}
	for path, want := range map[string]string{
		"/apis/storage.example.com/v1":            `"shortNames":["bx"]`,
		"/openapi/v3/apis/storage.example.com/v1": `"x-kubernetes-group-version-kind":[{"group":"storage.example.com","kind":"Box","version":"v1"}]`,
		"/openapi/v2": `/apis/storage.example.com/v1/namespaces/{namespace}/boxes`,
	} {
		if code, body := get(t, config, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET %s = %d, want 200 and a body that contains %s; body: %.2000s", path, code, want, body)
		}
	}
	must(t, in.Delete(ctx, "b", metav1.DeleteOptions{}))
}
