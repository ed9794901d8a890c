package thirdparty

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"portico.dev/e2e/compat"
	"portico.dev/e2e/programs"
)

const (
	promCustom   = "custom metrics of one object, and of all objects that match a selector"
	promHPA      = "the custom metrics client of HorizontalPodAutoscalers"
	promExternal = "external metrics"
	promOld      = "informers of its old client-go: list, then watch"
)

var prometheusAdapter = &compat.Party{
	Name: "prometheus-adapter", Module: "sigs.k8s.io/prometheus-adapter", In: "e2e/thirdparty/prometheusadapter",
	Is:    "The adapter is built with the libraries of Kubernetes 1.30. A Prometheus, built from its own module, scrapes an application.",
	Steps: life(compat.Step{What: promCustom}, compat.Step{What: promHPA}, compat.Step{What: promExternal}, compat.Step{What: promOld}),
}

const adapterRules = `rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  name: {matches: ^(.*)_total$, as: "${1}_per_second"}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[10s])) by (<<.GroupBy>>)
externalRules:
- seriesQuery: queue_depth
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
`

func newPrometheusAdapter(t *testing.T, d *frontDoor) *third {
	s := newThird(t, d, prometheusAdapter, "adapter", []rbacv1.PolicyRule{described}, customBeta2, customBeta1, externalBeta1)
	makePod(t, d)
	place(t, filepath.Join(s.dir, "rules.yaml"), []byte(adapterRules))
	s.program("prometheus-adapter", "--lister-kubeconfig", s.kubeconfig(), "--prometheus-url", startPrometheus(t, s.dir),
		"--config", filepath.Join(s.dir, "rules.yaml"), "--metrics-relist-interval", "2s", "--discovery-interval", "5s")
	s.serves = func(ctx context.Context, config *rest.Config) error {
		_, err := requestRate(ctx, config)
		return err
	}
	return s
}

// requestRate reads the metric of the pod.
func requestRate(ctx context.Context, config *rest.Config) (string, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer, config.GroupVersion, config.APIPath = plain, &customBeta2, "/apis"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return "", err
	}
	result := client.Get().AbsPath("/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/web-1/http_requests_per_second").Do(ctx)
	if err := result.Error(); err != nil {
		return "", err // Raw would not read the Status
	}
	got, err := result.Raw()
	if err == nil && !strings.Contains(string(got), `"value":"`) {
		err = fmt.Errorf("no value in %s", got)
	}
	return string(got), err
}

// startPrometheus starts one that scrapes an application.
func startPrometheus(t *testing.T, dir string) string {
	t.Helper()
	began := time.Now()
	return scrape(t, dir, func(w io.Writer) {
		fmt.Fprintf(w, "http_requests_total{namespace=\"shop\",pod=\"web-1\"} %g\n", 3*time.Since(began).Seconds())
		fmt.Fprintln(w, `queue_depth{namespace="shop",queue="mail"} 12`)
	})
}

// scrape starts a Prometheus that scrapes the metrics of an application every second, and returns its URL.
func scrape(t *testing.T, dir string, says func(io.Writer)) string {
	t.Helper()
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { says(w) }))
	t.Cleanup(application.Close)
	const configuration = "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: all\n  honor_labels: true\n  static_configs:\n  - targets: [%q]\n"
	place(t, filepath.Join(dir, "prometheus.yml"), fmt.Appendf(nil, configuration, application.Listener.Addr()))
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	p, err := programs.Start("prometheus", dir, []string{"HOME=" + dir}, openLog(t, "prometheus"), filepath.Join(binaries, "prometheus"),
		"--config.file", "prometheus.yml", "--storage.tsdb.path", "tsdb", "--web.listen-address", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Finish(t) })
	return (&url.URL{Scheme: "http", Host: address}).String()
}

func exercisePrometheusAdapter(t *testing.T, s *third) {
	d, step := s.frontDoor, func(what string, run func(t *testing.T)) { book.Step(t, prometheusAdapter, what, run) }
	step(promCustom, func(t *testing.T) {
		s.awaitAvailable(t)
		eventually(t, "it has seen ten seconds of requests", func() error {
			rate, err := requestRate(t.Context(), d.config)
			if err == nil && !matches(`"value":"(2[5-9]|3)`, rate) {
				err = errors.New(rate)
			}
			return err
		})
		raw(t, d, `"name":"web-1".*"value":"[234]`, "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/http_requests_per_second?labelSelector=app%3Dweb")
		raw(t, d, `"metricName":"http_requests_per_second"`, "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/web-1/http_requests_per_second")
	})
	step(promHPA, func(t *testing.T) {
		if got, err := podMetric(d, "shop", "app=web", "http_requests_per_second"); err != nil || !matches(`^web-1 [234]`, got) {
			t.Errorf("metric of the pods = %q, %v; want web-1 with 2 to 4", got, err)
		}
	})
	step(promExternal, func(t *testing.T) {
		raw(t, d, `"metricName":"queue_depth".*"value":"12"`, "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth?labelSelector=queue%3Dmail")
	})
	step(promOld, func(t *testing.T) {
		eventually(t, "it lists, then watches", func() error { return listsThenWatches(d.file("audit.log"), "system:serviceaccount:adapter:adapter") })
	})
}

// listsThenWatches checks in the audit log how an informer of this user read the ConfigMap with the authentication
// configuration.
func listsThenWatches(file, user string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var asked []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        struct{ Resource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the end of the log is being written
		}
		if event.User.Username != user || event.ObjectRef.Resource != "configmaps" || event.Verb == "get" {
			continue
		}
		asked = append(asked, event.Verb)
		if strings.Contains(event.RequestURI, "sendInitialEvents") {
			return fmt.Errorf("it asked %s", event.RequestURI)
		}
	}
	if all := strings.Join(asked, " "); !strings.HasPrefix(all, "list") || !strings.Contains(all, "watch") {
		return fmt.Errorf("it asked %q", all)
	}
	return lines.Err()
}
