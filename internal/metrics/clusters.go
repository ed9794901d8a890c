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
