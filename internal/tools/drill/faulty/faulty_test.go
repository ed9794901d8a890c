package faulty

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/pki"
)

// asProcess is the variable by which the test program runs the server in a separate process.
const asProcess = "PORTICO_TEST_FAULTY_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		if err := ServeProcess(context.Background(), os.Stdin, os.Stdout, os.NewFile(3, "listener")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The parallel tests wait more than they compute. The command line overrides this.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const (
	group      = "s-test.drill.portico.dev"
	serverName = "subject.drill-test.svc"
	widgets    = "/apis/" + group + "/v1/namespaces/ns/widgets"
)

// front is a client that connects to the server as a front door does: with its name and authority.
type front struct {
	t      *testing.T
	server *Server
	client *http.Client
}

func start(t *testing.T, stores bool, command ...string) *front {
	t.Helper()
	s, err := New(Config{Group: group, ServerName: serverName, Address: "127.0.0.1:0", Stores: stores, Command: command})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: serverName, Roots: s.CABundle()})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &front{t: t, server: s, client: &http.Client{Transport: transport}}
}

func (f *front) runFault(fault Fault) {
	f.t.Helper()
	if err := f.server.SetFault(fault); err != nil {
		f.t.Fatal(err)
	}
}

func (f *front) do(ctx context.Context, method, path, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("https://127.0.0.1:%d%s", f.server.Port(), path), strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(text), err
}

// get is a request that must be answered.
func (f *front) get(path string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	code, text, err := f.do(ctx, http.MethodGet, path, "")
	if err != nil || code != http.StatusOK {
		f.t.Fatalf("GET %s = %d, %v; want 200", path, code, err)
	}
	return text
}

// silent checks that no response arrives within a short time.
func (f *front) silent(path string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 300*time.Millisecond)
	defer cancel()
	if code, text, err := f.do(ctx, http.MethodGet, path, ""); !errors.Is(err, context.DeadlineExceeded) {
		f.t.Errorf("GET %s: %d %q, %v; want no answer", path, code, text, err)
	}
}

func TestRefusingServerKeepsItsPort(t *testing.T) {
	f := start(t, true)
	port := f.server.Port()
	f.get(widgets)
	f.runFault(Refuse)
	f.client.CloseIdleConnections() // the client may not have noticed that the server closed it
	if _, _, err := f.do(t.Context(), http.MethodGet, widgets, ""); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("GET of a refusing server = %v, want a refusal", err)
	}
	f.runFault(Healthy)
	f.get(widgets)
	if f.server.Port() != port {
		t.Errorf("port changed from %d to %d after a refusal, want the same", port, f.server.Port())
	}
}

func TestBlackholeAndHangSendNoResponse(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]Fault{"blackhole": Blackhole, "hang": Hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, true)
			f.get(widgets)
			f.runFault(fault)
			f.silent(widgets)
			f.client.CloseIdleConnections()
			f.silent(widgets)
			f.runFault(Healthy)
			f.get(widgets)
		})
	}
}

// as is a client with a user agent and a certificate of that name.
func (f *front) as(name string, authority *pki.Authority) *front {
	f.t.Helper()
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: name, Client: true})
	if err != nil {
		f.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		f.t.Fatal(err)
	}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: serverName, Roots: f.server.CABundle(), Certificate: pair})
	if err != nil {
		f.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &front{t: f.t, server: f.server, client: &http.Client{Transport: named{name, transport}}}
}

// A server can run in a separate process, which can be stopped and continued.
func TestSeparateProcessIsStoppedAndContinued(t *testing.T) {
	t.Setenv(asProcess, "1")
	f := start(t, true, os.Args[0])
	authority, err := pki.NewAuthority("front proxies")
	if err != nil {
		t.Fatal(err)
	}
	front := f.as("front", authority)
	front.get(widgets)
	f.runFault(Stopped)
	front.silent(widgets)
	f.runFault(Healthy)
	front.get(widgets)
}

// A partition is between the server and one of its clients, on connections of before as on new ones.
func TestPartitionBlocksOnlyOneClient(t *testing.T) {
	t.Parallel()
	f := start(t, true)
	authority, err := pki.NewAuthority("front proxies")
	if err != nil {
		t.Fatal(err)
	}
	clientOf := func(name string) *front { return f.as(name, authority) }
	one, two := clientOf("one"), clientOf("two")
	one.get(widgets)
	two.get(widgets)
	if a, b := f.server.ClientOf("one"), f.server.ClientOf("two"); a == "" || b == "" || a == b {
		t.Fatalf("clients at the server = %q and %q, want two different ones", a, b)
	}
	f.server.Partition(f.server.ClientOf("one"))
	one.silent(widgets)
	one.client.CloseIdleConnections()
	one.silent(widgets)
	two.get(widgets)
	f.get(widgets) // without a certificate
	f.runFault(Healthy)
	one.get(widgets)
}

// named sends requests with a user agent.
type named struct {
	name string
	http.RoundTripper
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", n.name)
	return n.RoundTripper.RoundTrip(r)
}

func (n named) CloseIdleConnections() {
	if c, ok := n.RoundTripper.(*http.Transport); ok {
		c.CloseIdleConnections()
	}
}

func TestBlackholeAcceptsConnections(t *testing.T) {
	f := start(t, true)
	f.runFault(Blackhole)
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", f.server.Port()), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestSlowDripStartsAndDoesNotEnd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	f := start(t, true)
	f.runFault(SlowDrip)
	ask := func() (int, string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return f.do(ctx, http.MethodGet, widgets, "")
	}
	code, text, err := ask()
	for range 4 { // on a busy machine a response begins late now and then
		if code == 0 && errors.Is(err, context.DeadlineExceeded) {
			code, text, err = ask()
		}
	}
	if code != http.StatusOK || len(text) > 20 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("slow GET = %d %q, %v; want 200, at most 20 bytes and DeadlineExceeded", code, text, err)
	}
}

func TestResetWithinBodyReturnsError(t *testing.T) {
	f := start(t, true)
	f.runFault(ResetMidBody)
	if code, text, err := f.do(t.Context(), http.MethodGet, widgets, ""); err == nil {
		t.Errorf("GET with a reset in the body = %d %q without an error, want one", code, text)
	}
	f.get("/apis/" + group + "/v1") // discovery is whole
}

func TestGoAwayStormEndsConnections(t *testing.T) {
	f := start(t, true)
	f.runFault(GoAwayStorm)
	connections := map[string]bool{}
	for range 4 * perConnection {
		f.get(widgets)
		f.server.gate.mu.Lock()
		for c := range f.server.gate.conns {
			connections[c.RemoteAddr().String()] = true
		}
		f.server.gate.mu.Unlock()
	}
	if len(connections) < 3 {
		t.Errorf("%d requests used %d connections, want at least 3 connections", 4*perConnection, len(connections))
	}
}

func TestCertificateFaultsFailVerification(t *testing.T) {
	for name, tt := range map[string]struct {
		fault Fault
		says  string
	}{
		"expired":           {ExpiredCertificate, "expired"},
		"another authority": {WrongAuthority, "unknown authority"},
		"another name":      {WrongName, "another.server.svc"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, true)
			f.get(widgets)
			f.runFault(tt.fault)
			_, _, err := f.do(t.Context(), http.MethodGet, widgets, "")
			var refused *tls.CertificateVerificationError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.says) {
				// The connection that was there is cut; a request may meet that first.
				if _, _, err = f.do(t.Context(), http.MethodGet, widgets, ""); !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("GET with a wrong certificate = %v, want %q", err, tt.says)
				}
			}
			f.runFault(Healthy)
			f.get(widgets)
		})
	}
}

func TestDiscoveryFaultsChangeTheDocument(t *testing.T) {
	f := start(t, true)
	version := "/apis/" + group + "/v1"
	if text := f.get(version); !strings.Contains(text, `"widgets"`) {
		t.Errorf("discovery without a fault = %s, want widgets", text)
	}
	f.runFault(GarbageDiscovery)
	if text := f.get(version); json.Valid([]byte(text)) {
		t.Errorf("discovery with GarbageDiscovery = %s, want invalid JSON", text)
	}
	f.get(widgets)
	f.runFault(VanishingDiscovery)
	if text := f.get(version); strings.Contains(text, `"widgets"`) || !json.Valid([]byte(text)) {
		t.Errorf("discovery with VanishingDiscovery = %s, want valid JSON without widgets", text)
	}
	f.get(widgets)
}

func TestHugeOpenAPIDocumentDoesNotEnd(t *testing.T) {
	f := start(t, true)
	f.runFault(HugeOpenAPI)
	if _, text, err := f.do(t.Context(), http.MethodGet, "/openapi/v3", ""); err != nil || len(text) != 1<<20 {
		t.Errorf("%d bytes, %v; want as many as are read", len(text), err)
	}
}

func TestStorage(t *testing.T) {
	f := start(t, true)
	step := func(want int, method, path, body string) string {
		t.Helper()
		code, text, err := f.do(t.Context(), method, path, body)
		if err != nil || code != want {
			t.Fatalf("request %s %s = %d %s, %v; want %d", method, path, code, text, err, want)
		}
		return text
	}
	step(201, http.MethodPost, widgets, `{"metadata":{"name":"a","finalizers":["example.com/hold"]}}`)
	step(409, http.MethodPost, widgets, `{"metadata":{"name":"a"}}`)
	step(200, http.MethodDelete, widgets+"/a", "")
	if f.server.Stored("ns") != 1 {
		t.Errorf("objects after the delete with a finalizer = %d, want 1", f.server.Stored("ns"))
	}
	step(200, http.MethodPatch, widgets+"/a", `{"metadata":{"finalizers":null}}`)
	if f.server.Stored("ns") != 0 || f.server.Deleted("ns").IsZero() {
		t.Error("the object without its last finalizer is stored or has no deletion time, want it deleted")
	}
	step(404, http.MethodGet, widgets+"/a", "")
	step(201, http.MethodPost, widgets, `{"metadata":{"generateName":"b-"}}`)
	step(200, http.MethodDelete, widgets, "")
	if n := f.server.Stored("ns"); n != 0 {
		t.Errorf("%d objects after the deletion of the collection, want 0", n)
	}
	step(404, http.MethodGet, "/apis/another.group/v1/widgets", "")
}

// Informers begin with a watch with initial events, and wait for the bookmark after them.
func TestWatchSendsInitialEventsAndBookmark(t *testing.T) {
	t.Parallel()
	f := start(t, true)
	if _, err := f.server.store.create(object{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}); err != nil {
		t.Fatal(err)
	}
	events := f.get(widgets + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=3")
	added, bookmark := strings.Index(events, `"ADDED"`), strings.Index(events, `"BOOKMARK"`)
	if added < 0 || bookmark < added || !strings.Contains(events, "k8s.io/initial-events-end") {
		t.Errorf("events of the watch = %s, want ADDED and then the bookmark of the initial events", events)
	}
}

// A hidden object is missing in responses, and watches from before expire.
func TestHiddenObjectIsMissingUntilItIsShown(t *testing.T) {
	t.Parallel()
	f := start(t, true)
	if _, err := f.server.store.create(object{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}); err != nil {
		t.Fatal(err)
	}
	_, before := f.server.store.list("ns")
	f.server.SetHidden("ns", "a", true)
	if code, text, err := f.do(t.Context(), http.MethodGet, widgets+"/a", ""); err != nil || code != http.StatusNotFound {
		t.Errorf("GET of a hidden object = %d %s, %v; want 404", code, text, err)
	}
	if text := f.get(widgets); strings.Contains(text, `"name":"a"`) {
		t.Errorf("list = %s, want it without the hidden object", text)
	}
	if events := f.get(fmt.Sprintf("%s?watch=true&resourceVersion=%d&timeoutSeconds=3", widgets, before)); !strings.Contains(events, `"code":410`) {
		t.Errorf("events of a watch from before = %s, want 410", events)
	}
	f.server.SetHidden("ns", "a", false)
	f.get(widgets + "/a")
	if n := f.server.Stored("ns"); n != 1 {
		t.Errorf("objects = %d, want 1", n)
	}
}

func TestServerWithoutStorageRejectsDelete(t *testing.T) {
	f := start(t, false)
	readings := "/apis/" + group + "/v1/namespaces/ns/readings"
	f.get(readings)
	f.get(readings + "/any")
	if code, _, err := f.do(t.Context(), http.MethodDelete, readings+"/any", ""); err != nil || code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE of a reading = %d, %v; want 405", code, err)
	}
}

// upgrade upgrades a connection for a request of connect with a query.
func (f *front) upgrade(query string) (net.Conn, *bufio.Reader) {
	f.t.Helper()
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: serverName, Roots: f.server.CABundle()})
	if err != nil {
		f.t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	c, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", f.server.Port()), config)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		f.t.Fatal(err)
	}
	text := "POST " + widgets + "/one/connect" + query + " HTTP/1.1\r\nHost: subject\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(c, text); err != nil {
		f.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "SPDY/3.1" {
		f.t.Fatalf("response = %s, Upgrade %q; want 101 and SPDY/3.1", resp.Status, resp.Header.Get("Upgrade"))
	}
	return c, r
}

func TestConnectEchoesUntilLimit(t *testing.T) {
	f := start(t, true)
	c, r := f.upgrade("?limit=5&greeting=first,")
	if n := f.server.Upgraded(); n != 1 {
		t.Errorf("upgraded connections = %d, want 1", n)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "first,hello" || err != nil {
		t.Errorf("echo = %q, %v; want first,hello and the end", got, err)
	}
}

func TestConnectWithoutUpgradeIsRejected(t *testing.T) {
	f := start(t, true)
	if code, _, err := f.do(t.Context(), http.MethodPost, widgets+"/one/connect", ""); err != nil || code != http.StatusBadRequest {
		t.Errorf("POST connect over HTTP/2 = %d, %v; want 400", code, err)
	}
}

func TestUpgradedConnectionIsResetInMiddleOfMessage(t *testing.T) {
	f := start(t, true)
	c, r := f.upgrade("")
	f.runFault(ResetMidBody)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); !strings.HasPrefix("hello", string(got)) || len(got) > 2 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("echo with ResetMidBody = %q, %v; want at most he, and ECONNRESET", got, err)
	}
}

func TestUpgradedConnectionContinuesAfterHang(t *testing.T) {
	f := start(t, true)
	c, r := f.upgrade("")
	f.runFault(Hang)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("echo with Hang = %q, %v; want none", got, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	f.runFault(Healthy)
	got := make([]byte, 5)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "hello" {
		t.Errorf("echo after Hang = %q, %v; want hello", got, err)
	}
}
