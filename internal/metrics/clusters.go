package metrics

import "github.com/prometheus/client_golang/prometheus"

// Clusters holds the metrics of the clusters behind a front door. The label cluster is the name of a Cluster; its series are removed with
// the object. A nil *Clusters counts nothing.
type Clusters struct {
	refused *prometheus.CounterVec
}

// Cluster holds the metrics of one cluster. A nil *Cluster counts nothing.
type Cluster struct {
	maintenance, rate prometheus.Counter
}

// NewClusters registers the metrics of clusters on reg.
func NewClusters(reg prometheus.Registerer) *Clusters {
	return &Clusters{refused: newCounterVec(reg, "portico_cluster_refused_requests_total",
		"Requests to a cluster behind the front door that were refused, by the Cluster and the reason: maintenance (of the cluster), or rate (of the user's requests).", "cluster", "reason")}
}

// For returns the metrics of a cluster. It returns nil if c is nil.
func (c *Clusters) For(cluster string) *Cluster {
	if c == nil {
		return nil
	}
	return &Cluster{c.refused.WithLabelValues(cluster, "maintenance"), c.refused.WithLabelValues(cluster, "rate")}
}

// Forget removes the series of a deleted cluster. A request in progress does not add them again.
func (c *Clusters) Forget(cluster string) {
	if c != nil {
		c.refused.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
	}
}

// InMaintenance counts a request that was refused because of maintenance.
func (c *Cluster) InMaintenance() {
	if c != nil {
		c.maintenance.Inc()
	}
}

// OverRate counts a request that was refused because its user makes too many.
func (c *Cluster) OverRate() {
	if c != nil {
		c.rate.Inc()
	}
}

// ClusterState is the state of a cluster as one replica of the front door sees it.
type ClusterState struct {
	Name            string
	Available       bool
	Permitted       *bool // nil if it is not known
	Ready, NotReady int   // API servers
}

// clusterStates is a collector that reports the states of all clusters at a scrape.
type clusterStates struct {
	states                          func() []ClusterState
	available, permitted, endpoints *prometheus.Desc
}

// NewClusterStates registers the metrics of the states of clusters on reg. states is called at every scrape.
func NewClusterStates(reg prometheus.Registerer, states func() []ClusterState) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"cluster"}, labels...), nil)
	}
	reg.MustRegister(&clusterStates{
		states: states,
		available: desc("portico_cluster_available",
			"1 for each Cluster of which this replica finds an API server ready and can use the credentials, 0 for the others."),
		permitted: desc("portico_cluster_permitted",
			"1 for each Cluster in which the credentials of the front door have the required rights, 0 if rights are missing or could not be checked. Absent while no API server is available."),
		endpoints: desc("portico_cluster_endpoints",
			"API servers of a Cluster by state, as this replica finds them: ready, or not-ready.", "state"),
	})
}

// Describe implements prometheus.Collector.
func (c *clusterStates) Describe(to chan<- *prometheus.Desc) {
	to <- c.available
	to <- c.permitted
	to <- c.endpoints
}

// Collect implements prometheus.Collector.
func (c *clusterStates) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.states() {
		send := func(d *prometheus.Desc, n int, state ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), append([]string{s.Name}, state...)...)
		}
		send(c.available, oneIf(s.Available))
		if s.Permitted != nil {
			send(c.permitted, oneIf(*s.Permitted))
		}
		send(c.endpoints, s.Ready, "ready")
		send(c.endpoints, s.NotReady, "not-ready")
	}
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
