package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewReplicas registers metrics on reg that report whether this replica leads, whether etcd responds to it, and
// whether its keys match the keys of the other replicas. The functions are called at every scrape.
func NewReplicas(reg prometheus.Registerer, leads, etcd, keys func() bool) {
	gauge := func(o prometheus.GaugeOpts, is func() bool) {
		reg.MustRegister(prometheus.NewGaugeFunc(o, func() float64 {
			if is() {
				return 1
			}
			return 0
		}))
	}
	gauge(prometheus.GaugeOpts{
		Name:        "leader_election_master_status", // client-go's
		Help:        "Whether this replica leads: 1 for the one that runs the controllers, 0 for the others.",
		ConstLabels: prometheus.Labels{"name": "portico-aggregator"},
	}, leads)
	gauge(prometheus.GaugeOpts{
		Name: "portico_etcd_available",
		Help: "Whether etcd answers this replica: 0 when no member of an external etcd has answered for 3 s.",
	}, etcd)
	gauge(prometheus.GaugeOpts{
		Name: "portico_replica_shared_keys_match",
		Help: "Whether this replica has what all replicas must share: 0 when its CAs, token keys or encryption keys differ from those of most others.",
	}, keys)
}

// NewEtcdServers registers portico_etcd_server_answers on reg. answers is called at every scrape.
func NewEtcdServers(reg prometheus.Registerer, answers func() map[string]bool) {
	reg.MustRegister(sources{up: answers, desc: prometheus.NewDesc("portico_etcd_server_answers",
		"Whether a server of --etcd-servers has answered this replica a read through consensus within the last 10 s: 1, or 0.", []string{"server"}, nil)})
}

// NewStateSnapshot registers the age of the state served without etcd, and the time of the last saved snapshot, on
// reg. Both functions are called at every scrape.
func NewStateSnapshot(reg prometheus.Registerer, served func() time.Duration, saved func() time.Time) {
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "portico_state_snapshot_served_age_seconds",
			Help: "Age of the state snapshot that this replica started from and still serves; 0 when it serves what etcd has.",
		}, func() float64 { return served().Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "portico_state_snapshot_saved_timestamp_seconds",
			Help: "Time of the state in --state-snapshot-file, if this process has written it; 0 when it has not.",
		}, func() float64 {
			if at := saved(); !at.IsZero() {
				return float64(at.UnixMilli()) / 1000
			}
			return 0
		}),
	)
}
