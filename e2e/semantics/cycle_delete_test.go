package semantics

import (
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// finalizer keeps a deleted object until the finalizer is removed. No finalizer can be added after the deletion.
func finalizer(t *testing.T, k kind) {
	o := k.create(t, "finalized", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/wait"}) })
	call(t, http.MethodDelete, k.path(o), nil).want(http.StatusOK)
	kept := k.get(t, o)
	if kept.GetDeletionTimestamp() == nil || kept.GetDeletionGracePeriodSeconds() == nil && !k.lingers {
		t.Errorf("metadata after the deletion = %v, want a deletion timestamp and a grace period", kept.Object["metadata"])
	}
	call(t, http.MethodDelete, k.path(o), nil).want(http.StatusOK, http.StatusConflict) // of a namespace, once it is terminating
	if k.get(t, o).GetDeletionTimestamp().Unix() != kept.GetDeletionTimestamp().Unix() {
		t.Errorf("a second deletion changed the deletion timestamp, want %v", kept.GetDeletionTimestamp())
	}
	more := []byte(`{"metadata":{"finalizers":["example.com/wait","example.com/more"]}}`)
	call(t, http.MethodPatch, k.path(o), more, "Content-Type", mergePatch).refused(http.StatusUnprocessableEntity, "Invalid")
	call(t, http.MethodPatch, k.path(o), []byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`), "Content-Type", jsonPatch).want(http.StatusOK)
	k.gone(t, o)
}

// deleteWithPreconditions deletes only the object with the UID, not another one of that name.
func deleteWithPreconditions(t *testing.T, k kind) {
	o := k.create(t, "deleted")
	del := func(options string) *answer { return call(t, http.MethodDelete, k.path(o), []byte(options)) }
	del(`{"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`).refused(http.StatusConflict, "Conflict")
	del(`{"preconditions":{"resourceVersion":"1"}}`).refused(http.StatusConflict, "Conflict")
	del(`{"propagationPolicy":"Sometimes"}`).refused(http.StatusUnprocessableEntity, "Invalid")
	del(`{"propagationPolicy":"Orphan","orphanDependents":true}`).refused(http.StatusUnprocessableEntity, "Invalid")
	del(`{"gracePeriodSeconds":0,"preconditions":{"uid":"` + string(o.GetUID()) + `"}}`).want(http.StatusOK)
	k.gone(t, o)
	del(`{}`).refused(http.StatusNotFound, "NotFound")
}

// deleteCollection deletes the selected objects.
func deleteCollection(t *testing.T, k kind) {
	if !slices.Contains(k.discovered.Verbs, "deletecollection") {
		call(t, http.MethodDelete, k.collection()+"?labelSelector=none", nil).refused(http.StatusMethodNotAllowed, "MethodNotAllowed")
		return
	}
	red, blue, other := k.create(t, "red", labelled("color", "red")), k.create(t, "blue", labelled("color", "blue")), k.create(t, "other", labelled("color", "red"))
	call(t, http.MethodDelete, k.collection()+query("labelSelector", "color", "fieldSelector", "metadata.name="+other.GetName()), nil).want(http.StatusOK)
	k.gone(t, other)
	call(t, http.MethodDelete, k.collection()+query("labelSelector", "color", "fieldSelector", "metadata.nobody=a"), nil).refused(http.StatusBadRequest, "BadRequest")
	call(t, http.MethodDelete, k.collection()+query("labelSelector", "color=red"), nil).want(http.StatusOK)
	k.gone(t, red)
	if k.get(t, blue).GetDeletionTimestamp() != nil {
		t.Error("an object outside the selection was deleted, want it kept")
	}
}
