package aggregator

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/pki"
)

// notesBackend is a real TLS extension server for notes.example.com/v1 and how an APIService reaches it.
func notesBackend(t *testing.T) (port int32, caBundle []byte) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/notes.example.com/v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"notes.example.com/v1","resources":[` +
			`{"name":"notes","singularName":"note","namespaced":true,"kind":"Note","verbs":["get","list"]}]}`))
	})
	return serveTLS(t, mux)
}

// serveTLS serves h as Service default/notes would.
func serveTLS(t *testing.T, h http.Handler) (port int32, caBundle []byte) {
	t.Helper()
	authority, err := pki.NewAuthority("extension")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "notes", DNSNames: []string{"notes.default.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.TLS, srv.EnableHTTP2 = pki.ServerConfig(pair), true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, text, _ := net.SplitHostPort(srv.Listener.Addr().String())
	number, _ := strconv.Atoi(text)
	return int32(number), authority.PEM()
}

// Two replicas over one etcd return the same documents, including the ETag: a load balancer in front of them must not make
// discovery flicker.
func TestTwoReplicasReturnEqualDiscovery(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "etcd")
	dirOne := t.TempDir()
	one, stopOne := open(t, dirOne, func(c *Config) { c.EtcdUnixSocket = socket })
	two, stopTwo := open(t, beside(t, dirOne), func(c *Config) { c.EtcdServers = []string{"unix://" + socket} })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	port, caBundle := notesBackend(t)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := kubernetes.NewForConfigOrDie(one).CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	registration := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.notes.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "notes.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "notes", Port: &port},
		},
	}
	if _, err := aggregatorclient.NewForConfigOrDie(one).ApiregistrationV1().APIServices().Create(ctx, registration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var tagOne, tagTwo, bodyOne, bodyTwo string
	for {
		tagOne, bodyOne = discovered(t, one)
		tagTwo, bodyTwo = discovered(t, two)
		if tagOne == tagTwo && strings.Contains(bodyOne, `"kind":"Note"`) {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("ETags and bodies of the replicas:\n%s %s\n%s %s\nwant equal ETags", tagOne, bodyOne, tagTwo, bodyTwo)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if bodyOne != bodyTwo {
		t.Error("two documents have one ETag, want equal documents")
	}
	if err := stopTwo(); err != nil {
		t.Errorf("stopping replica two failed: %v, want no error", err)
	}
	if err := stopOne(); err != nil {
		t.Errorf("stopping replica one failed: %v, want no error", err)
	}
}

func discovered(t *testing.T, config *rest.Config) (etag, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	res, text := do(t, config, r)
	return res.Header.Get("ETag"), text
}
