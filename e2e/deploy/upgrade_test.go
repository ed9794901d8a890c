package deploy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
	"portico.dev/internal/tools/toolclient"
)

// slice is the EndpointSlice that Kubernetes' controllers create for the chart's Service.
const slice = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: portico-extserver-1, namespace: kube-system, labels: {kubernetes.io/service-name: portico-extserver}}
addressType: IPv4
ports: [{name: https, port: %s}]
endpoints: [{addresses: [%q], conditions: {ready: true}}]
`

// While Helm installs again, upgrades, rolls back and upgrades once more, clients of the extension server that the chart registers, and of
// the front door, lose no request: the release keeps the caBundle that the server has written. The server runs with the arguments of
// the chart's pod, at an address of this machine.
func TestTrafficGoesOnThroughAnUpgrade(t *testing.T) {
	t.Parallel()
	dir, kubeconfig := deployFront(t)
	env := []string{"KUBECONFIG=" + kubeconfig}
	chart := filepath.Join("..", "..", "deploy", "chart")
	helm := func(args ...string) {
		t.Helper()
		output(t, nil, "installer", append([]string{kubeconfig, "default"}, args...)...)
	}
	helm(append([]string{"install", "portico", chart, "extserver.enabled=true"}, chartImages()...)...)

	const port = "4443" // the chart's port: with another one, the server would write the Service
	address := programs.MachineAddress()
	if address == "" {
		t.Fatal("this machine has only loopback addresses, want one that may be an endpoint")
	}
	server, err := startProcess("extserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, "extserver", "serve", "--kubeconfig", kubeconfig,
		"--bind-address", address, "--secure-port", port, "--service-selector", "app.kubernetes.io/name=portico-extserver", "--metric-resolution", "1s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Finish(t) })
	file := filepath.Join(dir, "slice.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, slice, port, address), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, env, "kubectl", "apply", "-f", file)

	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := toolclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	const metrics, local = "/apis/metrics.k8s.io/v1/nodes", "/api/v1/namespaces"
	if err := programs.Poll(server.Exited(), func() error { return ask(t.Context(), client.REST(), metrics) }); err != nil {
		t.Fatal(err)
	}
	w := &workload{client: client.REST(), paths: []string{metrics, local}}
	w.start()
	defer w.stop()
	served := 0
	for _, step := range [][]string{
		append([]string{"upgrade", "portico", chart, "extserver.enabled=true", "extserver.image.tag=v9.9.9", "gateway.enabled=true"}, chartImages()...),
		{"rollback", "portico", "1"},
		append([]string{"upgrade", "portico", chart, "extserver.enabled=true", "monitoring.dashboard.enabled=true"}, chartImages()...),
	} {
		helm(step...)
		// More than a round of probes, by which a wrong caBundle would be found.
		served += 40
		if err := programs.Poll(nil, func() error { return w.servedAtLeast(served) }); err != nil {
			t.Errorf("requests after %q: %v, want them served", step[0], err)
		}
		if image := output(t, env, "kubectl", "-n", "kube-system", "get", "deployment", "portico-extserver", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); strings.Contains(image, "v9.9.9") != (step[0] == "upgrade" && strings.Contains(step[4], "v9")) {
			t.Errorf("image after %q = %s, want v9.9.9 only after the upgrade", step[0], image)
		}
	}
	w.stop()
	for path, failures := range w.failed {
		t.Errorf("%s: %d requests failed, want 0; the first: %s", path, len(failures), failures[0])
	}
}

func ask(ctx context.Context, client rest.Interface, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return client.Get().AbsPath(path).MaxRetries(0).Do(ctx).Error()
}

// workload requests the paths in rotation until it is stopped. It does not retry.
type workload struct {
	client rest.Interface
	paths  []string
	wg     sync.WaitGroup
	end    context.CancelFunc

	mu     sync.Mutex // guards the following fields
	served int
	failed map[string][]string
}

func (w *workload) start() {
	ctx, end := context.WithCancel(context.Background())
	w.end, w.failed = end, map[string][]string{}
	w.wg.Go(func() {
		for ctx.Err() == nil {
			for _, path := range w.paths {
				err := ask(ctx, w.client, path)
				if ctx.Err() != nil {
					return
				}
				w.mu.Lock()
				if err == nil {
					w.served++
				} else {
					w.failed[path] = append(w.failed[path], time.Now().Format(time.TimeOnly)+" "+err.Error())
				}
				w.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		}
	})
}

func (w *workload) stop() {
	w.end()
	w.wg.Wait()
}

func (w *workload) servedAtLeast(n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.served < n {
		return fmt.Errorf("%d requests were served, %d wanted", w.served, n)
	}
	return nil
}
