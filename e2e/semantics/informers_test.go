package semantics

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// traffic records the requests of a client with the types of their responses.
type traffic struct {
	mu       sync.Mutex
	requests []string
}

// overheard returns a copy of the configuration that records requests.
func overheard() (*rest.Config, *traffic) {
	config, seen := rest.CopyConfig(front.config), &traffic{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil {
				seen.mu.Lock()
				defer seen.mu.Unlock()
				seen.requests = append(seen.requests, r.Method+" "+r.URL.RequestURI()+" "+response.Header.Get("Content-Type"))
			}
			return response, err
		})
	})
	return config, seen
}

// with counts the requests that have all the words.
func (s *traffic) with(words ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
next:
	for _, r := range s.requests {
		for _, w := range words {
			if !strings.Contains(r, w) {
				continue next
			}
		}
		n++
	}
	return n
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// follow runs an informer that receives the creation, the change and the deletion of an object.
func follow(t *testing.T, informer cache.SharedIndexInformer, s collection) {
	t.Helper()
	told := make(chan string, 100)
	tell := func(what string, o any) {
		if m, err := meta.Accessor(o); err == nil && m.GetLabels()["on"] == "shelf" {
			told <- what + " " + m.GetName() + m.GetAnnotations()["n"]
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell("add", o) },
		UpdateFunc: func(_, o any) { tell("update", o) },
		DeleteFunc: func(o any) { tell("delete", o) },
	}); err != nil {
		t.Fatal(err)
	}
	s.put("before")
	ctx, cancel := context.WithCancel(within(t))
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer has not synchronized in time, want it synchronized")
	}
	s.put("after")
	s.touch("before", 1)
	s.remove("after")
	for _, want := range []string{"add before", "add after", "update before1", "delete after"} {
		select {
		case got := <-told:
			if got != want {
				t.Fatalf("event of the informer = %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("no event %q arrived in time, want it", want)
		}
	}
}

func TestInformers(t *testing.T) {
	configMap := corev1.SchemeGroupVersion.WithResource("configmaps")
	t.Run("typed, by WatchList, in protobuf", func(t *testing.T) {
		s := configMaps(t, "informed-typed")
		config, seen := overheard()
		config.ContentType = runtime.ContentTypeProtobuf
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("informed-typed"))
		follow(t, factory.Core().V1().ConfigMaps().Informer(), s)
		if seen.with("sendInitialEvents=true", mediaProtobuf+";stream=watch") != 1 || seen.with() != 1 {
			t.Errorf("requests of the typed informer = %v, want one watch with initial events in protobuf", seen.requests)
		}
	})
	t.Run("typed, by list and watch", func(t *testing.T) {
		s := configMaps(t, "informed-lists")
		config, seen := overheard()
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		of := client.CoreV1().ConfigMaps("informed-lists")
		lister := listsFirst{&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return of.Watch(ctx, o)
			},
		}}
		follow(t, cache.NewSharedIndexInformer(lister, &corev1.ConfigMap{}, 0, nil), s)
		if seen.with("sendInitialEvents") != 0 || seen.with("resourceVersion=0") != 1 || seen.with("watch=true", "allowWatchBookmarks=true") != 1 {
			t.Errorf("requests of the informer with lists = %v, want one list and one watch", seen.requests)
		}
	})
	t.Run("dynamic, of a custom resource", func(t *testing.T) {
		s := gems(t, "informed-dynamic")
		config, seen := overheard()
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		gem := schema.GroupVersionResource{Group: "informed-dynamic.example.com", Version: "v1", Resource: "gems"}
		follow(t, dynamicinformer.NewFilteredDynamicInformer(client, gem, "informed-dynamic", 0, nil, nil).Informer(), s)
		if seen.with("sendInitialEvents=true", mediaJSON) != 1 {
			t.Errorf("requests of the dynamic informer = %v, want one watch with initial events in JSON", seen.requests)
		}
	})
	for name, c := range map[string]struct {
		of       func(*testing.T, string) collection
		resource schema.GroupVersionResource
	}{
		"informed-metadata": {configMaps, configMap},
		"informed-partial":  {gems, schema.GroupVersionResource{Group: "informed-partial.example.com", Version: "v1", Resource: "gems"}},
	} {
		t.Run("metadata of "+c.resource.Resource, func(t *testing.T) {
			s := c.of(t, name)
			config, seen := overheard()
			client, err := metadata.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			follow(t, metadatainformer.NewFilteredMetadataInformer(client, c.resource, name, 0, nil, nil).Informer(), s)
			if seen.with("sendInitialEvents=true", mediaProtobuf) != 1 {
				t.Errorf("requests of the metadata informer = %v, want one watch with initial events in protobuf", seen.requests)
			}
			// The options of a deletion are in protobuf, for custom resources too.
			precise := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
			if err := client.Resource(c.resource).Namespace(name).Delete(within(t), "before", precise); err != nil {
				t.Error(err)
			}
		})
	}
}

// listsFirst behaves as clients before WatchList.
type listsFirst struct{ *cache.ListWatch }

func (listsFirst) IsWatchListSemanticsUnSupported() bool { return true }

// Of two candidates one leads. When it stops it releases the Lease, and the second one leads at once.
func TestLeaderElection(t *testing.T) {
	configMaps(t, "led")
	led := make(chan string, 2)
	candidate := func(name string) (resign func()) {
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "led", "crown", front.typed.CoreV1(), front.typed.CoordinationV1(),
			resourcelock.ResourceLockConfig{Identity: name})
		if err != nil {
			t.Fatal(err)
		}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, Name: name, LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { led <- name; <-ctx.Done() },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { elector.Run(ctx) })
		return func() { cancel(); running.Wait() }
	}
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-led:
			if got != want {
				t.Fatalf("%s leads, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatal("no candidate leads in time, want one")
		}
	}
	resign := candidate("first")
	expect("first")
	other := candidate("second")
	defer other()
	resign()
	expect("second")
	lease, err := front.typed.CoordinationV1().Leases("led").Get(within(t), "crown", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "second" || *lease.Spec.LeaseTransitions < 1 {
		t.Errorf("lease after the change of the leader: %v, %+v; want the holder second and a transition", err, lease.Spec)
	}
}
