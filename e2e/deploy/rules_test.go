//go:build prometheus

package deploy

import (
	"testing"

	"portico.dev/e2e/programs"
)

// promtool accepts the rules without a finding, and the alerts of the tests in testdata/alerts.yaml fire.
func TestRulesPassPrometheusTool(t *testing.T) {
	t.Parallel()
	if err := programs.Build(binaries, "promtool"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "../../deploy/monitoring/alerts.yaml"},
		{"test", "rules", "testdata/alerts.yaml"},
	} {
		if out, err := try(nil, "promtool", args...); err != nil {
			t.Errorf("promtool %q = %s, %v; want no finding", args, out, err)
		}
	}
}
