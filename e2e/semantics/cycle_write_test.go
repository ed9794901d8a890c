package semantics

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// update replaces an object, and only the one that was read.
func update(t *testing.T, k kind) {
	created := k.create(t, "updated")
	var updated *unstructured.Unstructured
	eventually(t, func() error { // controllers write to some kinds too
		next := k.get(t, created)
		next.SetAnnotations(map[string]string{"n": "1"})
		a := call(t, http.MethodPut, k.path(created), encode(t, next))
		if a.code == http.StatusConflict {
			return fmt.Errorf("%s", a.head())
		}
		updated = a.want(http.StatusOK).object()
		return nil
	})
	if version(t, updated) <= version(t, created) || updated.GetUID() != created.GetUID() || updated.GetAnnotations()["n"] != "1" {
		t.Errorf("metadata after the update = %v, want a later version, the UID and the annotation", updated.Object["metadata"])
	}
	stale := updated.DeepCopy()
	stale.SetResourceVersion(created.GetResourceVersion())
	stale.SetAnnotations(map[string]string{"n": "2"})
	call(t, http.MethodPut, k.path(created), encode(t, stale)).refused(http.StatusConflict, "Conflict")

	foreign := k.get(t, created)
	foreign.SetUID("00000000-0000-0000-0000-000000000000")
	call(t, http.MethodPut, k.path(created), encode(t, foreign)).refused(http.StatusConflict, "Conflict")

	renamed := k.get(t, created)
	renamed.SetName("other")
	call(t, http.MethodPut, k.path(created), encode(t, renamed)).refused(http.StatusBadRequest, "BadRequest")

	eventually(t, func() error { // an update without a change writes nothing
		same := k.get(t, created)
		a := call(t, http.MethodPut, k.path(created), encode(t, same))
		if a.code == http.StatusConflict || a.want(http.StatusOK).object().GetResourceVersion() != same.GetResourceVersion() {
			return fmt.Errorf("version %s became %s", same.GetResourceVersion(), a.head())
		}
		return nil
	})
	bad := k.object(t, "updated")
	bad.SetAPIVersion("wrong.example.com/v1")
	call(t, http.MethodPost, k.collection(), encode(t, bad)).refused(http.StatusBadRequest, "BadRequest")
}

// dryRun returns the result of a write without writing.
func dryRun(t *testing.T, k kind) {
	const dry = "?dryRun=All"
	ghost := k.object(t, "ghost")
	made := call(t, http.MethodPost, k.collection()+dry, encode(t, ghost)).want(http.StatusCreated).object()
	if made.GetUID() == "" || made.GetResourceVersion() != "" {
		t.Errorf("dry-run Create returned the UID %q and the version %q, want a UID and no version", made.GetUID(), made.GetResourceVersion())
	}
	call(t, http.MethodGet, k.path(ghost), nil).want(http.StatusNotFound)
	call(t, http.MethodPost, k.collection()+"?dryRun=Some", encode(t, ghost)).refused(http.StatusUnprocessableEntity, "Invalid")

	body := k.create(t, "body", labelled("dry", "run"))
	changed := []byte(`{"apiVersion":"` + k.groupVersion + `","kind":"` + body.GetKind() + `","metadata":{"annotations":{"dry":"yes"}}}`)
	for _, media := range []string{mergePatch, applyPatch} {
		a := call(t, http.MethodPatch, k.path(body)+dry+"&fieldManager=dry", changed, "Content-Type", media).want(http.StatusOK)
		if a.object().GetAnnotations()["dry"] != "yes" {
			t.Errorf("dry-run patch with %s = %s, want the annotation", media, a.head())
		}
	}
	eventually(t, func() error {
		next := k.get(t, body)
		next.SetAnnotations(map[string]string{"dry": "yes"})
		if a := call(t, http.MethodPut, k.path(body)+dry, encode(t, next)); a.code != http.StatusConflict {
			a.want(http.StatusOK)
			return nil
		}
		return fmt.Errorf("always a conflict")
	})
	call(t, http.MethodDelete, k.path(body)+dry, nil).want(http.StatusOK)
	call(t, http.MethodDelete, k.path(body), []byte(`{"dryRun":["All"]}`)).want(http.StatusOK)
	if slices.Contains(k.discovered.Verbs, "deletecollection") {
		call(t, http.MethodDelete, k.collection()+dry+"&labelSelector=dry", nil).want(http.StatusOK)
	}
	left := k.get(t, body)
	if left.GetUID() != body.GetUID() || left.GetDeletionTimestamp() != nil || left.GetAnnotations()["dry"] != "" {
		t.Errorf("metadata after dry runs = %v, want no change", left.Object["metadata"])
	}
}

// unknownFields are dropped, with a warning, or refused, by the parameter of the request.
func unknownFields(t *testing.T, k kind) {
	o := k.object(t, "unknown")
	o.Object["nobodyKnows"] = "this"
	body := encode(t, o)
	doubled := []byte(`{"kind":"` + o.GetKind() + `",` + string(encode(t, k.object(t, "unknown")))[1:])
	post := func(body []byte, validation string) *answer {
		return call(t, http.MethodPost, k.collection()+query("dryRun", "All", "fieldValidation", validation), body)
	}
	post(body, "Strict").says(`unknown field \"nobodyKnows\"`).refused(http.StatusBadRequest, "BadRequest")
	post(doubled, "Strict").says(`duplicate field \"kind\"`).refused(http.StatusBadRequest, "BadRequest")
	for _, validation := range []string{"Warn", ""} { // Warn is the default
		warnings := strings.Join(post(body, validation).want(http.StatusCreated).header.Values("Warning"), "\n")
		if !strings.Contains(warnings, `299 - "unknown field \"nobodyKnows\""`) {
			t.Errorf("warnings with the validation %q = %q, want the unknown field", validation, warnings)
		}
		warnings = strings.Join(post(doubled, validation).want(http.StatusCreated).header.Values("Warning"), "\n")
		if !strings.Contains(warnings, `duplicate field`) {
			t.Errorf("warnings with the validation %q = %q, want the duplicate field", validation, warnings)
		}
	}
	ignored := post(body, "Ignore").want(http.StatusCreated)
	if warnings := strings.Join(ignored.header.Values("Warning"), "\n"); strings.Contains(warnings, "nobodyKnows") {
		t.Errorf("warnings with the validation Ignore = %q, want none of the field", warnings)
	}
	if _, kept := ignored.object().Object["nobodyKnows"]; kept {
		t.Error("the unknown field was stored, want it dropped")
	}
	post(body, "Perhaps").refused(http.StatusUnprocessableEntity, "Invalid")
}

// patch changes an object by all the languages there are.
func patch(t *testing.T, k kind) {
	o := k.create(t, "patched", labelled("a", "b")) // a manager without fields at the creation is not tracked
	do := func(media, body string) *answer {
		return call(t, http.MethodPatch, k.path(o)+"?fieldManager=patcher", []byte(body), "Content-Type", media)
	}
	do(mergePatch, `{"metadata":{"annotations":{"merge":"yes","gone":"soon"}}}`).want(http.StatusOK)
	do(jsonPatch, `[{"op":"test","path":"/metadata/annotations/gone","value":"soon"},
		{"op":"remove","path":"/metadata/annotations/gone"},{"op":"add","path":"/metadata/annotations/json","value":"yes"}]`).want(http.StatusOK)
	do(jsonPatch, `[{"op":"test","path":"/metadata/annotations/json","value":"no"}]`).want(http.StatusUnprocessableEntity)
	do(jsonPatch, `{}`).want(http.StatusBadRequest)
	strategic := do(strategicPatch, `{"metadata":{"annotations":{"strategic":"yes"},"finalizers":["example.com/a"],"$setElementOrder/finalizers":["example.com/a"]}}`)
	if k.custom() {
		strategic.refused(http.StatusUnsupportedMediaType, "UnsupportedMediaType")
	} else {
		strategic.want(http.StatusOK)
		do(strategicPatch, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/a"]}}`).want(http.StatusOK)
	}
	do("application/nonsense", `{}`).refused(http.StatusUnsupportedMediaType, "UnsupportedMediaType")
	do(mergePatch, `{"metadata":{"resourceVersion":"1","annotations":{"merge":"no"}}}`).refused(http.StatusConflict, "Conflict")
	do(mergePatch, `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`).refused(http.StatusUnprocessableEntity, "Invalid")

	got := k.get(t, o)
	annotations := got.GetAnnotations()
	if annotations["merge"] != "yes" || annotations["json"] != "yes" || annotations["gone"] != "" || (annotations["strategic"] == "yes") == k.custom() {
		t.Errorf("annotations after the patches = %v, want merge, json and, for built-in kinds, strategic", annotations)
	}
	if slices.Contains(got.GetFinalizers(), "example.com/a") {
		t.Errorf("finalizers after the patches = %v, want example.com/a removed", got.GetFinalizers())
	}
	if !slices.ContainsFunc(got.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "patcher" && f.Operation == "Update" }) {
		t.Errorf("managed fields after the patches = %v, want an entry of patcher", got.GetManagedFields())
	}
	call(t, http.MethodPatch, k.collection()+"/missing", []byte(`{}`), "Content-Type", mergePatch).refused(http.StatusNotFound, "NotFound")
}

// apply shares an object among managers, which get a conflict if they disagree.
func apply(t *testing.T, k kind) {
	do := func(o *unstructured.Unstructured, manager, more string) *answer {
		return call(t, http.MethodPatch, k.path(o)+"?fieldManager="+manager+more, encode(t, o), "Content-Type", applyPatch)
	}
	o := k.object(t, "applied")
	o.SetAnnotations(map[string]string{"shared": "one", "own": "one"})
	do(o, "", "").want(http.StatusUnprocessableEntity)
	created := do(o, "one", "").want(http.StatusCreated).object()
	t.Cleanup(func() { call(t, http.MethodDelete, k.path(o), nil).want(http.StatusOK) })
	if again := do(o, "one", "").want(http.StatusOK).object(); again.GetUID() != created.GetUID() {
		t.Error("second apply created another object, want the same UID")
	}
	other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.groupVersion, "kind": o.GetKind()}}
	other.SetName(o.GetName())
	other.SetAnnotations(map[string]string{"shared": "two"})
	conflict := do(other, "two", "").refused(http.StatusConflict, "Conflict")
	if conflict.Details == nil || len(conflict.Details.Causes) != 1 || conflict.Details.Causes[0].Type != "FieldManagerConflict" ||
		conflict.Details.Causes[0].Field != ".metadata.annotations.shared" || !strings.Contains(conflict.Details.Causes[0].Message, `"one"`) {
		t.Errorf("details of the conflict = %+v, want the annotation shared and the manager one", conflict.Details)
	}
	forced := do(other, "two", "&force=true").want(http.StatusOK).object()
	if a := forced.GetAnnotations(); a["shared"] != "two" || a["own"] != "one" {
		t.Errorf("annotations after the forced apply = %v, want two and one", a)
	}
	for _, f := range forced.GetManagedFields() {
		owns := strings.Contains(string(f.FieldsV1.GetRawBytes()), `"f:shared"`)
		if f.Operation == "Apply" && owns != (f.Manager == "two") {
			t.Errorf("fields of %s after the forced apply = %s, want the annotation shared only at two", f.Manager, f.FieldsV1.GetRawBytes())
		}
	}
	// A field that its only manager does not apply any more is removed.
	o.SetAnnotations(nil)
	if a := do(o, "one", "").want(http.StatusOK).object().GetAnnotations(); a["own"] != "" || a["shared"] != "two" {
		t.Errorf("annotations after they were removed from the apply = %v, want only shared", a)
	}
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "me"}})
	do(o, "one", "").refused(http.StatusBadRequest, "BadRequest")
}
