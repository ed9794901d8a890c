package deploy

import (
	"path/filepath"
	"strings"
	"testing"

	"portico.dev/e2e/programs"
)

// A front door accepts the objects of the chart: Helm installs, upgrades, rolls back and uninstalls all three programs. No pods
// run. The test writes the objects that the programs would write, and they are kept.
func TestTheChartIsInstalledAndUpgraded(t *testing.T) {
	t.Parallel()
	_, kubeconfig := deployFront(t)
	env := []string{"KUBECONFIG=" + kubeconfig}
	kubectl := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(output(t, env, "kubectl", args...))
	}
	helm := func(args ...string) (string, error) {
		return try(nil, "installer", append([]string{kubeconfig, "default"}, args...)...)
	}
	says := func(want string, args ...string) {
		t.Helper()
		if said, err := helm(args...); err != nil || strings.TrimSpace(said) != want {
			t.Fatalf("helm %q = %v: %q, want %q", args, err, said, want)
		}
	}
	is := func(want string, args ...string) {
		t.Helper()
		if got := kubectl(append([]string{"get"}, args...)...); got != want {
			t.Errorf("kubectl get %q = %q, want %q", args, got, want)
		}
	}
	chart, all := filepath.Join("..", "..", "deploy", "chart"), append(chartImages(), "gateway.enabled=true", "extserver.enabled=true")
	replicas := []string{"-n", "portico-gateway", "deployment", "portico-gateway", "-o", "jsonpath={.spec.replicas}"}
	image := []string{"-n", "portico", "statefulset", "portico-aggregator", "-o", "jsonpath={.spec.template.spec.containers[0].image}"}

	if _, err := helm("install", "portico", chart); err == nil || !strings.Contains(err.Error(), "--set aggregator.image.repository=") {
		t.Errorf("install without an image = %v, want an error with the flag that sets one", err)
	}
	says("portico revision 1 is deployed", append([]string{"install", "portico", chart}, all...)...)
	is("2", replicas...)
	is("portico-aggregator:v0.1.0", image...)
	is("customresourcedefinition.apiextensions.k8s.io/apiroutes.routing.portico.dev", "crd", "-o", "name")
	is("portico-extserver", "apiservice", "v1.metrics.k8s.io", "-o", "jsonpath={.spec.service.name}")

	// Upgrades keep the objects that the programs write.
	kubectl("-n", "portico-gateway", "patch", "secret", "portico-gateway-keys", "--type=merge", "-p", `{"stringData":{"ca.key":"made by the gateway"}}`)
	kubectl("patch", "apiservice", "v1.metrics.k8s.io", "--type=merge", "-p", `{"spec":{"caBundle":"`+caBundle(t, kubeconfig)+`"}}`)
	kept := func() {
		t.Helper()
		is("bWFkZSBieSB0aGUgZ2F0ZXdheQ==", "-n", "portico-gateway", "secret", "portico-gateway-keys", "-o", `jsonpath={.data.ca\.key}`)
		is(caBundle(t, kubeconfig), "apiservice", "v1.metrics.k8s.io", "-o", "jsonpath={.spec.caBundle}")
	}
	says("portico revision 2 is deployed", append([]string{"upgrade", "portico", chart, "gateway.replicas=3", "aggregator.image.tag=v9.9.9"}, all...)...)
	is("3", replicas...)
	is("portico-aggregator:v9.9.9", image...)
	kept()
	says("portico revision 3 is deployed", "rollback", "portico", "1")
	is("2", replicas...)
	is("portico-aggregator:v0.1.0", image...)
	kept()

	// An invalid change is refused, by the schema before anything is changed, or by the API. The release can be upgraded
	// afterwards.
	if _, err := helm("upgrade", "portico", chart, "gateway.replica=3"); err == nil || !strings.Contains(err.Error(), "'replica' not allowed") {
		t.Errorf("upgrade with an unknown value = %v, want an error with its name", err)
	}
	if _, err := helm(append([]string{"upgrade", "portico", chart, "aggregator.mode=replicas"}, all...)...); err == nil || !strings.Contains(err.Error(), "StatefulSet") {
		t.Errorf("upgrade to another mode = %v, want an error about the StatefulSet", err)
	}
	says("portico revision 5 is deployed", append([]string{"upgrade", "portico", chart, "gateway.replicas=4"}, all...)...)
	is("4", replicas...)
	kept()

	says("portico uninstalled", "uninstall", "portico")
	// The front door's namespace has the volume, and the definition all APIRoutes.
	is("namespace/portico", "namespace", "portico", "portico-gateway", "--ignore-not-found", "-o", "name")
	is("customresourcedefinition.apiextensions.k8s.io/apiroutes.routing.portico.dev", "crd", "-o", "name")
	is("", "statefulsets,deployments,services", "-A", "-l", "app.kubernetes.io/part-of=portico", "-o", "name")
	is("", "apiservice", "v1.metrics.k8s.io", "--ignore-not-found", "-o", "name")

	// A second installation with the same name adopts the kept objects.
	says("portico revision 1 is deployed", append([]string{"install", "portico", chart}, all...)...)
	says("portico uninstalled", "uninstall", "portico")
	if err := programs.Poll(nil, func() error { _, err := try(env, "kubectl", "get", "apiroutes"); return err }); err != nil {
		t.Error(err)
	}
}

// chartImages returns the values of the chart that name images.
func chartImages() []string {
	return []string{"aggregator.image.repository=portico-aggregator", "gateway.image.repository=portico-aggregator", "extserver.image.repository=portico-extserver"}
}

// caBundle returns the front door's authority in base64.
func caBundle(t *testing.T, kubeconfig string) string {
	t.Helper()
	return strings.TrimSpace(output(t, []string{"KUBECONFIG=" + kubeconfig}, "kubectl", "config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}"))
}
