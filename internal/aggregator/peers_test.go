package aggregator

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/pki"
	"portico.dev/internal/replicas/peers"
)

// cutBackend serves notes.example.com/v1, which stores namespaced notes, and refuses the connections of one replica.
type cutBackend struct {
	t   *testing.T
	cut atomic.Pointer[pki.KeyPair] // the client certificate of that replica
	// deleted counts deletions of collections.
	deleted atomic.Int64
	// seen are the headers of the last request for a note.
	seen atomic.Pointer[http.Header]
}

func (b *cutBackend) verify(state tls.ConnectionState) error {
	if cut := b.cut.Load(); cut != nil && len(state.PeerCertificates) > 0 && state.PeerCertificates[0].Equal(cut.Leaf()) {
		return fmt.Errorf("cut off")
	}
	return nil
}

func (b *cutBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	const version = "/apis/notes.example.com/v1"
	switch path := r.URL.Path; {
	case path == version:
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"notes.example.com/v1","resources":[`+
			`{"name":"notes","singularName":"note","namespaced":true,"kind":"Note","verbs":["get","list","watch","create","delete","deletecollection"]}]}`)
	case strings.HasSuffix(path, "/attach"):
		b.upgrade(w)
	case r.Method == http.MethodDelete:
		b.deleted.Add(1)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	case r.URL.Query().Get("watch") == "true":
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Note","apiVersion":"notes.example.com/v1","metadata":{"name":"a"}}}`+"\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case strings.HasSuffix(path, "/notes/large"):
		_, _ = io.WriteString(w, `"`+strings.Repeat("x", 10<<20)+`"`)
	case strings.HasSuffix(path, "/notes"):
		_, _ = io.WriteString(w, `{"kind":"NoteList","apiVersion":"notes.example.com/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	default:
		if strings.Contains(path, "/notes/") { // and not its OpenAPI documents
			header := r.Header.Clone()
			b.seen.Store(&header)
		}
		_, _ = io.WriteString(w, `{"kind":"Note","apiVersion":"notes.example.com/v1","metadata":{"name":"a"}}`)
	}
}

// upgrade switches to a protocol that echoes.
func (b *cutBackend) upgrade(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		b.t.Error(err)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

// pairOfReplicas are two front doors over one etcd, of which the second one can be cut off from the backend.
type pairOfReplicas struct {
	one, two *rest.Config
	backend  *cutBackend
	// identity is the certificate that the second one presents to extension servers.
	identity *pki.KeyPair
	server   *httptest.Server
}

func openPair(t *testing.T, change ...func(*Config)) *pairOfReplicas {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket, dirTwo := filepath.Join(sockets, "etcd"), t.TempDir()
	stopEtcd := startEtcd(t, socket)
	overIt := append(change, func(c *Config) { c.EtcdServers = []string{"unix://" + socket} })
	p := &pairOfReplicas{backend: &cutBackend{t: t}}
	// The second one begins first, so that it leads.
	two, stopTwo := open(t, dirTwo, overIt...)
	one, stopOne := open(t, beside(t, dirTwo), overIt...)
	t.Cleanup(func() {
		for _, stop := range []func() error{stopTwo, stopOne, stopEtcd} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
	p.one, p.two = one, two
	own := filepath.Join(dirTwo, "pki", "front-proxy-client")
	if p.identity, err = pki.LoadKeyPair(own+".crt", own+".key"); err != nil {
		t.Fatal(err)
	}
	p.register(t)
	return p
}

// register registers the backend at both replicas.
func (p *pairOfReplicas) register(t *testing.T) {
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
	server := httptest.NewUnstartedServer(p.backend)
	server.TLS, server.EnableHTTP2 = pki.ServerConfig(pair), true
	server.TLS.VerifyConnection = p.backend.verify
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are refused on purpose
	server.StartTLS()
	t.Cleanup(server.Close)
	p.server = server
	port := int32(server.Listener.Addr().(*net.TCPAddr).Port)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := kubernetes.NewForConfigOrDie(p.one).CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	registration := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.notes.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "notes.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: authority.PEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "notes", Port: &port},
		},
	}
	if _, err := aggregatorclient.NewForConfigOrDie(p.one).ApiregistrationV1().APIServices().Create(ctx, registration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, replica := range []*rest.Config{p.one, p.two} {
		await(ctx, t, "the backend's notes", func() bool {
			code, _ := get(t, replica, notes+"/a")
			return code == http.StatusOK
		})
	}
}

const notes = "/apis/notes.example.com/v1/namespaces/default/notes"

// partition cuts the second replica off, and waits until it has noticed.
func (p *pairOfReplicas) partition(t *testing.T) {
	t.Helper()
	p.backend.cut.Store(p.identity)
	p.server.CloseClientConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	await(ctx, t, "that the second replica is cut off", func() bool {
		code, metrics := get(t, p.two, "/metrics")
		return code == http.StatusOK && strings.Contains(metrics, `aggregator_unavailable_apiservice{name="v1.notes.example.com"} 1`)
	})
}

func TestThousandsOfGroupsReachBackendThroughPeer(t *testing.T) {
	t.Parallel()
	p := openPair(t)
	p.partition(t)
	as := rest.CopyConfig(p.two)
	as.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:masters"}}
	for i := range 5000 {
		as.Impersonate.Groups = append(as.Impersonate.Groups, fmt.Sprintf("oidc:department-%05d-of-the-company", i))
	}
	if code, text := get(t, as, notes+"/a"); code != http.StatusOK {
		t.Fatalf("get: %d %.300s, want 200", code, text)
	}
	got := *p.backend.seen.Load()
	want := append(slices.Clone(as.Impersonate.Groups), "system:authenticated")
	if got.Get("X-Remote-User") != "alice" || !slices.Equal(got["X-Remote-Group"], want) {
		t.Errorf("the backend got user %q with %d groups, want alice with %d", got.Get("X-Remote-User"), len(got["X-Remote-Group"]), len(want))
	}
}

// Requests for a backend that one replica cannot reach are served by a replica that can.
func TestPeerServesRequestsForUnreachableBackend(t *testing.T) {
	t.Parallel()
	p := openPair(t)
	p.partition(t)
	client, err := rest.HTTPClientFor(p.two)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	send := func(method, path, body string, header http.Header) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, method, p.two.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range header {
			r.Header[name] = values
		}
		return client.Do(r)
	}
	read := func(method, path, body string, header http.Header) (int, string) {
		t.Helper()
		resp, err := send(method, path, body, header)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if code, text := read("POST", notes, `{"kind":"Note","metadata":{"name":"new"}}`, nil); code != http.StatusCreated || text != `{"kind":"Note","metadata":{"name":"new"}}` {
		t.Errorf("POST of a note = %d %s, want 201 and the note", code, text)
	}
	if code, text := read("GET", notes+"/large", "", nil); code != http.StatusOK || len(text) != 10<<20+2 {
		t.Errorf("GET of a large note = %d, %d bytes; want 200 and the whole object", code, len(text))
	}
	if code, text := read("GET", "/apis/notes.example.com/v1", "", nil); code != http.StatusOK || !strings.Contains(text, `"notes"`) {
		t.Errorf("GET of the group-version's discovery document = %d %s, want 200 and the resource notes", code, text)
	}

	// The backend gets the same identity headers as from the second replica. A client cannot add to them.
	if code, text := read("GET", notes+"/a", "", http.Header{"Audit-Id": {"the-same"}, peers.Header: {"forged"}, "X-Remote-User": {"root"}, "X-Forwarded-For": {"192.0.2.9"}}); code != http.StatusOK {
		t.Errorf("GET of a note = %d %s, want 200", code, text)
	}
	got := *p.backend.seen.Load()
	if got.Get("X-Remote-User") != "portico-admin" || got.Get("Audit-Id") != "the-same" || got.Get("X-Forwarded-For") != "127.0.0.1" ||
		got.Get("Via") != "1.1 portico" || got.Get("X-Forwarded-Host") != strings.TrimPrefix(p.two.Host, "https://") || len(got[peers.Header]) > 0 {
		t.Errorf("headers at the backend = %v, want those of the second replica and no forged ones", got)
	}

	// A watch, and a connection that is upgraded.
	resp, err := send("GET", notes+"?watch=true", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
		t.Errorf("first event of the watch = %q, %v; want ADDED", line, err)
	}
	p.echo(t)

	// Discovery is the same at both.
	for _, replica := range []*rest.Config{p.one, p.two} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, replica.Host+"/apis", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		resp, text := do(t, replica, r)
		code := resp.StatusCode
		if code != http.StatusOK || strings.Contains(text, "Stale") || !strings.Contains(text, "notes.example.com") {
			t.Errorf("discovery = %d %.500s, want 200 with notes.example.com and nothing stale", code, text)
		}
	}
	if code, text := get(t, p.one, "/metrics"); code != http.StatusOK || !strings.Contains(text, `portico_peer_requests_received_total{result="served"}`) {
		t.Error("/metrics of the first replica has no received peer requests, want some")
	}
	if code, text := get(t, p.two, "/metrics"); code != http.StatusOK || !strings.Contains(text, `portico_peer_requests_sent_total{apiservice="v1.notes.example.com"}`) {
		t.Error("/metrics of the second replica has no sent peer requests, want some")
	}

	p.backend.cut.Store(nil)
	await(ctx, t, "the return of the backend", func() bool {
		_, metrics := get(t, p.two, "/metrics")
		return strings.Contains(metrics, `aggregator_unavailable_apiservice{name="v1.notes.example.com"} 0`)
	})
}

// echo upgrades a connection by way of the second replica.
func (p *pairOfReplicas) echo(t *testing.T) {
	t.Helper()
	config, err := rest.TLSConfigFor(p.two)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.two.Host, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s/a/attach HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", notes)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade = %v, %v; want 101", resp, err)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(reader, answer); err != nil || string(answer) != "hello" {
		t.Errorf("echo over the upgraded connection = %q, %v; want hello", answer, err)
	}
}

// The leader deletes a namespace's objects at a backend that only another replica reaches.
func TestLeaderFinalizesNamespacesThroughPeer(t *testing.T) {
	t.Parallel()
	p := openPair(t)
	p.partition(t)
	client := kubernetes.NewForConfigOrDie(p.one)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ending"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, "ending", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the end of the namespace", func() bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, "ending", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if p.backend.deleted.Load() == 0 {
		t.Error("no deletion reached the backend of the namespace, want at least one")
	}
}

// A client that uses the server name of replicas without being one gets no data, with any certificate.
func TestFakeReplicaGets503(t *testing.T) {
	t.Parallel()
	p := openPair(t)
	config, err := rest.TLSConfigFor(p.two)
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName, config.InsecureSkipVerify = peers.ServerName, true
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/api/v1/namespaces", "/version", notes, "/"} {
		resp, err := client.Get(p.two.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || !bytes.Contains(text, []byte("other replicas")) {
			t.Errorf("GET %s as a false replica = %d %s, want 503 and a message about other replicas", path, resp.StatusCode, text)
		}
	}
}

// Without the peer proxy, each replica answers for itself.
func TestDisabledPeerProxyForwardsNothing(t *testing.T) {
	t.Parallel()
	p := openPair(t, func(c *Config) { c.Peers.Enabled = false })
	p.partition(t)
	if code, text := get(t, p.two, notes+"/a"); code != http.StatusServiceUnavailable || !strings.Contains(text, "v1.notes.example.com") {
		t.Errorf("GET of a note without the peer proxy = %d %s, want 503 and the APIService", code, text)
	}
}
