package thirdparty

import (
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func matches(pattern, s string) bool { return regexp.MustCompile(pattern).MatchString(s) }

// expect runs kubectl, and fails unless its output matches.
func expect(t *testing.T, d *frontDoor, pattern string, args ...string) {
	t.Helper()
	out, err := d.kubectl("", args...)
	if err != nil {
		t.Fatal(err)
	}
	if !matches(pattern, out) {
		t.Fatalf("output of kubectl %q =\n%s\nwant a match of %s", args, out, pattern)
	}
}

func sampleCycle(t *testing.T, d *frontDoor) {
	ctx, client := t.Context(), d.dynamic.Resource(flunders).Namespace("default")
	cycle := map[string]string{"in": "the-cycle"}
	for i := range 5 {
		if _, err := client.Create(ctx, flunder(fmt.Sprintf("cycle-%d", i), cycle), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen, options := 0, metav1.ListOptions{LabelSelector: "in=the-cycle", Limit: 2}
	for {
		page, err := client.List(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(page.Items)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
	}
	if seen != 5 {
		t.Errorf("pages of two add up to %d, want 5", seen)
	}

	u, err := client.Get(ctx, "cycle-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := u.DeepCopy()
	u.SetAnnotations(map[string]string{"step": "update"})
	if _, err := client.Update(ctx, u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of what is past: %v, want 409", err)
	}
	if _, err := client.Patch(ctx, "cycle-0", types.MergePatchType, []byte(`{"metadata":{"annotations":{"merge":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	u, err = client.Patch(ctx, "cycle-0", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/annotations/merge","value":"yes"},{"op":"add","path":"/metadata/annotations/json","value":"yes"}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := u.GetAnnotations(); len(got) != 3 {
		t.Errorf("annotations after the patches = %v, want 3", got)
	}
	if err := client.Delete(ctx, "cycle-0", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("another"))}}); !apierrors.IsConflict(err) {
		t.Errorf("a deletion of another one: %v, want 409", err)
	}
	if err := client.Delete(ctx, "cycle-0", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "in=the-cycle"}); err != nil {
		t.Error(err)
	}
	if left, err := client.List(ctx, metav1.ListOptions{LabelSelector: "in=the-cycle"}); err != nil || len(left.Items) != 0 {
		t.Errorf("objects after the deletion of the collection = %v, %v; want none", left, err)
	}
}

func sampleApplies(t *testing.T, d *frontDoor) {
	ctx, client := t.Context(), d.dynamic.Resource(flunders).Namespace("default")
	applied := func(who, value string, force bool) (*unstructured.Unstructured, error) {
		u := flunder("applied", nil)
		u.Object["spec"] = map[string]any{"reference": value, "referenceType": "Flunder"}
		return client.Apply(ctx, "applied", u, metav1.ApplyOptions{FieldManager: who, Force: force})
	}
	if _, err := applied("one", "a", false); err != nil {
		t.Fatal(err)
	}
	if _, err := applied("two", "b", false); !apierrors.IsConflict(err) {
		t.Errorf("the field of another: %v, want 409", err)
	}
	u, err := applied("two", "b", true)
	if err != nil {
		t.Fatal(err)
	}
	var managers []string
	for _, m := range u.GetManagedFields() {
		managers = append(managers, m.Manager+" "+string(m.Operation))
	}
	if got, _, _ := unstructured.NestedString(u.Object, "spec", "reference"); got != "b" || len(managers) == 0 {
		t.Errorf("spec after the apply = %v, managed by %v; want the reference b and a manager", u.Object["spec"], managers)
	}
}

const kubectlFlunder = `apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: by-kubectl, namespace: default, labels: {sample-label: %q}}
spec: {reference: %s, referenceType: Flunder}
`

func sampleByKubectl(t *testing.T, d *frontDoor) {
	apply := func(want, value string, args ...string) {
		t.Helper()
		out, err := d.kubectl(fmt.Sprintf(kubectlFlunder, "true", value), append(args, "-f", "-")...)
		if err != nil || !matches(want, out) {
			t.Fatalf("output of kubectl %q = %s, %v; want a match of %s", args, out, err, want)
		}
	}
	apply(`flunder.wardle.example.com/by-kubectl created`, "a", "apply")
	apply(`by-kubectl unchanged`, "a", "apply")
	if out, err := d.kubectl(fmt.Sprintf(kubectlFlunder, "true", "b"), "diff", "-f", "-"); err == nil || !matches(`\+  reference: b`, err.Error()) {
		t.Errorf("kubectl diff = %s, %v; want the changed reference", out, err) // it exits with 1 when there is a difference
	}
	apply(`by-kubectl configured`, "b", "apply")
	apply(`by-kubectl serverside-applied`, "b", "apply", "--server-side", "--field-manager=kubectl", "--force-conflicts")
	expect(t, d, `by-kubectl labeled`, "label", "flunder", "by-kubectl", "more=yes")
	expect(t, d, `(?m)^NAME +CREATED AT\s+by-kubectl +\d{4}-`, "get", "flunders", "-l", "more=yes")
	expect(t, d, `(?m)^b$`, "get", "flunders.v1alpha1.wardle.example.com", "by-kubectl", "-o", "jsonpath={.spec.reference}")
	expect(t, d, `"by-kubectl" deleted`, "delete", "flunder", "by-kubectl")
}

// sampleNamespaceGoes deletes a namespace with one object at the server.
func sampleNamespaceGoes(t *testing.T, d *frontDoor) {
	ctx, namespaces := t.Context(), d.typed.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "holder"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := d.dynamic.Resource(flunders).Namespace("holder")
	eventually(t, "the server knows the namespace", func() error { // its admission has an informer
		_, err := client.Create(ctx, flunder("kept", nil), metav1.CreateOptions{})
		return err
	})
	if err := namespaces.Delete(ctx, "holder", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace goes", func() error { return gone(namespaces.Get(ctx, "holder", metav1.GetOptions{})) })
	if err := gone(client.Get(ctx, "kept", metav1.GetOptions{})); err != nil {
		t.Error(err)
	}
}

func gone[T any](found T, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("it is there: %+v", found)
}
