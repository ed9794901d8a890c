package deploy

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The liveness probes of a kubelet check only the process. /readyz and /healthz check etcd. With either of them a minute
// without etcd would restart every replica at once.
func TestDeployedPodsAreRestartedByLivezAlone(t *testing.T) {
	t.Parallel()
	for _, dir := range deployed {
		t.Run(dir, func(t *testing.T) {
			probes := 0
			for id, o := range objects(t, "kubectl", "kustomize", "../../deploy/"+dir) {
				containers, found, err := unstructured.NestedSlice(o, "spec", "template", "spec", "containers")
				if err != nil || !found {
					continue
				}
				container := containers[0].(map[string]any)
				for _, probe := range []string{"livenessProbe", "startupProbe"} {
					path, found, err := unstructured.NestedString(container, probe, "httpGet", "path")
					if err != nil {
						t.Fatal(err)
					}
					if found {
						probes++
					}
					if found && path != "/livez" {
						t.Errorf("%s: its %s asks %s, want /livez", id, probe, path)
					}
				}
				if path, _, _ := unstructured.NestedString(container, "readinessProbe", "httpGet", "path"); path != "/readyz" {
					t.Errorf("%s: its readinessProbe asks %q, want /readyz", id, path)
				}
			}
			if probes == 0 {
				t.Error("no container has a liveness probe, want at least one")
			}
		})
	}
}
