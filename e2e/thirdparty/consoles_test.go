package thirdparty

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// consoles is a server like KubeVirt's virt-api: without k8s.io/apiserver, and with a separate verification of front proxies.
type consoles struct {
	*third
	server    *http.Server
	client    kubernetes.Interface
	trusted   cache.Store
	factory   informers.SharedInformerFactory
	ends      chan struct{} // closed to end the informers
	served    chan struct{} // closed when the listener has ended
	mu        sync.Mutex    // guards the following fields
	caller    string
	reviewed  string
	hijacked  map[net.Conn]bool
	cleanedUp bool
}

const trustName = "extension-apiserver-authentication"

func (c *consoles) start(t *testing.T) {
	t.Helper()
	config := must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", c.kubeconfig()))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
				c.mu.Lock()
				c.reviewed = r.Header.Get("Content-Type")
				c.mu.Unlock()
			}
			return next.RoundTrip(r)
		})
	})
	c.client = must[kubernetes.Interface](t)(kubernetes.NewForConfig(config))
	c.factory = informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace("kube-system"),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + trustName }))
	c.trusted = c.factory.Core().V1().ConfigMaps().Informer().GetStore()
	c.ends, c.served, c.hijacked = make(chan struct{}), make(chan struct{}), map[net.Conn]bool{}
	c.factory.Start(c.ends)

	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.port))
	if err != nil {
		t.Fatal(err)
	}
	c.server = &http.Server{
		Handler: c, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(c.log, "", log.LstdFlags),
		TLSConfig: &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "apiserver.crt"), filepath.Join(c.dir, "apiserver.key"))
			return &pair, err
		}},
	}
	go func() {
		defer close(c.served)
		_ = c.server.ServeTLS(listener, "", "") // ends when it is closed
	}()
	if !c.cleanedUp {
		c.cleanedUp = true
		c.frontDoor.t.Cleanup(func() { c.stop(c.frontDoor.t) })
	}
}

func (c *consoles) stop(*testing.T) {
	_ = c.server.Close()
	c.mu.Lock()
	for conn := range c.hijacked {
		_ = conn.Close()
	}
	c.mu.Unlock()
	<-c.served
	select {
	case <-c.ends:
	default:
		close(c.ends)
	}
	c.factory.Shutdown()
}

func (c *consoles) lastCaller() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caller
}

func (c *consoles) reviewType() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reviewed
}

// trusts reports whether a certificate may set identity headers.
func (c *consoles) trusts(chain []*x509.Certificate) error {
	o, ok, err := c.trusted.GetByKey("kube-system/" + trustName)
	if err != nil || !ok || len(chain) == 0 {
		return errors.Join(errors.New("no certificate, or nothing to check it with"), err)
	}
	trust, roots := o.(*corev1.ConfigMap), x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(trust.Data["requestheader-client-ca-file"]))
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return err
	}
	var names []string
	if err := json.Unmarshal([]byte(trust.Data["requestheader-allowed-names"]), &names); err != nil {
		return err
	}
	if !slices.Contains(names, chain[0].Subject.CommonName) {
		return fmt.Errorf("%s may not speak for others", chain[0].Subject.CommonName)
	}
	return nil
}

func (c *consoles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, groups := r.Header.Get("X-Remote-User"), r.Header.Values("X-Remote-Group")
	groups = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == "" })
	if err := c.trusts(r.TLS.PeerCertificates); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	if documented(w, r) {
		return
	}
	tail, ok := strings.CutPrefix(r.URL.Path, machines)
	name, action, both := strings.Cut(tail, "/")
	if !ok || !both {
		http.NotFound(w, r)
		return
	}
	if user == "" || len(groups) == 0 {
		http.Error(w, "no user or no group", http.StatusInternalServerError)
		return
	}
	if err := c.allows(r.Context(), user, groups, r.Method, name, action); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	c.mu.Lock()
	slices.Sort(groups)
	c.caller = user + " in " + strings.Join(groups, ", ")
	c.mu.Unlock()
	switch {
	case name != "running":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonConflict, Code: http.StatusConflict, Message: "VM is not running"})
	case action == "console" && r.Method == http.MethodGet:
		c.console(w, r, user)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// allows reviews access at the front door, as KubeVirt does: the verb is derived from the method.
func (c *consoles) allows(ctx context.Context, user string, groups []string, method, name, action string) error {
	if slices.Contains(groups, "system:masters") {
		return nil
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodPut: "update"}[method]
	review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "default", Verb: verb, Group: upgradeGroup, Version: "v1", Resource: "virtualmachineinstances", Subresource: action, Name: name,
		}},
	}, metav1.CreateOptions{})
	if err == nil && !review.Status.Allowed {
		err = fmt.Errorf("%s may not: %s", user, review.Status.Reason)
	}
	return err
}

// console repeats each message.
func (c *consoles) console(w http.ResponseWriter, r *http.Request, user string) {
	upgrade := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrade.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	c.mu.Lock()
	c.hijacked[conn.UnderlyingConn()] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.hijacked, conn.UnderlyingConn())
		c.mu.Unlock()
		_ = conn.Close()
	}()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if err := conn.WriteMessage(kind, append([]byte(user+": "), message...)); err != nil {
			return
		}
	}
}
