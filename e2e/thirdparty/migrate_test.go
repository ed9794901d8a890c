package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico.dev/e2e/programs"
	"portico.dev/internal/routes/client"
	"portico.dev/internal/routes/migrate"
	"portico.dev/internal/routes/v1alpha1"
)

// flunderDefinition defines the Flunder of the sample-apiserver, and a kind that it does not have.
const flunderDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: flunders.wardle.example.com}
spec:
  group: wardle.example.com
  names: {plural: flunders, singular: flunder, kind: Flunder, listKind: FlunderList}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ponds.wardle.example.com}
spec:
  group: wardle.example.com
  names: {plural: ponds, singular: pond, kind: Pond, listKind: PondList}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const flundersToMigrate = "flunders.v1alpha1.wardle.example.com"

var ponds = wardleAlpha.WithResource("ponds")

// Flunders of the sample-apiserver become custom resources, namespace by namespace, while clients write, watch and list. Then
// the server is killed and restarted, and the flunders are moved back.
func TestFlundersBecomeCustomResources(t *testing.T) {
	t.Parallel()
	d := startFrontDoor(t, "front-migrate")
	s := newSample(t, d)
	s.start(t)
	s.register(t)
	s.awaitAvailable(t)
	makeFlunders(t, d)
	watched := watchFlunders(t, d)
	writer := startWriter(t, d)

	s.defineCustomResources(t)
	step := func(name string, run func(t *testing.T)) {
		t.Helper()
		if !t.Run(name, run) {
			t.FailNow() // the next one begins where this one ends
		}
	}
	step("kind by kind", func(t *testing.T) { kindByKind(t, d) })
	step("what is refused", func(t *testing.T) { migrationRefuses(t, d) })
	step("a namespace moves", func(t *testing.T) {
		aggregatorSays(t, d, `^flunders in namespace shop: 13 can move from server to custom-resources\n$`, "migrate", flundersToMigrate, "--to", "custom-resources", "-n", "shop", "--dry-run")
		aggregatorSays(t, d, `^flunders in namespace shop: 13 moved from server to custom-resources, 13 written\n$`, "migrate", flundersToMigrate, "--to", "custom-resources", "-n", "shop")
		writer.goesOn(t)
		bothPlacesAreSeen(t, d, "shop")
		watched.agrees(t, d)
	})
	step("its server is dead", func(t *testing.T) { customResourcesWithoutServer(t, d, s, watched) })
	step("it goes back", func(t *testing.T) {
		aggregatorSays(t, d, `^flunders in namespace shop: 13 moved from custom-resources to server, \d+ written\n$`, "migrate", flundersToMigrate, "--to", "server", "-n", "shop")
		writer.goesOn(t)
		watched.agrees(t, d)
		routes := must[*client.APIRoutes](t)(client.New(d.config))
		route, err := routes.Get(t.Context(), "v1alpha1.wardle.example.com", metav1.GetOptions{})
		if err != nil || len(route.Spec.Rules) != 1 || route.Spec.Rules[0].Name != "ponds" {
			t.Errorf("the rules are %v, %v: want those of before", route.Spec.Rules, err)
		}
	})
	step("everything moves, and nothing is left behind", func(t *testing.T) {
		aggregatorSays(t, d, `(?s)flunders in namespace attic: 3 moved from server to custom-resources, 3 written, 3 deleted where they were before\n.*flunders in namespace shop: 13 moved`,
			"migrate", flundersToMigrate, "--to", "custom-resources", "--all-namespaces", "--delete-source", "--settle", "1s")
		writer.goesOn(t)
		watched.agrees(t, d)
		for _, namespace := range []string{"shop", "attic"} {
			left, err := toBackend(t, d, "server").Resource(flunders).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(left.Items) != 0 {
				t.Errorf("objects at the server in the namespace %s after the migration = %d, %v; want 0", namespace, len(left.Items), err)
			}
		}
	})
	writer.stop(t)
	watched.agrees(t, d)
	step("the server is not needed any more", func(t *testing.T) {
		if _, err := d.kubectl("", "patch", "apiservice", "v1alpha1.wardle.example.com", "--type=json", "-p",
			`[{"op":"remove","path":"/spec/service"},{"op":"remove","path":"/spec/caBundle"}]`); err != nil {
			t.Fatal(err)
		}
		expect(t, d, `(?m)^v1alpha1.wardle.example.com +Local +True`, "get", "apiservice", "v1alpha1.wardle.example.com")
		routes := must[*client.APIRoutes](t)(client.New(d.config))
		if err := routes.Delete(t.Context(), "v1alpha1.wardle.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.stop(t)
		list, err := d.dynamic.Resource(flunders).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 16 {
			t.Errorf("%d flunders after the migration, %v; want 16", len(list.Items), err)
		}
		watched.agrees(t, d)
	})
}

func makeFlunders(t *testing.T, d *frontDoor) {
	t.Helper()
	for _, namespace := range []string{"shop", "attic"} {
		if _, err := d.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 15 {
		namespace := "shop"
		if i >= 12 {
			namespace = "attic"
		}
		o := flunder(fmt.Sprintf("f-%02d", i), map[string]string{"number": strconv.Itoa(i)})
		o.SetAnnotations(map[string]string{"about": "a & b"})
		if err := unstructured.SetNestedField(o.Object, "f-00", "spec", "reference"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.dynamic.Resource(flunders).Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// defineCustomResources applies the definitions and the APIRoute.
func (s *third) defineCustomResources(t *testing.T) {
	t.Helper()
	d := s.frontDoor
	if _, err := d.kubectl(flunderDefinition, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	d.route(t, wardleAlpha, v1alpha1.APIRouteSpec{
		Backends: []v1alpha1.APIRouteBackend{{Name: "server"}, {Name: "custom-resources", CustomResources: &v1alpha1.CustomResources{}}},
		Rules: []v1alpha1.APIRouteRule{{
			Name: "ponds", Matches: []v1alpha1.APIRouteMatch{{Resources: []string{"ponds"}}}, BackendRefs: []v1alpha1.BackendRef{{Name: "custom-resources"}},
		}},
	})
	d.awaitRoute(t, wardleAlpha)
}

// kindByKind: in one group-version, fischers and flunders of the server, and ponds that are custom resources.
func kindByKind(t *testing.T, d *frontDoor) {
	eventually(t, "all kinds are discovered, and described", func() error {
		list, err := d.typed.Discovery().ServerResourcesForGroupVersion(wardleAlpha.String())
		if err != nil {
			return err
		}
		var names []string
		for _, r := range list.APIResources {
			names = append(names, r.Name)
		}
		for _, want := range []string{"fischers", "flunders", "ponds"} {
			if !slices.Contains(names, want) {
				return fmt.Errorf("%v has no %s", names, want)
			}
		}
		_, err = d.kubectl("", "explain", "ponds")
		return err
	})
	pond := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"depth": int64(3)}}}
	pond.SetGroupVersionKind(wardleAlpha.WithKind("Pond"))
	pond.SetName("big")
	if _, err := d.dynamic.Resource(ponds).Namespace("shop").Create(t.Context(), pond, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, d, `(?m)^shop +big `, "get", "ponds", "-A")
	expect(t, d, `(?m)^pond.wardle.example.com/big patched`, "patch", "pond", "big", "-n", "shop", "--type=merge", "-p", `{"spec":{"depth":4}}`)
	fischer := &unstructured.Unstructured{Object: map[string]any{"disallowedFlunders": []any{"nobody"}}}
	fischer.SetGroupVersionKind(wardleAlpha.WithKind("Fischer"))
	fischer.SetName("fritz")
	if _, err := d.dynamic.Resource(fischers).Create(t.Context(), fischer, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, d, `(?s)fischer.wardle.example.com/fritz.*flunder.wardle.example.com/f-00.*pond.wardle.example.com/big`, "get", "fischers,flunders,ponds", "-A", "-o", "name")
	w, err := must[dynamic.Interface](t)(dynamic.NewForConfig(d.endless)).Resource(ponds).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	await(t, w, "ADDED")
	if err := d.dynamic.Resource(ponds).Namespace("shop").Delete(t.Context(), "big", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, w, "DELETED")
}

// migrationRefuses: a migration with data loss is refused and changes nothing.
func migrationRefuses(t *testing.T, d *frontDoor) {
	owner, err := d.dynamic.Resource(flunders).Namespace("shop").Get(t.Context(), "f-01", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: wardleAlpha.String(), Kind: "Flunder", Name: "f-01", UID: owner.GetUID(),
	}}}}
	if _, err := d.typed.CoreV1().ConfigMaps("shop").Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := aggregator(d, "migrate", flundersToMigrate, "--to", "custom-resources", "-n", "shop"); err == nil || !strings.Contains(err.Error(), "configmaps owned is owned by Flunder f-01, which gets another uid") {
		t.Errorf("migrate with a dependent = %v, want an error with its name", err)
	}
	if err := d.typed.CoreV1().ConfigMaps("shop").Delete(t.Context(), "owned", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hidden := toBackend(t, d, "custom-resources").Resource(flunders).Namespace("shop")
	if _, err := hidden.Create(t.Context(), flunder("f-03", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := aggregator(d, "migrate", flundersToMigrate, "--to", "custom-resources", "-n", "shop"); err == nil || !strings.Contains(err.Error(), "backend custom-resources has a Flunder f-03 that is no copy of what backend server has") {
		t.Errorf("migrate over another object = %v, want an error with its name", err)
	}
	if err := hidden.Delete(t.Context(), "f-03", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := aggregator(d, "migrate", flundersToMigrate, "--to", "nowhere", "-n", "shop"); err == nil || !strings.Contains(err.Error(), `has no backend "nowhere"`) {
		t.Errorf("migrate to an unknown backend = %v, want an error with its name", err)
	}
	if _, err := aggregator(d, "migrate", "ponds.v1alpha1.wardle.example.com", "--to", "server", "-n", "shop"); err == nil || !strings.Contains(err.Error(), "could not find the requested resource") {
		t.Errorf("migrate of an unknown kind = %v, want an error from the server", err)
	}
	if _, err := aggregator(d, "migrate", flundersToMigrate, "--to", "custom-resources", "-n", "shop"); err == nil || !strings.Contains(err.Error(), "wardle.example.com/v1beta1 has flunders too") {
		t.Errorf("migrate of a kind with another version = %v, want an error with the version", err)
	}
	if err := d.aggregator.ApiregistrationV1().APIServices().Delete(t.Context(), "v1beta1.wardle.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "v1beta1 is gone", func() error {
		if _, err := d.typed.Discovery().ServerResourcesForGroupVersion("wardle.example.com/v1beta1"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
	if _, err := d.kubectl("", "api-resources"); err != nil { // it refreshes its discovery cache
		t.Fatal(err)
	}
	nobody := must[*rest.Config](t)(d.newUser(users))
	namingBackend(nobody, "server")
	if _, err := must[dynamic.Interface](t)(dynamic.NewForConfig(nobody)).Resource(flunders).Namespace("shop").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `needs the verb "migrate"`) {
		t.Errorf("somebody who may read flunders, and names the backend: %v, want 403", err)
	}
}

// bothPlacesAreSeen: lists in every form are complete, for each place of the objects.
func bothPlacesAreSeen(t *testing.T, d *frontDoor, moved string) {
	t.Helper()
	here, err := toBackend(t, d, "custom-resources").Resource(flunders).Namespace(moved).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(here.Items) != 13 {
		t.Fatalf("%d custom resources, %v; want 13", len(here.Items), err)
	}
	copied, err := toBackend(t, d, "custom-resources").Resource(flunders).Namespace(moved).Get(t.Context(), "f-00", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if copied.GetAnnotations()[migrate.FromUID] == "" || copied.GetAnnotations()["about"] != "a & b" || copied.GetLabels()["number"] == "" {
		t.Errorf("copied object = %v, want the source's UID, annotations and labels", copied)
	}
	var all []string
	options := metav1.ListOptions{Limit: 4}
	for {
		part, err := d.dynamic.Resource(flunders).List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range part.Items {
			all = append(all, o.GetNamespace()+"/"+o.GetName())
		}
		if options.Continue = part.GetContinue(); options.Continue == "" {
			break
		}
	}
	slices.Sort(all)
	if len(all) != 16 || len(slices.Compact(all)) != 16 {
		t.Errorf("a list in parts has %v, want 16", all)
	}
	expect(t, d, `(?s)^NAMESPACE +NAME .*shop +f-00 .*attic +f-12 `, "get", "flunders", "-A", "--sort-by=.metadata.name", "-o", "wide")
	expect(t, d, `^flunder.wardle.example.com/f-03\nflunder.wardle.example.com/f-13\n$|^flunder.wardle.example.com/f-13\nflunder.wardle.example.com/f-03\n$`, "get", "flunders", "-A", "-l", "number in (3,13)", "-o", "name")
	expect(t, d, `(?m)^f-03 `, "get", "flunders", "-n", "shop")
	expect(t, d, `flunder.wardle.example.com/f-05 labeled`, "label", "flunder", "f-05", "-n", "shop", "moved=yes")
}

// customResourcesWithoutServer: migrated objects do not need the server any more, and a list that would be incomplete is
// refused.
func customResourcesWithoutServer(t *testing.T, d *frontDoor, s *third, watched *flunderWatch) {
	s.stop(t)
	d.awaitRouteIs(t, wardleAlpha, metav1.ConditionFalse)
	expect(t, d, `(?m)^f-03 `, "get", "flunders", "-n", "shop")
	if _, err := d.dynamic.Resource(flunders).Namespace("shop").Create(t.Context(), flunder("f-20", nil), metav1.CreateOptions{}); err != nil {
		t.Errorf("Create of a custom resource while the server is dead failed: %v, want no error", err)
	}
	if _, err := d.dynamic.Resource(flunders).List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "backend server of APIRoute v1alpha1.wardle.example.com is unavailable") {
		t.Errorf("a list of all: %v, want 503 that says why", err)
	}
	if n := watched.count("attic"); n != 3 {
		t.Errorf("flunders of the dead server in the informer = %d, want 3", n)
	}
	s.start(t)
	d.awaitRoute(t, wardleAlpha)
	if err := d.dynamic.Resource(flunders).Namespace("shop").Delete(t.Context(), "f-02", metav1.DeleteOptions{}); err != nil { // the server has it still
		t.Fatal(err)
	}
	watched.agrees(t, d)
}

// toBackend is a client of one backend, of an administrator.
func toBackend(t *testing.T, d *frontDoor, backend string) dynamic.Interface {
	t.Helper()
	config := rest.CopyConfig(d.config)
	namingBackend(config, backend)
	return must[dynamic.Interface](t)(dynamic.NewForConfig(config))
}

func namingBackend(config *rest.Config, backend string) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set(migrate.BackendHeader, backend)
			return next.RoundTrip(r)
		})
	})
}

// flunderWatch is an informer of client-go with the events that it received.
type flunderWatch struct {
	informer cache.SharedIndexInformer
	mu       sync.Mutex
	wrong    []string
	versions map[string]int64 // the writer's number of each
}

func watchFlunders(t *testing.T, d *frontDoor) *flunderWatch {
	t.Helper()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(must[dynamic.Interface](t)(dynamic.NewForConfig(d.endless)), 0)
	w := &flunderWatch{informer: factory.ForResource(flunders).Informer(), versions: map[string]int64{}}
	if _, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.changed, UpdateFunc: func(_, o any) { w.changed(o) }}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	if !cache.WaitForCacheSync(t.Context().Done(), w.informer.HasSynced) {
		t.Fatal("the informer has not synchronized in time, want it synchronized")
	}
	return w
}

// changed records an object that returns to an earlier state.
func (w *flunderWatch) changed(object any) {
	o := object.(*unstructured.Unstructured)
	n, _ := strconv.ParseInt(o.GetLabels()["count"], 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	key := o.GetNamespace() + "/" + o.GetName()
	if n < w.versions[key] {
		w.wrong = append(w.wrong, fmt.Sprintf("%s goes from %d to %d", key, w.versions[key], n))
	}
	w.versions[key] = n
}

func (w *flunderWatch) count(namespace string) int {
	n := 0
	for _, key := range w.informer.GetStore().ListKeys() {
		if strings.HasPrefix(key, namespace+"/") {
			n++
		}
	}
	return n
}

// agrees waits until the informer has the objects of a list, and reports invalid events.
func (w *flunderWatch) agrees(t *testing.T, d *frontDoor) {
	t.Helper()
	eventually(t, "whoever watches sees what whoever lists sees", func() error {
		list, err := d.dynamic.Resource(flunders).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		want, got := map[string]string{}, map[string]string{}
		for _, o := range list.Items {
			want[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		}
		for _, o := range w.informer.GetStore().List() {
			o, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			got[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		}
		delete(want, written) // it changes all the time
		delete(got, written)
		if !maps.Equal(got, want) {
			return fmt.Errorf("the informer has %v, a list %v", got, want)
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) > 0 {
		t.Errorf("invalid events at the informer = %v, want none", w.wrong)
	}
}

// written is the flunder that is written all the time.
const written = "shop/counted"

// flunderWriter increments a label of a flunder, and records its progress.
type flunderWriter struct {
	client  dynamic.ResourceInterface
	cancel  context.CancelFunc
	done    chan struct{}
	refused atomic.Int64
	mu      sync.Mutex
	count   int64
	failed  error
}

func startWriter(t *testing.T, d *frontDoor) *flunderWriter {
	t.Helper()
	if _, err := d.dynamic.Resource(flunders).Namespace("shop").Create(t.Context(), flunder("counted", map[string]string{"count": "0"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &flunderWriter{cancel: cancel, done: make(chan struct{})}
	config := rest.CopyConfig(d.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusServiceUnavailable {
				w.refused.Add(1) // client-go retries it after Retry-After
			}
			return response, err
		})
	})
	w.client = must[dynamic.Interface](t)(dynamic.NewForConfig(config)).Resource(flunders).Namespace("shop")
	go w.run(ctx)
	t.Cleanup(func() {
		cancel()
		<-w.done
	})
	return w
}

func (w *flunderWriter) run(ctx context.Context) {
	defer close(w.done)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := w.write(ctx); err != nil && ctx.Err() == nil {
			w.mu.Lock()
			w.failed = err
			w.mu.Unlock()
			return
		}
	}
}

// write increments the stored value. A write with a conflict is retried.
func (w *flunderWriter) write(ctx context.Context) error {
	o, err := w.client.Get(ctx, "counted", metav1.GetOptions{})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := o.GetLabels()["count"]; got != strconv.FormatInt(w.count, 10) {
		return fmt.Errorf("it is %s, and was %d: a write was lost", got, w.count)
	}
	o.SetLabels(map[string]string{"count": strconv.FormatInt(w.count+1, 10)})
	_, err = w.client.Update(ctx, o, metav1.UpdateOptions{})
	switch {
	case err == nil:
		w.count++
	case !apierrors.IsConflict(err):
		return err
	}
	return nil
}

// goesOn waits until the writer has written again.
func (w *flunderWriter) goesOn(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	before := w.count
	w.mu.Unlock()
	eventually(t, "the writer writes", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.failed != nil {
			t.Fatalf("write failed: %v, want no error", w.failed)
		}
		if w.count <= before {
			return errors.New("it does not")
		}
		return nil
	})
}

func (w *flunderWriter) stop(t *testing.T) {
	t.Helper()
	w.cancel()
	<-w.done
	if w.failed != nil || w.count == 0 || w.refused.Load() == 0 {
		t.Errorf("%d writes, %d refused during the copy, error %v; want some, some and none", w.count, w.refused.Load(), w.failed)
	}
}

// aggregator runs a command of aggregator as an administrator.
func aggregator(d *frontDoor, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "aggregator"), args...)
	cmd.Dir, cmd.Env = d.dir, d.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("aggregator %q: %w: %s", args, err, out)
	}
	return string(out), nil
}

func aggregatorSays(t *testing.T, d *frontDoor, pattern string, args ...string) {
	t.Helper()
	out, err := aggregator(d, args...)
	if err != nil {
		t.Fatal(err)
	}
	if !matches(pattern, out) {
		t.Fatalf("output of aggregator %q =\n%s\nwant a match of %s", args, out, pattern)
	}
}
