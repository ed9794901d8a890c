package e2e

import (
	"flag"
	"strings"
	"testing"

	"portico.dev/e2e/programs"
)

var everyKind = flag.Bool("every-kind", false, "explain every kind, in more than 90 processes, instead of one of each group-version")

// kubectl explain describes every resource of api-resources with all fields: the local groups, custom resources, and the
// resources of an extension server.
func TestExplainEveryKind(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	dir := t.TempDir()
	dev, kubeconfig := programs.Dev(t, binaries, dir)
	kubectl := programs.Kubectl(binaries, dir, kubeconfig)
	listed := ""
	if err := programs.Poll(dev.Exited(), func() (err error) {
		if _, err := kubectl("get", "nodes.metrics.k8s.io"); err != nil {
			return err
		}
		if _, err := kubectl("explain", "nodes", "--api-version", "metrics.k8s.io/v1"); err != nil {
			return err // it is described a moment after it is served
		}
		if err := programs.CheckDiscovery(kubeconfig); err != nil {
			return err
		}
		listed, err = kubectl("api-resources", "--no-headers", "--verbs", "get")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(listed), "\n")
	if len(lines) < 50 {
		t.Fatalf("api-resources lists %d kinds, want at least 50:\n%s", len(lines), listed)
	}
	explained := map[string]bool{}
	for _, line := range lines {
		// NAME, SHORTNAMES if there are any, APIVERSION, NAMESPACED, KIND
		columns := strings.Fields(line)
		name, version, kind := columns[0], columns[len(columns)-3], columns[len(columns)-1]
		if explained[version] && !*everyKind {
			continue
		}
		explained[version] = true
		t.Run(version+"/"+name, func(t *testing.T) {
			text, err := kubectl("explain", "--recursive", "--api-version", version, name)
			if err != nil {
				t.Fatalf("kubectl explain failed: %v, want no error\n%s", err, text)
			}
			for _, want := range []string{"KIND:       " + kind + "\n", "VERSION:    ", "FIELDS:", "metadata\t<"} {
				if !strings.Contains(text, want) {
					t.Errorf("output of kubectl explain has no %q, want it in:\n%s", want, text)
				}
			}
		})
	}
}
