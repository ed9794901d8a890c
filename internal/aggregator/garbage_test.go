package aggregator

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"sigs.k8s.io/yaml"
)

const boatsDefinition = `
metadata: {name: boats.sea.example.com}
spec:
  group: sea.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

var boats = schema.GroupVersionResource{Group: "sea.example.com", Version: "v1", Resource: "boats"}

// garbageEnv is a front door with objects that own each other.
type garbageEnv struct {
	t      *testing.T
	ctx    context.Context
	config *rest.Config
	client *kubernetes.Clientset
}

func openGarbageEnv(t *testing.T, dir string) (e *garbageEnv, stop func() error) {
	t.Helper()
	config, stop := open(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return &garbageEnv{t, ctx, config, kubernetes.NewForConfigOrDie(config)}, stop
}

func (e *garbageEnv) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// until waits for a condition.
func (e *garbageEnv) until(what string, is func() bool) {
	e.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			e.t.Fatalf("condition not met in time: %s, want it met", what)
		}
	}
}

func (e *garbageEnv) configMap(name string, owners ...metav1.OwnerReference) metav1.OwnerReference {
	e.t.Helper()
	cm, err := e.client.CoreV1().ConfigMaps("default").Create(e.ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
	e.must(err)
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: cm.UID}
}

func (e *garbageEnv) read(name string) *corev1.ConfigMap {
	e.t.Helper()
	cm, err := e.client.CoreV1().ConfigMaps("default").Get(e.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	e.must(err)
	return cm
}

func (e *garbageEnv) delete(name string, policy metav1.DeletionPropagation) {
	e.t.Helper()
	e.must(e.client.CoreV1().ConfigMaps("default").Delete(e.ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}))
}

func blocking(ref metav1.OwnerReference) metav1.OwnerReference {
	yes := true
	ref.BlockOwnerDeletion = &yes
	return ref
}

func TestDeletingOwnerDeletesDependents(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	e, stop := openGarbageEnv(t, t.TempDir())
	t.Run("in the background", func(*testing.T) {
		top := e.configMap("top")
		e.configMap("leaf", e.configMap("middle", top))
		e.configMap("shared", top, e.configMap("other"))
		e.delete("top", metav1.DeletePropagationBackground)
		e.until("dependents of dependents are gone", func() bool { return e.read("middle") == nil && e.read("leaf") == nil })
		e.until("the absent owner is struck out", func() bool { return len(e.read("shared").OwnerReferences) == 1 })
	})
	t.Run("in the foreground", func(t *testing.T) {
		held := blocking(e.configMap("owner"))
		e.configMap("held", held)
		_, err := e.client.CoreV1().ConfigMaps("default").Patch(e.ctx, "held", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{})
		e.must(err)
		e.delete("owner", metav1.DeletePropagationForeground)
		e.until("the dependent is being deleted", func() bool { return e.read("held").DeletionTimestamp != nil })
		if owner := e.read("owner"); owner == nil || !slices.Contains(owner.Finalizers, metav1.FinalizerDeleteDependents) {
			t.Fatalf("owner with a blocking dependent = %+v, want one with the finalizer foregroundDeletion", owner)
		}
		_, err = e.client.CoreV1().ConfigMaps("default").Patch(e.ctx, "held", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		e.must(err)
		e.until("both are gone", func() bool { return e.read("held") == nil && e.read("owner") == nil })
	})
	t.Run("not at all", func(t *testing.T) {
		e.configMap("kept", e.configMap("gone"))
		e.delete("gone", metav1.DeletePropagationOrphan)
		e.until("the owner is gone", func() bool { return e.read("gone") == nil })
		if kept := e.read("kept"); kept == nil || len(kept.OwnerReferences) != 0 {
			t.Errorf("dependent after orphaning = %+v, want one without owner references", kept)
		}
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestDependentIsDeletedAfterItsCustomResource(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	e, stop := openGarbageEnv(t, t.TempDir())
	definitions := clientset.NewForConfigOrDie(e.config).ApiextensionsV1().CustomResourceDefinitions()
	client := dynamic.NewForConfigOrDie(e.config).Resource(boats).Namespace("default")
	crd := &apiextensionsv1.CustomResourceDefinition{}
	e.must(yaml.UnmarshalStrict([]byte(boatsDefinition), crd))
	_, err := definitions.Create(e.ctx, crd, metav1.CreateOptions{})
	e.must(err)
	boat := func(name string, owners ...metav1.OwnerReference) (ref metav1.OwnerReference) {
		e.until("a boat can be made", func() bool {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "sea.example.com/v1", "kind": "Boat"}}
			o.SetName(name)
			o.SetOwnerReferences(owners)
			made, err := client.Create(e.ctx, o, metav1.CreateOptions{})
			if err == nil {
				ref = metav1.OwnerReference{APIVersion: "sea.example.com/v1", Kind: "Boat", Name: name, UID: made.GetUID()}
			}
			return err == nil
		})
		return ref
	}
	e.configMap("rudder", boat("ada"))
	boat("dinghy", e.configMap("harbour"))
	e.delete("harbour", metav1.DeletePropagationBackground)
	e.until("the boat went with the ConfigMap", func() bool {
		_, err := client.Get(e.ctx, "dinghy", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if e.read("rudder") == nil {
		t.Fatal("the ConfigMap was deleted before the Boat that owns it, want it after")
	}
	e.must(definitions.Delete(e.ctx, crd.Name, metav1.DeleteOptions{}))
	e.until("the ConfigMap went with the last boat", func() bool { return e.read("rudder") == nil })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// notesServer is an extension server with one note. While lost is set it returns 404 for every path.
type notesServer struct{ lost atomic.Bool }

const theNote = `{"kind":"Note","apiVersion":"notes.example.com/v1","metadata":{"name":"first","namespace":"default","uid":"note-uid","resourceVersion":"7"}}`

func (a *notesServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path, found := strings.CutPrefix(r.URL.Path, "/apis/notes.example.com/v1")
	switch {
	case a.lost.Load() || !found:
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("404 page not found"))
	case path == "":
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"notes.example.com/v1","resources":[` +
			`{"name":"notes","singularName":"note","namespaced":true,"kind":"Note","verbs":["get","list","watch","delete"]}]}`))
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	case path == "/notes":
		_, _ = w.Write([]byte(`{"kind":"NoteList","apiVersion":"notes.example.com/v1","metadata":{"resourceVersion":"7"},"items":[` + theNote + `]}`))
	case path == "/namespaces/default/notes/first":
		_, _ = w.Write([]byte(theNote))
	default:
		missing := apierrors.NewNotFound(schema.GroupResource{Group: "notes.example.com", Resource: "notes"}, path[strings.LastIndex(path, "/")+1:])
		missing.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"} // without it, the body is not a Status
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(missing.ErrStatus)
	}
}

// watch sends no events, and ends when lost is set.
func (a *notesServer) watch(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !a.lost.Load() {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// register makes the archive an extension server of a front door.
func (a *notesServer) register(e *garbageEnv) {
	e.t.Helper()
	port, caBundle := serveTLS(e.t, a)
	_, err := e.client.CoreV1().Services("default").Create(e.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	e.must(err)
	_, err = aggregatorclient.NewForConfigOrDie(e.config).ApiregistrationV1().APIServices().Create(e.ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.notes.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "notes.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "notes", Port: &port},
		},
	}, metav1.CreateOptions{})
	e.must(err)
}

// An owner behind a backend that has lost its senses lives, through a restart of the front door too; when the backend is
// back, its word counts.
func TestOwnerBehindUnavailableBackendIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	e, stop := openGarbageEnv(t, dir)
	notes := &notesServer{}
	notes.register(e)
	note := func(name, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "notes.example.com/v1", Kind: "Note", Name: name, UID: types.UID(uid)}
	}
	e.until("the notes are served", func() bool {
		code, body := get(t, e.config, "/apis/notes.example.com/v1/notes")
		return code == http.StatusOK && strings.Contains(body, "note-uid")
	})
	e.configMap("mine", note("first", "note-uid"))
	notes.lost.Store(true)
	e.configMap("unclear", note("second", "another-uid"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	credentials := e.config
	e, stop = openGarbageEnv(t, dir)
	e.config.CAData, e.config.CertData, e.config.KeyData = credentials.CAData, credentials.CertData, credentials.KeyData
	e.client = kubernetes.NewForConfigOrDie(e.config)

	// Local garbage shows that the collector runs.
	owner := e.configMap("owner")
	e.configMap("garbage", owner)
	e.delete("owner", metav1.DeletePropagationBackground)
	e.until("local garbage is collected beside the dead backend", func() bool { return e.read("garbage") == nil })
	for _, name := range []string{"mine", "unclear"} {
		if e.read(name) == nil {
			t.Errorf("%s was deleted after a 404 for every path, want it kept", name)
		}
	}
	notes.lost.Store(false)
	e.until("the backend is back and says that one owner is gone", func() bool { return e.read("unclear") == nil })
	if e.read("mine") == nil {
		t.Error("mine was deleted although its owner exists, want it kept")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
