package coreapi

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// webhookService is the Service hook/webhook with endpoints that a test selects, and a server that resolves it.
type webhookService struct {
	*host
	services *admission.WebhookServices
	pair     tls.Certificate

	mu     sync.Mutex // guards the fields below
	slices []*discoveryv1.EndpointSlice
}

// webhookEndpoint is one server of webhooks and conversions.
type webhookEndpoint struct {
	*httptest.Server
	mu     sync.Mutex // guards the fields below
	open   map[net.Conn]bool
	served int
}

func startWebhookService(t *testing.T) *webhookService {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Issue(pki.Leaf{CommonName: "webhook", DNSNames: []string{"webhook.hook.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &webhookService{}
	if s.pair, err = tls.X509KeyPair(certificate, key); err != nil {
		t.Fatal(err)
	}
	s.services = admission.NewWebhookServices(s.find, transport.Options{AllowLoopback: true})
	t.Cleanup(s.services.Close)
	h := start(t, everyPlugin, func(c *Config) { c.Webhooks = admission.Webhooks{Services: s.services} })
	s.host = &host{crdServerOver(t, h), h.typed(t, admin), &webhookServer{
		Server: &httptest.Server{}, bundle: base64.StdEncoding.EncodeToString(authority.PEM()),
	}}
	namespace(t, s.client, "ns")
	return s
}

// find resolves the Service like the front door.
func (s *webhookService) find(namespace, name string, port int32) (*transport.Spec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hook", Name: "webhook"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}
	if namespace != "hook" || name != "webhook" {
		service = nil
	}
	spec, problem := apiservice.Resolve(&apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: &port},
	}, service, s.slices, true)
	if problem != nil {
		return nil, errors.New(problem.Reason + ": " + problem.Message)
	}
	return spec, nil
}

// use sets the endpoints of the Service. The prefix "!" marks an address that is not ready.
func (s *webhookService) use(t *testing.T, addresses ...string) {
	t.Helper()
	s.mu.Lock()
	s.slices = nil
	for _, address := range addresses {
		address, notReady := strings.CutPrefix(address, "!")
		at, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s.slices = append(s.slices, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "hook", Name: fmt.Sprint("webhook-", at.Port), Labels: map[string]string{discoveryv1.LabelServiceName: "webhook"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.IP.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(!notReady)}}},
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(at.Port))}},
		})
	}
	s.mu.Unlock()
	s.services.Refresh("hook", "webhook")
}

// endpoint starts a server of the Service's webhooks. It becomes an endpoint of the Service with use.
func (s *webhookService) endpoint(t *testing.T, http2 bool) *webhookEndpoint {
	t.Helper()
	e := &webhookEndpoint{open: map[net.Conn]bool{}}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.serve(t, w, r) }))
	e.EnableHTTP2 = http2
	e.TLS = &tls.Config{Certificates: []tls.Certificate{s.pair}}
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.Config.ConnState = func(c net.Conn, state http.ConnState) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.open[c] = true; state == http.StateClosed {
			delete(e.open, c)
		}
	}
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

func (e *webhookEndpoint) address() string { return e.Listener.Addr().String() }

// counts returns the number of open connections and of served requests.
func (e *webhookEndpoint) counts() (open, served int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.open), e.served
}

func (e *webhookEndpoint) serve(t *testing.T, w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.served++
	e.mu.Unlock()
	var answer any
	switch r.URL.Path {
	case "/hang":
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // an empty response could still arrive
	case "/convert":
		review := &apiextensionsv1.ConversionReview{}
		if !readReview(t, r, review) {
			return
		}
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: convertLamp(t, raw.Raw, review.Request.DesiredAPIVersion)})
		}
		review.Request, answer = nil, review
	default:
		review := &admissionv1.AdmissionReview{}
		if !readReview(t, r, review) {
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request, answer = nil, review
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // fails if the caller is gone
}

// deadAddress returns an address that refuses connections. It is reserved until the test ends, so that no other server gets it.
func deadAddress(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil { // without a listener
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

// stoppedProxy forwards connections to a server until stop. After that the connections stay open and transfer no bytes.
type stoppedProxy struct {
	address string
	stopped chan struct{}
}

func (p *stoppedProxy) stop() { close(p.stopped) }

func stoppableProxy(t *testing.T, to string) *stoppedProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &stoppedProxy{l.Addr().String(), make(chan struct{})}
	var (
		running sync.WaitGroup
		mu      sync.Mutex // guards open
		open    []net.Conn
	)
	forward := func(to, from net.Conn) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			select {
			case <-p.stopped:
				continue
			default:
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			running.Go(func() { forward(server, client) })
			running.Go(func() { forward(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return p
}

// write creates a ConfigMap with the label of the webhook called topic.
func (s *webhookService) write(ctx context.Context, topic, name string) error {
	_, err := s.client.CoreV1().ConfigMaps("ns").Create(ctx, s.configMap(name, map[string]string{"topic": topic}), metav1.CreateOptions{})
	return err
}

// refused repeats the write until the webhook called topic refuses it, and returns the error.
func (s *webhookService) refused(t *testing.T, topic string) (err error) {
	t.Helper()
	_, err = s.submit(t, topic, func(_ *corev1.ConfigMap, err error) bool { return err != nil })
	return err
}

func checkText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error of the refused write = %v\nwant %s", err, want)
	}
}

func TestDeadWebhookEndpointFailsNoWrite(t *testing.T) {
	t.Parallel()
	for _, protocol := range []struct {
		name  string
		http2 bool
	}{{"over HTTP/2", true}, {"over HTTP/1.1", false}} {
		t.Run("of three "+protocol.name, func(t *testing.T) {
			t.Parallel()
			s := startWebhookService(t)
			a, b := s.endpoint(t, protocol.http2), s.endpoint(t, protocol.http2)
			s.use(t, a.address(), deadAddress(t), b.address())
			s.put(t, hook(validating, "three", fmt.Sprintf(byService, "/look")))
			s.put(t, hook(mutating, "three", fmt.Sprintf(byService, "/look"))) // shares the connections
			s.submit(t, "three", func(_ *corev1.ConfigMap, err error) bool {
				if err != nil {
					t.Error(err)
				}
				_, servedByA := a.counts()
				_, servedByB := b.counts()
				return servedByA > 0 && servedByB > 0
			})
			ctx := within(t)
			for i := range 50 {
				if err := s.write(ctx, "three", fmt.Sprint("write-", i)); err != nil {
					t.Errorf("write %d failed: %v, want no error", i, err)
				}
			}
		})
	}
}

func TestUnreachableWebhookErrorNamesTheCause(t *testing.T) {
	t.Parallel()
	s := startWebhookService(t)
	const prefix = `Internal error occurred: failed calling webhook "%[1]s.example.com": failed to call webhook: Post "https://webhook.hook.svc:443%[2]s": `
	alive := s.endpoint(t, true)
	t.Run("its only endpoint refuses connections", func(t *testing.T) {
		at := deadAddress(t)
		s.use(t, at)
		s.put(t, hook(validating, "refuses", fmt.Sprintf(byService, "/look")))
		checkText(t, s.refused(t, "refuses"), fmt.Sprintf(prefix, "refuses", "/look?timeout=10s")+
			"ValidatingWebhookConfiguration refuses: service hook/webhook: endpoint "+at+": it refused the connection: dial tcp "+at+": connect: connection refused")
		// The error arrives before the timeout of the webhook.
		if err := s.write(within(t), "refuses", "again"); !refusedWith("it refused the connection: dial tcp "+at)(nil, err) {
			t.Error(err)
		}
		s.use(t, alive.address())
		if err := s.write(within(t), "refuses", "then"); err != nil {
			t.Errorf("write after the endpoint is back failed: %v, want no error", err)
		}
	})
	t.Run("all of its endpoints refuse connections", func(t *testing.T) {
		s.use(t, deadAddress(t), deadAddress(t), deadAddress(t))
		s.put(t, hook(mutating, "all", fmt.Sprintf(byService, "/look")))
		s.put(t, hook(mutating, "another", fmt.Sprintf(byService, "/elsewhere"))) // absent from the message: its path differs
		if err := s.refused(t, "all"); !refusedWith("MutatingWebhookConfiguration all: service hook/webhook: endpoint 127.0.0.1:",
			", the last of 3 attempts: it refused the connection: dial tcp ")(nil, err) {
			t.Error(err)
		}
	})
	t.Run("none of its endpoints is ready", func(t *testing.T) {
		s.use(t, "!"+alive.address())
		s.put(t, hook(validating, "unready", fmt.Sprintf(byService, "/look/unready")))
		checkText(t, s.refused(t, "unready"), fmt.Sprintf(prefix, "unready", "/look/unready?timeout=10s")+
			`ValidatingWebhookConfiguration unready: service hook/webhook: it is unavailable: MissingEndpoints: endpointslices for service/webhook in "hook" have no addresses with port name ""`)
	})
	t.Run("its Service is missing", func(t *testing.T) {
		s.put(t, hook(validating, "missing", "{service: {namespace: hook, name: gone, path: /look}}"))
		if err := s.refused(t, "missing"); !refusedWith(`ValidatingWebhookConfiguration missing: service hook/gone: it is unavailable: ServiceNotFound: service/gone in "hook" is not present`)(nil, err) {
			t.Error(err)
		}
	})
	t.Run("it accepts requests and never answers", func(t *testing.T) {
		s.use(t, alive.address())
		// The timeout is longer than a connect takes on a busy machine.
		s.put(t, hook(validating, "silent", fmt.Sprintf(byService, "/hang"), "timeoutSeconds: 5"))
		checkText(t, s.refused(t, "silent"), fmt.Sprintf(prefix, "silent", "/hang?timeout=5s")+
			"ValidatingWebhookConfiguration silent: service hook/webhook: endpoint "+alive.address()+": it did not answer in time: context deadline exceeded")
	})
	t.Run("it accepts connections and says nothing", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // connections wait in the queue of the listener
		s.use(t, l.Addr().String())
		s.put(t, hook(validating, "mute", fmt.Sprintf(byService, "/look/mute"), "timeoutSeconds: 1"))
		if err := s.refused(t, "mute"); !refusedWith("ValidatingWebhookConfiguration mute: service hook/webhook: endpoint "+l.Addr().String()+": it could not be connected to in time: ", "context deadline exceeded")(nil, err) {
			t.Error(err)
		}
	})
	t.Run("its process is stopped", func(t *testing.T) {
		stoppable := stoppableProxy(t, alive.address())
		s.use(t, stoppable.address)
		_, before := alive.counts()
		s.put(t, hook(validating, "stopped", fmt.Sprintf(byService, "/look/stopped"), "timeoutSeconds: 30"))
		s.submit(t, "stopped", func(_ *corev1.ConfigMap, err error) bool {
			_, served := alive.counts()
			return err == nil && served > before
		})
		stoppable.stop()
		started := time.Now()
		err := s.write(within(t), "stopped", "stopped")
		if !refusedWith("ValidatingWebhookConfiguration stopped: service hook/webhook: endpoint "+stoppable.address+": the connection to it broke before it answered; it may have acted on the request: ")(nil, err) {
			t.Error(err)
		}
		if took := time.Since(started); took > 25*time.Second { // without pings it takes 30
			t.Errorf("the write took %s, want at most 25s", took)
		} else {
			t.Logf("it took %s: %v", took, err)
		}
	})
	t.Run("its certificate is of another authority", func(t *testing.T) {
		s.use(t, alive.address())
		other := newWebhookServer(t)
		s.put(t, hook(validating, "imposter", strings.ReplaceAll(fmt.Sprintf(byService, "/look/imposter"), "BUNDLE", other.bundle)))
		if err := s.refused(t, "imposter"); !refusedWith("ValidatingWebhookConfiguration imposter: ", "endpoint "+alive.address()+": its certificate is not signed by the authority in caBundle: ", "x509: certificate signed by unknown authority")(nil, err) {
			t.Error(err)
		}
	})
	t.Run("it fails open", func(t *testing.T) {
		s.use(t, deadAddress(t))
		s.put(t, hook(validating, "open", fmt.Sprintf(byService, "/look/open"), "failurePolicy: Ignore"))
		if err := s.write(within(t), "open", "open"); err != nil {
			t.Error(err)
		}
	})
}

func TestWebhookEndpointIsReplacedWithoutErrors(t *testing.T) {
	t.Parallel()
	s := startWebhookService(t)
	old := s.endpoint(t, true)
	s.use(t, old.address())
	s.put(t, hook(validating, "replaced", fmt.Sprintf(byService, "/look")))
	s.submit(t, "replaced", func(_ *corev1.ConfigMap, err error) bool {
		_, served := old.counts()
		return err == nil && served > 0
	})
	ctx, cancel := context.WithCancel(within(t))
	var writers sync.WaitGroup
	var written [4]int
	for w := range written {
		writers.Go(func() {
			for ctx.Err() == nil {
				if err := s.write(context.WithoutCancel(ctx), "replaced", fmt.Sprintf("writer-%d-%d", w, written[w])); err != nil {
					t.Errorf("write of writer %d failed: %v, want no error", w, err)
					return
				}
				written[w]++
			}
		})
	}
	for range 5 {
		next := s.endpoint(t, true)
		s.use(t, next.address())
		poll(t, "the new endpoint serves", func(context.Context) bool { _, served := next.counts(); return served > 10 })
		old.Close()
		old = next
	}
	cancel()
	writers.Wait()
	t.Logf("%v writes", written)
}

func TestConnectionsToRemovedWebhooksAreClosed(t *testing.T) {
	t.Parallel()
	s := startWebhookService(t)
	e := s.endpoint(t, true)
	s.use(t, e.address())
	configure := func(topic string) {
		t.Helper()
		_, before := e.counts()
		s.put(t, hook(validating, topic, fmt.Sprintf(byService, "/look")))
		s.submit(t, topic, func(_ *corev1.ConfigMap, err error) bool {
			_, served := e.counts()
			return err == nil && served > before
		})
	}
	remove := func(topic string) {
		t.Helper()
		if err := s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(within(t), topic, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	none := func(when string) {
		t.Helper()
		poll(t, "no connection is left "+when, func(context.Context) bool { open, _ := e.counts(); return open == 0 })
	}
	configure("first")
	configure("second")
	if open, _ := e.counts(); open != 1 {
		t.Errorf("open connections of two webhooks with one Service = %d, want 1", open)
	}
	remove("first")
	if err := s.write(within(t), "second", "still"); err != nil {
		t.Error(err)
	}
	remove("second")
	none("when no configuration names the Service")
	configure("second") // with a client from the cache of k8s.io/apiserver
	s.services.Close()
	none("after the end")
	if err := s.write(within(t), "second", "late"); !refusedWith("ValidatingWebhookConfiguration second: service hook/webhook: the front door is shutting down")(nil, err) {
		t.Errorf("write after the end: error = %v, want a refusal because of the shutdown", err)
	}
}

func TestServiceConvertsCustomResources(t *testing.T) {
	t.Parallel()
	s := startWebhookService(t)
	a, b := s.endpoint(t, true), s.endpoint(t, false)
	s.use(t, a.address(), deadAddress(t), b.address())
	lamps := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "light.example.com", Version: version, Resource: "lamps"}
	}
	service := strings.ReplaceAll(fmt.Sprintf(byService, "/convert"), "BUNDLE", s.webhookServer.bundle)
	s.define(t, withConversion(service))
	old := object(t, "apiVersion: light.example.com/v1beta1\nkind: Lamp\nmetadata: {name: desk}\nspec: {watts: 40}")
	ctx := within(t)
	if _, err := s.dynamic.Resource(lamps("v1beta1")).Create(ctx, old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	get := func(version string) error {
		_, err := s.dynamic.Resource(lamps(version)).Get(ctx, "desk", metav1.GetOptions{})
		return err
	}
	for range 40 {
		if err := errors.Join(get("v1"), get("v1beta1")); err != nil {
			t.Fatal(err)
		}
	}
	_, servedByA := a.counts()
	_, servedByB := b.counts()
	if servedByA == 0 || servedByB == 0 {
		t.Errorf("conversions of the two endpoints: %d and %d, want both more than 0", servedByA, servedByB)
	}

	// One of the two versions is stored. Reads in the other version call the webhook.
	failed := func() error {
		t.Helper()
		if err := errors.Join(get("v1"), get("v1beta1")); err != nil {
			return err
		}
		t.Fatal("reads in v1 and v1beta1 succeed without the webhook, want an error in one of them")
		return nil
	}
	const at = "CustomResourceDefinition lamps.light.example.com: service hook/webhook: "
	dead := deadAddress(t)
	s.use(t, dead)
	if err := failed(); !refusedWith("conversion webhook for light.example.com/", "failed: Post ", at+"endpoint "+dead+": it refused the connection: dial tcp "+dead+": connect: connection refused")(nil, err) {
		t.Error(err)
	}
	s.use(t)
	if err := failed(); !refusedWith(at+`it is unavailable: EndpointsNotFound: cannot find endpointslices for service/webhook in "hook"`)(nil, err) {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.use(t, l.Addr().String())
	if err := failed(); !refusedWith(at+"endpoint "+l.Addr().String()+": it did not complete the TLS handshake in time: context deadline exceeded")(nil, err) {
		t.Error(err)
	}
	s.use(t, a.address())
	if err := errors.Join(get("v1"), get("v1beta1")); err != nil {
		t.Errorf("reads after the endpoint is back failed: %v, want no error", err)
	}
	if err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "lamps.light.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "no connection is left", func(context.Context) bool { open, _ := a.counts(); return open == 0 })
}
