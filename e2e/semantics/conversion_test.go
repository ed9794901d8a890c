package semantics

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/pki"
)

// converter is a webhook between v1beta1, which counts watts, and v1, which calls them power.
type converter struct {
	url, port, ca string
	asked         atomic.Int64
	refuses       atomic.Bool
}

func startConverter(t *testing.T, name string) *converter {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Issue(pki.Leaf{CommonName: "converter", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{name}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	c := &converter{ca: base64.StdEncoding.EncodeToString(authority.PEM())}
	server := httptest.NewUnstartedServer(c)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	c.url = server.URL
	_, c.port, err = net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.asked.Add(1)
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	if c.refuses.Load() {
		answer.Result = metav1.Status{Status: metav1.StatusFailure, Message: "these lamps are out"}
	} else {
		for _, raw := range review.Request.Objects {
			answer.ConvertedObjects = append(answer.ConvertedObjects, convert(raw.Raw, review.Request.DesiredAPIVersion))
		}
	}
	review.Request, review.Response = nil, answer
	_ = json.NewEncoder(w).Encode(review) // fails if the client has disconnected
}

func convert(raw []byte, to string) runtime.RawExtension {
	lamp := &unstructured.Unstructured{}
	if err := lamp.UnmarshalJSON(raw); err != nil {
		return runtime.RawExtension{Raw: raw}
	}
	from, into := "watts", "power"
	if strings.HasSuffix(to, "/v1beta1") {
		from, into = "power", "watts"
	}
	if spec, ok := lamp.Object["spec"].(map[string]any); ok && spec[from] != nil {
		spec[into] = spec[from]
		delete(spec, from)
	}
	lamp.SetAPIVersion(to)
	return runtime.RawExtension{Object: lamp}
}

// A webhook converts objects that are requested in another version than the stored one: by its URL, or by its Service.
func TestConversionByWebhook(t *testing.T) {
	for name, client := range map[string]func(*testing.T, *converter) string{
		"byurl": func(_ *testing.T, c *converter) string {
			return fmt.Sprintf("{url: '%s/convert', caBundle: %s}", c.url, c.ca)
		},
		"byservice": func(t *testing.T, c *converter) string {
			makeNamespace(t, "byservice")
			body := `{"metadata":{"name":"converter"},"spec":{"type":"ExternalName","externalName":"localhost"}}`
			call(t, http.MethodPost, "/api/v1/namespaces/byservice/services", []byte(body)).want(http.StatusCreated)
			return fmt.Sprintf("{service: {namespace: byservice, name: converter, port: %s, path: /convert}, caBundle: %s}", c.port, c.ca)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startConverter(t, "converter.byservice.svc")
			config := fmt.Sprintf(", conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: %s}}", client(t, c))
			define(t, versioned(name, config))
			body := `{"apiVersion":"NAME.example.com/v1beta1","kind":"Lamp","metadata":{"name":"a"},"spec":{"watts":40}}`
			call(t, http.MethodPost, lamps(name, "v1beta1"), []byte(strings.ReplaceAll(body, "NAME", name))).want(http.StatusCreated).says(`"watts":40`)
			call(t, http.MethodGet, lamps(name, "v1")+"/a", nil).want(http.StatusOK).says(`"power":40`)
			call(t, http.MethodGet, lamps(name, "v1beta1"), nil).want(http.StatusOK).says(`"watts":40`)
			call(t, http.MethodPatch, lamps(name, "v1beta1")+"/a", []byte(`{"spec":{"watts":60}}`), "Content-Type", mergePatch).want(http.StatusOK)
			w := openWatch(t, lamps(name, "v1beta1")+"?watch=true")
			if e := w.next(); fmt.Sprint(e.Object.Object["spec"]) != "map[watts:60]" || e.Object.GetAPIVersion() != name+".example.com/v1beta1" {
				t.Errorf("watch event = %v, want the converted object with 60 watts", e.Object.Object)
			}
			stored, err := etcd(t).Get(within(t), "/registry/"+name+".example.com/lamps/a")
			if err != nil || len(stored.Kvs) != 1 || !strings.Contains(string(stored.Kvs[0].Value), `"power":60`) {
				t.Errorf("stored object: %v, %v; want the power 60", err, stored)
			}
			if c.asked.Load() == 0 {
				t.Errorf("requests to the webhook = %d, want at least 1", c.asked.Load())
			}
			c.refuses.Store(true)
			call(t, http.MethodGet, lamps(name, "v1beta1")+"/a", nil).says("these lamps are out").want(http.StatusInternalServerError)
			call(t, http.MethodGet, lamps(name, "v1")+"/a", nil).want(http.StatusOK)
		})
	}
	t.Run("of a Service that is not there", func(t *testing.T) {
		define(t, versioned("byghost", ", conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: nowhere, name: ghost}}}}"))
		body := `{"apiVersion":"byghost.example.com/v1beta1","kind":"Lamp","metadata":{"name":"a"}}`
		call(t, http.MethodPost, lamps("byghost", "v1beta1"), []byte(body)).says(`service/ghost in \"nowhere\" is not present`).want(http.StatusInternalServerError)
		call(t, http.MethodPost, lamps("byghost", "v1"), []byte(strings.Replace(body, "v1beta1", "v1", 1))).want(http.StatusCreated)
	})
	t.Run("at an address that nobody dials", func(t *testing.T) {
		define(t, versioned("bycloud", ", conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://169.254.169.254/latest'}}}"))
		body := `{"apiVersion":"bycloud.example.com/v1beta1","kind":"Lamp","metadata":{"name":"a"}}`
		call(t, http.MethodPost, lamps("bycloud", "v1beta1"), []byte(body)).says("link-local").want(http.StatusInternalServerError)
	})
}
