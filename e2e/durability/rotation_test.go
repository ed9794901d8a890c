package durability

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// All authorities of two replicas are replaced, as in docs/running.md, while clients make requests to both: over new
// connections and old ones, for local resources and for an extension server that accepts only certificates of the published
// CAs. No request fails, and in the end no server accepts an old certificate.
func TestAuthoritiesAreRotatedUnderTraffic(t *testing.T) {
	c := newCluster(t, 1)
	first := newPortico(t, c.endpoints(), nil)
	first.start()
	second := newPortico(t, c.endpoints(), first)
	second.start()
	r := &rotation{t: t, fronts: []*frontDoor{first, second}}
	before, err := first.config()
	if err != nil {
		t.Fatal(err)
	}
	r.config.Store(before)
	r.startExtensionServer()
	r.startClients()
	old := r.signers()

	r.step("prepare")
	for _, d := range r.fronts {
		d.await("trusted with both CAs", func(context.Context) error { return r.accepted(d, 2) })
	}
	r.published(2)
	r.renew() // clients get the new CA

	r.step("switch")
	for _, d := range r.fronts {
		d.await("serving with a certificate of the new CA", func(context.Context) error { return r.serves(d, old) })
	}
	r.proxiesChanged(old)
	r.renew() // and have certificates of the new client CA

	r.step("finish")
	for _, d := range r.fronts {
		d.await("refusing the certificates of before", func(context.Context) error { return refusesClient(d, before) })
	}
	r.unpublish()
	r.published(1)
	r.more()
	r.stopClients()
	t.Logf("%d requests were made", r.made.Load())
}

// rotation is two replicas, their clients and an extension server.
type rotation struct {
	t      *testing.T
	fronts []*frontDoor

	config   atomic.Pointer[rest.Config] // the clients' configuration
	made     atomic.Int64
	stopping context.CancelFunc
	clients  sync.WaitGroup
	trusted  *pki.Bundle // by the extension server
	mu       sync.Mutex  // guards proxies
	proxies  map[string]int
}

// step does a step at the first replica, twice, and copies the authorities to the second one.
func (r *rotation) step(name string) {
	r.t.Helper()
	var said struct {
		Authorities []struct {
			Authority string
			Changed   bool
		}
	}
	for _, want := range []bool{true, false} {
		text := r.fronts[0].mustCommand("pki", "rotate", name, "--data-dir", "data", "-o", "json")
		if err := json.Unmarshal([]byte(text), &said); err != nil || len(said.Authorities) != 3 {
			r.t.Fatalf("pki rotate %s = %v: %s; want three authorities", name, err, text)
		}
		for _, a := range said.Authorities {
			if a.Changed != want {
				r.t.Errorf("%s of %s: changed is %t, want %t", name, a.Authority, a.Changed, want)
			}
		}
	}
	for _, authority := range pki.RotationAuthorities() {
		for _, suffix := range []string{".crt", ".key"} {
			data, err := os.ReadFile(filepath.Join(r.fronts[0].dir, "data", "pki", authority+suffix))
			if err == nil {
				err = pki.WriteFile(filepath.Join(r.fronts[1].dir, "data", "pki", authority+suffix), data, 0o600)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.more()
}

// more waits until clients have made further requests.
func (r *rotation) more() {
	r.t.Helper()
	before := r.made.Load()
	r.fronts[0].await("asked again", func(context.Context) error {
		if r.made.Load() < before+200 {
			return errors.New("too few requests were made")
		}
		return nil
	})
}

// renew gives clients the current admin.kubeconfig.
func (r *rotation) renew() {
	r.t.Helper()
	config, err := r.fronts[0].config()
	if err != nil {
		r.t.Fatal(err)
	}
	r.config.Store(config)
	r.more()
}

// signers are the authorities that sign at the first replica.
func (r *rotation) signers() map[string]*x509.Certificate {
	r.t.Helper()
	keys, err := pki.ReadDirectory(filepath.Join(r.fronts[0].dir, "data", "pki"))
	if err != nil {
		r.t.Fatal(err)
	}
	return map[string]*x509.Certificate{"ca": keys.Cluster().Certificate, "front-proxy-ca": keys.FrontProxy().Certificate}
}

// accepted compares the number of CAs in the admin.kubeconfig of a replica.
func (r *rotation) accepted(d *frontDoor, want int) error {
	config, err := d.config()
	if err != nil {
		return err
	}
	certs, err := pki.ParseBundle(config.CAData)
	if err == nil && len(certs) != want {
		err = fmt.Errorf("its kubeconfig has %d CAs, want %d", len(certs), want)
	}
	return err
}

// serves looks at the server certificate, and that the administrator's client certificate is new.
func (r *rotation) serves(d *frontDoor, old map[string]*x509.Certificate) error {
	conn, err := tls.Dial("tcp", d.address(), &tls.Config{InsecureSkipVerify: true}) // it is looked at
	if err != nil {
		return err
	}
	defer conn.Close()
	if conn.ConnectionState().PeerCertificates[0].CheckSignatureFrom(old["ca"]) == nil {
		return errors.New("its server certificate is of the old CA")
	}
	config, err := d.config()
	if err == nil && bytes.Equal(config.CertData, r.config.Load().CertData) {
		err = errors.New("its kubeconfig has the client certificate of before")
	}
	return err
}

// published waits until the extension server trusts so many authorities of front proxies.
func (r *rotation) published(want int) {
	r.t.Helper()
	r.fronts[0].await("published", func(context.Context) error {
		if got := len(r.trusted.Certificates()); got != want {
			return fmt.Errorf("the extension server trusts %d authorities, want %d", got, want)
		}
		return nil
	})
}

// unpublish removes the old authorities from the trust of extension servers, to which front doors only add.
func (r *rotation) unpublish() {
	r.t.Helper()
	data := map[string]string{}
	for key, file := range map[string]string{"client-ca-file": "client-ca.crt", "requestheader-client-ca-file": "front-proxy-ca.crt"} {
		text, err := os.ReadFile(filepath.Join(r.fronts[0].dir, "data", "pki", file))
		if err != nil {
			r.t.Fatal(err)
		}
		data[key] = string(text)
	}
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.fronts[0].client().CoreV1().ConfigMaps("kube-system").Patch(r.t.Context(), "extension-apiserver-authentication",
		types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// proxiesChanged waits until no replica shows a certificate of before to the extension server.
func (r *rotation) proxiesChanged(old map[string]*x509.Certificate) {
	r.t.Helper()
	r.fronts[0].await("reaching the extension server by the new certificate", func(context.Context) error {
		r.mu.Lock()
		r.proxies = map[string]int{}
		r.mu.Unlock()
		r.more()
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := r.proxies[string(old["front-proxy-ca"].RawSubject)]; n > 0 {
			return fmt.Errorf("%d requests came with a certificate of before", n)
		}
		return nil
	})
}

// refusesClient makes a request with credentials of before.
func refusesClient(d *frontDoor, before *rest.Config) error {
	config := rest.CopyConfig(before)
	config.Host, config.Dial = "https://"+d.address(), (&net.Dialer{}).DialContext
	config.CAData, config.Insecure = nil, true // the client certificate is refused
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(config.Host + "/api/v1/namespaces/default")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
}

// startClients starts clients that send requests to both replicas, for a local object and for one of the extension server.
func (r *rotation) startClients() {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r.stopping = stop
	r.t.Cleanup(r.stopClients)
	for _, d := range r.fronts {
		for _, path := range []string{"/api/v1/namespaces/default", echoPath} {
			for _, fresh := range []bool{true, false} {
				r.clients.Go(func() { r.ask(ctx, "https://"+d.address(), path, fresh) })
			}
		}
	}
}

func (r *rotation) stopClients() {
	r.stopping()
	r.clients.Wait()
}

// ask makes one request after another: over connections that are kept until the credentials are renewed, or each over its own.
func (r *rotation) ask(ctx context.Context, host, path string, fresh bool) {
	var used *rest.Config
	client := &http.Client{}
	defer func() { client.CloseIdleConnections() }()
	for pause(ctx, 10*time.Millisecond) {
		if now := r.config.Load(); now != used {
			client.CloseIdleConnections()
			config := rest.CopyConfig(now)
			config.Host, config.Dial = host, (&net.Dialer{}).DialContext
			var err error
			if client, err = rest.HTTPClientFor(config); err != nil {
				r.t.Errorf("creating a client failed: %v, want no error", err)
				return
			}
			client.Timeout, used = answerTimeout, now
		}
		resp, err := client.Get(host + path)
		if err == nil {
			if resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
			_ = resp.Body.Close()
		}
		if err != nil {
			r.t.Errorf("GET %s%s with new connections %t: %v, want 200", host, path, fresh, err)
		}
		r.made.Add(1)
		if fresh {
			client.CloseIdleConnections()
		}
	}
}

// startExtensionServer starts a server that accepts only requests with a certificate of the published
// requestheader-client-ca-file.
func (r *rotation) startExtensionServer() {
	r.t.Helper()
	authority, err := pki.NewAuthority("extension")
	if err != nil {
		r.t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "echo", DNSNames: []string{"echo.default.svc"}, Server: true})
	if err != nil {
		r.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		r.t.Fatal(err)
	}
	first, err := r.readTrust()
	if err != nil {
		r.t.Fatal(err)
	}
	if r.trusted, err = pki.StaticBundle(first); err != nil {
		r.t.Fatal(err)
	}
	r.proxies = map[string]int{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(r.serveTrusted))
	s.TLS = pki.ServerConfig(pair)
	s.StartTLS()
	r.t.Cleanup(s.Close)
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { r.followTrust(ctx) })
	r.t.Cleanup(func() { stop(); following.Wait() })
	r.register(authority.PEM(), int32(s.Listener.Addr().(*net.TCPAddr).Port))
}

func (r *rotation) register(caBundle []byte, port int32) {
	r.t.Helper()
	admin := r.config.Load()
	if _, err := kubernetes.NewForConfigOrDie(admin).CoreV1().Services("default").Create(r.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := aggregatorclient.NewForConfigOrDie(admin).ApiregistrationV1().APIServices().Create(r.t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.echo.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "echo.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "echo", Port: &port},
		},
	}, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range r.fronts {
		d.await("reaching the extension server", func(ctx context.Context) error {
			code, body, err := d.get(ctx, echoPath)
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%d %s", code, body)
			}
			return err
		})
	}
}

func (r *rotation) serveTrusted(w http.ResponseWriter, req *http.Request) {
	if err := r.trusted.VerifyClient(req.TLS.PeerCertificates); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized) // also for probes, which have no certificate of a published CA
		return
	}
	if strings.HasPrefix(req.URL.Path, echoPath) {
		r.mu.Lock()
		r.proxies[string(req.TLS.PeerCertificates[0].RawIssuer)]++
		r.mu.Unlock()
	}
	serveEcho(w, req)
}

func (r *rotation) readTrust() ([]byte, error) {
	config := rest.CopyConfig(r.config.Load())
	config.Timeout = answerTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found, err := client.CoreV1().ConfigMaps("kube-system").Get(context.Background(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return []byte(found.Data["requestheader-client-ca-file"]), nil
}

// followTrust repeatedly reads the published CAs, as an informer would.
func (r *rotation) followTrust(ctx context.Context) {
	for pause(ctx, 100*time.Millisecond) {
		trust, err := r.readTrust()
		if err == nil {
			err = r.trusted.Set(trust)
		}
		if err != nil {
			r.t.Errorf("reading the published CAs failed: %v, want no error", err)
		}
	}
}
