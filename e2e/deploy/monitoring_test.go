//go:build prometheus

package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// Every expression of the alerts and of the dashboard uses existing series with existing labels. A real Prometheus checks that:
// it is configured by deploy/monitoring/scrape.yaml, reads the rules, scrapes two replicas of a front door and an extension
// server, and parses the expressions.
func TestAlertsAndDashboardSpeakOfWhatIsThere(t *testing.T) {
	t.Parallel()
	m := startMonitored(t)
	p := m.prometheus
	if err := programs.Poll(nil, p.rulesAreWell); err != nil {
		t.Fatal(err)
	}
	for _, r := range alerts(t) {
		t.Run(r.Alert, func(t *testing.T) {
			labels := p.checkExpression(t, r.Expr)
			checkNames(t, labels, regexp.MustCompile(`\$labels\.(\w+)`), r.Annotations["summary"])
			checkRunbook(t, r.Annotations["runbook"])
			if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) {
				t.Errorf("severity = %q, want critical or warning", r.Labels["severity"])
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
				t.Fatalf("definition of the variable = %q, want label_values", v.Definition)
			}
			checkNames(t, p.checkExpression(t, match[1]), regexp.MustCompile(`^\w+$`), match[2])
		})
	}
	t.Run("raised", m.raise)
}

// checkNames checks the labels in a text against the existing ones.
func checkNames(t *testing.T, labels sets.Set[string], named *regexp.Regexp, text string) {
	t.Helper()
	for _, match := range named.FindAllStringSubmatch(text, -1) {
		if name := match[len(match)-1]; !labels.Has(name) {
			t.Errorf("%q uses the label %s, want one of %v", text, name, sets.List(labels))
		}
	}
}

// checkRunbook looks for the page and the heading.
func checkRunbook(t *testing.T, runbook string) {
	t.Helper()
	page, heading, _ := strings.Cut(runbook, "#")
	if page == "" || heading == "" {
		t.Fatalf("runbook = %q, want a page and a heading", runbook)
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
	t.Errorf("%s has no heading %s, want one", page, heading)
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
		t.Fatal("the rules have no alerts, want some")
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
			t.Errorf("two panels have the id %d, want one", p.ID)
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

// monitored is the set of scraped processes: two replicas over an etcd of three members, an extension server and a gateway.
type monitored struct {
	prometheus    *prometheus
	etcd          []*embed.Etcd
	first, second *programs.Process
	env           []string // of an administrator of the first
	states        string   // the directory of the first replica's state snapshot
}

// places are the addresses that differ from scrape.yaml.
type places struct{ secondFront, extensionServer, gateway string }

// startMonitored starts everything, and a Prometheus that scrapes it with the rights of rbac.yaml. Counters of faults have some
// to count: audit is on, a backend of an APIRoute is unusable, and the extension server is killed after it was scraped.
func startMonitored(t *testing.T) *monitored {
	t.Helper()
	m := &monitored{etcd: startEtcd(t), states: filepath.Join(t.TempDir(), "states")}
	var servers []string
	for _, e := range m.etcd {
		servers = append(servers, e.Config().ListenClientUrls[0].String())
	}
	dir, other := t.TempDir(), t.TempDir()
	data, otherData := filepath.Join(dir, "data"), filepath.Join(other, "data")
	flags := []string{"--bind-address", "127.0.0.1", "--etcd-servers", strings.Join(servers, ","), "--runtime-config", "clusters.portico.dev/v1alpha1=true"}
	m.first, _ = startFrontDoor(t, dir, serveFrom(data, append(flags, "--audit-log-path", filepath.Join(dir, "audit.log"),
		"--state-snapshot-file", filepath.Join(m.states, "state"))...))
	if err := pki.CopyShared(filepath.Join(otherData, "pki"), filepath.Join(data, "pki")); err != nil {
		t.Fatal(err)
	}
	second, url := startFrontDoor(t, other, serveFrom(otherData, flags...))
	m.second = second
	kubeconfig := filepath.Join(data, "admin.kubeconfig")
	at := places{secondFront: strings.TrimPrefix(url, "https://"), extensionServer: unusedPort(t), gateway: unusedPort(t)}
	env := []string{"KUBECONFIG=" + kubeconfig}
	m.env = env
	p, err := startProcess("extserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, "extserver", "serve", "--kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", at.extensionServer, "--metric-resolution", "1s")
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
	addCluster(t, env, dir, at.secondFront)
	adoptOne(t, env, dir, at.gateway)
	output(t, env, "kubectl", "apply", "--server-side", "-f", "../../deploy/monitoring/rbac.yaml")
	m.prometheus = startPrometheus(t, dir, kubeconfig, at)
	// Both were scraped. Now the extension server is killed, so that an available APIService becomes unavailable.
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := try(env, "kubectl", "get", "nodes.metrics.k8s.io"); err == nil {
		t.Error("request to a dead extension server succeeded, want an error")
	}
	return m
}

// startEtcd starts three servers of an etcd.
func startEtcd(t *testing.T) []*embed.Etcd {
	t.Helper()
	configs := make([]*embed.Config, 3)
	var all []string
	for i := range configs {
		c := embed.NewConfig()
		c.Name, c.Dir = string(rune('a'+i)), t.TempDir()
		c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		peer, client := url.URL{Scheme: "http", Host: "127.0.0.1:" + unusedPort(t)}, url.URL{Scheme: "http", Host: "127.0.0.1:" + unusedPort(t)}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		all = append(all, c.Name+"="+peer.String())
		configs[i] = c
	}
	running := make([]*embed.Etcd, len(configs))
	t.Cleanup(func() {
		for _, e := range running {
			if e != nil {
				e.Close()
			}
		}
	})
	for i, c := range configs {
		c.InitialCluster = strings.Join(all, ",")
		e, err := embed.StartEtcd(c)
		if err != nil {
			t.Fatal(err)
		}
		running[i] = e
	}
	for _, e := range running {
		select {
		case <-e.Server.ReadyNotify():
		case <-inAMinute():
			t.Fatal("etcd member did not start within a minute, want it ready")
		}
	}
	return running
}

// raise causes the faults of alerts that need several replicas, or an etcd of several members, and waits until they fire. The
// clock of Prometheus is set forward to pass the time. The rules are the shipped ones.
func (m *monitored) raise(t *testing.T) {
	names := []string{"PorticoEtcdServerLost", "PorticoStateSnapshotNotSaved", "PorticoReplicaClockSkew"}
	if err := m.prometheus.alertsAre(names, time.Time{}, "inactive"); err != nil {
		t.Fatalf("alerts before any fault: %v, want them inactive", err)
	}
	if err := m.second.SetClock(20 * time.Second); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	m.etcd[2].Close()
	m.etcd[2] = nil // closed once
	// A file in the place of its directory: not even root can write the snapshot. Then there is something to write.
	if err := errors.Join(os.RemoveAll(m.states), os.WriteFile(m.states, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	output(t, m.env, "kubectl", "create", "clusterrole", "new", "--verb=get", "--resource=pods")
	if err := programs.Poll(m.first.Exited(), func() error {
		if !strings.Contains(m.first.Output(), "failed to write the state snapshot") {
			return errors.New("the first front door does not log that the state snapshot is not written")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// 30 minutes until the snapshot is too old, and then the 5 minutes for which a rule must hold, in steps that leave no
	// series stale.
	for _, step := range []struct {
		ahead  time.Duration
		states []string
	}{
		{31 * time.Minute, []string{"pending", "firing"}},
		{35 * time.Minute, []string{"pending", "firing"}},
		{39 * time.Minute, []string{"firing"}},
	} {
		if err := m.prometheus.process.SetClock(step.ahead); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(step.ahead)
		if err := programs.Poll(m.prometheus.process.Exited(), func() error {
			return m.prometheus.alertsAre(names, then, step.states...)
		}); err != nil {
			t.Fatal(err)
		}
	}
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

// addCluster makes an API server a cluster behind the front doors.
func addCluster(t *testing.T, env []string, dir, address string) {
	t.Helper()
	object := `
apiVersion: clusters.portico.dev/v1alpha1
kind: Cluster
metadata: {name: second}
spec: {server: {endpoints: ["` + address + `"], insecureSkipTLSVerify: true}}
`
	file := filepath.Join(dir, "cluster.yaml")
	if err := os.WriteFile(file, []byte(object), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, env, "kubectl", "apply", "-f", file)
	if err := programs.Poll(nil, func() error {
		metrics, err := try(env, "kubectl", "get", "--raw", "/metrics")
		if err == nil && !strings.Contains(metrics, `portico_cluster_permitted{cluster="second"}`) {
			err = errors.New("the rights in the cluster were not checked")
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
func scrapeConfig(t *testing.T, dir, kubeconfig string, at places) string {
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
	text := strings.NewReplacer("/etc/prometheus/portico", dir, `"127.0.0.1:6443"`, fmt.Sprintf("%q, %q", strings.TrimPrefix(config.Host, "https://"), at.secondFront),
		"127.0.0.1:4443", "127.0.0.1:"+at.extensionServer, "127.0.0.1:9090", "127.0.0.1:"+at.gateway, "- alerts.yaml", "- "+rules).
		Replace(readFile(t, "../../deploy/monitoring/scrape.yaml"))
	return fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n%s", text)
}
