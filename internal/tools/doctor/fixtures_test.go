package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fixture is one way to be broken, and where a doctor has to find it.
type fixture struct {
	name string
	harm func(*testCluster)
	hop  string
	// unheard means that the condition does not show the fault: the API server's check passes.
	unheard bool
}

func fixtures() []fixture {
	certificate := func(change func(*testCluster, *x509.Certificate)) func(*testCluster) {
		return func(w *testCluster) { change(w, w.certificate) }
	}
	answers := func(change func(*extensionServer)) func(*testCluster) {
		return func(w *testCluster) { change(&w.server) }
	}
	return []fixture{
		{name: "well", harm: func(*testCluster) {}, unheard: true},
		{name: "ca bundle is garbage", hop: HopRegistration, harm: func(w *testCluster) {
			w.apiService.Spec.CABundle = []byte("-----BEGIN NOTHING-----\n")
		}},
		{name: "no such service", hop: HopService, harm: func(w *testCluster) {
			other := w.service.DeepCopy()
			other.Name = "orders-v2"
			w.objects, w.service = append(w.objects, other), nil
		}},
		{name: "wrong port number", hop: HopService, harm: func(w *testCluster) { w.service.Spec.Ports[0].Port = 8443 }},
		{name: "no endpoints, deployment scaled to zero", hop: HopEndpoints, harm: func(w *testCluster) {
			w.slice.Endpoints, w.objects = nil, append(w.objects[1:], &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-server"},
				Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "orders"}},
				}},
			})
		}},
		{name: "selector matches no pod", hop: HopEndpoints, harm: func(w *testCluster) {
			w.slice.Endpoints = nil
			w.service.Spec.Selector = map[string]string{"app": "order"}
		}},
		{name: "endpoints not ready", hop: HopEndpoints, harm: func(w *testCluster) {
			w.slice.Endpoints[0].Conditions.Ready = new(false)
			w.crash()
		}},
		{name: "wrong port name", hop: HopEndpoints, harm: func(w *testCluster) { w.slice.Ports[0].Name = new("web") }},
		{name: "external name does not resolve", hop: HopDNS, harm: external("orders.nowhere.invalid")},
		{name: "forbidden address", hop: HopTCP, harm: external("169.254.169.254")},
		{name: "port refused", hop: HopTCP, harm: func(w *testCluster) { w.slice.Ports[0].Port = new(closedPort(w.t)) }},
		{name: "port refused by a pod that crashes", hop: HopTCP, harm: func(w *testCluster) {
			w.slice.Ports[0].Port = new(closedPort(w.t))
			w.crash()
		}},
		{name: "port refused where no pod is", hop: HopTCP, harm: func(w *testCluster) {
			w.slice.Ports[0].Port = new(closedPort(w.t))
			w.slice.Endpoints[0].TargetRef, w.service.Spec.Selector = nil, nil
		}},
		{name: "port refused by a pod that is gone", hop: HopTCP, harm: func(w *testCluster) {
			w.slice.Ports[0].Port = new(closedPort(w.t))
			w.objects = w.objects[1:]
		}},
		{name: "packets dropped", hop: HopTCP, harm: func(w *testCluster) {
			w.slice.Ports[0].Port = new(fullPort(w.t))
			w.cfg.DialTimeout = 300 * time.Millisecond
			w.cfg.Timeout = 3 * time.Second
		}},
		{name: "plain http on the port", hop: HopTLS, harm: func(w *testCluster) { w.plain = true }},
		{name: "certificate expired", hop: HopTLS, harm: certificate(func(_ *testCluster, c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Minute)
		})},
		{name: "certificate not yet valid", hop: HopTLS, harm: certificate(func(_ *testCluster, c *x509.Certificate) {
			c.NotBefore = time.Now().Add(time.Hour)
		})},
		{name: "certificate for another name", hop: HopTLS, harm: certificate(func(w *testCluster, c *x509.Certificate) {
			c.DNSNames = []string{"payments.shop.svc", "payments.shop.svc.cluster.local"}
			w.objects = append(w.objects, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "payments"}})
		})},
		{name: "certificate with a common name only", hop: HopTLS, harm: certificate(func(_ *testCluster, c *x509.Certificate) {
			c.Subject.CommonName, c.DNSNames = "orders.shop.svc", nil
		})},
		{name: "certificate of another authority", hop: HopTLS, harm: func(w *testCluster) {
			w.apiService.Spec.CABundle = newAuthority(w.t, "old-shop-ca").pem
		}},
		{name: "certificate of the cluster's authority", hop: HopTLS, harm: func(w *testCluster) {
			w.apiService.Spec.CABundle = newAuthority(w.t, "old-shop-ca").pem
			w.objects = append(w.objects, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: rootsConfigMap}, Data: map[string]string{"ca.crt": string(w.authority.pem)},
			})
		}},
		{name: "no bundle for a private authority", hop: HopTLS, harm: func(w *testCluster) { w.apiService.Spec.CABundle = nil }},
		{name: "tls too old", hop: HopTLS, harm: func(w *testCluster) {
			w.tls = func(c *tls.Config) {
				c.MinVersion, c.MaxVersion, c.CipherSuites = tls.VersionTLS10, tls.VersionTLS11, nil
			}
		}},
		{name: "front proxy not trusted", hop: HopIdentity, harm: answers(func(s *extensionServer) {
			s.gate = always(refusing(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
		})},
		{name: "client certificates of another front proxy", hop: HopIdentity, harm: func(w *testCluster) {
			w.server.gate = always(refusing(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
			w.mayRead = true
			w.tls = func(c *tls.Config) {
				c.ClientCAs = x509.NewCertPool()
				c.ClientCAs.AddCert(newAuthority(w.t, "old-front-proxy-ca").certificate)
			}
		}},
		{name: "everybody is anonymous", hop: HopIdentity, harm: answers(func(s *extensionServer) {
			s.gate = always(refusing(http.StatusForbidden, metav1.StatusReasonForbidden, `forbidden: User "system:anonymous" cannot get path "`+discoveryPath+`"`))
		})},
		{name: "may not ask for reviews", hop: HopIdentity, harm: answers(func(s *extensionServer) {
			s.gate = always(withVerdict(http.StatusInternalServerError, "text/plain; charset=utf-8", `Internal Server Error: "`+discoveryPath+
				`": subjectaccessreviews.authorization.k8s.io is forbidden: User "system:serviceaccount:shop:orders" cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope`))
		})},
		{name: "may not ask for reviews, and asks none for administrators", hop: HopIdentity, unheard: true, harm: answers(func(s *extensionServer) {
			s.gate = unlessAdmin(withVerdict(http.StatusInternalServerError, "text/plain; charset=utf-8", `Internal Server Error: "`+discoveryPath+
				`": subjectaccessreviews.authorization.k8s.io is forbidden: User "system:serviceaccount:shop:orders" cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope`))
		})},
		{name: "may not ask for reviews, and keeps it to itself", hop: HopIdentity, unheard: true, harm: answers(func(s *extensionServer) {
			s.gate = unlessAdmin(refusing(http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: the extension server could not ask whether this is allowed"))
		})},
		{name: "discovery is not found", hop: HopDiscovery, harm: answers(func(s *extensionServer) {
			s.discovery = withVerdict(http.StatusNotFound, "text/plain", "404 page not found")
		})},
		{name: "discovery is html", hop: HopDiscovery, unheard: true, harm: answers(func(s *extensionServer) {
			s.discovery = withVerdict(http.StatusOK, "text/html", "<!doctype html><title>Log in</title>")
		})},
		{name: "discovery is empty", hop: HopDiscovery, unheard: true, harm: answers(func(s *extensionServer) {
			s.discovery = withVerdict(http.StatusOK, "application/json", "")
		})},
		{name: "discovery of another group-version", hop: HopDiscovery, unheard: true, harm: answers(func(s *extensionServer) {
			s.discovery = answering(http.StatusOK, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "pay.example.com/v1"})
		})},
		{name: "discovery hangs", hop: HopDiscovery, harm: func(w *testCluster) {
			w.server.discovery = silent
			w.cfg.Timeout = 3 * time.Second
		}},
		{name: "openapi is broken", hop: HopOpenAPI, unheard: true, harm: answers(func(s *extensionServer) {
			s.openAPI = withVerdict(http.StatusInternalServerError, "text/plain", "panic: no schema")
		})},
		{name: "list fails", hop: HopList, unheard: true, harm: answers(func(s *extensionServer) {
			s.list = refusing(http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: database is locked")
		})},
		{name: "watch without bookmark", hop: HopWatch, unheard: true, harm: func(w *testCluster) {
			w.server.watch, w.portico = slowHandler, true
			w.cfg.WatchTimeout = time.Second
		}},
		{name: "watch without bookmark behind another api server", hop: HopWatch, unheard: true, harm: func(w *testCluster) {
			w.server.watch = slowHandler
			w.cfg.WatchTimeout = time.Second
		}},
	}
}

// crash makes the pod's server container restart again and again. The other container runs.
func (w *testCluster) crash() {
	pod := w.objects[0].(*corev1.Pod)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar"})
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "sidecar", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{
			Name: "server", RestartCount: 7,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2}},
		},
	}
}

func external(host string) func(*testCluster) {
	return func(w *testCluster) {
		w.service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: host}
		w.cfg.Timeout = 3 * time.Second
	}
}

// closedPort returns a port that refuses connections. The test holds it until its end, so that no other server gets it.
func closedPort(t *testing.T) int32 {
	t.Helper()
	_, port := boundSocket(t)
	return port
}

// boundSocket returns a port on which no process listens until the test ends.
func boundSocket(t *testing.T) (fd int, port int32) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, int32(at.(*unix.SockaddrInet4).Port)
}

// fullPort returns a port that answers no SYN: no process accepts, and the queue is full.
func fullPort(t *testing.T) int32 {
	t.Helper()
	fd, port := boundSocket(t)
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		d := net.Dialer{Timeout: time.Second} // long enough for a busy machine to accept a connection
		c, err := d.DialContext(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", itoa(port)))
		if err != nil {
			return port
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue of the listener is not full after all connections, want it full")
	return 0
}

func (f fixture) open(t *testing.T) *testCluster {
	t.Helper()
	w := newTestCluster(t)
	f.harm(w)
	w.open()
	return w
}

func (w *testCluster) examine() *Report {
	w.t.Helper()
	d, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	defer d.Close()
	report, err := d.Examine(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

func (w *testCluster) text(r *Report) string {
	w.t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}

// Every fixture is diagnosed without the condition, which was never written.
func TestFixturesAreDiagnosedWithoutCondition(t *testing.T) {
	for _, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := f.open(t)
			report := w.examine()
			hop := ""
			if report.Broken != nil {
				hop = report.Broken.Hop
			}
			if hop != f.hop {
				t.Errorf("the first broken hop is %q, want %q", hop, f.hop)
			}
			golden(t, f.name, w.text(report))
		})
	}
}

// Text that differs between runs.
var varying = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	// A machine without DNS reports the error in other words.
	{regexp.MustCompile(`lookup orders\.nowhere\.invalid: .*`), "lookup orders.nowhere.invalid: no such host"},
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	for _, v := range varying {
		got = v.pattern.ReplaceAllString(got, v.instead)
	}
	file := filepath.Join("testdata", strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
