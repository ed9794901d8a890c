package clients

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// absent returns the methods of a value that an embedded nil interface provides.
func absent(value any) (names []string) {
	v := reflect.ValueOf(value)
	for i := range v.NumMethod() {
		if v.Method(i).Type().NumIn() > 0 {
			continue
		}
		func() {
			defer func() {
				if recover() != nil {
					names = append(names, v.Type().Method(i).Name)
				}
			}()
			v.Method(i).Call(nil)
		}()
	}
	return names
}

// notLinked are files with calls of methods that are not linked, in unreachable functions, or of other methods with the same
// name.
var notLinked = map[string]string{
	"k8s.io/apiserver/pkg/storageversion/manager.go":                   "of a client that it makes itself; made only by server.NewConfig, which links all groups",
	"k8s.io/client-go/tools/events/event_broadcaster.go":               "of NewEventBroadcasterAdapter; we write events of core/v1",
	"k8s.io/apiserver/pkg/server/options/coreapi.go":                   "of a server of the library's options",
	"k8s.io/client-go/tools/leaderelection/resourcelock/interface.go":  "of a lock that it makes itself; the gateway makes its LeaseLock, with a client of Leases",
	"k8s.io/client-go/tools/leaderelection/leasecandidate.go":          "of coordinated leader election, which nothing here takes part in",
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota/admission.go": "of the library's plugin; ours uses only CheckRequest and the configuration",
}

var version = regexp.MustCompile(`V\d[a-z0-9]*$`)

// The test reads every package that is linked into the aggregator and uses typed clients or informers. It looks for calls of
// groups, versions and kinds that Interface does not have.
func TestLinkedPackagesUseOnlyImplementedClients(t *testing.T) {
	client, err := New(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	factory := NewInformers(client, nil).ForLibrary()
	gone := map[string]bool{}
	for _, name := range absent(ForLibrary(client)) {
		gone[name] = true
	}
	here := map[string]bool{}
	f, groups := reflect.ValueOf(factory), reflect.TypeFor[informers.SharedInformerFactory]()
	for i := range groups.NumMethod() {
		group, out := groups.Method(i).Name, groups.Method(i).Type
		if out.NumIn() > 0 || out.NumOut() != 1 || !strings.Contains(out.Out(0).PkgPath(), "client-go/informers/") {
			continue
		}
		var missing []string
		none := slices.Contains(absent(factory), group)
		if !none {
			missing = absent(f.MethodByName(group).Call(nil)[0].Interface())
		}
		for i := range out.Out(0).NumMethod() {
			version := out.Out(0).Method(i)
			if name := group + "." + version.Name; none || slices.Contains(missing, version.Name) {
				gone[name] = true
				note(here, version.Type.Out(0), nil, false)
			} else {
				v1 := f.MethodByName(group).Call(nil)[0].MethodByName(version.Name).Call(nil)[0].Interface()
				note(here, version.Type.Out(0), absent(v1), true)
			}
		}
	}
	for kind, is := range here {
		if !is {
			gone["."+kind] = true
		}
	}
	for _, want := range []string{"AppsV1", "StorageV1", "RbacV1", "Apps.V1", "Rbac.V1beta1", ".CSINodes", ".Endpoints", ".Deployments", ".Pods"} {
		if !gone[want] {
			t.Fatalf("%s is linked, want it missing in this test's list: %v", want, gone)
		}
	}
	for _, have := range []string{"CoreV1", "FlowcontrolV1", "Core.V1", "Flowcontrol.V1", ".FlowSchemas", ".Namespaces", ".ValidatingAdmissionPolicies", ".TypedInformer"} {
		if gone[have] {
			t.Errorf("%s is not linked, want it linked", have)
		}
	}
	calls := 0
	for file, called := range groupCalls(t) {
		for _, call := range called {
			calls++
			if gone[call] && !(strings.HasPrefix(file, "portico.dev/") && compiled(call)) && notLinked[file] == "" {
				t.Errorf("%s calls %s, want it linked: add it to Interface or library.go", file, call)
			}
		}
	}
	if calls < 100 {
		t.Errorf("%d calls were found, want at least 100", calls)
	}
}

// compiled reports whether Interface or Informers declares the method. Then the compiler checks that it is linked.
func compiled(call string) bool {
	_, group := reflect.TypeFor[Interface]().MethodByName(call)
	return group || strings.HasPrefix(call, ".")
}

// note writes down which kinds a version of informers has: all that are not missing, if it is there itself. A kind that some
// version has is there.
func note(here map[string]bool, version reflect.Type, missing []string, there bool) {
	for i := range version.NumMethod() {
		name := version.Method(i).Name
		here[name] = here[name] || there && !slices.Contains(missing, name)
	}
}

// groupCalls are calls as CoreV1(), Core().V1() and Storage().V1().CSINodes() in everything that is linked, by file.
func groupCalls(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports", "portico.dev/cmd/aggregator")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]string{}
	for list := json.NewDecoder(strings.NewReader(string(out))); list.More(); {
		var p struct {
			ImportPath, Dir  string
			GoFiles, Imports []string
		}
		if err := list.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.ImportPath, "k8s.io/client-go/informers") || strings.HasPrefix(p.ImportPath, "k8s.io/client-go/kubernetes") ||
			!slices.ContainsFunc(p.Imports, func(i string) bool {
				return strings.HasPrefix(i, "k8s.io/client-go/informers") || strings.HasPrefix(i, "k8s.io/client-go/kubernetes")
			}) {
			continue
		}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call := chain(n); call != "" {
					calls[p.ImportPath+"/"+name] = append(calls[p.ImportPath+"/"+name], call)
				}
				return true
			})
		}
	}
	return calls
}

// chain returns CoreV1 for x.CoreV1(), Core.V1 for x.Core().V1(), .Pods for x.Pods(), and "" otherwise, also for
// x.CoreV1().Pods() with kinds without a namespace: all of those exist.
func chain(n ast.Node) string {
	name, of := method(n)
	before, _ := method(of)
	switch {
	case version.MatchString(name) && !strings.HasPrefix(name, "V"):
		return name
	case version.MatchString(name) && before != "":
		return before + "." + name
	case name != "" && !version.MatchString(before) || strings.HasPrefix(before, "V"):
		return "." + name
	}
	return ""
}

// method returns the name of a method that is called without arguments, and its receiver.
func method(n ast.Node) (string, ast.Node) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return "", nil
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", nil
	}
	return selector.Sel.Name, selector.X
}

// A group of this package requests the same paths as client-go's.
func TestGroupPathsMatchClientGo(t *testing.T) {
	config := &rest.Config{Host: "https://example.com:6443/below"}
	ours, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for i, v := 0, reflect.ValueOf(ours); i < v.NumMethod(); i++ {
		name := v.Type().Method(i).Name
		restOf := func(client any) rest.Interface {
			return reflect.ValueOf(client).MethodByName(name).Call(nil)[0].Interface().(interface{ RESTClient() rest.Interface }).RESTClient()
		}
		o, th := restOf(ours), restOf(theirs)
		if o.APIVersion() != th.APIVersion() || o.Get().Resource("things").URL().String() != th.Get().Resource("things").URL().String() {
			t.Errorf("URL of the group %s = %s, want %s", name, o.Get().Resource("things").URL(), th.Get().Resource("things").URL())
		}
		compared++
	}
	if compared < 10 {
		t.Errorf("%d groups were compared, want at least 10", compared)
	}
}

// Parameters of policies may be of exactly the kinds that client-go has an informer of.
func TestForResourceSupportsSameKindsAsClientGo(t *testing.T) {
	client, err := New(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	theirs := informers.NewSharedInformerFactory(ForLibrary(client), 0)
	known := 0
	for kind := range scheme.Scheme.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		ours := NewInformers(client, nil)
		got, err := ours.ForResource(resource)
		_, wantErr := theirs.ForResource(resource)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("ForResource(%s) = %v, want client-go's %v", resource, err, wantErr)
		}
		if err != nil {
			continue
		}
		known++
		object, _ := scheme.Scheme.New(kind)
		same := ours.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return nil })
		if same != got.Informer() {
			t.Errorf("ForResource(%s) and InformerFor(%s) return two informers, want the same", resource, kind)
		}
	}
	if known < 140 {
		t.Errorf("%d resources are known, want at least 140", known)
	}
}

// Every informer has an index by namespace, except for kinds with very many objects that no caller lists by namespace.
func TestInformersOfLargeKindsHaveNoNamespaceIndex(t *testing.T) {
	client, err := New(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	i := NewInformers(client, nil)
	for kind, informer := range map[string]interface {
		Informer() cache.SharedIndexInformer
	}{
		"bindings": i.RoleBindings(), "service accounts": i.ServiceAccounts(), "namespaces": i.Namespaces(),
	} {
		if indexers := informer.Informer().GetIndexer().GetIndexers(); len(indexers) != 0 {
			t.Errorf("informer of %s has %d indexes, want 0", kind, len(indexers))
		}
	}
	if i.RoleBindings().Informer() != i.RoleBindings().Informer() {
		t.Error("two calls return two informers, want one")
	}
	accounts := i.ServiceAccounts()
	for _, namespace := range []string{"a", "b"} {
		err := accounts.Informer().GetIndexer().Add(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "in-" + namespace}})
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := accounts.Lister().ServiceAccounts("b").List(labels.Everything())
	if err != nil || len(got) != 1 || got[0].Name != "in-b" {
		t.Errorf("service accounts of one namespace = %v, %v; want in-b", got, err)
	}
	if i.Pods().Informer().GetIndexer().GetIndexers()[cache.NamespaceIndex] == nil {
		t.Error("informer of pods has no index by namespace, want one")
	}
}

// A kind without a client is listed and watched. A group's informer and the informer of the resource are the same.
func TestInformerListsAndWatchesAnyKind(t *testing.T) {
	class := func(name string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}, Provisioner: "p"}
	}
	answer := func(w http.ResponseWriter, object runtime.Object, kind string) {
		object.GetObjectKind().SetGroupVersionKind(storagev1.SchemeGroupVersion.WithKind(kind))
		_ = json.NewEncoder(w).Encode(object)
	}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/storage.k8s.io/v1/storageclasses" {
			t.Errorf("request for %s, want storageclasses", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Get("sendInitialEvents") != "":
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
		case r.URL.Query().Get("watch") == "":
			answer(w, &storagev1.StorageClassList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []storagev1.StorageClass{class("listed")}}, "StorageClassList")
		default:
			came := class("came")
			came.APIVersion, came.Kind = "storage.k8s.io/v1", "StorageClass"
			raw, _ := json.Marshal(&came)
			_ = json.NewEncoder(w).Encode(metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw}})
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	client, err := New(&rest.Config{Host: served.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	factory := NewInformers(client, func(obj any) (any, error) {
		obj.(*storagev1.StorageClass).Labels = map[string]string{"was": "transformed"}
		return obj, nil
	})
	lister := factory.StorageClasses().Lister()
	generic, err := factory.ForResource(storagev1.SchemeGroupVersion.WithResource("storageclasses"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := factory.ForResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}); err == nil {
		t.Error("ForResource of an unknown resource returned no error, want one")
	}
	came := make(chan *storagev1.StorageClass, 2)
	if _, err := generic.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { came <- obj.(*storagev1.StorageClass) }}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	for of, synced := range factory.WaitForCacheSync(stop) {
		if !synced {
			t.Errorf("informer of %s has not synchronized, want it synchronized", of)
		}
	}
	for range 2 {
		select {
		case c := <-came:
			if c.Labels["was"] != "transformed" || c.Provisioner != "p" {
				t.Errorf("received object = %v, want a transformed one", c)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("fewer than two objects arrived, want one of the list and one of the watch")
		}
	}
	if _, err := lister.Get("listed"); err != nil {
		t.Error(err)
	}
	if object, err := generic.Lister().Get("came"); err != nil || object.(*storagev1.StorageClass).Name != "came" {
		t.Errorf("generic Get = %v, %v; want the StorageClass came", object, err)
	}
	close(stop)
	factory.Shutdown()
	factory.InformerFor(&corev1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, nil)
	})
	factory.Start(make(chan struct{}))
	if after := factory.WaitForCacheSync(stop); len(after) != 1 {
		t.Errorf("synchronized informers after the shutdown = %v, want no new one", after)
	}
}
