//go:build incumbent

package behind

import (
	"encoding/json"
	"strings"
	"testing"

	"portico.dev/internal/tools/drill"
)

// The drills of Clusters pass with a cluster of three kube-apiservers, and leave nothing there.
func TestFleetDrills(t *testing.T) {
	const name = "east"
	f := newFleet(t, name)
	admin, inside := f.kubeconfig(t, "", "root", "system:masters"), f.clusters[name].Kubeconfig
	f.enroll(t, admin, name)
	f.awaitReady(t, admin, name, apiServersPerCluster)
	args := []string{"drill", "run", "-o", "json", "--kubeconfig", admin, "--cluster", name}
	want := 0
	for _, d := range drill.All() {
		if d.Cluster {
			args = append(args, d.Name)
			want++
		}
	}
	out := runProgram(t, "", "", "aggregator", args...)
	var results []*result
	if err := json.Unmarshal([]byte(out.stdout), &results); err != nil || len(results) != want {
		t.Fatalf("drill run = %v, %d results: %s; want %d", err, len(results), out, want)
	}
	for _, r := range results {
		for _, finding := range r.Findings {
			t.Logf("%s: %s: %t, %s", r.Drill, finding.Expected, finding.Holds, finding.Seen)
		}
		if h := r.held(); h.Verdict != string(drill.Passed) {
			t.Errorf("drill %s = %+v, want passed", r.Drill, h)
		}
	}
	for kubeconfig, resources := range map[string]string{admin: "clusters,namespaces,secrets", inside: "namespaces,configmaps"} {
		if left := kubectl(t, kubeconfig, "", "get", resources, "-A", "-o", "name"); strings.Contains(left, "/drill-") {
			t.Errorf("objects after the drills = %s, want none of the drills", left)
		}
	}
	f.awaitReady(t, admin, name, apiServersPerCluster)
}
