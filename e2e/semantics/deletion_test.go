package semantics

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Dependents of a deleted object are deleted before it, after it, or not at all, by the propagation policy of the deletion.
func TestPropagation(t *testing.T) {
	s := configMaps(t, "propagated")
	family := func(name string) (child string) {
		owner := s.put(name)
		child = name + "-child"
		body := fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":true}]}}`,
			child, name, owner.GetUID())
		call(t, http.MethodPost, s.path, []byte(body)).want(http.StatusCreated)
		return child
	}
	there := func(name string) *unstructured.Unstructured {
		t.Helper()
		a := call(t, http.MethodGet, s.path+"/"+name, nil).want(http.StatusOK, http.StatusNotFound)
		if a.code == http.StatusNotFound {
			return nil
		}
		return a.object()
	}
	gone := func(name string) {
		t.Helper()
		eventually(t, func() error {
			if o := there(name); o != nil {
				return fmt.Errorf("there is %v", o.Object)
			}
			return nil
		})
	}
	t.Run("Background", func(t *testing.T) {
		child := family("background")
		call(t, http.MethodDelete, s.path+"/background?propagationPolicy=Background", nil).want(http.StatusOK)
		if there("background") != nil {
			t.Error("the owner exists after a background deletion, want it deleted first")
		}
		gone(child)
	})
	t.Run("Foreground", func(t *testing.T) {
		child := family("foreground")
		call(t, http.MethodPatch, s.path+"/"+child, []byte(`{"metadata":{"finalizers":["example.com/wait"]}}`), "Content-Type", mergePatch).want(http.StatusOK)
		call(t, http.MethodDelete, s.path+"/foreground", []byte(`{"propagationPolicy":"Foreground"}`)).want(http.StatusOK)
		eventually(t, func() error {
			if o := there(child); o == nil || o.GetDeletionTimestamp() == nil {
				return fmt.Errorf("the child is %v", o)
			}
			return nil
		})
		owner := there("foreground")
		if owner == nil || owner.GetDeletionTimestamp() == nil || len(owner.GetFinalizers()) != 1 || owner.GetFinalizers()[0] != "foregroundDeletion" {
			t.Errorf("owner during a foreground deletion = %v, want one with the finalizer foregroundDeletion", owner)
		}
		call(t, http.MethodPatch, s.path+"/"+child, []byte(`{"metadata":{"finalizers":null}}`), "Content-Type", mergePatch).want(http.StatusOK)
		gone(child)
		gone("foreground")
	})
	t.Run("Orphan", func(t *testing.T) {
		child := family("orphan")
		call(t, http.MethodDelete, s.path+"/orphan", []byte(`{"propagationPolicy":"Orphan"}`)).want(http.StatusOK)
		gone("orphan")
		if o := there(child); o == nil || len(o.GetOwnerReferences()) != 0 || o.GetDeletionTimestamp() != nil {
			t.Errorf("dependent after an orphaning deletion = %v, want one without owners", o)
		}
	})
	t.Run("orphanDependents", func(t *testing.T) { // the former name of the policy
		child := family("old")
		call(t, http.MethodDelete, s.path+"/old", []byte(`{"orphanDependents":true}`)).want(http.StatusOK)
		gone("old")
		if o := there(child); o == nil || len(o.GetOwnerReferences()) != 0 {
			t.Errorf("dependent after a deletion with orphanDependents = %v, want one without owners", o)
		}
	})
}

// A pod on a node has its grace: the first deletion begins it, a shorter one shortens it, and the last is the kubelet's.
func TestGrace(t *testing.T) {
	configMaps(t, "graceful")
	pods := "/api/v1/namespaces/graceful/pods"
	body := `{"metadata":{"name":"a"},"spec":{"nodeName":"n","terminationGracePeriodSeconds":60,"containers":[{"name":"a","image":"a"}]}}`
	call(t, http.MethodPost, pods, []byte(body)).want(http.StatusCreated)
	left := func(want int64) time.Time {
		t.Helper()
		pod := call(t, http.MethodGet, pods+"/a", nil).want(http.StatusOK).object()
		if got := pod.GetDeletionGracePeriodSeconds(); got == nil || *got != want || pod.GetDeletionTimestamp() == nil {
			t.Fatalf("the grace is %v, want %d: %v", got, want, pod.Object["metadata"])
		}
		return pod.GetDeletionTimestamp().Time
	}
	call(t, http.MethodDelete, pods+"/a", nil).want(http.StatusOK)
	first := left(60)
	call(t, http.MethodDelete, pods+"/a?gracePeriodSeconds=90", nil).want(http.StatusOK)
	if left(60) != first {
		t.Errorf("a second deletion with a grace period of 90 s changed the deletion time, want %v", first)
	}
	call(t, http.MethodDelete, pods+"/a", []byte(`{"gracePeriodSeconds":10}`)).want(http.StatusOK)
	if !left(10).Before(first) {
		t.Errorf("a second deletion with a grace period of 10 s did not shorten it, want a deletion time before %v", first)
	}
	call(t, http.MethodDelete, pods+"/a", []byte(`{"gracePeriodSeconds":-1}`)).want(http.StatusOK, http.StatusUnprocessableEntity)
	call(t, http.MethodDelete, pods+"/a?gracePeriodSeconds=0", nil).want(http.StatusOK)
	call(t, http.MethodGet, pods+"/a", nil).want(http.StatusNotFound)
}
