package admission

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// hookServer is a server of the Service hook/webhook that allows every request.
func hookServer(t testing.TB) (server *httptest.Server, bundle []byte) {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Issue(pki.Leaf{CommonName: "webhook", DNSNames: []string{"webhook.hook.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Request, review.Response = nil, &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // fails if the caller is gone
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, authority.PEM()
}

// hookClients returns client managers like those of k8s.io/apiserver's plugins.
func hookClients(t testing.TB, resolver webhook.ServiceResolver, wrapper webhook.AuthenticationInfoResolverWrapper) *webhook.ClientManager {
	t.Helper()
	m, err := webhook.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	m.SetAuthenticationInfoResolver(&webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc:        func(string) (*rest.Config, error) { return &rest.Config{}, nil },
		ClientConfigForServiceFunc: func(string, string, int) (*rest.Config, error) { return &rest.Config{}, nil },
	})
	m.SetAuthenticationInfoResolverWrapper(wrapper)
	m.SetServiceResolver(resolver)
	return &m
}

func hookClient(t testing.TB, m *webhook.ClientManager, service string, bundle []byte) *rest.RESTClient {
	t.Helper()
	client, err := m.HookClient(webhook.ClientConfig{
		Name: "x", CABundle: bundle, Service: &webhook.ClientConfigService{Namespace: "hook", Name: service, Path: "/look"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func callHook(t testing.TB, client *rest.RESTClient) error {
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: types.UID("1"), Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Name: strings.Repeat("n", 1000),
	}}
	got := &admissionv1.AdmissionReview{}
	if err := client.Post().Body(review).Do(t.Context()).Into(got); err != nil {
		return err
	}
	if got.Response == nil || !got.Response.Allowed {
		return fmt.Errorf("got %+v", got)
	}
	return nil
}

// servicesTo resolves hook/webhook to one address.
func servicesTo(t testing.TB, address string) *WebhookServices {
	t.Helper()
	services := NewWebhookServices(func(namespace, name string, port int32) (*transport.Spec, error) {
		if name != "webhook" {
			return nil, fmt.Errorf("service/%s in %q is not present", name, namespace)
		}
		return &transport.Spec{Endpoints: []transport.Endpoint{{Address: address}}}, nil
	}, transport.Options{AllowLoopback: true})
	t.Cleanup(services.Close)
	return services
}

// Clients of several plugins share connections only if the Service and the CA are the same. Backends that no object names are
// closed, including those of an earlier caBundle, and created again for clients in the cache of k8s.io/apiserver.
func TestWebhooksShareBackendsByServiceAndCA(t *testing.T) {
	server, bundle := hookServer(t)
	_, otherBundle := hookServer(t)
	services := servicesTo(t, server.Listener.Addr().String())
	var references []Reference
	services.AddSource(kindMutating, func() []Reference { return references })
	hooks := Webhooks{Services: services}
	mutating, validating := hookClients(t, hooks.Resolver(), hooks.Wrapper(kindMutating)), hookClients(t, hooks.Resolver(), hooks.Wrapper(kindValidating))
	count := func(want int, when string) {
		t.Helper()
		services.mu.Lock()
		defer services.mu.Unlock()
		got := 0
		for _, list := range services.backends {
			got += len(list)
		}
		if got != want {
			t.Errorf("%s: backends = %d, want %d", when, got, want)
		}
	}
	reference := Reference{Object: "a", Namespace: "hook", Name: "webhook", Path: "look", CABundle: bundle}
	references = []Reference{reference}
	for range 3 {
		for _, m := range []*webhook.ClientManager{mutating, validating} {
			if err := callHook(t, hookClient(t, m, "webhook", bundle)); err != nil {
				t.Fatal(err)
			}
		}
	}
	count(1, "two plugins")
	rotated := reference
	rotated.CABundle = append(otherBundle, bundle...)
	references = []Reference{reference, rotated}
	if err := callHook(t, hookClient(t, mutating, "webhook", rotated.CABundle)); err != nil {
		t.Fatal(err)
	}
	count(2, "two bundles")
	references = []Reference{rotated}
	services.Sweep()
	count(1, "the first bundle is gone")
	if err := callHook(t, hookClient(t, validating, "webhook", bundle)); err != nil {
		t.Errorf("request of a client with the removed bundle failed: %v, want no error", err)
	}
	count(1, "after a request that was on its way")
	references = nil
	services.Sweep()
	count(0, "nothing names the Service")
	references = []Reference{reference}
	if err := callHook(t, hookClient(t, mutating, "webhook", bundle)); err != nil {
		t.Errorf("request after the Service is named again failed: %v, want no error", err)
	}
	count(1, "named again")
	if err := callHook(t, hookClient(t, mutating, "webhook", otherBundle)); err == nil || !strings.Contains(err.Error(), "its certificate is not signed by the authority in caBundle") {
		t.Errorf("request with another CA: error = %v, want an error that the certificate is not signed by the authority in caBundle", err)
	}
}

func TestWebhookRequestsSucceedWhileReferencesChange(t *testing.T) {
	server, bundle := hookServer(t)
	services := servicesTo(t, server.Listener.Addr().String())
	var mu sync.Mutex
	named := false
	services.AddSource(kindMutating, func() []Reference {
		mu.Lock()
		defer mu.Unlock()
		if named = !named; named {
			return []Reference{{Object: "a", Namespace: "hook", Name: "webhook", Path: "/look", CABundle: bundle}}
		}
		return nil
	})
	hooks := Webhooks{Services: services}
	client := hookClient(t, hookClients(t, hooks.Resolver(), hooks.Wrapper(kindMutating)), "webhook", bundle)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 100 {
				if err := callHook(t, client); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Go(func() {
		for range 200 {
			services.Refresh("hook", "webhook")
			services.Sweep()
		}
	})
	callers.Wait()
}

type resolverTo string

func (r resolverTo) ResolveEndpoint(string, string, int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: string(r)}, nil
}

// BenchmarkWebhookCalls compares calls with the transport of k8s.io/apiserver and calls with WebhookServices.
func BenchmarkWebhookCalls(b *testing.B) {
	server, bundle := hookServer(b)
	address := server.Listener.Addr().String()
	hooks := Webhooks{Services: servicesTo(b, address)}
	clients := map[string]*rest.RESTClient{
		"library":  hookClient(b, hookClients(b, resolverTo(address), Webhooks{}.Wrapper(kindMutating)), "webhook", bundle),
		"services": hookClient(b, hookClients(b, hooks.Resolver(), hooks.Wrapper(kindMutating)), "webhook", bundle),
	}
	for _, name := range []string{"library", "services"} {
		client := clients[name]
		b.Run(name+"/one caller", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := callHook(b, client); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/32 callers", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := callHook(b, client); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
