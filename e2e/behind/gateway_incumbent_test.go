//go:build incumbent

package behind

import (
	"fmt"
	"strings"
	"testing"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/tools/drill"
)

// drillRights let a gateway write APIServices with unpredictable names: those that drills create.
const drillRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: portico-gateway-adopted}
rules:
- {apiGroups: [apiregistration.k8s.io], resources: [apiservices, apiservices/status], verbs: [update]}
`

func TestGateway(t *testing.T) {
	_, server := kubeAPIServer(t)
	tellOfGateway(t, server)
}

// The extension server works behind a gateway as behind kube-apiserver. It registers itself, and does not change an adoption.
func TestGatewayOfExtserver(t *testing.T) {
	k, server := kubeAPIServer(t)
	address := reachable(t)
	s := install(t, k, "--bind-address", address, "--advertise-address", address)
	eventually(t, "it has registered itself", func() error { return runsWell(t, k.Kubeconfig, "kubectl", "top", "node") })
	installGateway(t, server)
	eventually(t, "everything that it serves is adopted", func() error { return runsWell(t, k.Kubeconfig, "aggregator", "adopt", "--all") })
	for _, step := range []struct {
		what string
		does func(*testing.T)
	}{
		{"kubectl top", s.top}, {"metrics", s.metrics}, {"a HorizontalPodAutoscaler", s.autoscale}, {"what a YAML file declares", s.declared},
		{"projects", s.projects}, {"an informer over restarts of either side", s.informer},
	} {
		t.Run(step.what, step.does)
	}
	remote := kubectl(t, k.Kubeconfig, "", "get", "apiservices", "-o", `jsonpath={range .items[?(@.spec.service.name)]}{.metadata.name} {.spec.service.name}{"\n"}{end}`)
	if strings.Contains(remote, "portico-extserver") || strings.Count(remote, " portico-gateway\n") < 5 {
		t.Errorf("Services of the APIServices =\n%s\nwant only portico-gateway", remote)
	}
	t.Log(remote)
}

// runsWell runs a program that must succeed.
func runsWell(t *testing.T, kubeconfig, program string, args ...string) error {
	t.Helper()
	if out := runProgram(t, kubeconfig, "", program, args...); out.code != 0 {
		return fmt.Errorf("%s", out)
	}
	return nil
}

// The drills behind a kube-apiserver with a gateway. docs/gateway.md explains each that does not pass.
func TestGatewayDrills(t *testing.T) {
	k, server := kubeAPIServer(t)
	installGateway(t, server)
	kubectl(t, k.Kubeconfig, drillRights, "apply", "-f", "-")
	toHold := chosenDrills(t)
	all := holdAtKubeAPIServer(t, k, toHold, &adoption.Service{Namespace: gatewayNamespace, Name: "portico-gateway", Port: 443})
	passed := 0
	for _, d := range toHold {
		h := all[d.Name]
		t.Logf("%s: %+v", d.Name, h)
		switch h.Verdict {
		case string(drill.Passed):
			passed++
		case string(drill.Failed), string(drill.Skipped):
		default:
			t.Errorf("drill %s with a gateway = %+v, want passed, failed or skipped", d.Name, h)
		}
		book.drilled(withGateway, drilled{Drill: d.Name, Gateway: h})
	}
	t.Logf("passed: %d of %d", passed, len(toHold))
	if *onlyDrills == "" && passed < 27 {
		t.Errorf("%d drills passed, want at least 27", passed)
	}
}
