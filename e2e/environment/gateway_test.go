package environment

import (
	"os"
	"strings"
	"testing"
)

// The benchmark measures the deployed configuration.
func TestGatewayHasTheEnvironmentOfItsManifest(t *testing.T) {
	manifest, err := os.ReadFile("../../deploy/gateway/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(GatewayScheduler, "=")
	if want := "{name: " + name + ", value: " + value + "}"; !strings.Contains(string(manifest), want) {
		t.Errorf("deploy/gateway/deployment.yaml has no %s, want it", want)
	}
}
