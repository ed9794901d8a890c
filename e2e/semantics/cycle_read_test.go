package semantics

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// version reads a resourceVersion, which clients may compare as a decimal number.
func version(t *testing.T, o interface{ GetResourceVersion() string }) uint64 {
	t.Helper()
	text := o.GetResourceVersion()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		t.Fatalf("resourceVersion = %q, want a decimal number", text)
	}
	return n
}

func createAndRead(t *testing.T, k kind) {
	created := k.create(t, "created", labelled("a", "b")) // a request without fields has no manager
	version(t, created)
	if at := created.GetCreationTimestamp(); created.GetUID() == "" || at.IsZero() {
		t.Errorf("metadata of the created object = %v, want a UID and a time", created.Object["metadata"])
	}
	if created.GetKind() != k.discovered.ResponseKind.Kind || created.GetAPIVersion() != k.groupVersion {
		t.Errorf("type of the created object = %s %s, want the requested one", created.GetAPIVersion(), created.GetKind())
	}
	if managers := created.GetManagedFields(); len(managers) != 1 || managers[0].Manager != "creator" ||
		managers[0].Operation != "Update" || managers[0].APIVersion != k.groupVersion {
		t.Errorf("managed fields = %+v, want one entry of creator", managers)
	}
	again := call(t, http.MethodPost, k.collection(), encode(t, k.object(t, "created"))).refused(http.StatusConflict, "AlreadyExists")
	if again.Details == nil || again.Details.Name != created.GetName() {
		t.Errorf("details of AlreadyExists = %+v, want the name", again.Details)
	}
	// The read at a version waits until the watch cache has it. A read with resourceVersion=0 does not wait, so it is the last.
	for _, at := range []string{"", "?resourceVersion=" + created.GetResourceVersion(), "?resourceVersion=0"} {
		got := call(t, http.MethodGet, k.path(created)+at, nil).want(http.StatusOK).object()
		if got.GetUID() != created.GetUID() && at != "?resourceVersion=0" || got.GetKind() != created.GetKind() {
			t.Errorf("GET with %q = %s %s, want the created object", at, got.GetKind(), got.GetUID())
		}
	}
	missing := call(t, http.MethodGet, k.collection()+"/missing", nil).refused(http.StatusNotFound, "NotFound")
	if missing.Details == nil || missing.Details.Kind != k.discovered.Resource || missing.Details.Name != "missing" {
		t.Errorf("details of NotFound = %+v, want the resource and the name", missing.Details)
	}
}

func generateName(t *testing.T, k kind) {
	if k.rename != nil {
		return
	}
	made := k.object(t, "generated")
	made.SetName("")
	made.SetGenerateName("generated-")
	created := call(t, http.MethodPost, k.collection(), encode(t, made)).want(http.StatusCreated).object()
	if name := created.GetName(); !strings.HasPrefix(name, "generated-") || name == "generated-" {
		t.Errorf("generated name = %q, want generated- with a suffix", name)
	}
	call(t, http.MethodDelete, k.path(created), nil).want(http.StatusOK)
	if k.namesItself {
		return
	}
	made.SetGenerateName("")
	call(t, http.MethodPost, k.collection(), encode(t, made)).refused(http.StatusUnprocessableEntity, "Invalid")
}

func listAndSelect(t *testing.T, k kind) {
	one := k.create(t, "listed-one", labelled("listed", "one"))
	k.create(t, "listed-two", labelled("listed", "two"))
	names := func(pairs ...string) string {
		t.Helper()
		var list unstructured.UnstructuredList
		a := call(t, http.MethodGet, k.collection()+query(pairs...), nil).want(http.StatusOK)
		if err := list.UnmarshalJSON(a.body); err != nil {
			t.Fatal(err)
		}
		if list.GetKind() != k.discovered.ResponseKind.Kind+"List" || list.GetAPIVersion() != k.groupVersion {
			t.Errorf("type of the list = %s %s, want the kind's list", list.GetAPIVersion(), list.GetKind())
		}
		version(t, &list)
		var found []string
		for _, item := range list.Items {
			found = append(found, item.GetLabels()["listed"])
		}
		return strings.Join(found, " ")
	}
	for _, c := range []struct{ selector, want string }{
		{"listed", "one two"},
		{"listed=two", "two"},
		{"listed,listed!=two", "one"},
		{"listed in (one, two),listed notin (two)", "one"},
		{"listed,!listed", ""},
	} {
		if got := names("labelSelector", c.selector); got != c.want {
			t.Errorf("labels %q select %q, want %q", c.selector, got, c.want)
		}
	}
	if got := names("fieldSelector", "metadata.name="+one.GetName()); got != "one" {
		t.Errorf("objects with the field selector of the name = %q, want one", got)
	}
	if got := names("fieldSelector", "metadata.name!="+one.GetName(), "labelSelector", "listed"); got != "two" {
		t.Errorf("objects without that name = %q, want two", got)
	}
	if k.namespace != "" {
		if got := names("fieldSelector", "metadata.namespace="+k.namespace, "labelSelector", "listed"); got != "one two" {
			t.Errorf("objects with the field selector of the namespace = %q, want one and two", got)
		}
		if got := names("fieldSelector", "metadata.namespace=other", "labelSelector", "listed"); got != "" {
			t.Errorf("objects with the field selector of another namespace = %q, want none", got)
		}
	}
	call(t, http.MethodGet, k.collection()+query("fieldSelector", "spec.nobody=a"), nil).refused(http.StatusBadRequest, "BadRequest")
	call(t, http.MethodGet, k.collection()+query("labelSelector", "a b"), nil).refused(http.StatusBadRequest, "BadRequest")
	if page := call(t, http.MethodGet, k.collection()+query("limit", "1", "labelSelector", "listed"), nil).want(http.StatusOK); true {
		var list unstructured.UnstructuredList
		if err := list.UnmarshalJSON(page.body); err != nil || len(list.Items) != 1 || list.GetContinue() == "" {
			t.Fatalf("first page: %v, %d items, continue %q; want 1 item and a token", err, len(list.Items), list.GetContinue())
		}
		if got := names("limit", "5", "labelSelector", "listed", "continue", list.GetContinue()); got != "two" {
			t.Errorf("second page = %q, want two", got)
		}
	}
}

func labelled(key, value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{key: value}) }
}

// watchFromAVersion sees the life of one object, from before it was there.
func watchFromAVersion(t *testing.T, k kind) {
	o := k.object(t, "watched")
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(call(t, http.MethodGet, k.collection()+"?limit=1", nil).want(http.StatusOK).body); err != nil {
		t.Fatal(err)
	}
	w := openWatch(t, k.collection()+query("watch", "true", "resourceVersion", list.GetResourceVersion(), "fieldSelector", "metadata.name="+o.GetName()))
	created := k.create(t, "watched")
	annotated := call(t, http.MethodPatch, k.path(created), []byte(`{"metadata":{"annotations":{"seen":"yes"}}}`), "Content-Type", mergePatch).
		want(http.StatusOK).object()
	call(t, http.MethodDelete, k.path(created), nil).want(http.StatusOK)
	before, sawChange := version(t, &list), false
	for n := 0; ; n++ {
		e := w.next()
		at := version(t, &e.Object)
		if e.Object.GetUID() != created.GetUID() || at <= before {
			t.Fatalf("event %d = %s at the version %d after %d, want a later one of the object", n, e, at, before)
		}
		before = at
		sawChange = sawChange || e.Type == "MODIFIED" && e.Object.GetResourceVersion() == annotated.GetResourceVersion()
		if (n == 0) != (e.Type == "ADDED") {
			t.Fatalf("event %d = %s, want ADDED only as the first", n, e)
		}
		if e.Type == "DELETED" {
			break
		}
	}
	if !sawChange {
		t.Error("no event of the update arrived, want one")
	}
}

// watchInitialEvents starts a watch with the existing objects, followed by a bookmark and by later events.
func watchInitialEvents(t *testing.T, k kind) {
	one := k.create(t, "initial-one", labelled("initial", "yes"))
	w := openWatch(t, k.collection()+query("watch", "true", "sendInitialEvents", "true", "allowWatchBookmarks", "true",
		"resourceVersionMatch", "NotOlderThan", "labelSelector", "initial"))
	var e event
	for e = w.next(); e.Type != "BOOKMARK"; e = w.next() {
		// A controller may have changed the object in between.
		if e.Object.GetUID() != one.GetUID() {
			t.Fatalf("event %s, want the object that is there", e)
		}
	}
	if version(t, &e.Object) < version(t, one) || e.Object.GetKind() != one.GetKind() {
		t.Fatalf("bookmark = %v, want the kind and at least the object's version", e.Object)
	}
	two := k.create(t, "initial-two", labelled("initial", "yes"))
	for e = w.next(); e.Object.GetUID() == one.GetUID(); e = w.next() {
	}
	if e.Type != "ADDED" || e.Object.GetUID() != two.GetUID() {
		t.Fatalf("event = %s, want ADDED of the second object", e)
	}
}
