package aggregator

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

// A restart does not bring etcd back and interrupts requests that need no etcd. /livez, by which service managers restart a
// process, therefore succeeds while etcd is stopped, and proxied requests are answered. /readyz succeeds too, because no other
// replica has etcd. Its check for etcd fails.
func TestLivezSucceedsWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket, dir := filepath.Join(sockets, "etcd"), t.TempDir()
	withEtcd := func(c *Config) { c.EtcdUnixSocket = socket }
	etcd, stopEtcd := open(t, dir, withEtcd)
	front, stop := open(t, beside(t, dir), func(c *Config) { c.EtcdServers = []string{"unix://" + socket} })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	port, caBundle := notesBackend(t)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := kubernetes.NewForConfigOrDie(etcd).CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	registration := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.notes.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "notes.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "notes", Port: &port},
		},
	}
	if _, err := aggregatorclient.NewForConfigOrDie(etcd).ApiregistrationV1().APIServices().Create(ctx, registration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	answers := func(path string, code int, text string) func() error {
		return func() error {
			if got, body := get(t, front, path); got != code || !strings.Contains(body, text) {
				return fmt.Errorf("%s: %d %s", path, got, body)
			}
			return nil
		}
	}
	const proxied = "/apis/notes.example.com/v1"
	eventually(t, "proxied", answers(proxied, http.StatusOK, "APIResourceList"))

	if err := stopEtcd(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "without etcd", answers("/readyz/etcd", http.StatusInternalServerError, "[-]etcd failed"))
	for _, want := range []struct {
		path string
		code int
		text string
	}{
		{"/livez", http.StatusOK, "ok"},
		{"/livez?verbose", http.StatusOK, "[+]ping ok\nlivez check passed\n"},
		{"/livez?exclude=etcd", http.StatusOK, "ok"}, // the recommended probe of a kube-apiserver
		{"/livez/ping", http.StatusOK, "ok"},
		{"/readyz?verbose", http.StatusOK, "[+]etcd tolerated: ok"},
		{"/readyz?exclude=etcd&exclude=etcd-space", http.StatusOK, "ok"},
		{"/readyz/etcd", http.StatusInternalServerError, "etcd"},
		{"/healthz", http.StatusInternalServerError, "[-]etcd failed"},
		{proxied, http.StatusOK, "APIResourceList"},
	} {
		if err := answers(want.path, want.code, want.text)(); err != nil {
			t.Errorf("without etcd: %v; want %d", err, want.code)
		}
	}

	_, stopEtcd = open(t, dir, withEtcd)
	eventually(t, "ready again", answers("/readyz/etcd", http.StatusOK, "ok"))
	if err := stop(); err != nil {
		t.Errorf("stopping the front door failed: %v, want no error", err)
	}
	if err := stopEtcd(); err != nil {
		t.Errorf("stopping etcd failed: %v, want no error", err)
	}
}
