package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/gateway/lastknown"
	routingclient "portico.dev/internal/routes/client"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/tools/drill/faulty"
)

// A gateway does not wait for APIRoutes while the API server does not serve the kind. When the kind exists, the gateway reads
// them, and when the kind is deleted, it drops them.
func TestAPIRoutesFollowTheirDefinition(t *testing.T) {
	var defined atomic.Bool
	deleted := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !defined.Load():
			http.NotFound(w, r)
		case r.URL.Query().Has("sendInitialEvents"): // the server does not support them
			http.Error(w, "no initial events", http.StatusBadRequest)
		case r.URL.Query().Has("watch"):
			w.Header().Set("Content-Type", "application/json")
			w.(http.Flusher).Flush()
			select { // a watch ends when the kind is deleted
			case <-deleted:
			case <-r.Context().Done():
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"kind":"APIRouteList","apiVersion":"routing.portico.dev/v1alpha1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"v1.example.com","uid":"u","resourceVersion":"5"},"spec":{"backends":[{"name":"a"}]}}]}`)
		}
	}))
	t.Cleanup(server.Close)
	client, err := routingclient.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	informer := apiRoutes{client, 10 * time.Millisecond}.informer()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); informer.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	has := func(n int) func() error {
		return func() error {
			if got := len(informer.GetStore().ListKeys()); !informer.HasSynced() || got != n {
				return fmt.Errorf("synced: %t, APIRoutes: %d", informer.HasSynced(), got)
			}
			return nil
		}
	}
	eventually(t, "there are none", has(0))
	defined.Store(true)
	eventually(t, "there is one", has(1))
	defined.Store(false)
	close(deleted)
	eventually(t, "there are none again", has(0))
}

// canary starts a second server of the group-version of a backend, with a separate Service.
func (c *cluster) canary(group string) (*faulty.Server, v1alpha1.APIRouteBackend) {
	c.t.Helper()
	server, err := faulty.New(faulty.Config{Group: group, ServerName: "canary.kube-system.svc", Address: "127.0.0.1:0", Stores: true})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
	<-server.Ready()
	_, err = c.client.CoreV1().Services("kube-system").Create(c.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "canary"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	port := server.Port()
	return server, v1alpha1.APIRouteBackend{
		Name: "canary", Service: &v1alpha1.ServiceReference{Namespace: "kube-system", Name: "canary", Port: &port}, CABundle: server.CABundle(),
	}
}

func (c *cluster) apiRoutes() *routingclient.APIRoutes {
	c.t.Helper()
	client, err := routingclient.New(c.Config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// The gateway routes its adopted APIServices by the same APIRoutes as a front door. The front door leaves them to the gateway.
func TestGatewayRoutesByAPIRoutes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("routed.example.com")
	canary, second := c.canary("routed.example.com")
	gateway := c.start()
	routes := c.apiRoutes()
	stableNamespace, canaryNamespace := c.Namespace(), c.Namespace()
	_, err := routes.Create(t.Context(), &v1alpha1.APIRoute{
		ObjectMeta: metav1.ObjectMeta{Name: backend.APIService},
		Spec: v1alpha1.APIRouteSpec{
			Backends: []v1alpha1.APIRouteBackend{{Name: "stable"}, second},
			Rules: []v1alpha1.APIRouteRule{{
				Name: "moved", Matches: []v1alpha1.APIRouteMatch{{Namespaces: []string{canaryNamespace}}}, BackendRefs: []v1alpha1.BackendRef{{Name: "canary"}},
				SharedReads: &v1alpha1.SharedReads{MaxAge: metav1.Duration{Duration: time.Minute}, Callers: v1alpha1.CallersAll},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.adopt(backend.APIService)
	is := func(backends map[string]metav1.ConditionStatus) func() error {
		return func() error {
			o, err := routes.Get(t.Context(), backend.APIService, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, b := range o.Status.Backends {
				if now := meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionAvailable); now != nil && now.Status == backends[b.Name] {
					delete(backends, b.Name)
				}
			}
			if accepted := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionAccepted); len(backends) > 0 || accepted == nil || accepted.Status != metav1.ConditionTrue {
				return fmt.Errorf("missing: %v: %+v", backends, o.Status)
			}
			return nil
		}
	}
	eventually(t, "both backends are available", is(map[string]metav1.ConditionStatus{"stable": metav1.ConditionTrue, "canary": metav1.ConditionTrue}))
	eventually(t, "both servers believe the gateway", func() error {
		return c.condition(backend.APIService, adoption.FrontProxyTrusted, apiregistrationv1.ConditionTrue)
	})

	widgets := c.objects(backend.GroupVersion, "widgets")
	for _, namespace := range []string{stableNamespace, canaryNamespace} {
		if _, err := widgets.Namespace(namespace).Create(t.Context(), widget("w"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if backend.Stored(stableNamespace) != 1 || backend.Stored(canaryNamespace) != 0 || canary.Stored(canaryNamespace) != 1 {
		t.Errorf("stored objects = %d and %d at the first server, %d at the second; want 1, 0 and 1",
			backend.Stored(stableNamespace), backend.Stored(canaryNamespace), canary.Stored(canaryNamespace))
	}
	shared := func() bool {
		return strings.Contains(gateway.scrape(t), `portico_shared_reads_total{apiroute="`+backend.APIService+`",result="kept"} `)
	}
	for range 2 {
		if _, err := widgets.Namespace(canaryNamespace).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if !shared() {
		t.Error("no read was shared, want some")
	}
	c.storedDocuments(backend.APIService+"/stable", backend.APIService+"/canary")

	if err := canary.SetFault(faulty.Refuse); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one backend is unavailable", is(map[string]metav1.ConditionStatus{"stable": metav1.ConditionTrue, "canary": metav1.ConditionFalse}))
	_, err = widgets.Namespace(canaryNamespace).Get(t.Context(), "other", metav1.GetOptions{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "backend canary of APIRoute "+backend.APIService) {
		t.Errorf("GET at the dead backend = %v, want ServiceUnavailable with the backend's name", err)
	}
	if _, err := widgets.Namespace(stableNamespace).Get(t.Context(), "w", metav1.GetOptions{}); err != nil {
		t.Errorf("GET at the other backend failed: %v, want no error", err)
	}
	if err := c.condition(backend.APIService, adoption.BackendAvailable, apiregistrationv1.ConditionTrue); err != nil {
		t.Error(err)
	}

	if err := routes.Delete(t.Context(), backend.APIService, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "without an APIRoute all requests go to the first one", func() error {
		_, err := widgets.Namespace(canaryNamespace).Get(t.Context(), "w", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// storedDocuments waits until the gateway has stored the discovery documents of these.
func (c *cluster) storedDocuments(names ...string) {
	c.t.Helper()
	for _, name := range names {
		eventually(c.t, "the documents of "+name+" are stored", func() error {
			_, err := c.client.CoreV1().ConfigMaps(c.gateway.Namespace).Get(c.t.Context(), lastknown.Name(name), metav1.GetOptions{})
			return err
		})
	}
}

// An alias: no server has the version, so there is no APIService to adopt, and the adopted APIService is written by hand.
func TestAliasRoutesVersionWithoutServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.ReadOnlyBackend("aliased.example.com")
	c.start()
	original := c.apiService(backend.APIService)
	alias := "v2.aliased.example.com"
	ca, err := c.adopter.PublishedCA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: alias, Annotations: map[string]string{
			adoption.OriginalServiceAnnotation: adoption.ServiceOf(original.Spec.Service).String(), adoption.OriginalCABundleAnnotation: base64.StdEncoding.EncodeToString(original.Spec.CABundle),
		}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "aliased.example.com", Version: "v2", GroupPriorityMinimum: 1000, VersionPriority: 50, CABundle: ca, Service: c.gateway.Reference(),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.apiRoutes().Create(t.Context(), &v1alpha1.APIRoute{
		ObjectMeta: metav1.ObjectMeta{Name: alias},
		Spec:       v1alpha1.APIRouteSpec{Backends: []v1alpha1.APIRouteBackend{{Name: "old", Version: "v1"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	readings := c.objects(schema.GroupVersion{Group: "aliased.example.com", Version: "v2"}, "readings").Namespace(c.Namespace())
	eventually(t, "the other version is served", func() error {
		list, err := readings.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if list.GetAPIVersion() != "aliased.example.com/v2" {
			return fmt.Errorf("listed: %v", list.Object)
		}
		return nil
	})
	eventually(t, "the gateway says that the server is there", func() error {
		return c.condition(alias, adoption.BackendAvailable, apiregistrationv1.ConditionTrue)
	})
}

// An APIRoute by which the gateway would call itself. TestG1IdentityHeadersRequireFrontProxyCertificate covers a request that reaches another
// replica.
func TestG10BackendLoopIsRejected(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("round.example.com")
	c.start()
	c.adopt(backend.APIService)
	ca, err := c.adopter.PublishedCA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.apiRoutes().Create(t.Context(), &v1alpha1.APIRoute{
		ObjectMeta: metav1.ObjectMeta{Name: backend.APIService},
		Spec: v1alpha1.APIRouteSpec{
			Backends: []v1alpha1.APIRouteBackend{
				{Name: "stable"},
				{Name: "round", Service: &v1alpha1.ServiceReference{Namespace: c.gateway.Namespace, Name: c.gateway.Name, Port: &c.gateway.Port}, CABundle: ca},
			},
			Rules: []v1alpha1.APIRouteRule{{Name: "round", Matches: []v1alpha1.APIRouteMatch{{Namespaces: []string{"round"}}}, BackendRefs: []v1alpha1.BackendRef{{Name: "round"}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := c.objects(backend.GroupVersion, "widgets")
	eventually(t, "the backend that leads back is refused", func() error {
		_, err := widgets.Namespace("round").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "backend round of APIRoute "+backend.APIService+" is unavailable (ForbiddenAddress") {
			return fmt.Errorf("a list: %w", err)
		}
		return nil
	})
	if _, err := widgets.Namespace("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("List at the other backend failed: %v, want no error", err)
	}
}

// The right to write APIRoutes decides where requests go, not which requests are allowed. The API server authorizes each
// request before the gateway applies a rule, also a request that shares a response or a watch.
func TestG11APIRouteDoesNotBypassAuthorization(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("tenants.example.com")
	_, second := c.canary("tenants.example.com")
	gateway := c.start()
	namespace := c.Namespace()
	tenant, guest, other := c.User("tenant"), c.User("guest"), c.User("other")
	edit := []rbacv1.PolicyRule{{APIGroups: []string{backend.GroupVersion.Group}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch", "create"}}}
	c.Grant("guest", namespace, edit...)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant-is-admin-of-namespaces"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tenant"}},
	}
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	route := &v1alpha1.APIRoute{
		ObjectMeta: metav1.ObjectMeta{Name: backend.APIService},
		Spec: v1alpha1.APIRouteSpec{
			Backends: []v1alpha1.APIRouteBackend{{Name: "stable"}, second},
			Rules: []v1alpha1.APIRouteRule{{
				Name: "all", Matches: []v1alpha1.APIRouteMatch{{Namespaces: []string{namespace}}}, BackendRefs: []v1alpha1.BackendRef{{Name: "canary"}},
				SharedReads: &v1alpha1.SharedReads{MaxAge: metav1.Duration{Duration: time.Minute}, Callers: v1alpha1.CallersAll, Watches: true},
			}},
		},
	}
	as := func(config *rest.Config) *routingclient.APIRoutes {
		client, err := routingclient.New(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	if _, err := as(tenant).Create(t.Context(), route, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Create of an APIRoute by an admin of namespaces = %v, want Forbidden", err)
	}
	if _, err := as(c.Config).Create(t.Context(), route, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.adopt(backend.APIService)

	widgets := func(config *rest.Config, namespace string) dynamic.ResourceInterface {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client.Resource(backend.GroupVersion.WithResource("widgets")).Namespace(namespace)
	}
	eventually(t, "the second server is used", func() error {
		_, err := widgets(guest, namespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && !strings.Contains(gateway.scrape(t), `portico_shared_reads_total{apiroute="`+backend.APIService+`",result="kept"} `) {
			err = errors.New("no response was shared")
		}
		return err
	})
	guests, err := widgets(guest, namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer guests.Stop()
	if _, err := widgets(guest, namespace).Create(t.Context(), widget("w"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-guests.ResultChan():
		if event.Type != watch.Added {
			t.Errorf("event of the shared watch = %+v, want ADDED", event)
		}
	case <-time.After(testTimeout):
		t.Fatal("no event of the shared watch arrived, want ADDED")
	}

	for who, config := range map[string]*rest.Config{"no rights": other, "rights to what Kubernetes has": tenant} {
		for what, namespace := range map[string]string{"of a namespace": namespace, "of all namespaces": ""} {
			if _, err := widgets(config, namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("user with %s: List %s = %v, want Forbidden", who, what, err)
			}
			if w, err := widgets(config, namespace).Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("user with %s: Watch %s = %v, want Forbidden", who, what, err)
				if err == nil {
					w.Stop()
				}
			}
		}
	}
	if _, err := widgets(guest, "").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("List of all namespaces with rights in one = %v, want Forbidden", err)
	}
}
