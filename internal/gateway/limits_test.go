package gateway

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/pki"
	"portico.dev/internal/routetable"
)

// slowServer starts an extension server that answers requests for the object "slow" after release. waiting is the number of
// waiting requests. The object "fast" has the audit id of the request.
func slowServer(t *testing.T, group string) (port string, ca []byte, waiting *atomic.Int64, release func()) {
	t.Helper()
	authority, err := pki.NewAuthority("slow")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(pki.Leaf{CommonName: "slow", DNSNames: []string{"slow.kube-system.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	waiting = new(atomic.Int64)
	over := make(chan struct{})
	widgets := "/apis/" + group + "/v1/namespaces/default/widgets/"
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/" + group + "/v1":
			_, _ = fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get"]}]}`, group)
		case widgets + "slow":
			waiting.Add(1)
			defer waiting.Add(-1)
			select {
			case <-over:
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, "{}")
		case widgets + "groups":
			_, _ = fmt.Fprint(w, len(r.Header["X-Remote-Group"]))
		case widgets + "fast":
			_, _ = fmt.Fprintf(w, `{"auditID":%q}`, r.Header.Get("Audit-Id"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = pki.ServerConfig(pair)
	s.StartTLS()
	t.Cleanup(s.Close)
	release = sync.OnceFunc(func() { close(over) })
	t.Cleanup(release)
	_, port, err = net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, authority.PEM(), waiting, release
}

// frontProxy returns a client that the extension servers of the cluster trust as another API server.
func (c *cluster) frontProxy() *http.Client {
	c.t.Helper()
	authority, err := pki.NewAuthority("another front proxy CA")
	if err != nil {
		c.t.Fatal(err)
	}
	all := c.client.CoreV1().ConfigMaps("kube-system")
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the front door writes it too
		o, err := all.Get(c.t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.Data["requestheader-client-ca-file"] += string(authority.PEM())
		_, err = all.Update(c.t.Context(), o, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	cert, key, err := authority.Issue(pki.Leaf{CommonName: "front-proxy-client", Client: true})
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, MaxConnsPerHost: 64, // the gateway's own test
	}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testTimeout}
}

// slowEnv is a gateway with an adopted APIService of a server that answers requests for the object "slow" after release.
type slowEnv struct {
	*cluster
	client  *http.Client
	waiting *atomic.Int64
	release func()
}

const (
	slowAPIService = "v1.slow.example.com"
	testAuditID    = "9a1d51e5-3b1c-4b0e-8a55-3d6c0f6f2f11"
)

func newSlowEnv(t *testing.T, annotations map[string]string) *slowEnv {
	t.Helper()
	c := newCluster(t)
	c.start()
	port, ca, waiting, release := slowServer(t, "slow.example.com")
	if _, err := c.client.CoreV1().Services("kube-system").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{adoption.OriginalServiceAnnotation: "kube-system/slow:" + port, adoption.OriginalCABundleAnnotation: base64.StdEncoding.EncodeToString(ca)}
	maps.Copy(all, annotations)
	if _, err := c.aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: slowAPIService, Annotations: all},
		Spec:       apiregistrationv1.APIServiceSpec{Group: "slow.example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10, Service: c.gateway.Reference()},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gateway reaches the server", func() error {
		return c.condition(slowAPIService, adoption.BackendAvailable, apiregistrationv1.ConditionTrue)
	})
	e := &slowEnv{c, c.frontProxy(), waiting, release}
	eventually(t, "the gateway believes the other front proxy", func() error {
		code, text, err := e.get(t.Context(), "bob", "fast")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d: %s", code, text)
		}
		return err
	})
	return e
}

// get sends a request to the gateway as an API server does.
func (e *slowEnv) get(ctx context.Context, user, object string, groups ...string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/apis/slow.example.com/v1/namespaces/default/widgets/%s", e.gateway.Port, object), nil)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("X-Remote-User", user)
	r.Header["X-Remote-Group"] = append([]string{"system:authenticated"}, groups...)
	r.Header.Set("Audit-Id", testAuditID)
	response, err := e.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }() // it is read
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	return response.StatusCode, string(text), err
}

// An API server ends a request at its timeout. Before that it has the gateway's response, which names the slow APIService.
func TestSlowRequestEndsBeforeAPIServerTimeout(t *testing.T) {
	t.Parallel()
	e := newSlowEnv(t, nil)
	defer e.release()
	ask := func() (int, string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		return e.get(ctx, "bob", "slow?timeout=4s")
	}
	code, text, err := ask()
	for range 4 { // on a busy machine a response is late occasionally, and a response after the timeout is late each time
		if errors.Is(err, context.DeadlineExceeded) {
			code, text, err = ask()
		}
	}
	if err != nil || code != http.StatusGatewayTimeout || !strings.Contains(text, "APIService "+slowAPIService) || !strings.Contains(text, testAuditID) {
		t.Errorf("GET of slow = %d: %s, %v; want 504 with the APIService and the audit id", code, text, err)
	}
	// The gateway's response and the request to the extension server have the audit id of the API server.
	if code, text, err := e.get(t.Context(), "bob", "fast"); err != nil || code != http.StatusOK || !strings.Contains(text, testAuditID) {
		t.Errorf("GET of fast = %d: %s, %v; want 200 with the audit id", code, text, err)
	}
}

// kube-apiserver's header limit is 1 MiB, without a number of fields.
func TestGatewayForwardsThousandsOfGroups(t *testing.T) {
	t.Parallel()
	e := newSlowEnv(t, nil)
	defer e.release()
	var groups []string
	for i := range 5000 {
		groups = append(groups, fmt.Sprintf("oidc:department-%05d-of-the-company", i))
	}
	if code, text, err := e.get(t.Context(), "alice", "groups", groups...); err != nil || code != http.StatusOK || text != "5001" {
		t.Errorf("as a front proxy: %d %.200s, %v, want 200 5001", code, text, err)
	}
	// The whole way: a client, the front door, the gateway, the extension server.
	client := rest.CopyConfig(e.Config)
	client.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: append(groups, "system:masters")}
	core, err := kubernetes.NewForConfig(client)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the front door sends requests to the gateway", func() error {
		text, err := core.RESTClient().Get().AbsPath("/apis/slow.example.com/v1/namespaces/default/widgets/groups").DoRaw(t.Context())
		if err == nil && string(text) != "5002" {
			err = fmt.Errorf("the extension server got %s groups, want 5002", text)
		}
		return err
	})
}

// The API server forwards the user, and the gateway does not give one user all concurrent requests of a server.
func TestOneUserCannotUseAllRequestsInFlight(t *testing.T) {
	t.Parallel()
	const limit = 10
	e := newSlowEnv(t, map[string]string{routetable.MaxInFlightAnnotation: fmt.Sprint(limit)})
	var asking sync.WaitGroup
	defer asking.Wait()
	defer e.release()
	var refused atomic.Int64
	for range 2 * limit {
		asking.Go(func() {
			switch code, text, err := e.get(t.Context(), "alice", "slow"); {
			case err != nil:
				t.Error(err)
			case code == http.StatusTooManyRequests && strings.Contains(text, "as many requests there as one user may"):
				refused.Add(1)
			case code != http.StatusOK:
				t.Errorf("GET of slow by alice = %d: %s, want 200 or 429", code, text)
			}
		})
	}
	eventually(t, "alice has her places, and the rest is refused", func() error {
		if held, not := e.waiting.Load(), refused.Load(); held < 1 || held >= limit || held+not != 2*limit {
			return fmt.Errorf("%d at the server, %d refused", held, not)
		}
		return nil
	})
	if code, text, err := e.get(t.Context(), "bob", "fast"); err != nil || code != http.StatusOK {
		t.Errorf("GET of fast by bob = %d: %s, %v; want 200", code, text, err)
	}
	if got := e.waiting.Load(); got != limit*4/5 {
		t.Errorf("alice has %d of %d places, want four fifths", got, limit)
	}
}
