//go:build incumbent

package behind

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
	"portico.dev/internal/tools/drill/faulty"
)

// metricsServerRights are the rights in metrics-server's manifests, and its node.
const metricsServerRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-server}
rules:
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
- {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
`

// metricsServer runs metrics-server v0.9.0 for one node with a simulated kubelet, and completes its registration.
func metricsServer(t *testing.T, k *cluster.Cluster, r *registration) {
	t.Helper()
	kubeletCA, kubelet := playKubelet(t, t.TempDir(), r.address)
	kubectl(t, k.Kubeconfig, metricsServerRights, "create", "-f", "-")
	kubectl(t, k.Kubeconfig, "", "patch", "node", "n1", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status":{"addresses":[{"type":"InternalIP","address":%q}],"allocatable":{"cpu":"2","memory":"4Gi"},"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}},"conditions":[{"type":"Ready","status":"True"}]}}`,
		r.address, kubelet))
	thirdParty(t, k, r, "metrics-server", "--kubeconfig", "--kubelet-certificate-authority", kubeletCA, "--kubelet-use-node-status-port",
		"--kubelet-preferred-address-types", "InternalIP", "--metric-resolution", "10s", "--kubelet-request-timeout", "9s")
}

// adapterRules match the metrics of the tests' Prometheus.
const adapterRules = `externalRules:
- seriesQuery: queue_depth
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
`

// prometheusAdapter runs prometheus-adapter v0.12.0, and completes its registration.
func prometheusAdapter(t *testing.T, k *cluster.Cluster, r *registration) {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(adapterRules), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, k.Kubeconfig, "", "create", "clusterrole", "prometheus-adapter", "--verb=get,list,watch", "--resource=pods,namespaces,services,nodes")
	thirdParty(t, k, r, "prometheus-adapter", "--lister-kubeconfig", "--prometheus-url", prometheus(t), "--config", rules, "--metrics-relist-interval", "2s", "--discovery-interval", "5s")
}

// thirdParty runs an extension server with delegated authentication and authorization, as a user of its name with the ClusterRole of that name.
// kubeconfigFlag is its own name for the flag --kubeconfig.
func thirdParty(t *testing.T, k *cluster.Cluster, r *registration, program, kubeconfigFlag string, args ...string) {
	t.Helper()
	for _, args := range [][]string{
		{"clusterrolebinding", program, "--clusterrole=" + program},
		{"clusterrolebinding", program + "-review", "--clusterrole=system:auth-delegator"},
		{"rolebinding", "-n", "kube-system", program, "--role=extension-apiserver-authentication-reader"},
	} {
		kubectl(t, k.Kubeconfig, "", append([]string{"create", "--user=" + program}, args...)...)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := k.WriteKubeconfig(kubeconfig, program); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewAuthority(program)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: program, Server: true, DNSNames: []string{r.service + "." + r.namespace + ".svc"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.port, r.ca = int32(freePort(t)), ca.PEM()
	started, err := programs.Start(program, dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, nil, filepath.Join(binaries, program), append([]string{
		kubeconfigFlag, kubeconfig, "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig,
		"--bind-address", r.address, "--secure-port", strconv.Itoa(int(r.port)),
		"--tls-cert-file", filepath.Join(dir, "tls.crt"), "--tls-private-key-file", filepath.Join(dir, "tls.key"),
	}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Kill(); err != nil {
			t.Error(err)
		}
		started.Show(t)
	})
}

// playKubelet answers /metrics/resource as a kubelet does.
func playKubelet(t *testing.T, dir, address string) (caFile string, port int) {
	t.Helper()
	ca, err := pki.NewAuthority("kubelets")
	if err != nil {
		t.Fatal(err)
	}
	caFile = filepath.Join(dir, "kubelet-ca.crt")
	if err := os.WriteFile(caFile, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "system:node:n1", Server: true, IPs: []net.IP{net.ParseIP(address)}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/resource" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		now := time.Now()
		fmt.Fprintf(w, "node_cpu_usage_seconds_total %g %d\nnode_memory_working_set_bytes %d %d\n", 0.25*now.Sub(began).Seconds(), now.UnixMilli(), 300<<20, now.UnixMilli())
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Listener = tls.NewListener(listener, pki.ServerConfig(pair))
	s.Start()
	t.Cleanup(s.Close)
	return caFile, listener.Addr().(*net.TCPAddr).Port
}

// aliasOf is metrics.k8s.io/v1, which the server does not have, and the APIRoute by which it is served from the version that it has.
const aliasOf = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1.metrics.k8s.io
  annotations:
    gateway.portico.dev/original-service: %[1]s/%[2]s:443
    gateway.portico.dev/original-ca-bundle: %[3]s
spec:
  group: metrics.k8s.io
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {namespace: portico-gateway, name: portico-gateway, port: 443}
---
apiVersion: routing.portico.dev/v1alpha1
kind: APIRoute
metadata: {name: v1.metrics.k8s.io}
spec:
  backends:
  - {name: metrics-server, version: v1beta1}
`

// routedWidgets sends the requests for one namespace to a second server.
const routedWidgets = `
apiVersion: routing.portico.dev/v1alpha1
kind: APIRoute
metadata: {name: v1.routed.example.com}
spec:
  backends:
  - {name: stable}
  - {name: canary, service: {namespace: default, name: canary}, caBundle: %s}
  rules:
  - name: moved
    matches: [{namespaces: [moved]}]
    backendRefs: [{name: canary}]
    sharedReads: {maxAge: 1m, callers: All, watches: true}
`

// APIRoutes behind an unmodified kube-apiserver, as a custom resource: an alias of metrics-server, and two servers of one group-version.
func TestGatewayRoutes(t *testing.T) {
	k, server := kubeAPIServer(t)
	g := installGateway(t, server)
	if got := kubectl(t, k.Kubeconfig, "", "explain", "apiroute.spec.rules.matches"); !strings.Contains(got, "metrics are patterns of names of metrics") {
		t.Errorf("kubectl explain = %s, want the description of matches", got)
	}

	t.Run("metrics.k8s.io/v1 from a metrics-server that has v1beta1", func(t *testing.T) {
		r := registration{group: "metrics.k8s.io", namespace: "kube-system", service: "metrics-server", address: g.address}
		metricsServer(t, k, &r)
		beta := strings.NewReplacer("name: v1.metrics.k8s.io", "name: v1beta1.metrics.k8s.io", "version: v1\n", "version: v1beta1\n").Replace(r.yaml())
		kubectl(t, k.Kubeconfig, beta, "apply", "-f", "-")
		eventually(t, "metrics-server has metrics", func() error { return g.works("top", "node") })
		if out := runProgram(t, k.Kubeconfig, "", "aggregator", "adopt", "v1beta1.metrics.k8s.io"); out.code != 0 {
			t.Fatalf("aggregator adopt = %s, want exit code 0", out)
		}
		kubectl(t, k.Kubeconfig, "", "patch", "clusterrole", "portico-gateway-adopted", "--type=json", "-p", `[{"op":"add","path":"/rules/-","value":{"apiGroups":["apiregistration.k8s.io"],"resources":["apiservices","apiservices/status"],"resourceNames":["v1.metrics.k8s.io"],"verbs":["update"]}}]`)
		kubectl(t, k.Kubeconfig, fmt.Sprintf(aliasOf, r.namespace, r.service, base64.StdEncoding.EncodeToString(r.ca)), "apply", "-f", "-")
		eventually(t, "v1 is served", func() error { return g.works("get", "nodes.v1.metrics.k8s.io", "n1") })
		g.conditionIs("v1.metrics.k8s.io", "Available", "True")
		g.conditionIs("v1.metrics.k8s.io", "BackendAvailable", "True")
		top := runProgram(t, k.Kubeconfig, "", "kubectl", "top", "node", "-v=6")
		if !strings.Contains(top.stderr, "/apis/metrics.k8s.io/v1/nodes") || !strings.Contains(top.stdout, "300Mi") {
			t.Errorf("kubectl top node = %s, want the metrics through v1", top)
		}
		t.Log(top.stdout)
		route := runProgram(t, k.Kubeconfig, "", "aggregator", "route", "/apis/metrics.k8s.io/v1/nodes/n1")
		if route.code != 0 || !strings.Contains(route.stdout, "gateway   portico-gateway/portico-gateway:443\n") || !strings.Contains(route.stdout, "metrics-server (kube-system/metrics-server:443, version v1beta1): available") {
			t.Errorf("aggregator route = %s, want the gateway and the available backend", route)
		}
		t.Log(route.stdout)
		t.Log(kubectl(t, k.Kubeconfig, "", "get", "apiroutes"))
	})

	t.Run("a HorizontalPodAutoscaler scales on a metric of prometheus-adapter", func(t *testing.T) {
		r := registration{group: "external.metrics.k8s.io", namespace: "default", service: "adapter", address: g.address}
		prometheusAdapter(t, k, &r)
		beta := strings.NewReplacer("name: v1.external", "name: v1beta1.external", "version: v1\n", "version: v1beta1\n").Replace(r.yaml())
		kubectl(t, k.Kubeconfig, beta, "apply", "-f", "-")
		eventually(t, "prometheus-adapter has the metric", func() error {
			return g.works("get", "--raw", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth")
		})
		if out := runProgram(t, k.Kubeconfig, "", "aggregator", "adopt", "v1beta1.external.metrics.k8s.io"); out.code != 0 {
			t.Fatalf("aggregator adopt = %s, want exit code 0", out)
		}
		kubectl(t, k.Kubeconfig, "", "create", "namespace", "shop")
		(&installed{Cluster: k}).autoscale(t)
	})
	t.Run("two servers of one group-version", func(t *testing.T) { twoServers(t, k, g) })
}

func twoServers(t *testing.T, k *cluster.Cluster, g *gateways) {
	stable := registration{group: "routed.example.com", namespace: "default", service: "stable", address: g.address}
	canary := stable
	canary.service = "canary"
	first := extensionServer(t, &stable, g.address)
	second := extensionServer(t, &canary, g.address)
	kubectl(t, k.Kubeconfig, stable.yaml(), "apply", "-f", "-")
	kubectl(t, k.Kubeconfig, strings.TrimSuffix(canary.serviceYAML(), "---"), "apply", "-f", "-")
	eventually(t, "widgets are served", func() error { return g.works("get", "widgets") })
	if out := runProgram(t, k.Kubeconfig, "", "aggregator", "adopt", stable.apiService()); out.code != 0 {
		t.Fatalf("aggregator adopt = %s, want exit code 0", out)
	}
	wrong := runProgram(t, k.Kubeconfig, strings.Replace(fmt.Sprintf(routedWidgets, ""), "callers: All", "callers: Some", 1), "kubectl", "apply", "-f", "-")
	if !strings.Contains(wrong.stderr, "spec.rules[0].sharedReads.callers: Unsupported value") {
		t.Errorf("kubectl apply of an invalid value = %s, want \"Unsupported value\"", wrong)
	}
	kubectl(t, k.Kubeconfig, strings.Replace(fmt.Sprintf(routedWidgets, base64.StdEncoding.EncodeToString(canary.ca)), "{name: canary}]", "{name: missing}]", 1), "apply", "-f", "-")
	condition := func(path string) string {
		return kubectl(t, k.Kubeconfig, "", "get", "apiroute", stable.apiService(), "-o", "jsonpath="+path)
	}
	says := func(path, want string) {
		t.Helper()
		eventually(t, path+" is "+want, func() error {
			if got := condition(path); !strings.Contains(got, want) {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
	}
	says(`{.status.conditions[?(@.type=="Accepted")].message}`, `spec.rules[0].backendRefs[0].name: Not found: "missing"`)
	kubectl(t, k.Kubeconfig, fmt.Sprintf(routedWidgets, base64.StdEncoding.EncodeToString(canary.ca)), "apply", "-f", "-")
	says(`{.status.conditions[?(@.type=="Available")].status}`, "True")
	t.Log(kubectl(t, k.Kubeconfig, "", "get", "apiroutes"))

	kubectl(t, k.Kubeconfig, "", "create", "namespace", "moved")
	for _, namespace := range []string{"default", "moved"} {
		kubectl(t, k.Kubeconfig, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"w","namespace":"%s"}}`, stable.group, namespace), "create", "--validate=false", "-f", "-")
	}
	if first.Stored("default") != 1 || first.Stored("moved") != 0 || second.Stored("moved") != 1 {
		t.Errorf("stored objects = %d and %d at the first server, %d at the second; want 1, 0 and 1",
			first.Stored("default"), first.Stored("moved"), second.Stored("moved"))
	}
	if all := runProgram(t, k.Kubeconfig, "", "kubectl", "get", "widgets", "-A"); !strings.Contains(all.stderr, "the objects of the list are stored at several backends, canary among them") {
		t.Errorf("kubectl get of all namespaces = %s, want an error with the backend canary", all)
	}
	path := "/apis/routed.example.com/v1/namespaces/moved/widgets"
	eventually(t, "a list is an earlier one's: each replica has its own", func() error {
		old, err := age(t.Context(), k.Admin, path)
		if err == nil && old == "" {
			err = errors.New("it has no Age")
		}
		return err
	})
	if got := kubectl(t, k.Kubeconfig, "", "get", "--raw", path+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"); !strings.Contains(got, "k8s.io/initial-events-end") {
		t.Errorf("shared watch with initial events = %s, want the bookmark at their end", got)
	}

	if err := second.SetFault(faulty.Refuse); err != nil {
		t.Fatal(err)
	}
	says(`{.status.backends[?(@.name=="canary")].conditions[0].status}`, "False")
	dead := runProgram(t, k.Kubeconfig, "", "kubectl", "get", "widget", "-n", "moved", "other")
	if !strings.Contains(dead.stderr, "backend canary of APIRoute "+stable.apiService()+" is unavailable") {
		t.Errorf("kubectl get at the dead backend = %s, want an error with its name", dead)
	}
	t.Log(dead.stderr)
	kubectl(t, k.Kubeconfig, "", "get", "widget", "-n", "default", "w")
	g.conditionIs(stable.apiService(), "BackendAvailable", "True")
	t.Log(kubectl(t, k.Kubeconfig, "", "get", "apiroutes"))
	kubectl(t, k.Kubeconfig, "", "delete", "apiroute", stable.apiService())
	eventually(t, "without the APIRoute all requests go to the first one", func() error {
		out := runProgram(t, k.Kubeconfig, "", "kubectl", "get", "widget", "-n", "moved", "w")
		if !strings.Contains(out.stderr, "NotFound") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// age is the header Age of a response to the administrator.
func age(ctx context.Context, admin *rest.Config, path string) (string, error) {
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, admin.Host+path, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // nothing was written
	if response.StatusCode != http.StatusOK {
		text, err := readAll(response.Body)
		return "", errors.Join(fmt.Errorf("%s: %s", response.Status, text), err)
	}
	return response.Header.Get("Age"), nil
}
