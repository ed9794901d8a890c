package metrics

import (
	"fmt"
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

func TestStatesOfClustersAreReadAtTheScrape(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	states := []ClusterState{
		{Name: "berlin", Available: true, Permitted: new(true), Ready: 2, NotReady: 1},
		{Name: "bonn", Available: true, Permitted: new(false), Ready: 1},
	}
	NewClusterStates(reg, func() []ClusterState { return states })
	const help = `
# HELP portico_cluster_available 1 for each Cluster of which this replica finds an API server ready and can use the credentials, 0 for the others.
# TYPE portico_cluster_available gauge
%s# HELP portico_cluster_endpoints API servers of a Cluster by state, as this replica finds them: ready, or not-ready.
# TYPE portico_cluster_endpoints gauge
%s`
	const permittedHelp = `# HELP portico_cluster_permitted 1 for each Cluster in which the credentials of the front door have the required rights, 0 if rights are missing or could not be checked. Absent while no API server is available.
# TYPE portico_cluster_permitted gauge
`
	want := fmt.Sprintf(help, `portico_cluster_available{cluster="berlin"} 1
portico_cluster_available{cluster="bonn"} 1
`, `portico_cluster_endpoints{cluster="berlin",state="not-ready"} 1
portico_cluster_endpoints{cluster="berlin",state="ready"} 2
portico_cluster_endpoints{cluster="bonn",state="not-ready"} 0
portico_cluster_endpoints{cluster="bonn",state="ready"} 1
`) + permittedHelp + `portico_cluster_permitted{cluster="berlin"} 1
portico_cluster_permitted{cluster="bonn"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	states = []ClusterState{{Name: "bonn", NotReady: 1}} // berlin was deleted
	want = fmt.Sprintf(help, `portico_cluster_available{cluster="bonn"} 0
`, `portico_cluster_endpoints{cluster="bonn",state="not-ready"} 1
portico_cluster_endpoints{cluster="bonn",state="ready"} 0
`)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
