package drill

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryDrillSaysWhatItIs(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range All() {
		switch {
		case d.Name == "" || d.Title == "" || d.script == nil:
			t.Errorf("%q is not complete", d.Name)
		case seen[d.Name]:
			t.Errorf("two drills are called %q", d.Name)
		case len(d.Expect) == 0:
			t.Errorf("%s expects nothing of its own", d.Name)
		case d.About <= 0 || d.Limit < 2*d.About:
			t.Errorf("%s: about %s within %s leaves a slow machine no time", d.Name, d.About, d.Limit)
		}
		seen[d.Name] = true
	}
}

func TestTheDrillsThatWerePromisedAreThere(t *testing.T) {
	promised := strings.Fields(`refuse blackhole hang slow-drip reset-mid-body goaway-storm expired-certificate wrong-ca wrong-name
		garbage-discovery vanishing-discovery huge-openapi flapping namespace-dead-storageless namespace-dead-storage-bearing
		namespace-policy namespace-self-hosted-cycle gc-owner-behind-dead-server restart-everything-dead
		stopped-process slow-loris-backend certificate-rotation one-endpoint-of-three-hangs one-endpoint-of-three-slow
		one-endpoint-of-three-errors one-endpoint-of-three-other-discovery one-endpoint-of-three-expired-certificate
		disruption-seconds stored-kind-dead watch-without-bookmark partial-partition partial-partition-namespace registered-at-another-replica`)
	found, err := Find(promised...)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(All()) {
		t.Errorf("%d drills, %d promised: name the new ones here", len(All()), len(found))
	}
}

func TestADrillThatIsNotThere(t *testing.T) {
	_, err := Find("refuse", "earthquake")
	if err == nil || !strings.Contains(err.Error(), "earthquake") || !strings.Contains(err.Error(), "blackhole") {
		t.Errorf("the error names neither what was asked for nor what there is: %v", err)
	}
}

func TestProductionIsToldByItsNames(t *testing.T) {
	for _, names := range [][]string{
		{"prod"}, {"eu-prod-1"}, {"PRODUCTION"}, {"arn:aws:eks:eu-west-1:1:cluster/live"}, {"admin@prd"},
		{"kind-test", "https://api.prod.example.com:6443"}, {"customer_7"},
	} {
		if LooksLikeProduction(names...) == "" {
			t.Errorf("%q passes for a test cluster", names)
		}
	}
	for _, names := range [][]string{{"kind-test"}, {"products-dev"}, {"delivery"}, {"minikube", "https://127.0.0.1:6443"}, {"reproduction"}, {""}} {
		if why := LooksLikeProduction(names...); why != "" {
			t.Errorf("%q: %s", names, why)
		}
	}
}

func TestSkippedIsSaidWithItsReason(t *testing.T) {
	restarts := slices.IndexFunc(All(), func(d Drill) bool { return d.Needs == Restart })
	r := Run(t.Context(), All()[restarts], Target{Name: "elsewhere"}, func(string) {})
	if r.Verdict != Skipped || r.Why == "" {
		t.Errorf("%s: %q", r.Verdict, r.Why)
	}
}
