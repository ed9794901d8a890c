package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"

	"portico.dev/e2e/compat"
)

const (
	customWildcard  = "metrics of all objects that match a selector, with the name *"
	customNames     = "metrics of one object, of a namespace, of a cluster-scoped object, and of a resource with a group in its name"
	customDiscovery = "discovery lists its resources although its aggregated document is empty"
	customHPA       = "the custom metrics client of HorizontalPodAutoscalers"
	customExternal  = "the external metrics client of HorizontalPodAutoscalers"
	customTable     = "406 for a Table; 404 for an unknown metric"
)

var customMetrics = &compat.Party{
	Name: "custom-metrics-apiserver's test-adapter", Module: "sigs.k8s.io/custom-metrics-apiserver", In: "e2e/thirdparty/custommetrics",
	Is: "The example adapter of the library for custom and external metrics.",
	Steps: life(
		compat.Step{What: customWildcard}, compat.Step{What: customNames},
		compat.Step{What: customDiscovery, Differs: "kube-apiserver lists these group-versions without resources; the front door uses legacy discovery for group-versions that are missing from an aggregated document"},
		compat.Step{What: customHPA}, compat.Step{What: customExternal}, compat.Step{What: customTable},
	),
}

var (
	customBeta1   = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta1"}
	customBeta2   = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
	externalBeta1 = schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}
)

// described are the rights of metrics servers to read the objects of their metrics.
var described = rbacv1.PolicyRule{APIGroups: []string{"", "apps"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}

func newTestAdapter(t *testing.T, d *frontDoor) *third {
	s := newThird(t, d, customMetrics, "custom", []rbacv1.PolicyRule{described}, externalBeta1, customBeta2, customBeta1)
	awaitMetricsPort(t)
	s.program("test-adapter", "--lister-kubeconfig", s.kubeconfig())
	s.serves = func(ctx context.Context, config *rest.Config) error {
		client, err := external_metrics.NewForConfig(config)
		if err != nil {
			return err
		}
		list, err := client.NamespacedMetrics("default").List("my-external-metric", labels.Everything())
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("%d values", len(list.Items))
		}
		return err
	}
	return s
}

// measure sets a value of the adapter, on its port for that.
func measure(t *testing.T, path, value string) {
	t.Helper()
	client := &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	eventually(t, "it takes "+path, func() error {
		response, err := client.Post("http://127.0.0.1:8080/write-metrics/"+path, "application/json", strings.NewReader(value))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

func exerciseTestAdapter(t *testing.T, s *third) {
	d, step := s.frontDoor, func(what string, run func(t *testing.T)) { book.Step(t, customMetrics, what, run) }
	measure(t, "namespaces/shop/pods/web-1/packets", `"12"`)
	measure(t, "namespaces/shop/deployments.apps/web/rollouts", `"3"`)
	measure(t, "nodes/n1/fans", `"2"`)
	s.awaitAvailable(t)
	step(customWildcard, func(t *testing.T) {
		raw(t, d, `"name":"web-1".*"value":"12"`, "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/packets?labelSelector=app%3Dweb")
		raw(t, d, `"metricName":"packets".*"value":"12"`, "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/*/packets")
		raw(t, d, `"items":\[\]`, "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/packets?labelSelector=app%3Dother")
	})
	step(customNames, func(t *testing.T) {
		for path, value := range map[string]string{
			"namespaces/shop/pods/web-1/packets": "12", "namespaces/shop/deployments.apps/web/rollouts": "3", "nodes/n1/fans": "2",
		} {
			raw(t, d, `"kind":"MetricValueList".*"value":"`+value+`"`, "/apis/custom.metrics.k8s.io/v1beta2/"+path)
		}
		// The adapter accepts no value for a namespace itself. Its error shows that it received the right metric.
		if _, err := d.kubectl("", "get", "--raw", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/queue"); err == nil || !matches("could not find the metric queue for namespaces shop", err.Error()) {
			t.Errorf("GET of a metric of a namespace = %v, want the error with the metric's name", err)
		}
	})
	step(customDiscovery, func(t *testing.T) { customIsListed(t, d) })
	step(customHPA, func(t *testing.T) {
		got, err := podMetric(d, "shop", "app=web", "packets")
		if err != nil || got != "web-1 12" {
			t.Errorf("metric of the pods = %q, %v; want web-1 12", got, err)
		}
	})
	step(customExternal, func(t *testing.T) {
		client := must[external_metrics.ExternalMetricsClient](t)(external_metrics.NewForConfig(d.config))
		selector := must[labels.Selector](t)(labels.Parse("foo=baz"))
		list, err := client.NamespacedMetrics("shop").List("my-external-metric", selector)
		if err != nil || len(list.Items) != 1 || list.Items[0].Value.Value() != 43 {
			t.Errorf("external metric = %v, %v; want 43", list, err)
		}
	})
	step(customTable, func(t *testing.T) {
		request := func(path, accept string) error {
			return d.typed.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).Do(t.Context()).Error()
		}
		const packets = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/web-1/"
		if err := request(packets+"packets", "application/json;as=Table;v=v1;g=meta.k8s.io"); !apierrors.IsNotAcceptable(err) {
			t.Errorf("a Table: %v, want 406", err)
		}
		if err := request(packets+"no-such", "application/json"); !apierrors.IsNotFound(err) {
			t.Errorf("no such metric: %v, want 404", err)
		}
	})
}

// customIsListed reads discovery as current clients do, and the server's document to check that it is the empty one. The
// unaggregated document of its custom metrics has a resource without a name, which must not break discovery.
func customIsListed(t *testing.T, d *frontDoor) {
	eventually(t, "its resources are listed", func() error {
		groups, resources, failed, err := discovery.NewDiscoveryClient(d.typed.Discovery().RESTClient()).GroupsAndMaybeResources()
		if err != nil {
			return err
		}
		for _, gv := range []schema.GroupVersion{customBeta1, customBeta2, externalBeta1} {
			if resources[gv] == nil || failed[gv] != nil || !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group }) {
				return fmt.Errorf("%s is not there: %w", gv, failed[gv])
			}
		}
		list := resources[externalBeta1].APIResources
		if !slices.ContainsFunc(list, func(r metav1.APIResource) bool {
			return r.Name == "externalmetrics" && r.Kind == "ExternalMetricValueList"
		}) {
			return fmt.Errorf("no externalmetrics: %v", list)
		}
		return nil
	})
	for _, s := range d.parties {
		if s.party != customMetrics {
			continue
		}
		if code, body, err := s.direct(t.Context(), d.proxyCA, "/apis"); err != nil || code != http.StatusOK || strings.Contains(body, "externalmetrics") {
			t.Errorf("discovery document of the server = %d %s, %v; want 200 without externalmetrics", code, body, err)
		}
	}
}

// raw gets a path of the front door, and fails unless the response matches.
func raw(t *testing.T, d *frontDoor, pattern, path string) {
	t.Helper()
	expect(t, d, pattern, "get", "--raw", path)
}

// podMetric reads a metric of pods as the controller of HorizontalPodAutoscalers does, and returns "pod value" of each.
func podMetric(d *frontDoor, namespace, selector, metric string) (string, error) {
	which, err := labels.Parse(selector)
	if err != nil {
		return "", err
	}
	found, err := discovery.NewDiscoveryClientForConfig(d.config)
	if err != nil {
		return "", err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	client := custom_metrics.NewForConfig(d.config, mapper, custom_metrics.NewAvailableAPIsGetter(found))
	list, err := client.NamespacedMetrics(namespace).GetForObjects(schema.GroupKind{Kind: "Pod"}, which, metric, labels.Everything())
	if err != nil {
		return "", err
	}
	var values []string
	for _, v := range list.Items {
		values = append(values, v.DescribedObject.Name+" "+v.Value.String())
	}
	return strings.Join(values, ", "), nil
}

// metricsPort is where the test adapter takes values; it has no flag for it.
const metricsPort = ":8080"

// awaitMetricsPort fails early if another process uses the port.
func awaitMetricsPort(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", metricsPort)
	if err != nil {
		t.Fatalf("port 8080 of this machine: %v, want it free for the test adapter", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}
