package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// Browsers cannot read an endless response; they watch through a websocket, one event a frame, over HTTP/1.1.
func TestWebsocketWatch(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	conn := dial(t, frontDoor(t), "/api/v1/namespaces?watch=true")
	_, frame, err := conn.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	var event metav1.WatchEvent
	if err := json.Unmarshal(frame, &event); err != nil || event.Type != string(watch.Added) || len(event.Object.Raw) == 0 {
		t.Errorf("frame of the watch = %q, %v; want ADDED with an object", frame, err)
	}
}

// Consoles and port-forwards are upgraded connections through the front door to an extension server. The extension server
// learns the caller only from the front door.
func TestWebsocketThroughTheFrontDoor(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	config := frontDoor(t)
	registerEcho(t, config)
	conn := dial(t, config, "/apis/echo.example.com/v1/namespaces/default/things/x/console")
	for _, message := range []string{"hello", strings.Repeat("x", 1<<20)} {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(message)); err != nil {
			t.Fatal(err)
		}
		kind, got, err := conn.ReadMessage()
		if err != nil || kind != websocket.BinaryMessage || string(got) != "portico-admin: "+message {
			t.Fatalf("echo of %d bytes = kind %d, %d bytes, %v; want a binary message with the caller and the text",
				len(message), kind, len(got), err)
		}
	}
}

// dial opens a websocket, trying again only while the API behind it is not there yet.
func dial(t *testing.T, config *rest.Config, path string) *websocket.Conn {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{TLSClientConfig: tlsConfig, HandshakeTimeout: time.Minute}
	url := "wss" + strings.TrimPrefix(config.Host, "https") + path
	var conn *websocket.Conn
	if err := programs.Poll(nil, func() error {
		c, response, err := dialer.DialContext(t.Context(), url, http.Header{"Origin": {config.Host}})
		if response == nil {
			return err
		}
		defer response.Body.Close()
		switch response.StatusCode {
		case http.StatusSwitchingProtocols:
			conn = c
			return err
		case http.StatusNotFound, http.StatusServiceUnavailable:
			return fmt.Errorf("%s: %w", response.Status, err)
		}
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		t.Fatalf("handshake = %s: %s, want 101", response.Status, body)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(programs.Patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// registerEcho starts an extension server that has only a console, and registers it.
func registerEcho(t *testing.T, config *rest.Config) {
	t.Helper()
	authority, err := pki.NewAuthority("echo")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "echo", DNSNames: []string{"echo.default.svc"}, Server: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	port := serveEcho(t, certPEM, keyPEM)

	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	aggregator, err := aggregatorclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.echo.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "echo.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100,
			Service:  &apiregistrationv1.ServiceReference{Namespace: "default", Name: "echo", Port: &port},
			CABundle: authority.PEM(),
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func serveEcho(t *testing.T, certPEM, keyPEM []byte) int32 {
	t.Helper()
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(echo),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
	}
	done := make(chan struct{})
	go func() {
		_ = server.ServeTLS(listener, "", "") // ends when it is closed
		close(done)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

// echo serves discovery with one resource, and its console repeats each message after the caller's name.
func echo(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/console") {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "echo.example.com/v1",
			APIResources: []metav1.APIResource{{Name: "things/console", Namespaced: true, Kind: "Thing", Verbs: metav1.Verbs{"get"}}},
		})
		return
	}
	if len(r.TLS.PeerCertificates) == 0 || r.Header.Get("Authorization") != "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer conn.Close()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if err := conn.WriteMessage(kind, append([]byte(r.Header.Get("X-Remote-User")+": "), message...)); err != nil {
			return
		}
	}
}
