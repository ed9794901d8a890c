package coreapi

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
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

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/admission/plugins"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// webhookServer is a webhook over TLS. Its certificate is for the Service hook/webhook and for 127.0.0.1. The path of a
// request selects the webhook's behavior.
type webhookServer struct {
	*httptest.Server
	bundle string // base64 of the certificate authority

	mu   sync.Mutex // guards seen
	seen []admissionv1.AdmissionRequest
}

func newWebhookServer(t *testing.T) *webhookServer {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Issue(pki.Leaf{
		CommonName: "webhook", DNSNames: []string{"webhook.hook.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	g := &webhookServer{bundle: base64.StdEncoding.EncodeToString(authority.PEM())}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(g.serve))
	g.TLS = pki.ServerConfig(nil)
	g.TLS.Certificates, g.TLS.GetCertificate = []tls.Certificate{pair}, nil
	g.Config.ErrorLog = log.New(io.Discard, "", 0) // for handshakes that fail on purpose
	g.StartTLS()
	t.Cleanup(g.Close)
	return g
}

// find resolves the only Service, hook/webhook, to the webhook.
func (g *webhookServer) find(namespace, name string, port int32) (*transport.Spec, error) {
	if namespace != "hook" || name != "webhook" || port != 443 {
		return nil, fmt.Errorf("service %s/%s:%d leads nowhere", namespace, name, port)
	}
	return &transport.Spec{Endpoints: []transport.Endpoint{{Address: g.Listener.Addr().String()}}}, nil
}

func (g *webhookServer) serve(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	g.seen = append(g.seen, *review.Request)
	g.mu.Unlock()
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	patch := func(text string) {
		kind := admissionv1.PatchTypeJSONPatch
		answer.PatchType, answer.Patch = &kind, []byte(text)
	}
	switch r.URL.Path {
	case "/label":
		if review.Request.Operation == admissionv1.Delete {
			break // no change
		}
		patch(`[{"op": "add", "path": "/metadata/labels/webhook", "value": "was-here"}]`)
	case "/deny":
		answer.Allowed, answer.Result = false, &metav1.Status{Message: "not allowed here", Code: 403}
		answer.Warnings = []string{"the webhook is cross"}
	case "/hang":
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // an empty response could still arrive
	case "/nonsense":
		fmt.Fprint(w, "nonsense")
		return
	}
	review.Request, review.Response = nil, answer
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// requests returns the reviews of objects called name.
func (g *webhookServer) requests(name string) []admissionv1.AdmissionRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	var about []admissionv1.AdmissionRequest
	for _, r := range g.seen {
		if r.Name == name {
			about = append(about, r)
		}
	}
	return about
}

// everyPlugin enables every plugin except the one that requires a controller.
func everyPlugin(c *Config) {
	c.Admission.Plugins = plugins.All()
	c.Admission.Disable = []string{"ServiceAccount"}
}

// host is a server with admission, and its clients.
type host struct {
	*crdServer
	client        kubernetes.Interface
	webhookServer *webhookServer
}

func startHost(t *testing.T) *host {
	t.Helper()
	g := newWebhookServer(t)
	services := admission.NewWebhookServices(g.find, transport.Options{AllowLoopback: true})
	t.Cleanup(services.Close)
	h := start(t, everyPlugin, func(c *Config) { c.Webhooks = admission.Webhooks{Services: services} })
	host := &host{crdServerOver(t, h), h.typed(t, admin), g}
	namespace(t, host.client, "ns")
	return host
}

// put creates the objects in text. WEBHOOK and BUNDLE in it are placeholders for the webhook.
func (h *host) put(t *testing.T, text string) {
	t.Helper()
	if _, err := h.try(t, h.dynamic, text, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (h *host) try(t *testing.T, as dynamic.Interface, text string, o metav1.CreateOptions) (*unstructured.Unstructured, error) {
	t.Helper()
	obj := &unstructured.Unstructured{}
	text = strings.NewReplacer("WEBHOOK", h.webhookServer.URL, "BUNDLE", h.webhookServer.bundle).Replace(text)
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	kind := obj.GroupVersionKind()
	mapping, err := h.mapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		t.Fatal(err)
	}
	return as.Resource(mapping.Resource).Namespace(obj.GetNamespace()).Create(within(t), obj, o)
}

func (h *host) configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}}
}

// submit creates ConfigMaps with different names and the label that a webhook selects, until the response shows that the
// webhook has taken effect.
func (h *host) submit(t *testing.T, topic string, settled func(*corev1.ConfigMap, error) bool) (made *corev1.ConfigMap, err error) {
	t.Helper()
	n := 0
	poll(t, topic+" takes effect", func(ctx context.Context) bool {
		n++
		made, err = h.client.CoreV1().ConfigMaps("ns").Create(ctx, h.configMap(fmt.Sprintf("%s-%d", topic, n), map[string]string{"topic": topic}), metav1.CreateOptions{})
		return settled(made, err)
	})
	return made, err
}

// hook returns a webhook for the ConfigMaps with the label topic=NAME.
func hook(kind, name, client string, more ...string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: %s}
webhooks:
- name: %[2]s.example.com
  clientConfig: %s
  admissionReviewVersions: [v1]
  objectSelector: {matchLabels: {topic: %[2]s}}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"]}]
%[4]s`, kind, name, client, strings.Join(append([]string{"  sideEffects: None"}, more...), "\n  "))
}

const (
	mutating   = "MutatingWebhookConfiguration"
	validating = "ValidatingWebhookConfiguration"
	byService  = "{service: {namespace: hook, name: webhook, path: %s}, caBundle: BUNDLE}"
	byURL      = "{url: WEBHOOK%s, caBundle: BUNDLE}"
)

func refusedWith(parts ...string) func(*corev1.ConfigMap, error) bool {
	return func(_ *corev1.ConfigMap, err error) bool {
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				return false
			}
		}
		return true
	}
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	ctx := within(t)
	labelled := func(made *corev1.ConfigMap, err error) bool {
		return err == nil && made.Labels["webhook"] == "was-here"
	}

	t.Run("changes, by Service", func(t *testing.T) {
		h.put(t, hook(mutating, "service", fmt.Sprintf(byService, "/label")))
		h.submit(t, "service", labelled)
	})
	t.Run("refuses, by URL", func(t *testing.T) {
		h.put(t, hook(validating, "url", fmt.Sprintf(byURL, "/deny")))
		_, err := h.submit(t, "url", refusedWith(`admission webhook "url.example.com" denied the request: not allowed here`))
		if !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	})
	t.Run("sees what others made of it", func(t *testing.T) {
		h.put(t, hook(mutating, "both", fmt.Sprintf(byURL, "/label")))
		h.put(t, hook(validating, "both", fmt.Sprintf(byURL, "/look")))
		made, _ := h.submit(t, "both", func(made *corev1.ConfigMap, err error) bool {
			return labelled(made, err) && len(h.webhookServer.requests(made.Name)) == 2
		})
		last := h.webhookServer.requests(made.Name)[1]
		if !strings.Contains(string(last.Object.Raw), "was-here") || last.UserInfo.Username != "admin" || last.Operation != admissionv1.Create {
			t.Errorf("last review: %s by %s of %s, want CREATE by admin of an object with was-here", last.Operation, last.UserInfo.Username, last.Object.Raw)
		}
		_, err := h.client.CoreV1().ConfigMaps("ns").Patch(ctx, made.Name, types.MergePatchType, []byte(`{"data":{"k":"v"}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.client.CoreV1().ConfigMaps("ns").Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		all := h.webhookServer.requests(made.Name)
		if last := all[len(all)-1]; last.Operation != admissionv1.Delete || !strings.Contains(string(last.OldObject.Raw), made.Name) {
			t.Errorf("last review: %s of %s, want DELETE of %s", last.Operation, last.OldObject.Raw, made.Name)
		}
	})
	t.Run("is asked again about what others changed after it", func(t *testing.T) {
		both := hook(mutating, "again", fmt.Sprintf(byURL, "/look"), "reinvocationPolicy: IfNeeded")
		second := strings.SplitN(hook(mutating, "again", fmt.Sprintf(byURL, "/label")), "webhooks:", 2)[1]
		h.put(t, both+strings.Replace(second, "again.example.com", "later.example.com", 1))
		made, _ := h.submit(t, "again", labelled)
		all := h.webhookServer.requests(made.Name)
		if len(all) != 3 || strings.Contains(string(all[0].Object.Raw), "was-here") || !strings.Contains(string(all[2].Object.Raw), "was-here") {
			t.Errorf("%d reviews, want 3, with was-here in the last and not in the first: %+v", len(all), all)
		}
	})
	t.Run("is asked only in the namespaces that it selects", func(t *testing.T) {
		namespace(t, h.client, "elsewhere")
		h.put(t, hook(validating, "inside", fmt.Sprintf(byURL, "/deny"), "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ns}}"))
		h.submit(t, "inside", refusedWith("not allowed here"))
		outside := h.configMap("outside", map[string]string{"topic": "inside"})
		outside.Namespace = "elsewhere"
		if _, err := h.client.CoreV1().ConfigMaps("elsewhere").Create(ctx, outside, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("is asked only where its conditions hold", func(t *testing.T) {
		h.put(t, hook(validating, "conditions", fmt.Sprintf(byURL, "/deny"), `matchConditions: [{name: wanted, expression: "object.metadata.annotations.wanted == 'yes'"}]`))
		cm := h.configMap("wanted", map[string]string{"topic": "conditions"})
		cm.Annotations = map[string]string{"wanted": "yes"}
		poll(t, "the condition holds", func(ctx context.Context) bool {
			_, err := h.client.CoreV1().ConfigMaps("ns").Create(ctx, cm, metav1.CreateOptions{DryRun: []string{"All"}})
			return err != nil
		})
		cm.Annotations["wanted"] = "no"
		if _, err := h.client.CoreV1().ConfigMaps("ns").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("another certificate is not believed", func(t *testing.T) {
		other := newWebhookServer(t)
		h.put(t, hook(validating, "imposter", "{url: WEBHOOK/look, caBundle: "+other.bundle+"}"))
		h.submit(t, "imposter", refusedWith(`failed calling webhook "imposter.example.com"`, "certificate"))
	})
	t.Run("one that hangs holds nobody longer than its timeout", func(t *testing.T) {
		h.put(t, hook(validating, "hangs", fmt.Sprintf(byURL, "/hang"), "timeoutSeconds: 1"))
		started := time.Now()
		h.submit(t, "hangs", func(made *corev1.ConfigMap, err error) bool {
			if err == nil {
				started = time.Now()
			}
			return refusedWith(`failed calling webhook "hangs.example.com": failed to call webhook`, "context deadline exceeded")(made, err)
		})
		if took := time.Since(started); took < time.Second || took > time.Minute {
			t.Errorf("the webhook that hangs was refused after %s, want between 1s and 1m", took)
		}
	})
	t.Run("one that fails open", func(t *testing.T) {
		h.put(t, hook(validating, "open", fmt.Sprintf(byURL, "/nonsense"), "failurePolicy: Ignore"))
		made, _ := h.submit(t, "open", func(made *corev1.ConfigMap, err error) bool {
			return err == nil && len(h.webhookServer.requests(made.Name)) > 0
		})
		if made == nil {
			t.Error("create with a failing webhook and failurePolicy Ignore returned no object, want an object")
		}
	})
	t.Run("a dry run reaches none that has side effects", func(t *testing.T) {
		text := strings.Replace(hook(validating, "effects", fmt.Sprintf(byURL, "/look")), "sideEffects: None", "sideEffects: NoneOnDryRun", 1)
		h.put(t, text)
		made, _ := h.submit(t, "effects", func(made *corev1.ConfigMap, err error) bool {
			return err == nil && len(h.webhookServer.requests(made.Name)) > 0
		})
		if dry := h.webhookServer.requests(made.Name)[0].DryRun; dry == nil || *dry {
			t.Error("the review of the create has dryRun unset or true, want false")
		}
		if _, err := h.client.CoreV1().ConfigMaps("ns").Create(ctx, h.configMap("dry", map[string]string{"topic": "effects"}), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
			t.Fatal(err)
		}
		if seen := h.webhookServer.requests("dry"); len(seen) != 1 || seen[0].DryRun == nil || !*seen[0].DryRun {
			t.Errorf("reviews of the dry run = %+v, want one with dryRun true", seen)
		}
	})
	t.Run("custom resources, definitions and subresources pass too", func(t *testing.T) {
		boat := "{apiVersion: sea.example.com/v1, kind: Boat, metadata: {namespace: ns, name: ada%d, labels: {topic: boat}}, spec: {crew: 3}}"
		h.define(t, boats)
		h.put(t, strings.Replace(boat, "%d", "0", 1))
		h.put(t, hook(validating, "boat", fmt.Sprintf(byURL, "/deny")))
		n := 0
		poll(t, "a boat is refused", func(context.Context) bool {
			n++
			_, err := h.try(t, h.dynamic, fmt.Sprintf(boat, n), metav1.CreateOptions{})
			return refusedWith("not allowed here")(nil, err)
		})
		crd := definition(t, strings.ReplaceAll(boats, "boats.sea", "boats.lake"))
		crd.Spec.Group, crd.Labels = "lake.example.com", map[string]string{"topic": "boat"}
		_, err := h.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{})
		if !refusedWith("not allowed here")(nil, err) {
			t.Errorf("create of a definition: error = %v, want an error that contains \"not allowed here\"", err)
		}
		for _, subresource := range []string{"", "status"} {
			_, err = h.dynamic.Resource(boatsV1).Namespace("ns").Patch(ctx, "ada0", types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"k":"v"}},"status":{"afloat":true}}`), metav1.PatchOptions{}, subresource)
			if !refusedWith("not allowed here")(nil, err) {
				t.Errorf("patch of the subresource %q: error = %v, want an error that contains \"not allowed here\"", subresource, err)
			}
		}
	})
}

func unlabelled(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "sea.example.com/v1", "kind": "Boat", "metadata": map[string]any{"name": name}, "spec": map[string]any{"crew": int64(3)},
	}}
}

// With an unreachable webhook for everything, the server still starts and creates its initial objects, and the author of the
// webhook can delete it. All other requests are rejected, those through the front door included.
func TestUnreachableCatchAllWebhookCanBeDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Run("is set up", func(t *testing.T) {
		h := startIn(t, dir, everyPlugin)
		host := &host{crdServerOver(t, h), h.typed(t, admin), newWebhookServer(t)}
		host.put(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: dead}
webhooks:
- name: dead.example.com
  clientConfig: {service: {namespace: gone, name: gone}}
  admissionReviewVersions: [v1]
  sideEffects: None
  rules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"]}]
`)
	})
	h := startIn(t, dir, everyPlugin)
	client, founder := h.typed(t, admin), clientFor(t, h.BootstrapConfig(admin))
	ctx := within(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "founded"}}
	if _, err := founder.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Errorf("create of a namespace by the bootstrap client failed: %v, want no error", err)
	}
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	if !refusedWith(`failed calling webhook "dead.example.com"`, "set clientConfig.url")(nil, err) || !apierrors.IsInternalError(err) {
		t.Errorf("create of a namespace by a client: error = %v, want an internal error that names dead.example.com and clientConfig.url", err)
	}
	hooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if err := hooks.Delete(ctx, "dead", metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete of the unreachable webhook failed: %v, want no error", err)
	}
	poll(t, "it is gone", func(ctx context.Context) bool {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
		return err == nil
	})
}
