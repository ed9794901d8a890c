package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSeriesOfClustersAreForgotten(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	all := NewClusters(reg)
	berlin, bonn := all.For("berlin"), all.For("bonn")
	berlin.InMaintenance()
	bonn.OverRate()
	all.For("bonn").OverRate()
	all.Forget("berlin")
	berlin.InMaintenance()
	want := `
# HELP portico_cluster_refused_requests_total Requests to a cluster behind the front door that were refused, by the Cluster and the reason: maintenance (of the cluster), or rate (of the user's requests).
# TYPE portico_cluster_refused_requests_total counter
portico_cluster_refused_requests_total{cluster="bonn",reason="maintenance"} 0
portico_cluster_refused_requests_total{cluster="bonn",reason="rate"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	var none *Clusters
	none.For("a").OverRate()
	none.For("a").InMaintenance()
	none.Forget("a")
}
