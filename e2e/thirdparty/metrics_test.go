package thirdparty

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	"portico.dev/e2e/compat"
	"portico.dev/internal/pki"
)

const (
	metricsTopNode  = "kubectl top node, with percentages"
	metricsTopPod   = "kubectl top pod, by label, with containers"
	metricsTable    = "kubectl get as Table, with columns that the server defines"
	metricsSelector = "label selectors on Nodes; 400 for an unknown field in a field selector"
	metricsWatch    = "405 for a watch"
	metricsOpenAPI  = "OpenAPI in the merged documents, as protobuf (metrics-server issue 1868); kubectl explain"
)

var metricsServer = &compat.Party{
	Name: "metrics-server", Module: "sigs.k8s.io/metrics-server", In: "e2e/thirdparty/metricsserver",
	Is: "It runs with the flags and the permissions of its manifests. It scrapes a kubelet's metrics over TLS, with the token of its service account.",
	Steps: life(
		compat.Step{What: metricsTopNode}, compat.Step{What: metricsTopPod}, compat.Step{What: metricsTable},
		compat.Step{What: metricsSelector}, compat.Step{What: metricsWatch}, compat.Step{What: metricsOpenAPI},
	),
}

var metricsBeta = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

func newMetricsServer(t *testing.T, d *frontDoor) *third {
	s := metricsServerOf(t, d)
	populate(t, d, startKubelet(t, kubeletCA(s), d))
	return s
}

// kubeletCA is the file with the authority of metrics-server's kubelets.
func kubeletCA(s *third) string { return filepath.Join(s.dir, "kubelet-ca.crt") }

// metricsServerOf is metrics-server for one node.
func metricsServerOf(t *testing.T, d *frontDoor) *third {
	s := newThird(t, d, metricsServer, "metrics", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list", "watch"}},
	}, metricsBeta)
	s.program("metrics-server", "--kubeconfig", s.kubeconfig(), "--kubelet-certificate-authority", kubeletCA(s),
		"--kubelet-use-node-status-port", "--kubelet-preferred-address-types", "InternalIP",
		"--metric-resolution", "10s", "--kubelet-request-timeout", "9s")
	s.serves = func(ctx context.Context, config *rest.Config) error {
		client, err := metricsclient.NewForConfig(config)
		if err != nil {
			return err
		}
		nodes, err := client.MetricsV1beta1().NodeMetricses().List(ctx, metav1.ListOptions{})
		if err == nil && len(nodes.Items) != 1 {
			err = fmt.Errorf("metrics of %d nodes", len(nodes.Items))
		}
		return err
	}
	return s
}

// startKubelet serves /metrics/resource to users with the right to get nodes/metrics, which it reviews as kubelets do.
func startKubelet(t *testing.T, caFile string, d *frontDoor) int32 {
	t.Helper()
	ca := newAuthority(t, "kubelets")
	place(t, caFile, ca.PEM())
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "system:node:n1", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	pair := must[*pki.KeyPair](t)(pki.StaticKeyPair(cert, key))
	began := time.Now()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case !ok || !d.isServiceAccount(r.Context(), token, "metrics"):
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != "/metrics/resource":
			w.WriteHeader(http.StatusNotFound)
		default:
			writeUsage(w, began)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Listener = tls.NewListener(s.Listener, pki.ServerConfig(pair))
	s.Start()
	t.Cleanup(s.Close)
	return int32(s.Listener.Addr().(*net.TCPAddr).Port)
}

func writeUsage(to io.Writer, began time.Time) {
	now := time.Now()
	seconds, at := now.Sub(began).Seconds(), now.UnixMilli()
	pod := `{container="main",namespace="shop",pod="web-1"}`
	fmt.Fprintf(to, "node_cpu_usage_seconds_total %g %d\nnode_memory_working_set_bytes %d %d\n", 0.25*seconds, at, 300<<20, at)
	fmt.Fprintf(to, "container_cpu_usage_seconds_total%s %g %d\ncontainer_memory_working_set_bytes%s %d %d\n", pod, 0.1*seconds, at, pod, 64<<20, at)
	fmt.Fprintf(to, "container_start_time_seconds%s %d\n", pod, began.Unix())
}

// populate makes a Node with a running Pod.
func populate(t *testing.T, d *frontDoor, kubelet int32) {
	t.Helper()
	ctx, core := t.Context(), d.typed.CoreV1()
	node, err := core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "attic"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		Allocatable:     corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi")},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: kubelet}},
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	if _, err := core.Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	makePod(t, d)
}

// makePod makes the pod shop/web-1, which runs.
func makePod(t *testing.T, d *frontDoor) {
	t.Helper()
	if _, err := d.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	runPod(t, d, "web-1")
}

// runPod makes a pod in the namespace shop, which runs.
func runPod(t *testing.T, d *frontDoor, name string) {
	t.Helper()
	ctx, core := t.Context(), d.typed.CoreV1()
	var pod *corev1.Pod
	eventually(t, "a pod is admitted", func() (err error) { // it needs the namespace's service account, which a controller makes
		pod, err = core.Pods("shop").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Image: "web"}}},
		}, metav1.CreateOptions{})
		return err
	})
	pod.Status.Phase = corev1.PodRunning
	if _, err := core.Pods("shop").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func exerciseMetricsServer(t *testing.T, s *third) {
	d := s.frontDoor
	step := func(what string, run func(t *testing.T)) { book.Step(t, metricsServer, what, run) }
	step(metricsTopNode, func(t *testing.T) {
		s.awaitAvailable(t)
		expect(t, d, `(?m)^n1 +2[456]\dm +1[23]% +300Mi +7%`, "top", "node")
	})
	step(metricsTopPod, func(t *testing.T) {
		expect(t, d, `(?m)^web-1 +(9\d|1[01]\d)m +64Mi`, "top", "pod", "-n", "shop", "-l", "app=web")
		expect(t, d, `(?m)^shop +web-1 +main +(9\d|1[01]\d)m +64Mi`, "top", "pod", "-A", "--containers")
	})
	step(metricsTable, func(t *testing.T) {
		expect(t, d, `(?m)^NAME +CPU +MEMORY +WINDOW\s+n1 +\d+n +\S+ +\d+(\.\d+)?s`, "get", "nodes.metrics.k8s.io")
	})
	step(metricsSelector, func(t *testing.T) {
		client := must[metricsclient.Interface](t)(metricsclient.NewForConfig(d.config)).MetricsV1beta1().NodeMetricses()
		for selector, want := range map[string]int{"zone=attic": 1, "zone=cellar": 0} {
			if list, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: selector}); err != nil || len(list.Items) != want {
				t.Errorf("List of nodes with the selector %s = %v, %v; want %d", selector, list, err, want)
			}
		}
		if _, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.x=y"}); !apierrors.IsBadRequest(err) {
			t.Errorf("List with an unknown field = %v, want BadRequest", err)
		}
	})
	step(metricsWatch, func(t *testing.T) {
		client := must[metricsclient.Interface](t)(metricsclient.NewForConfig(d.endless))
		_, err := client.MetricsV1beta1().NodeMetricses().Watch(t.Context(), metav1.ListOptions{})
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusMethodNotAllowed || status.Status().Reason != metav1.StatusReasonMethodNotAllowed {
			t.Errorf("Watch of node metrics = %v, want the server's 405", err)
		}
	})
	step(metricsOpenAPI, func(t *testing.T) {
		eventually(t, "its paths are in the merged document", func() error {
			document, err := d.typed.Discovery().OpenAPISchema() // as protobuf
			if err != nil {
				return err
			}
			for _, path := range document.GetPaths().GetPath() {
				if path.GetName() == "/apis/metrics.k8s.io/v1beta1/nodes" {
					return nil
				}
			}
			return errors.New("no /apis/metrics.k8s.io/v1beta1/nodes")
		})
		expect(t, d, `(?s)KIND: +NodeMetrics.*usage\s+<map`, "explain", "nodes", "--api-version=metrics.k8s.io/v1beta1")
	})
}
