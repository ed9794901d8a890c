package cluster

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"portico.dev/internal/metrics"
)

// The form of the label differs from that of a Service, NAMESPACE/NAME:PORT.
func TestBackendInMetricsNamesTheCluster(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	inBubble(t, 1, func(t *testing.T, _ *env) {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) == 0 {
			t.Fatal("metrics of backends = none, want some")
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "backend" && l.GetValue() != "cluster/prod" {
						t.Errorf("backend of %s = %s, want cluster/prod", f.GetName(), l.GetValue())
					}
				}
			}
		}
	}, func(c *Config) { c.Transport.Metrics = metrics.NewBackends(reg) })
}
