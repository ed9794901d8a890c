package coreapi

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/pki"
)

// converter is a webhook between v1beta1, whose field is watts, and v1, which has another name for that field.
func converter(t *testing.T) (url string, ca []byte) {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Issue(pki.Leaf{CommonName: "converter", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &apiextensionsv1.ConversionReview{}
		if !readReview(t, r, review) {
			return
		}
		answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Raw: convertLamp(t, raw.Raw, review.Request.DesiredAPIVersion)})
		}
		review.Request, review.Response = nil, answer
		_ = json.NewEncoder(w).Encode(review) // fails if the caller is gone
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, authority.PEM()
}

// readReview reads the review from a request. It returns false for a check of a slow endpoint (transport/outlier.go), and if the
// caller left before it sent the whole body. Both happen on a busy machine.
func readReview(t *testing.T, r *http.Request, review any) bool {
	if r.Method == http.MethodGet && r.URL.Path == "/healthz" {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	if err := json.Unmarshal(body, review); err != nil {
		t.Errorf("body of %s %s from %s with the header %v: %v, want a review: %q", r.Proto, r.URL, r.RemoteAddr, r.Header, err, body)
		return false
	}
	return true
}

func convertLamp(t *testing.T, raw []byte, to string) []byte {
	lamp := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &lamp.Object); err != nil {
		t.Errorf("object sent to the webhook: %s (%v), want JSON", raw, err)
		return raw
	}
	names := []string{"watts", "power"}
	if strings.HasSuffix(to, "/v1beta1") {
		names = []string{"power", "watts"}
	}
	spec := lamp.Object["spec"].(map[string]any)
	spec[names[1]] = spec[names[0]]
	delete(spec, names[0])
	lamp.SetAPIVersion(to)
	converted, err := json.Marshal(lamp.Object)
	if err != nil {
		t.Error(err)
	}
	return converted
}

func withConversion(clientConfig string) string {
	text := strings.Replace(twoVersions, "watts: {type: integer}, colour", "power: {type: integer}, colour", 1)
	return text + "  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: " + clientConfig + "}}\n"
}

func TestWebhookConvertsCustomResources(t *testing.T) {
	t.Parallel()
	lamps := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "light.example.com", Version: version, Resource: "lamps"}
	}
	old := object(t, "apiVersion: light.example.com/v1beta1\nkind: Lamp\nmetadata: {name: desk}\nspec: {watts: 40}")

	t.Run("at a url", func(t *testing.T) {
		s := startCRDServer(t)
		url, ca := converter(t)
		s.define(t, withConversion("{url: "+url+", caBundle: "+base64.StdEncoding.EncodeToString(ca)+"}"))
		ctx := within(t)
		if _, err := s.dynamic.Resource(lamps("v1beta1")).Create(ctx, old, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := s.dynamic.Resource(lamps("v1")).Get(ctx, "desk", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if power, _, _ := unstructured.NestedInt64(got.Object, "spec", "power"); power != 40 {
			t.Fatalf("the converted object is %v, want spec.power 40", got.Object)
		}
		list, err := s.dynamic.Resource(lamps("v1beta1")).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("list in v1beta1 = %v, %v, want one object", list, err)
		}
		if watts, _, _ := unstructured.NestedInt64(list.Items[0].Object, "spec", "watts"); watts != 40 {
			t.Fatalf("the converted object is %v, want spec.watts 40", list.Items[0].Object)
		}
	})
	t.Run("at a service, without a way to services", func(t *testing.T) {
		s := startCRDServer(t)
		s.define(t, withConversion("{service: {namespace: work, name: converter}}"))
		_, err := s.dynamic.Resource(lamps("v1beta1")).Create(within(t), old, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "set clientConfig.url") {
			t.Fatalf("create with a conversion by a service: error = %v, want an error that contains \"set clientConfig.url\"", err)
		}
	})
}

// While a conversion webhook is unreachable, the watch cache of a version that needs it cannot be filled. As at kube-apiserver, requests
// for single objects and pages of lists are answered with 500, and requests that need the cache with 429.
func TestUnreachableConversionWebhookReturns500Or429(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	crd := s.define(t, twoVersions)
	ctx := within(t)
	stored := object(t, "apiVersion: light.example.com/v1\nkind: Lamp\nmetadata: {name: desk}\nspec: {watts: 40}")
	lamps := schema.GroupVersionResource{Group: "light.example.com", Version: "v1", Resource: "lamps"}
	if _, err := s.dynamic.Resource(lamps).Create(ctx, stored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The changed definition gets new storages, whose caches are empty. Nothing listens at the URL.
	patch := []byte(`{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/"}}}}}`)
	if _, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, crd.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "objects are converted by the webhook", func(ctx context.Context) bool {
		_, err := s.dynamic.Resource(lamps.GroupResource().WithVersion("v1beta1")).Get(ctx, "desk", metav1.GetOptions{})
		return err != nil
	})
	client := &http.Client{Transport: s.ClientConfig(admin).Transport} // does not retry, unlike client-go after a 429
	for _, c := range []struct {
		path, message string
		code          int
	}{
		{"v1/lamps/desk", "", http.StatusOK},
		{"v1/lamps", "", http.StatusOK},
		{"v1/lamps?watch=true&timeoutSeconds=1", "", http.StatusOK},
		{"v1beta1/lamps/desk", "conversion webhook for", http.StatusInternalServerError},
		{"v1beta1/lamps?limit=1", "conversion webhook for", http.StatusInternalServerError},
		{"v1beta1/lamps", "storage is (re)initializing", http.StatusTooManyRequests},
		{"v1beta1/lamps?resourceVersion=0", "storage is (re)initializing", http.StatusTooManyRequests},
		{"v1beta1/lamps?watch=true&timeoutSeconds=1", "storage is (re)initializing", http.StatusTooManyRequests},
	} {
		r, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://in-process.invalid/apis/light.example.com/"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != c.code || !strings.Contains(string(body), c.message) {
			t.Errorf("GET %s = %d %.300s, %v, want %d with %q", c.path, answer.StatusCode, body, err, c.code, c.message)
		}
		if got, want := answer.Header.Get("Retry-After") != "", c.code == http.StatusTooManyRequests; got != want {
			t.Errorf("GET %s: the response has a Retry-After = %t, want %t", c.path, got, want)
		}
	}
}
