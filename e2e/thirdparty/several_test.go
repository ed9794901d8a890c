package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"portico.dev/e2e/compat"
	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
	"portico.dev/internal/routes/v1alpha1"
)

// kedaAdapter and ours run with prometheus-adapter here. Further tests cover their life cycle.
var (
	kedaAdapter = &compat.Party{Name: "KEDA's metrics server", Module: "github.com/kedacore/keda/v2", In: "e2e/thirdparty/keda"}
	ours        = &compat.Party{Name: "extserver"}
)

// extserverRules are for metrics that prometheus-adapter does not have, and for one metric that it has too.
const extserverRules = `rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  name: {matches: ^(.*)_total$, as: "${1}_per_second"}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[10s])) by (<<.GroupBy>>)
- seriesQuery: 'cart_items{namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: orders_open
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
`

// Three metrics servers in one cluster: prometheus-adapter, KEDA's and extserver. Each has the metrics of its rule, and the
// controller of HorizontalPodAutoscalers uses all three.
func TestSeveralMetricsServers(t *testing.T) {
	t.Parallel()
	d := startFrontDoor(t, "front-several")
	var queue, orders, jobs atomic.Int64
	queue.Store(12)
	orders.Store(10)
	jobs.Store(8)
	began := time.Now()
	adapter := newThird(t, d, prometheusAdapter, "adapter", []rbacv1.PolicyRule{described}, customBeta2, customBeta1, externalBeta1)
	makePod(t, d)
	runPod(t, d, "web-2")
	prometheus := scrape(t, adapter.dir, func(w io.Writer) {
		for i, pod := range []string{"web-1", "web-2"} {
			fmt.Fprintf(w, "http_requests_total{namespace=\"shop\",pod=%q} %g\n", pod, float64(3+i)*time.Since(began).Seconds())
			fmt.Fprintf(w, "cart_items{namespace=\"shop\",pod=%q} %d\n", pod, 7+i)
		}
		fmt.Fprintf(w, "queue_depth{namespace=\"shop\",queue=\"mail\"} %d\n", queue.Load())
		fmt.Fprintf(w, "orders_open{namespace=\"shop\",kind=\"gift\"} %d\n", orders.Load())
	})
	place(t, filepath.Join(adapter.dir, "rules.yaml"), []byte(adapterRules))
	adapter.program("prometheus-adapter", "--lister-kubeconfig", adapter.kubeconfig(), "--prometheus-url", prometheus,
		"--config", filepath.Join(adapter.dir, "rules.yaml"), "--metrics-relist-interval", "2s", "--discovery-interval", "5s")
	adapter.serves = func(ctx context.Context, config *rest.Config) error {
		_, err := requestRate(ctx, config)
		return err
	}
	extserver := newExtserver(t, d, prometheus)
	keda := startKEDA(t, d, &jobs)
	for _, s := range []*third{adapter, extserver, keda} {
		s.start(t)
	}
	adapter.register(t)
	routeMetrics(t, d, keda, extserver)
	for _, gv := range adapter.versions {
		d.awaitRoute(t, gv)
	}
	name := d.kedaMetric(t)

	t.Run("discovery is the union", func(t *testing.T) { metricsAreDiscovered(t, d) })
	t.Run("each metric comes from its server", func(t *testing.T) {
		for path, pattern := range map[string]string{
			"custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/cart_items":                              `"name":"web-1".*"value":"7".*"name":"web-2".*"value":"8"`,
			"custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/web-2/cart_items":                          `"metricName":"cart_items".*"value":"8"`,
			"external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth?labelSelector=queue%3Dmail":       `"value":"12"`,
			"external.metrics.k8s.io/v1beta1/namespaces/shop/orders_open":                                  `"kind":"gift".*"value":"10"`,
			"external.metrics.k8s.io/v1beta1/namespaces/shop/" + name + "?labelSelector=" + workerSelector: `"value":"8"`,
		} {
			eventually(t, path, func() error {
				out, err := d.kubectl("", "get", "--raw", "/apis/"+path)
				if err == nil && !matches(pattern, out) {
					err = errors.New(out)
				}
				return err
			})
		}
	})
	t.Run("a list of all is merged", func(t *testing.T) {
		eventually(t, "web-1 of prometheus-adapter, and web-2 of extserver", func() error {
			got, err := podMetric(d, "shop", "app=web", "http_requests_per_second")
			if err == nil && !matches(`^web-2 \d+m?, web-1 \d+m?$`, got) {
				err = errors.New(got)
			}
			return err
		})
	})
	startControllerManager(t, d)
	t.Run("an autoscaler uses all three at once", func(t *testing.T) {
		makeAutoscaler(t, d, name)
		d.awaitReplicas(t, "web", 5, "10 orders, 2 each") // 12 messages, 4 each; 8 jobs, 2 each
		d.awaitReplicas(t, "worker", 4, "8 jobs, 2 each")
		hpa, err := d.typed.AutoscalingV2().HorizontalPodAutoscalers("shop").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || len(hpa.Status.CurrentMetrics) != 3 {
			t.Fatalf("status of the HorizontalPodAutoscaler = %v, %v; want 3 metrics", hpa.Status, err)
		}
		for _, m := range hpa.Status.CurrentMetrics {
			if m.External == nil || m.External.Current.AverageValue == nil || m.External.Current.AverageValue.Sign() <= 0 {
				t.Errorf("current metric = %v, want a positive average", m)
			}
		}
		queue.Store(28)
		d.awaitReplicas(t, "web", 7, "28 messages, 4 each")
		jobs.Store(18)
		d.awaitReplicas(t, "web", 9, "18 jobs, 2 each")
	})
	t.Run("one is dead", func(t *testing.T) {
		extserver.stop(t)
		for _, gv := range adapter.versions {
			d.awaitRouteIs(t, gv, metav1.ConditionFalse)
		}
		expect(t, d, `(?s)Warning: the list is not complete: it lacks what these backends have: extserver \(.*"name":"web-1"`, "get", "--raw", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/http_requests_per_second")
		raw(t, d, `"value":"28"`, "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth")
		if _, err := d.kubectl("", "get", "--raw", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/orders_open"); err == nil || !strings.Contains(err.Error(), "backend extserver of APIRoute v1beta1.external.metrics.k8s.io is unavailable") {
			t.Errorf("GET of a metric of a dead server = %v, want an error with the backend", err)
		}
		metricsAreDiscovered(t, d)
		queue.Store(44)
		d.awaitReplicas(t, "web", 11, "44 messages, 4 each, whatever the orders are")
		extserver.start(t)
		for _, gv := range adapter.versions {
			d.awaitRoute(t, gv)
		}
	})
}

// newExtserver starts extserver, with rules of prometheus-adapter.
func newExtserver(t *testing.T, d *frontDoor, prometheus string) *third {
	s := newThird(t, d, ours, "extserver", []rbacv1.PolicyRule{described})
	extserverOf(t, s, prometheus)
	return s
}

// extserverOf makes s an extserver.
func extserverOf(t *testing.T, s *third, prometheus string) {
	t.Helper()
	rules := filepath.Join(s.dir, "rules.yaml")
	place(t, rules, []byte(extserverRules))
	s.runner = &program{third: s, name: "extserver", args: []string{
		"serve", "--kubeconfig", s.kubeconfig(), "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(s.port), "--register=false",
		"--tls-cert-file", filepath.Join(s.dir, "apiserver.crt"), "--tls-private-key-file", filepath.Join(s.dir, "apiserver.key"),
		"--metrics-source", "none", "--prometheus-url", prometheus, "--custom-metrics-rules", rules, "--metrics-relist-interval", "2s",
	}}
}

// startKEDA starts KEDA's operator, with a ScaledObject for the Deployment worker, and makes its metrics server ready to start.
func startKEDA(t *testing.T, d *frontDoor, jobs *atomic.Int64) *third {
	t.Helper()
	s := newThird(t, d, kedaAdapter, "keda", []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}})
	find := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2")
	find.Dir, find.Env = filepath.Join(must[string](t)(os.Getwd()), "keda"), append(os.Environ(), "GOWORK=off")
	module := must[[]byte](t)(find.Output())
	if _, err := d.kubectl("", "create", "-f", filepath.Join(strings.TrimSpace(string(module)), "config", "crd", "bases")); err != nil {
		t.Fatal(err)
	}
	cert, key, err := s.ca.Issue(pki.Leaf{CommonName: "keda-operator", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	place(t, filepath.Join(s.dir, "ca.crt"), s.ca.PEM())
	place(t, filepath.Join(s.dir, "tls.crt"), cert)
	place(t, filepath.Join(s.dir, "tls.key"), key)
	address := fmt.Sprintf("localhost:%d", freePort(t))
	env := []string{"WATCH_NAMESPACE=", "POD_NAMESPACE=" + s.name, "KEDA_CLUSTER_OBJECT_NAMESPACE=" + s.name}
	operator, err := programs.Start("keda-operator", s.dir, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}, env...), openLog(t, "keda-operator"), filepath.Join(binaries, "keda-operator"),
		"--kubeconfig", s.kubeconfig(), "--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--metrics-service-bind-address", address, "--cert-dir", s.dir,
		"--enable-webhook-patching=false", "--enable-apiservice-patching=false")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { operator.Finish(t) })
	s.program("keda-adapter", "--kubeconfig", s.kubeconfig(), "--lister-kubeconfig", s.kubeconfig(), "--metrics-service-address", address, "--port", strconv.Itoa(freePort(t)))
	s.runner.(*program).env = env

	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"jobs":%d}`, jobs.Load()) }))
	t.Cleanup(application.Close)
	makeDeployment(t, d, "worker")
	scaled := fmt.Sprintf(`
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: worker, namespace: shop}
spec:
  scaleTargetRef: {name: worker}
  pollingInterval: 2
  minReplicaCount: 1
  maxReplicaCount: 20
  triggers:
  - type: metrics-api
    metadata: {url: %q, valueLocation: jobs, targetValue: "2"}
`, application.URL)
	eventually(t, "a ScaledObject is taken", func() error {
		_, err := d.kubectl(scaled, "apply", "-f", "-")
		return err
	})
	return s
}

// workerSelector is KEDA's label selector of a ScaledObject.
const workerSelector = "scaledobject.keda.sh%2Fname%3Dworker"

// kedaMetric is the name of the metric of the autoscaler that KEDA makes.
func (d *frontDoor) kedaMetric(t *testing.T) (name string) {
	t.Helper()
	eventually(t, "KEDA has made an autoscaler", func() error {
		hpa, err := d.typed.AutoscalingV2().HorizontalPodAutoscalers("shop").Get(t.Context(), "keda-hpa-worker", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(hpa.Spec.Metrics) != 1 || hpa.Spec.Metrics[0].External == nil {
			return fmt.Errorf("it has the metrics %v", hpa.Spec.Metrics)
		}
		name = hpa.Spec.Metrics[0].External.Metric.Name
		return nil
	})
	return name
}

// routeMetrics writes the APIRoutes that assign metrics to servers.
func routeMetrics(t *testing.T, d *frontDoor, keda, extserver *third) {
	t.Helper()
	backend := func(s *third) v1alpha1.APIRouteBackend {
		port := int32(s.port)
		return v1alpha1.APIRouteBackend{Name: s.name, Service: &v1alpha1.ServiceReference{Namespace: s.name, Name: s.name, Port: &port}, CABundle: s.ca.PEM()}
	}
	rule := func(to *third, match v1alpha1.APIRouteMatch) v1alpha1.APIRouteRule {
		return v1alpha1.APIRouteRule{Name: to.name, Matches: []v1alpha1.APIRouteMatch{match}, BackendRefs: []v1alpha1.BackendRef{{Name: to.name}}}
	}
	own := v1alpha1.APIRouteBackend{Name: "adapter"}
	d.route(t, externalBeta1, v1alpha1.APIRouteSpec{
		Backends: []v1alpha1.APIRouteBackend{own, backend(keda), backend(extserver)},
		Rules:    []v1alpha1.APIRouteRule{rule(keda, v1alpha1.APIRouteMatch{Metrics: []string{"s?-*"}}), rule(extserver, v1alpha1.APIRouteMatch{Metrics: []string{"orders_*"}})},
	})
	for _, gv := range []schema.GroupVersion{customBeta1, customBeta2} {
		carts := rule(extserver, v1alpha1.APIRouteMatch{Metrics: []string{"cart_*"}})
		carts.Matches = append(carts.Matches, v1alpha1.APIRouteMatch{Metrics: []string{"http_requests_per_second"}, Names: []string{"web-2*"}})
		d.route(t, gv, v1alpha1.APIRouteSpec{Backends: []v1alpha1.APIRouteBackend{own, backend(extserver)}, Rules: []v1alpha1.APIRouteRule{carts}})
	}
}

func metricsAreDiscovered(t *testing.T, d *frontDoor) {
	t.Helper()
	for gv, want := range map[schema.GroupVersion][]string{
		customBeta1: {"pods/http_requests_per_second", "pods/cart_items"}, customBeta2: {"pods/http_requests_per_second", "pods/cart_items"},
		externalBeta1: {"queue_depth", "orders_open", "externalmetrics"},
	} {
		eventually(t, gv.String()+" has the metrics of all", func() error {
			list, err := d.typed.Discovery().ServerResourcesForGroupVersion(gv.String())
			if err != nil {
				return err
			}
			var names []string
			for _, r := range list.APIResources {
				names = append(names, r.Name)
			}
			for _, name := range want {
				if !slices.Contains(names, name) {
					return fmt.Errorf("%v has no %s", names, name)
				}
			}
			return nil
		})
	}
}

// startControllerManager starts kube-controller-manager with the controllers of autoscalers and of their targets.
func startControllerManager(t *testing.T, d *frontDoor) {
	t.Helper()
	launch(t, d, "kube-controller-manager",
		"--kubeconfig", d.kubeconfig(), "--authentication-kubeconfig", d.kubeconfig(), "--authorization-kubeconfig", d.kubeconfig(),
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--leader-elect=false", "--controllers", "horizontal-pod-autoscaler-controller,deployment-controller,replicaset-controller",
		"--horizontal-pod-autoscaler-sync-period", "3s")
}

func makeDeployment(t *testing.T, d *frontDoor, name string) {
	t.Helper()
	labels := map[string]string{"deployment": name}
	if _, err := d.typed.AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: name}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// makeAutoscaler scales the Deployment web by a metric of each of the three servers.
func makeAutoscaler(t *testing.T, d *frontDoor, ofKEDA string) {
	t.Helper()
	makeDeployment(t, d, "web")
	metric := func(name, average string, labels map[string]string) autoscalingv2.MetricSpec {
		value := resource.MustParse(average)
		m := autoscalingv2.MetricIdentifier{Name: name}
		if labels != nil {
			m.Selector = &metav1.LabelSelector{MatchLabels: labels}
		}
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
			Metric: m, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &value},
		}}
	}
	if _, err := d.typed.AutoscalingV2().HorizontalPodAutoscalers("shop").Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 30,
			Metrics: []autoscalingv2.MetricSpec{
				metric("queue_depth", "4", map[string]string{"queue": "mail"}), metric("orders_open", "2", nil),
				metric(ofKEDA, "2", map[string]string{"scaledobject.keda.sh/name": "worker"}),
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (d *frontDoor) awaitReplicas(t *testing.T, deployment string, want int32, why string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s has %d replicas: %s", deployment, want, why), func() error {
		o, err := d.typed.AppsV1().Deployments("shop").Get(t.Context(), deployment, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if *o.Spec.Replicas != want {
			return fmt.Errorf("it has %d", *o.Spec.Replicas)
		}
		return nil
	})
}
