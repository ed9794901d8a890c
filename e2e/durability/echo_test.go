package durability

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/pki"
)

const echoPath = "/apis/echo.example.com/v1/namespaces/default/echoes/one/body"

const echoDiscovery = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"echo.example.com/v1","resources":[` +
	`{"name":"echoes","singularName":"echo","namespaced":true,"kind":"Echo","verbs":["get"]},` +
	`{"name":"echoes/body","singularName":"","namespaced":true,"kind":"Echo","verbs":["get","create"]}]}`

// startEcho registers an extension server that sends back bodies, and the bytes of upgraded connections, and waits until every front door
// reaches it.
func startEcho(t testing.TB, admin *rest.Config, fronts []*frontDoor) {
	t.Helper()
	authority, err := pki.NewAuthority("extension")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "echo", DNSNames: []string{"echo.default.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(serveEcho))
	s.TLS = pki.ServerConfig(pair)
	s.StartTLS()
	t.Cleanup(s.Close)
	port := int32(s.Listener.Addr().(*net.TCPAddr).Port)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := kubernetes.NewForConfigOrDie(admin).CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := aggregatorclient.NewForConfigOrDie(admin).ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.echo.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "echo.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: authority.PEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "echo", Port: &port},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, d := range fronts {
		d.await("reaching the extension server", func(ctx context.Context) error {
			code, body, err := d.get(ctx, echoPath)
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%d %s", code, body)
			}
			return err
		})
	}
}

func serveEcho(rw http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		conn, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffered) // until the client has disconnected
	case strings.HasSuffix(r.URL.Path, "/body"):
		_, _ = io.Copy(rw, r.Body)
	default:
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, echoDiscovery)
	}
}
