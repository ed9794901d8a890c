package coreapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	library "k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/admission/plugins"
)

// gate is an admission plugin that holds requests about objects with an annotation until the test releases them. It
// simulates a slow webhook, policy or quota.
type gate struct {
	annotation string // the value is the name of the hold

	mu    sync.Mutex // guards holds
	holds map[string]*hold
}

// hold applies to the first request with its name. Later requests pass.
type hold struct{ entered, release chan struct{} }

func newGate(annotation string) *gate {
	return &gate{annotation: annotation, holds: map[string]*hold{}}
}

// hold holds the next request with this operation on an object with this annotation.
func (g *gate) hold(operation library.Operation, name string) *hold {
	h := &hold{entered: make(chan struct{}), release: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds[string(operation)+" "+name] = h
	return h
}

func (g *gate) take(operation library.Operation, name string) *hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := string(operation) + " " + name
	h := g.holds[key]
	delete(g.holds, key)
	return h
}

func (g *gate) pass(ctx context.Context, a library.Attributes) error {
	obj := a.GetObject()
	if obj == nil {
		obj = a.GetOldObject() // for a deletion
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	h := g.take(a.GetOperation(), m.GetAnnotations()[g.annotation])
	if h == nil {
		return nil
	}
	close(h.entered)
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) Handles(library.Operation) bool { return true }

// mutatingGate and validatingGate select the admission phase of a gate.
type (
	mutatingGate   struct{ *gate }
	validatingGate struct{ *gate }
)

func (g mutatingGate) Admit(ctx context.Context, a library.Attributes, _ library.ObjectInterfaces) error {
	return g.pass(ctx, a)
}

func (g validatingGate) Validate(ctx context.Context, a library.Attributes, _ library.ObjectInterfaces) error {
	return g.pass(ctx, a)
}

// gated adds gates after NamespaceLifecycle.
func gated(gates ...library.Interface) func(*Config) {
	return func(c *Config) {
		c.Admission.Plugins = plugins.NamespaceLifecycle()
		for i, g := range gates {
			c.Admission.Plugins = append(c.Admission.Plugins, admission.Plugin{
				Name: fmt.Sprintf("Gate%d", i), Default: true,
				New: func(admission.Deps, io.Reader) (library.Interface, error) { return g, nil },
			})
		}
	}
}

// finalize removes the finalizer of an empty namespace, as the namespace controller does.
func finalize(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Get(within(t), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if _, err := client.CoreV1().Namespaces().Finalize(within(t), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func deleteNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	if err := client.CoreV1().Namespaces().Delete(within(t), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// creation is a way to store an object in a namespace.
type creation struct {
	name string
	// do creates an object with these annotations.
	do func(ctx context.Context, namespace string, annotations map[string]string) error
	// resource and object appear in error messages.
	resource, object string
}

// creations returns every type of request that stores an object in a namespace.
func creations(client kubernetes.Interface, anything dynamic.Interface) []creation {
	options := metav1.CreateOptions{}
	named := func(name string, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: annotations}
	}
	boat := func(annotations map[string]string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "sea.example.com/v1", "kind": "Boat", "metadata": map[string]any{"name": "late"}, "spec": map[string]any{"crew": int64(1)},
		}}
		u.SetAnnotations(annotations)
		return u
	}
	return []creation{
		{"create", func(ctx context.Context, ns string, a map[string]string) error {
			_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: named("late", a)}, options)
			return err
		}, "configmaps", "late"},
		{"create of a kind without a watch cache", func(ctx context.Context, ns string, a map[string]string) error {
			_, err := client.CoreV1().Events(ns).Create(ctx, &corev1.Event{
				ObjectMeta: named("late", a), InvolvedObject: corev1.ObjectReference{Namespace: ns, Name: "x"},
			}, options)
			return err
		}, "events", "late"},
		{"create of a Service", func(ctx context.Context, ns string, a map[string]string) error {
			_, err := client.CoreV1().Services(ns).Create(ctx, &corev1.Service{
				ObjectMeta: named("late", a), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}, options)
			return err
		}, "services", "late"},
		{"create with a generated name", func(ctx context.Context, ns string, a map[string]string) error {
			_, err := client.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "late-", Annotations: a}}, options)
			return err
		}, "secrets", "late-"},
		{"update that creates", func(ctx context.Context, ns string, a map[string]string) error {
			_, err := client.CoordinationV1().Leases(ns).Update(ctx, &coordinationv1.Lease{ObjectMeta: named("late", a)}, metav1.UpdateOptions{})
			return err
		}, "leases.coordination.k8s.io", "late"},
		{"apply that creates", func(ctx context.Context, ns string, a map[string]string) error {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]any{"name": "late"}}}
			u.SetAnnotations(a)
			_, err := anything.Resource(rbacv1.SchemeGroupVersion.WithResource("roles")).Namespace(ns).Apply(ctx, "late", u, metav1.ApplyOptions{FieldManager: "t"})
			return err
		}, "roles.rbac.authorization.k8s.io", "late"},
		{"create of a custom resource", func(ctx context.Context, ns string, a map[string]string) error {
			_, err := anything.Resource(boatsV1).Namespace(ns).Create(ctx, boat(a), options)
			return err
		}, "boats.sea.example.com", "late"},
		{"apply that creates a custom resource", func(ctx context.Context, ns string, a map[string]string) error {
			_, err := anything.Resource(boatsV1).Namespace(ns).Apply(ctx, "late", boat(a), metav1.ApplyOptions{FieldManager: "t"})
			return err
		}, "boats.sea.example.com", "late"},
	}
}

// stored returns the keys in etcd of the objects in a namespace.
func (h *testServer) stored(t *testing.T, namespace string) (keys []string) {
	t.Helper()
	answer, err := h.store.Client().KV.Get(within(t), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		if strings.Contains(string(kv.Key), "/"+namespace+"/") {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

// A request passes NamespaceLifecycle while its namespace exists. A webhook, a policy or a quota then holds it. The result
// depends on the state of the namespace at the time of the write.
func TestCreateHeldDuringNamespaceDeletionIsRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	mutating, validating := newGate("mutating"), newGate("validating")
	h := start(t, gated(mutatingGate{mutating}, validatingGate{validating}))
	s := crdServerOver(t, h)
	s.define(t, boats)
	client := h.typed(t, admin)
	for _, meanwhile := range []struct {
		name string
		do   func(t *testing.T, ns string)
		// want returns the difference between the response and the expected response, or "".
		want func(c creation, ns string, err error) string
		left bool // an object remains in etcd
	}{
		{"nothing happens", func(*testing.T, string) {}, succeeds, true},
		{"the namespace is relabelled", func(t *testing.T, ns string) {
			for i := range 3 {
				relabel(t, client, ns, strconv.Itoa(i))
			}
		}, succeeds, true},
		{"the namespace begins to go", func(t *testing.T, ns string) { deleteNamespace(t, client, ns) }, isTerminating, false},
		{"the namespace goes", func(t *testing.T, ns string) {
			deleteNamespace(t, client, ns)
			finalize(t, client, ns)
		}, isGone, false},
		{"another namespace gets the name", func(t *testing.T, ns string) {
			deleteNamespace(t, client, ns)
			finalize(t, client, ns)
			namespace(t, client, ns)
		}, isGone, false},
		{"another namespace gets the name, and begins to go", func(t *testing.T, ns string) {
			deleteNamespace(t, client, ns)
			finalize(t, client, ns)
			namespace(t, client, ns)
			deleteNamespace(t, client, ns)
		}, isGone, false},
		{"ten others have had the name", func(t *testing.T, ns string) {
			for range 10 {
				deleteNamespace(t, client, ns)
				finalize(t, client, ns)
				namespace(t, client, ns)
			}
		}, isGone, false},
	} {
		for i, c := range creations(client, s.dynamic) {
			for _, g := range []*gate{mutating, validating} {
				t.Run(meanwhile.name+"/"+c.name+"/"+g.annotation, func(t *testing.T) {
					ns := fmt.Sprintf("%.3s-%s-%d", g.annotation, strings.NewReplacer(" ", "", ",", "").Replace(meanwhile.name), i)
					namespace(t, client, ns)
					held := g.hold(library.Create, ns)
					answered := promise(func() error { return c.do(within(t), ns, map[string]string{g.annotation: ns}) })
					select {
					case <-held.entered:
					case err := <-answered:
						t.Fatalf("the request returned %v before the gate held it, want it held", err)
					}
					meanwhile.do(t, ns)
					close(held.release)
					if wrong := meanwhile.want(c, ns, <-answered); wrong != "" {
						t.Errorf("response to the create of %s: %s, want no difference", c.resource, wrong)
					}
					if keys := h.stored(t, ns); (len(keys) > 0) != meanwhile.left {
						t.Errorf("stored keys = %v, want some: %v", keys, meanwhile.left)
					}
				})
			}
		}
	}
}

func relabel(t *testing.T, client kubernetes.Interface, ns, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"changes":%q}}}`, value)
	if _, err := client.CoreV1().Namespaces().Patch(within(t), ns, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

func succeeds(_ creation, _ string, err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// isTerminating checks for the response of the plugin NamespaceLifecycle.
func isTerminating(c creation, ns string, err error) string {
	begins := fmt.Sprintf("%s %q is forbidden: ", c.resource, c.object)
	if strings.HasSuffix(c.object, "-") {
		begins = fmt.Sprintf("%s %q", c.resource, c.object) // the rest of the name is random
		begins = strings.TrimSuffix(begins, `"`)
	}
	wanted := fmt.Sprintf("is forbidden: unable to create new content in namespace %s because it is being terminated", ns)
	if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), begins) || !strings.HasSuffix(err.Error(), wanted) {
		return fmt.Sprintf("got %v, want %s... %s", err, begins, wanted)
	}
	cause, ok := apierrors.StatusCause(err, corev1.NamespaceTerminatingCause)
	if !ok || cause.Message != "namespace "+ns+" is being terminated" || cause.Field != "metadata.namespace" {
		return fmt.Sprintf("cause %+v", cause)
	}
	return ""
}

func isGone(_ creation, ns string, err error) string {
	if wanted := fmt.Sprintf("namespaces %q not found", ns); !apierrors.IsNotFound(err) || err.Error() != wanted {
		return fmt.Sprintf("got %v, want %s", err, wanted)
	}
	return ""
}

// A request begins when it is authorized. A slow body is another way to delay a request.
func TestCreateWithLateBodyInDeletedNamespaceIs404(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	for _, c := range []struct{ method, path, contentType, body string }{
		{http.MethodPost, "/api/v1/namespaces/NS/configmaps", "application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"late"}}`},
		{http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/NS/leases/late", "application/json", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"late"}}`},
		{http.MethodPatch, "/api/v1/namespaces/NS/configmaps/late?fieldManager=t", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"late"}}`},
	} {
		t.Run(c.method, func(t *testing.T) {
			ns := "slow-" + strings.ToLower(c.method)
			namespace(t, client, ns)
			body, rest := io.Pipe()
			request, err := http.NewRequestWithContext(within(t), c.method, "http://in-process.invalid"+strings.ReplaceAll(c.path, "NS", ns), body)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", c.contentType)
			answered := make(chan *http.Response, 1)
			go func() {
				answer, err := h.ClientConfig(admin).Transport.RoundTrip(request)
				if err != nil {
					t.Error(err)
				}
				answered <- answer
			}()
			if _, err := io.WriteString(rest, c.body[:10]); err != nil { // returns after the handler read these bytes
				t.Fatal(err)
			}
			deleteNamespace(t, client, ns)
			finalize(t, client, ns)
			namespace(t, client, ns)
			if _, err := io.WriteString(rest, c.body[10:]); err != nil {
				t.Fatal(err)
			}
			_ = rest.Close()
			answer := <-answered
			if answer == nil {
				return
			}
			defer answer.Body.Close()
			if said, err := io.ReadAll(answer.Body); answer.StatusCode != http.StatusNotFound || err != nil {
				t.Errorf("response = %d %s, %v, want 404", answer.StatusCode, said, err)
			}
			if keys := h.stored(t, ns); len(keys) > 0 {
				t.Errorf("stored keys = %v, want none", keys)
			}
		})
	}
}

// A change that was admitted in one namespace is not applied to the object with the same name in the next namespace.
func TestWriteHeldUntilNamespaceIsRecreatedConflicts(t *testing.T) {
	g := newGate("held")
	h := start(t, gated(validatingGate{g}))
	client := h.typed(t, admin)
	for _, c := range []struct {
		name      string
		operation library.Operation
		do        func(ctx context.Context, ns string) error
	}{
		{"update", library.Update, func(ctx context.Context, ns string) error {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "same", Annotations: map[string]string{"held": ns}}, Data: map[string]string{"from": "before"}}
			_, err := client.CoreV1().ConfigMaps(ns).Update(ctx, cm, metav1.UpdateOptions{})
			return err
		}},
		{"patch", library.Update, func(ctx context.Context, ns string) error {
			_, err := client.CoreV1().ConfigMaps(ns).Patch(ctx, "same", types.MergePatchType, []byte(`{"data":{"from":"before"}}`), metav1.PatchOptions{})
			return err
		}},
		{"delete", library.Delete, func(ctx context.Context, ns string) error {
			return client.CoreV1().ConfigMaps(ns).Delete(ctx, "same", metav1.DeleteOptions{})
		}},
		{"deletecollection", library.Delete, func(ctx context.Context, ns string) error {
			return client.CoreV1().ConfigMaps(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := "change-" + c.name
			fill := func(from string) {
				t.Helper()
				namespace(t, client, ns)
				mustCreate(t, client, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: "same", Namespace: ns, Annotations: map[string]string{"held": ns}}, Data: map[string]string{"from": from},
				})
			}
			fill("the first")
			held := g.hold(c.operation, ns)
			answered := promise(func() error { return c.do(within(t), ns) })
			<-held.entered
			if err := client.CoreV1().ConfigMaps(ns).Delete(within(t), "same", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			deleteNamespace(t, client, ns)
			finalize(t, client, ns)
			fill("after")
			close(held.release)
			if err := <-answered; !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "was deleted and created again") {
				t.Errorf("error of the held change = %v, want Conflict with \"was deleted and created again\"", err)
			}
			got, err := client.CoreV1().ConfigMaps(ns).Get(within(t), "same", metav1.GetOptions{})
			if err != nil || got.Data["from"] != "after" {
				t.Errorf("object of the next namespace = %v, %v, want from=after", got, err)
			}
		})
	}
}

// A token request that was admitted in one namespace gets no token for the account with the same name in the next namespace.
func TestTokenRequestHeldUntilNamespaceIsRecreatedFails(t *testing.T) {
	mutating, validating := newGate("mutating"), newGate("validating")
	h := start(t, gated(mutatingGate{mutating}, validatingGate{validating}))
	client := h.typed(t, admin)
	for _, g := range []*gate{mutating, validating} {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replaced: %t", g.annotation, replaced), func(t *testing.T) {
				ns := fmt.Sprintf("token-%s-%t", g.annotation, replaced)
				fill := func() {
					t.Helper()
					namespace(t, client, ns)
					if _, err := client.CoreV1().ServiceAccounts(ns).Create(within(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "same"}}, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				fill()
				held := g.hold(library.Create, ns)
				answered := promise(func() error {
					ask := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{g.annotation: ns}}}
					_, err := client.CoreV1().ServiceAccounts(ns).CreateToken(within(t), "same", ask, metav1.CreateOptions{})
					return err
				})
				<-held.entered
				if replaced {
					if err := client.CoreV1().ServiceAccounts(ns).Delete(within(t), "same", metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
					deleteNamespace(t, client, ns)
					finalize(t, client, ns)
					fill()
				}
				close(held.release)
				err := <-answered
				if !replaced && err != nil {
					t.Error(err)
				}
				if wrong := isGone(creation{}, ns, err); replaced && wrong != "" {
					t.Errorf("response to the token request: %s, want no difference", wrong)
				}
			})
		}
	}
}

// promise returns a channel for the result of f.
func promise(f func() error) <-chan error {
	answered := make(chan error, 1)
	go func() { answered <- f() }()
	return answered
}

// stamp is an admission plugin after NamespaceLifecycle. It writes the time of the test's clock into each object and then
// waits for some ticks.
type stamp struct {
	clock *ticks
	waits func() int64
}

const stampedAt = "stamped-at"

// ticks is a clock that the test advances. Each tick wakes all waiters at once.
type ticks struct {
	mu   sync.Mutex // guards the fields below
	now  int64
	next chan struct{} // closed at the next tick
}

func (c *ticks) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	close(c.next)
	c.next = make(chan struct{})
}

func (c *ticks) read() (int64, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.next
}

func (s stamp) Handles(o library.Operation) bool { return o == library.Create }

func (s stamp) Admit(ctx context.Context, a library.Attributes, _ library.ObjectInterfaces) error {
	if a.GetNamespace() != "work" || a.GetResource().Resource == "namespaces" {
		return nil
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return err
	}
	began, next := s.clock.read()
	m.SetAnnotations(map[string]string{stampedAt: strconv.FormatInt(began, 10)})
	for until := began + s.waits(); ; {
		now, again := s.clock.read()
		if now >= until {
			return nil
		}
		select {
		case <-next:
			next = again
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Sixteen writers on two servers create all types of objects in a namespace that is deleted and created repeatedly. Each
// request is held for up to three lives of the namespace. No object exists without the namespace, and no object that was
// admitted before a namespace was created exists in it.
func TestWritesNeverReachRecreatedNamespace(t *testing.T) {
	t.Parallel()
	clock := &ticks{next: make(chan struct{})}
	held := gated(stamp{clock, func() int64 { return rand.Int64N(7) }})
	one := start(t, held)
	two := one.second(t)
	crdServer := crdServerOver(t, one)
	crdServer.define(t, boats)
	clients := []kubernetes.Interface{one.typed(t, admin), two.typed(t, admin)}
	other := crdServerOver(t, two)
	poll(t, "the second server serves boats", func(context.Context) bool { return two.GroupVersions().Has(boatsV1.GroupVersion()) })
	namespace(t, clients[0], "work")

	ctx, stop := context.WithCancel(within2m(t))
	defer stop()
	var (
		writing             sync.WaitGroup
		made, refused, lost atomic.Int64
	)
	for i := range 16 {
		ways := creations(clients[i%2], []dynamic.Interface{crdServer.dynamic, other.dynamic}[i%2])
		writing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := ways[(i+n)%len(ways)].do(ctx, "work", nil)
				switch {
				case err == nil:
					made.Add(1)
				case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
					refused.Add(1)
				case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
					lost.Add(1) // lost to another writer: an update of an existing Lease requires its version
				case ctx.Err() == nil:
					t.Error(err)
				}
				_, next := clock.read()
				select {
				case <-next:
				case <-ctx.Done():
				}
			}
		})
	}
	born := int64(0)
	for life := range 25 {
		for range 3 { // releases some of the waiters
			clock.tick()
			if life%3 == 0 {
				relabel(t, clients[life%2], "work", strconv.Itoa(life))
			}
		}
		for _, o := range objectsIn(t, one, "work") {
			if o.at < born {
				t.Errorf("life %d began at %d, %s was admitted at %d, want later than the beginning", life, born, o.key, o.at)
			}
		}
		deleteNamespace(t, clients[life%2], "work")
		clock.tick()
		one.purge(t, "work")
		finalize(t, clients[(life+1)%2], "work")
		clock.tick()
		clock.tick()
		if keys := one.stored(t, "work"); len(keys) > 0 {
			t.Errorf("keys after the end of life %d = %v, want none", life, keys)
			one.purge(t, "work")
		}
		born, _ = clock.read()
		born++
		clock.tick()
		namespace(t, clients[life%2], "work")
	}
	stop()
	for range 8 {
		clock.tick()
	}
	writing.Wait()
	t.Logf("%d made, %d refused, %d lost to another writer", made.Load(), refused.Load(), lost.Load())
	if made.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d created, %d refused, want both more than 0", made.Load(), refused.Load())
	}
}

func within2m(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// purge deletes the objects of a namespace in etcd.
func (h *testServer) purge(t *testing.T, namespace string) {
	t.Helper()
	for _, key := range h.stored(t, namespace) {
		if _, err := h.store.Client().KV.Delete(within(t), key); err != nil {
			t.Fatal(err)
		}
	}
}

type stamped struct {
	key string
	at  int64
}

// objectsIn returns the objects of a namespace in etcd with their stamps.
func objectsIn(t *testing.T, h *testServer, namespace string) (found []stamped) {
	t.Helper()
	for _, key := range h.stored(t, namespace) {
		answer, err := h.store.Client().KV.Get(within(t), key)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range answer.Kvs {
			at, err := stampIn(kv.Value)
			if err != nil {
				t.Errorf("stamp of %s: %v, want no error", key, err)
				continue
			}
			found = append(found, stamped{key, at})
		}
	}
	return found
}

// stampIn finds the stamp in a stored object, in protobuf or JSON: the digits after its name and a few other bytes.
func stampIn(value []byte) (int64, error) {
	_, rest, ok := strings.Cut(string(value), stampedAt)
	if !ok {
		return 0, errors.New("it has no stamp")
	}
	begin := strings.IndexAny(rest, "0123456789")
	if begin < 0 || begin > 3 {
		return 0, fmt.Errorf("no digits behind the stamp: %.10q", rest)
	}
	rest = rest[begin:]
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	return strconv.ParseInt(rest[:end], 10, 64)
}

// Creates in a namespace succeed while a client changes its labels continuously.
func TestCreatesSucceedWhileNamespaceIsRelabelled(t *testing.T) {
	t.Parallel()
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	ctx, stop := context.WithCancel(within2m(t))
	defer stop()
	var changing, creating sync.WaitGroup
	var changes atomic.Int64
	for range 4 {
		changing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				patch := fmt.Sprintf(`{"metadata":{"labels":{"changes":"%d-%d"}}}`, n, rand.Int())
				if _, err := client.CoreV1().Namespaces().Patch(ctx, "work", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
					changes.Add(1)
				}
			}
		})
	}
	for i := range 8 {
		creating.Go(func() {
			for j := range 25 {
				_, err := client.CoreV1().ConfigMaps("work").Create(ctx, configMap(fmt.Sprintf("c-%d-%d", i, j), nil), metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()
	stop()
	changing.Wait()
	t.Logf("%d changes of the namespace beside 200 creates", changes.Load())
	if changes.Load() < 10 {
		t.Errorf("%d changes of the namespace, want at least 10", changes.Load())
	}
}

// countedKV counts the requests to etcd about objects of some kinds.
type countedKV struct {
	clientv3.KV
	reads, writes atomic.Int64
}

func (k *countedKV) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if strings.Contains(key, "/work") {
		k.reads.Add(1)
	}
	return k.KV.Get(ctx, key, o...)
}

func (k *countedKV) Txn(ctx context.Context) clientv3.Txn {
	k.writes.Add(1)
	return k.KV.Txn(ctx)
}

// Conditions on the namespace add no request to etcd: a create reads its namespace and writes, an update and a deletion do not
// read the namespace.
func TestNamespaceConditionsAddNoEtcdRequests(t *testing.T) {
	kv := &countedKV{}
	h := start(t, func(c *Config) {
		client := c.Store.Client()
		kv.KV = client.KV
		client.KV = kv
	})
	client := h.typed(t, admin)
	namespace(t, client, "work")
	maps := client.CoreV1().ConfigMaps("work")
	mustCreate(t, client, configMap("gone", nil))
	poll(t, "the watch caches know what is there", func(ctx context.Context) bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, "work", metav1.GetOptions{ResourceVersion: "0"})
		_, also := maps.Get(ctx, "gone", metav1.GetOptions{ResourceVersion: "0"})
		return err == nil && also == nil
	})
	for _, c := range []struct {
		name          string
		do            func() error
		reads, writes int64
	}{
		{"create", func() error {
			_, err := maps.Create(within(t), configMap("c", nil), metav1.CreateOptions{})
			return err
		}, 1, 1},
		{"create with a generated name", func() error {
			cm := configMap("", nil)
			cm.GenerateName = "c-"
			_, err := maps.Create(within(t), cm, metav1.CreateOptions{})
			return err
		}, 1, 1},
		{"update that creates", func() error {
			_, err := client.CoordinationV1().Leases("work").Update(within(t), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.UpdateOptions{})
			return err
		}, 2, 1}, // of the lease and of the namespace
		{"patch", func() error {
			_, err := maps.Patch(within(t), "c", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
			return err
		}, 1, 1},
		{"delete", func() error { return maps.Delete(within(t), "gone", metav1.DeleteOptions{}) }, 1, 1},
	} {
		reads, writes := kv.reads.Load(), kv.writes.Load()
		if err := c.do(); err != nil {
			t.Errorf("%s failed: %v, want no error", c.name, err)
		}
		if r, w := kv.reads.Load()-reads, kv.writes.Load()-writes; r > c.reads || w > c.writes {
			t.Errorf("%s: %d reads and %d writes, want at most %d and %d", c.name, r, w, c.reads, c.writes)
		} else {
			t.Logf("%s: %d reads and %d writes", c.name, r, w)
		}
	}
}

// busyKV writes the namespace "work" before each of the next transactions.
type busyKV struct {
	clientv3.KV
	left atomic.Int64
}

func (k *busyKV) Txn(ctx context.Context) clientv3.Txn {
	if k.left.Add(-1) >= 0 {
		const key = "/registry/namespaces/work"
		if found, err := k.Get(ctx, key); err == nil && len(found.Kvs) == 1 {
			_, _ = k.Put(ctx, key, string(found.Kvs[0].Value)) // the test fails if the write fails
		}
	}
	return k.KV.Txn(ctx)
}

// A create gives up after a number of attempts and reports correctly that the object was not stored.
func TestCreateGivesUpAfterRepeatedNamespaceChanges(t *testing.T) {
	t.Parallel()
	kv := &busyKV{}
	h := start(t, func(c *Config) {
		client := c.Store.Client()
		kv.KV = client.KV
		client.KV = kv
	})
	namespace(t, h.typed(t, admin), "work")
	client := rawClient(t, h)
	create := func(name string, writes int64) error {
		kv.left.Store(writes)
		defer kv.left.Store(0)
		return client.Post().AbsPath("/api/v1/namespaces/work/configmaps").MaxRetries(0).SetHeader("Content-Type", "application/json").
			Body([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`)).Do(within(t)).Error()
	}
	if err := create("last", createAttempts-1); err != nil {
		t.Errorf("create on the last attempt failed: %v, want no error", err)
	}
	err := create("never", createAttempts)
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != retryAfterSeconds || !strings.Contains(err.Error(), "is being changed all the time") {
		t.Errorf("create after all attempts: error = %v, want TooManyRequests with retryAfterSeconds %d", err, retryAfterSeconds)
	}
	if keys := h.stored(t, "work"); len(keys) != 1 || !strings.HasSuffix(keys[0], "/last") {
		t.Errorf("stored keys = %v, want one with the suffix /last", keys)
	}
}
