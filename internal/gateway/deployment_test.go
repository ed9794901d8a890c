package gateway

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// A kubelet kills a frozen replica after the number of consecutive failures in the manifest. Requests on its connections wait
// until then.
func TestFrozenReplicaIsKilledWithinTenSeconds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "gateway", "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		t.Fatal(err)
	}
	probe := deployment.Spec.Template.Spec.Containers[0].LivenessProbe
	if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/livez" || probe.TerminationGracePeriodSeconds == nil {
		t.Fatalf("livenessProbe = %+v, want one of /livez with its own grace period", probe)
	}
	seconds := int64(probe.PeriodSeconds)*int64(probe.FailureThreshold) + int64(probe.TimeoutSeconds) + *probe.TerminationGracePeriodSeconds
	if got, want := time.Duration(seconds)*time.Second, 10*time.Second; got > want {
		t.Errorf("a frozen replica is killed after up to %s, want at most %s", got, want)
	}
	if probe.FailureThreshold < 3 {
		t.Errorf("failureThreshold = %d, want at least 3: one slow response is no reason to restart", probe.FailureThreshold)
	}
}
