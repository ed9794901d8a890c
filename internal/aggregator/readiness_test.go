package aggregator

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/pki"
)

// Two replicas share etcd, and the backend is reachable by only one of them. That replica stays ready and the second one does
// not, until neither can reach the backend.
func TestReadinessFollowsBackendReachability(t *testing.T) {
	t.Parallel()
	const name = "v1.notes.example.com"
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket, dirOne := filepath.Join(sockets, "etcd"), t.TempDir()
	follow := func(c *Config) {
		c.Readiness.APIServices, c.Readiness.InReadyz = []string{name}, true
	}
	one, stopOne := open(t, dirOne, follow, func(c *Config) { c.EtcdUnixSocket = socket })
	passing := "[+]apiservice-" + name + " ok\n"
	failing := "[-]apiservice-" + name + " failed: reason withheld\n"
	tolerated := "[+]apiservice-" + name + " tolerated: ok\n"

	// It does not exist: only the check fails.
	awaitReadiness(t, one, "/readyz/backends?verbose", 500, failing)
	awaitReadiness(t, one, "/readyz?verbose", 500, failing)
	awaitReadiness(t, one, "/readyz?exclude=apiservice-"+name, 200, "ok")
	awaitReadiness(t, one, "/healthz", 200, "ok")

	// The replicas present different certificates, by which the backend distinguishes them.
	dirTwo := beside(t, dirOne)
	var refuseTwo atomic.Bool
	refuseTwo.Store(true)
	two, stopTwo := open(t, dirTwo, follow, func(c *Config) { c.EtcdServers = []string{"unix://" + socket} })
	text, err := os.ReadFile(filepath.Join(dirTwo, "pki", "front-proxy-client.crt"))
	if err != nil {
		t.Fatal(err)
	}
	certificates, err := pki.ParseBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	port, caBundle := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuseTwo.Load() && len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].Equal(certificates[0]) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"notes.example.com/v1","resources":[]}`))
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := kubernetes.NewForConfigOrDie(one).CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	apiServices := aggregatorclient.NewForConfigOrDie(one).ApiregistrationV1().APIServices()
	registration := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "notes.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "notes", Port: &port},
		},
	}
	if _, err := apiServices.Create(ctx, registration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitReadiness(t, one, "/readyz/backends?verbose", 200, passing)
	awaitReadiness(t, two, "/readyz/backends?verbose", 500, failing)
	awaitReadiness(t, two, "/readyz", 500, failing)
	awaitReadiness(t, two, "/healthz", 200, "ok")
	awaitReadiness(t, one, "/readyz", 200, "ok")

	refuseTwo.Store(false)
	awaitReadiness(t, two, "/readyz/backends?verbose", 200, passing)

	// Port 1 refuses both: each stays ready.
	if _, err := apiServices.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"service":{"port":1}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, replica := range []*rest.Config{one, two} {
		awaitReadiness(t, replica, "/readyz/backends?verbose", 200, tolerated)
	}
	if err := stopTwo(); err != nil {
		t.Errorf("stopping replica two failed: %v, want no error", err)
	}
	if err := stopOne(); err != nil {
		t.Errorf("stopping replica one failed: %v, want no error", err)
	}
}

// awaitReadiness waits until a path answers with this code and these words.
func awaitReadiness(t *testing.T, replica *rest.Config, path string, code int, words string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		got, body := get(t, replica, path)
		if got == code && strings.Contains(body, words) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s answers %d %q, want %d %q", path, got, body, code, words)
		}
	}
}

func TestInvalidReadinessSettingsAreRejected(t *testing.T) {
	for _, test := range []struct {
		change func(*ReadinessConfig)
		flag   string
	}{
		{func(c *ReadinessConfig) {}, ""},
		{func(c *ReadinessConfig) { c.APIServices, c.InReadyz = []string{"v1beta1.metrics.k8s.io", "v1."}, true }, ""},
		{func(c *ReadinessConfig) { c.APIServices = []string{"metrics"} }, "--readyz-apiservices"},
		{func(c *ReadinessConfig) { c.APIServices = []string{""} }, "--readyz-apiservices"},
		{func(c *ReadinessConfig) { c.InReadyz = true }, "--readyz-includes-apiservices"},
		{func(c *ReadinessConfig) { c.MaxNotReady = 1.1 }, "--readyz-apiservices-max-not-ready"},
		{func(c *ReadinessConfig) { c.MaxNotReady = -0.1 }, "--readyz-apiservices-max-not-ready"},
	} {
		c := Default()
		test.change(&c.Readiness)
		err := c.Validate()
		if (err != nil) != (test.flag != "") || err != nil && !strings.Contains(err.Error(), test.flag) {
			t.Errorf("Validate of %+v: error = %v, want %q", c.Readiness, err, test.flag)
		}
	}
}
