package doctor

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/pki"
	"portico.dev/internal/routes/v1alpha1"
)

// testCluster is an API server with one APIService, v1.shop.example.com, and everything that belongs to it. A fixture breaks
// one thing in it before it is opened.
type testCluster struct {
	t *testing.T
	// authority signs the extension server's certificate, and frontProxy signs the certificate that the API server presents to
	// it.
	authority, frontProxy *authority
	// certificate is the extension server's certificate.
	certificate *x509.Certificate
	tls         func(*tls.Config)
	server      extensionServer
	// plain serves HTTP without TLS.
	plain bool

	apiService *apiregistrationv1.APIService
	service    *corev1.Service
	slice      *discoveryv1.EndpointSlice
	objects    []metav1.Object
	// portico is true for an API server that is a front door, and mayRead if the service account may read the authentication
	// configuration.
	portico, mayRead bool
	// denied makes the API server refuse the caller's lists.
	denied bool
	// elsewhere is the address at which the API server reaches the extension server, if the slice has another one.
	elsewhere string
	// route is the APIRoute of the group-version, nil for none.
	route *v1alpha1.APIRoute
	cfg   Config
}

const (
	group  = "shop.example.com"
	served = "v1"
	name   = served + "." + group
)

func newTestCluster(t *testing.T) *testCluster {
	w := &testCluster{t: t, authority: newAuthority(t, "shop-ca"), frontProxy: newAuthority(t, "front-proxy-ca")}
	w.certificate = &x509.Certificate{
		Subject: pkix.Name{CommonName: "orders"}, DNSNames: []string{"orders.shop.svc"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	w.server = working()
	w.apiService = &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: served, GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: w.authority.pem,
			Service: &apiregistrationv1.ServiceReference{Namespace: "shop", Name: "orders", Port: new(int32(443))},
		},
	}
	w.service = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.10", Selector: map[string]string{"app": "orders"},
			Ports: []corev1.ServicePort{{Name: "https", Port: 443}},
		},
	}
	w.slice = &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "orders-x1", Labels: map[string]string{discoveryv1.LabelServiceName: "orders"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(0))}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"127.0.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "orders-0"},
		}},
	}
	w.objects = []metav1.Object{
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-0", Labels: map[string]string{"app": "orders"}},
			Spec:       corev1.PodSpec{ServiceAccountName: "orders", NodeName: "n1", Containers: []corev1.Container{{Name: "server"}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "server", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
			},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
			Data: map[string]string{
				"requestheader-client-ca-file": string(w.frontProxy.pem), "requestheader-allowed-names": `["front-proxy"]`,
			},
		},
	}
	return w
}

// authority signs certificates that may have any defect.
type authority struct {
	t           *testing.T
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-365 * 24 * time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: []byte(name),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue signs a certificate as it stands, with a new key.
func (a *authority) issue(template *x509.Certificate) *pki.KeyPair {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(2)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

func (w *testCluster) presented() *pki.KeyPair {
	return w.frontProxy.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "front-proxy"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	})
}

// open starts the extension server, unless the slice has another address, and the API server.
func (w *testCluster) open() {
	w.t.Helper()
	if port := w.slice.Ports[0].Port; *port == 0 {
		*port = w.serveExtension()
	}
	w.serveAPI()
}

func (w *testCluster) serveExtension() int32 {
	w.t.Helper()
	config := pki.ServerConfig(w.authority.issue(w.certificate))
	if w.tls != nil {
		w.tls(config)
	}
	if w.plain {
		config = nil
	}
	return portOf(w.t, listen(w.t, config, w.server.handler()))
}

// listen serves until the test ends.
func listen(t *testing.T, config *tls.Config, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if config == nil {
			_ = server.Serve(listener)
		} else {
			_ = server.ServeTLS(listener, "", "")
		}
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return listener.Addr().String()
}

func portOf(t *testing.T, address string) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

// issueFor signs a server's certificate for an address.
func (a *authority) issueFor(ip net.IP) *pki.KeyPair {
	return a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: []net.IP{ip},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	})
}
