package drill

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryDrillIsDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range All() {
		switch {
		case d.Name == "" || d.Title == "" || d.script == nil:
			t.Errorf("drill %q is incomplete, want a name, a title and a script", d.Name)
		case seen[d.Name]:
			t.Errorf("two drills have the name %q, want one", d.Name)
		case len(d.Expect) == 0:
			t.Errorf("drill %s has no expectations, want at least one", d.Name)
		case d.About <= 0 || d.Limit < 2*d.About:
			t.Errorf("drill %s: duration %s with the limit %s, want a limit of at least twice the duration", d.Name, d.About, d.Limit)
		}
		seen[d.Name] = true
	}
}

func TestCatalogueHasTheListedDrills(t *testing.T) {
	promised := strings.Fields(`refuse blackhole hang slow-drip reset-mid-body goaway-storm expired-certificate wrong-ca wrong-name
		garbage-discovery vanishing-discovery huge-openapi flapping namespace-dead-storageless namespace-dead-storage-bearing
		namespace-policy namespace-self-hosted-cycle gc-owner-behind-dead-server restart-everything-dead
		stopped-process slow-loris-backend certificate-rotation one-endpoint-of-three-hangs one-endpoint-of-three-slow
		one-endpoint-of-three-errors one-endpoint-of-three-other-discovery one-endpoint-of-three-expired-certificate
		disruption-seconds stored-kind-dead watch-without-bookmark partial-partition partial-partition-namespace registered-at-another-replica
		apiserver-dead one-of-three-apiservers-hangs apiserver-restart-under-watches cluster-unreachable`)
	found, err := Find(promised...)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(All()) {
		t.Errorf("%d drills, want the %d of this list: add new names here", len(All()), len(found))
	}
}

func TestUnknownDrillReturnsError(t *testing.T) {
	_, err := Find("refuse", "earthquake")
	if err == nil || !strings.Contains(err.Error(), "earthquake") || !strings.Contains(err.Error(), "blackhole") {
		t.Errorf("Find of an unknown drill: error = %v, want one with the unknown and the known names", err)
	}
}

func TestProductionClusterIsRecognizedByName(t *testing.T) {
	for _, names := range [][]string{
		{"prod"}, {"eu-prod-1"}, {"PRODUCTION"}, {"arn:aws:eks:eu-west-1:1:cluster/live"}, {"admin@prd"},
		{"kind-test", "https://api.prod.example.com:6443"}, {"customer_7"},
	} {
		if LooksLikeProduction(names...) == "" {
			t.Errorf("LooksLikeProduction(%q) is empty, want a reason", names)
		}
	}
	for _, names := range [][]string{{"kind-test"}, {"products-dev"}, {"delivery"}, {"minikube", "https://127.0.0.1:6443"}, {"reproduction"}, {""}} {
		if why := LooksLikeProduction(names...); why != "" {
			t.Errorf("LooksLikeProduction(%q) = %s, want none", names, why)
		}
	}
}

func TestSkippedDrillHasReason(t *testing.T) {
	restarts := slices.IndexFunc(All(), func(d Drill) bool { return d.Needs == Restart })
	r := Run(t.Context(), All()[restarts], Target{Name: "elsewhere"}, func(string) {})
	if r.Verdict != Skipped || r.Why == "" {
		t.Errorf("drill without the needed power: verdict %s, reason %q; want skipped with a reason", r.Verdict, r.Why)
	}
}
