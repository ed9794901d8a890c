//go:build incumbent

package behind

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
)

const (
	serverNamespace = "kube-system"
	serverAccount   = "portico-extserver"
)

// hosted is everything that extserver hosts, by the APIService.
var hosted = []string{
	"v1.metrics.k8s.io", "v1beta1.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io",
	"v1beta1.external.metrics.k8s.io", "v1.project.portico.dev", "v1.stats.example.com",
}

const (
	ruleFile = `externalRules:
- seriesQuery: queue_depth
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
rules:
- seriesQuery: 'tickets{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
`
	declaration = `apiVersion: extension.portico.dev/v1alpha1
kind: ResourceDefinitions
resources:
- group: stats.example.com
  version: v1
  plural: queues
  kind: Queue
  namespaced: true
  every: 1s
  source: {file: {path: %q}}
  items: .data[*]
  object: {name: .id, namespace: .team, fields: {status.depth: {from: .depth, type: integer}}}
  columns: [{name: Depth, path: .status.depth, type: integer}]
`
	node = `apiVersion: v1
kind: Node
metadata: {name: n1}
`
	// the users with access to projects and to the resources of the YAML file.
	roles = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: guests}
rules:
- {apiGroups: [project.portico.dev], resources: [projects, projectrequests], verbs: [get, list, watch, create, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: guests}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: guests}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: guests}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: viewers}]
`
	scaled = `apiVersion: apps/v1
kind: Deployment
metadata: {name: mailer, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: mailer}}
  template:
    metadata: {labels: {app: mailer}}
    spec: {containers: [{name: main, image: mailer}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: mailer, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: mailer}
  minReplicas: 1
  maxReplicas: 9
  metrics:
  - type: External
    external: {metric: {name: queue_depth}, target: {type: AverageValue, averageValue: "4"}}
`
)

// installed is extserver behind kube-apiserver, installed as in docs/registering.md.
type installed struct {
	*cluster.Cluster
	t       *testing.T
	dir     string
	port    int
	flags   []string
	process *programs.Process
}

func install(t *testing.T, k *cluster.Cluster, flags ...string) *installed {
	t.Helper()
	s := &installed{Cluster: k, t: t, dir: t.TempDir(), port: freePort(t)}
	s.write("queues.json", `{"data": [{"id": "orders", "team": "shop", "depth": 3}]}`)
	s.write("queues.yaml", fmt.Sprintf(declaration, s.file("queues.json")))
	s.write("adapter.yaml", ruleFile)
	s.flags = []string{
		"--secure-port", fmt.Sprint(s.port), "--projects", "--project-poll-interval", "1s", "--resources", s.file("queues.yaml"),
		"--prometheus-url", prometheus(t), "--custom-metrics-rules", s.file("adapter.yaml"), "--metrics-relist-interval", "1s",
		"--node-name", "n1", "--metric-resolution", "1s", "--cert-dir", s.file("certs"),
	}
	s.flags = append(s.flags, flags...)
	out := runProgram(t, "", "", "extserver", append([]string{"manifests"}, s.flags...)...)
	if out.code != 0 {
		t.Fatalf("extserver manifests = %v, want exit code 0", out)
	}
	kubectl(t, k.Kubeconfig, out.stdout, "apply", "--server-side", "-f", "-")
	kubectl(t, k.Kubeconfig, node, "create", "-f", "-")
	kubectl(t, k.Kubeconfig, "", "patch", "node", "n1", "--subresource=status", "--type=merge", "-p", `{"status":{"allocatable":{"cpu":"64","memory":"64Gi"}}}`)
	kubectl(t, k.Kubeconfig, "", "create", "namespace", "shop")
	kubectl(t, k.Kubeconfig, roles, "create", "-f", "-")
	tokenKubeconfig(t, k.Kubeconfig, s.file("own.kubeconfig"), s.token(serverNamespace, serverAccount))
	t.Cleanup(func() {
		if s.process != nil {
			s.process.Finish(t)
			s.process.Show(t)
		}
	})
	s.start(t)
	return s
}

func (s *installed) file(name string) string { return filepath.Join(s.dir, name) }

func (s *installed) write(name, text string) {
	s.t.Helper()
	// Renamed into place: the server must not read half of it.
	if err := os.WriteFile(s.file(name)+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.file(name)+".new", s.file(name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *installed) start(t *testing.T) {
	t.Helper()
	p, err := programs.Start("extserver", s.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}, nil, filepath.Join(binaries, "extserver"),
		append([]string{"serve", "--kubeconfig", s.file("own.kubeconfig"), "--bind-address", "127.0.0.1"}, s.flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	s.process = p
}

// token is a service account's, from the TokenRequest API.
func (s *installed) token(namespace, account string) string {
	s.t.Helper()
	client, err := kubernetes.NewForConfig(s.Admin)
	if err != nil {
		s.t.Fatal(err)
	}
	hours := int64(4 * 3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	made, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(s.t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made.Status.Token
}

// available checks that kube-apiserver reports every hosted APIService as available.
func (s *installed) available(t *testing.T) error {
	t.Helper()
	out := kubectl(t, s.Kubeconfig, "", "get", "apiservices", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Available")].status}{"\n"}{end}`)
	for _, name := range hosted {
		if !strings.Contains(out, name+"=True\n") {
			return fmt.Errorf("%s is not among what is available:\n%s", name, out)
		}
	}
	return nil
}

// asks returns the response of kube-apiserver, or of the extension server, to a user.
func asks(config *rest.Config, header http.Header, path string) (int, string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, "", err
	}
	defer client.CloseIdleConnections()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return 0, "", err
	}
	if header != nil {
		request.Header = header.Clone()
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := readAll(response.Body)
	return response.StatusCode, body, err
}

// direct is a way to the extension server past kube-apiserver, with the credentials of config.
func (s *installed) direct(config *rest.Config) *rest.Config {
	out := rest.CopyConfig(config)
	out.Host = "https://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(s.port))
	out.TLSClientConfig.CAData, out.TLSClientConfig.Insecure = nil, true // the test does not check the server certificate
	return out
}

func (s *installed) as(user string, groups ...string) *rest.Config {
	s.t.Helper()
	config, err := s.As(user, groups...)
	if err != nil {
		s.t.Fatal(err)
	}
	return config
}

var errNotYet = errors.New("not yet")
