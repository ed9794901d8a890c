package aggregator_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/tools/drill/faulty"
	"portico.dev/pkg/apitest"
)

// patience is the limit for operations that take seconds.
const patience = 60 * time.Second

// widgetServer is an extension server that stores widgets, and honours watches with initial events or treats them as plain
// ones.
type widgetServer struct {
	*faulty.Server
	honours bool
	// probes and streams count the watches with initial events of the front door itself, and of clients.
	probes, streams atomic.Int64
}

func (s *widgetServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("sendInitialEvents") != "" {
		if r.Header.Get("X-Remote-User") == "system:kube-aggregator" {
			s.probes.Add(1)
		} else {
			s.streams.Add(1)
		}
		if !s.honours {
			q.Del("sendInitialEvents")
			r = r.Clone(r.Context())
			r.URL.RawQuery = q.Encode()
		}
	}
	s.Server.ServeHTTP(w, r)
}

// serve starts a widgetServer; register makes its APIService.
func serve(t *testing.T, env *apitest.Env, group string, honours bool, annotations map[string]string) (s *widgetServer, register func()) {
	t.Helper()
	store, err := faulty.New(faulty.Config{Group: group, ServerName: "unused.default.svc", Address: "127.0.0.1:0", Stores: true})
	must(t, err)
	s = &widgetServer{Server: store, honours: honours}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // watches
	port := int32(server.Listener.Addr().(*net.TCPAddr).Port)
	return s, func() {
		t.Helper()
		name := strings.ReplaceAll(group, ".", "-")
		core, err := kubernetes.NewForConfig(env.Config)
		must(t, err)
		_, err = core.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}, metav1.CreateOptions{})
		must(t, err)
		services, err := clientset.NewForConfig(env.Config)
		must(t, err)
		_, err = services.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1." + group, Annotations: annotations},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: group, Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 100, InsecureSkipTLSVerify: true,
				Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: name, Port: &port},
			},
		}, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := services.ApiregistrationV1().APIServices().Delete(ctx, "v1."+group, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, condition); err != nil {
		t.Fatalf("%s: condition not met in time: %v, want it met", what, err)
	}
}

// inform starts an informer of client-go, which requests initial events.
func inform(t *testing.T, objects dynamic.Interface, of schema.GroupVersionResource) cache.SharedIndexInformer {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(objects, 0)
	informer := factory.ForResource(of).Informer()
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	return informer
}

func create(t *testing.T, objects dynamic.Interface, of schema.GroupVersionResource, name string) {
	t.Helper()
	eventually(t, "create "+name, func(ctx context.Context) (bool, error) {
		_, err := objects.Resource(of).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": of.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{})
		return err == nil, nil // not registered, or not available yet
	})
}

// verdictOf returns a group's verdict from /debug/aggregation.
func verdictOf(ctx context.Context, t *testing.T, core *kubernetes.Clientset, group string) string {
	raw, err := core.Discovery().RESTClient().Get().AbsPath("/debug/aggregation").DoRaw(ctx)
	must(t, err)
	var state struct {
		APIServices   []struct{ Name string }
		InitialEvents []struct{ APIService, Resource, Verdict string }
	}
	must(t, json.Unmarshal(raw, &state))
	if len(state.APIServices) == 0 {
		t.Errorf("/debug/aggregation = %s, want at least one APIService", raw)
	}
	for _, r := range state.InitialEvents {
		if r.APIService == "v1."+group && r.Resource == "widgets.v1."+group {
			return r.Verdict
		}
	}
	return ""
}

// Informers of client-go synchronize with extension servers that honour initial events and with servers that ignore them,
// without an annotation, whether they start before, during or after the registration of the server.
func TestInformersSyncWithAndWithoutInitialEvents(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	core, err := kubernetes.NewForConfig(env.Config)
	must(t, err)
	objects, err := dynamic.NewForConfig(env.Config)
	must(t, err)
	for _, test := range []struct {
		group, verdict string
		honours        bool
	}{
		{"honours.example.com", "honours", true},
		{"ignores.example.com", "ignores", false},
	} {
		t.Run(test.group, func(t *testing.T) {
			of := schema.GroupVersionResource{Group: test.group, Version: "v1", Resource: "widgets"}
			server, register := serve(t, env, test.group, test.honours, nil)
			informers := map[string]cache.SharedIndexInformer{"before the APIService exists": inform(t, objects, of)}
			register()
			create(t, objects, of, "first")
			informers["when it has become available"] = inform(t, objects, of)
			eventually(t, "the probe", func(ctx context.Context) (bool, error) {
				return verdictOf(ctx, t, core, test.group) == test.verdict, nil
			})
			before := server.streams.Load()
			informers["when it was probed"] = inform(t, objects, of)
			has := func(when, name string) {
				t.Helper()
				eventually(t, "an informer that began "+when+" has "+name, func(context.Context) (bool, error) {
					_, ok, err := informers[when].GetStore().GetByKey("default/" + name)
					return ok && informers[when].HasSynced(), err
				})
			}
			for when := range informers {
				has(when, "first")
			}
			create(t, objects, of, "second")
			for when := range informers {
				has(when, "second")
			}
			if streams := server.streams.Load(); test.honours && streams == before || !test.honours && streams != 0 {
				t.Errorf("%d watches with initial events of clients reached the server, want some only if it honours them", streams)
			}
		})
	}
}

func TestInitialEventsAnnotationSelectsBehavior(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	core, err := kubernetes.NewForConfig(env.Config)
	must(t, err)
	objects, err := dynamic.NewForConfig(env.Config)
	must(t, err)
	for _, test := range []struct {
		group         string
		annotations   map[string]string
		honours       bool
		serverStreams bool // watches with initial events reach the server
		clientLists   bool
	}{
		{"pass.example.com", map[string]string{"portico.dev/initial-events": "pass"}, true, true, false},
		{"reject.example.com", map[string]string{"portico.dev/initial-events": "reject"}, true, false, true},
		{"older.example.com", map[string]string{"portico.dev/reject-send-initial-events": "true"}, true, false, true},
		{"make.example.com", map[string]string{"portico.dev/initial-events": "make"}, false, false, false},
	} {
		t.Run(test.group, func(t *testing.T) {
			of := schema.GroupVersionResource{Group: test.group, Version: "v1", Resource: "widgets"}
			server, register := serve(t, env, test.group, test.honours, test.annotations)
			register()
			create(t, objects, of, "first")
			counting := rest.CopyConfig(env.Config)
			var lists atomic.Int64
			counting.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if !r.URL.Query().Has("watch") {
						lists.Add(1)
					}
					return next.RoundTrip(r)
				})
			})
			client, err := dynamic.NewForConfig(counting)
			must(t, err)
			informer := inform(t, client, of)
			for _, name := range []string{"first", "second"} {
				eventually(t, "the informer has "+name, func(context.Context) (bool, error) {
					_, ok, err := informer.GetStore().GetByKey("default/" + name)
					return ok, err
				})
				if name == "first" {
					create(t, objects, of, "second")
				}
			}
			if n := lists.Load(); (n > 0) != test.clientLists {
				t.Errorf("lists of the informer = %d, want some: %v", n, test.clientLists)
			}
			if streams := server.streams.Load(); (streams > 0) != test.serverStreams {
				t.Errorf("watches with initial events at the server = %d, want some: %v", streams, test.serverStreams)
			}
			if verdict := verdictOf(t.Context(), t, core, test.group); verdict != "" || server.probes.Load() != 0 {
				t.Errorf("verdict %q after %d probes, want none", verdict, server.probes.Load())
			}
		})
	}
}
