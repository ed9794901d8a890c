//go:build prometheus

package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"portico.dev/e2e/programs"
)

// Every expression of the alerts and of the dashboard speaks of series that our programs really have, with labels that these
// series really have. A real Prometheus says so: it is configured by deploy/monitoring/scrape.yaml, reads the rules, scrapes a
// front door and an extension server, and takes the expressions apart.
func TestAlertsAndDashboardSpeakOfWhatIsThere(t *testing.T) {
	t.Parallel()
	p := monitored(t)
	if err := programs.Poll(nil, p.rulesAreWell); err != nil {
		t.Fatal(err)
	}
	for _, r := range alerts(t) {
		t.Run(r.Alert, func(t *testing.T) {
			labels := p.checkExpression(t, r.Expr)
			checkNames(t, labels, regexp.MustCompile(`\$labels\.(\w+)`), r.Annotations["summary"])
			checkRunbook(t, r.Annotations["runbook"])
			if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) {
				t.Errorf("severity %q", r.Labels["severity"])
			}
		})
	}
	shown := readDashboard(t)
	for _, panel := range shown.Panels {
		for _, target := range panel.Targets {
			t.Run(panel.Title+" "+target.RefID, func(t *testing.T) {
				labels := p.checkExpression(t, shown.fill(target.Expr))
				checkNames(t, labels, regexp.MustCompile(`\{\{(\w+)\}\}`), target.LegendFormat)
			})
		}
	}
	for _, v := range shown.Templating.List {
		if v.Type != "query" {
			continue
		}
		t.Run("variable "+v.Name, func(t *testing.T) {
			match := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
			if match == nil {
				t.Fatalf("%q is not label_values", v.Definition)
			}
			checkNames(t, p.checkExpression(t, match[1]), regexp.MustCompile(`^\w+$`), match[2])
		})
	}
}

// checkNames compares labels that a text names with those that there are.
func checkNames(t *testing.T, labels sets.Set[string], named *regexp.Regexp, text string) {
	t.Helper()
	for _, match := range named.FindAllStringSubmatch(text, -1) {
		if name := match[len(match)-1]; !labels.Has(name) {
			t.Errorf("%q names the label %s; there are %v", text, name, sets.List(labels))
		}
	}
}

// checkRunbook looks for the page and the heading.
func checkRunbook(t *testing.T, runbook string) {
	t.Helper()
	page, heading, _ := strings.Cut(runbook, "#")
	if page == "" || heading == "" {
		t.Fatalf("the runbook %q is not a page and a heading", runbook)
	}
	dropped := regexp.MustCompile(`[^a-z0-9 -]`)
	for _, line := range strings.Split(readFile(t, "../../"+page), "\n") {
		if title := strings.TrimLeft(line, "#"); title != line {
			anchor := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			if strings.ReplaceAll(anchor, " ", "-") == heading {
				return
			}
		}
	}
	t.Errorf("%s has no heading %s", page, heading)
}

type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(readFile(t, "../../deploy/monitoring/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, "../../deploy/monitoring/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	ids := sets.New[int]()
	for _, p := range d.Panels {
		if ids.Has(p.ID) {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids.Insert(p.ID)
	}
	return d
}

// fill puts values into variables, as the dashboard does when all is chosen.
func (d dashboard) fill(expr string) string {
	pairs := []string{"$__rate_interval", "1m"}
	for _, v := range d.Templating.List {
		pairs = append(pairs, "$"+v.Name, ".*")
	}
	return strings.NewReplacer(pairs...).Replace(expr)
}

// monitored starts a front door, an extension server, and a Prometheus that scrapes both with the rights of rbac.yaml. What
// counts troubles has some to count: audit is on, a backend of an APIRoute is given up, and the extension server is killed once it was scraped.
func monitored(t *testing.T) *prometheus {
	t.Helper()
	dir, kubeconfig := deployFront(t, "--audit-log-path", filepath.Join(t.TempDir(), "audit.log"))
	env := []string{"KUBECONFIG=" + kubeconfig}
	port := unusedPort(t)
	p, err := startProcess("extserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, "extserver", "serve", "--kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", port, "--metric-resolution", "1s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Finish(t)
		p.Show(t)
	})
	if err := programs.Poll(p.Exited(), func() error {
		_, err := try(env, "kubectl", "get", "nodes.metrics.k8s.io")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	rollBack(t, env, dir)
	gateway := unusedPort(t)
	adoptOne(t, env, dir, gateway)
	output(t, env, "kubectl", "apply", "--server-side", "-f", "../../deploy/monitoring/rbac.yaml")
	prometheus := startPrometheus(t, dir, kubeconfig, port, gateway)
	// Both were scraped. Now the extension server goes, so that an APIService which was available is so no more.
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := try(env, "kubectl", "get", "nodes.metrics.k8s.io"); err == nil {
		t.Error("a dead extension server answers")
	}
	return prometheus
}

// rollBack has a backend of an APIRoute given up, which has no Service.
func rollBack(t *testing.T, env []string, dir string) {
	t.Helper()
	const route = `
apiVersion: routing.portico.dev/v1alpha1
kind: APIRoute
metadata: {name: v1.metrics.k8s.io}
spec:
  backends: [{name: stable}, {name: canary, service: {namespace: kube-system, name: canary}}]
  rules:
  - name: canary
    backendRefs: [{name: stable, weight: 0}, {name: canary}]
    rollback: {errorPercent: 50, minRequests: 3}
`
	file := filepath.Join(dir, "route.yaml")
	if err := os.WriteFile(file, []byte(route), 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, env, "kubectl", "apply", "-f", file)
	if err := programs.Poll(nil, func() error {
		_, _ = try(env, "kubectl", "get", "--raw", "/apis/metrics.k8s.io/v1/nodes") // fails until it is given up
		metrics, err := try(env, "kubectl", "get", "--raw", "/metrics")
		if err == nil && !strings.Contains(metrics, `portico_apiroute_rolled_back{apiroute="v1.metrics.k8s.io",backend="canary",rule="canary"} 1`) {
			err = errors.New("the backend is not given up")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// adoptOne has a gateway adopt an APIService. Its metrics are at a port.
func adoptOne(t *testing.T, env []string, dir, metrics string) {
	t.Helper()
	port := unusedPort(t)
	output(t, env, "kubectl", "create", "namespace", "portico-gateway")
	output(t, env, "kubectl", "-n", "portico-gateway", "create", "service", "externalname", "portico-gateway", "--external-name=localhost")
	p, err := startProcess("gateway", dir, append(env, "PATH="+os.Getenv("PATH"), "HOME="+dir), "aggregator", "gateway", "--kubeconfig", strings.TrimPrefix(env[0], "KUBECONFIG="),
		"--namespace=portico-gateway", "--bind-address=127.0.0.1", "--secure-port="+port, "--service-port="+port, "--metrics-bind-address=127.0.0.1:"+metrics, "--shutdown-delay-duration=0s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Finish(t)
		p.Show(t)
	})
	where := "--gateway=portico-gateway/portico-gateway:" + port
	if err := programs.Poll(p.Exited(), func() error {
		_, err := try(env, "aggregator", "adopt", "v1beta1.metrics.k8s.io", where)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// scrapeConfig is deploy/monitoring/scrape.yaml with places of this test in it.
func scrapeConfig(t *testing.T, dir, kubeconfig, extensionPort, gatewayPort string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	token, err := kubernetes.NewForConfigOrDie(config).CoreV1().ServiceAccounts("kube-system").
		CreateToken(ctx, "portico-monitoring", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var caBundle struct{ Spec struct{ CABundle []byte } }
	service := output(t, []string{"KUBECONFIG=" + kubeconfig}, "kubectl", "get", "apiservice", "v1.metrics.k8s.io", "-o", "json")
	if err := json.Unmarshal([]byte(service), &caBundle); err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{"token": []byte(token.Status.Token), "ca.crt": config.CAData, "extserver-ca.crt": caBundle.Spec.CABundle} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules, err := filepath.Abs("../../deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("/etc/prometheus/portico", dir, "127.0.0.1:6443", strings.TrimPrefix(config.Host, "https://"),
		"127.0.0.1:4443", "127.0.0.1:"+extensionPort, "127.0.0.1:9090", "127.0.0.1:"+gatewayPort, "- alerts.yaml", "- "+rules).
		Replace(readFile(t, "../../deploy/monitoring/scrape.yaml"))
	return fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n%s", text)
}
