// Package metrics is every metric this house exposes, as values registered on a registry that is passed in.
//
// Names are kube-apiserver's where it has the metric, so that existing dashboards and alerts work; the rest begin
// with portico_. Labels are bounded: a name that a client can choose never becomes a label value.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Metrics holds the metrics of the whole front door, one field for each room that has some.
type Metrics struct {
	Requests      *Requests
	Availability  *Availability
	Backends      *Backends
	Discovery     *Discovery
	OpenAPI       *OpenAPI
	Garbage       *Garbage
	Audit         *Audit
	Authorization *Authorization
	Auth          *Auth
	Fairness      *Fairness
	Backup        *Backup
	Engines       *Engines
	Overload      *Overload
}

// New registers every metric on reg. It panics when reg already holds one of them, which is a mistake of the caller.
func New(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		Requests:      NewRequests(reg),
		Availability:  NewAvailability(reg),
		Backends:      NewBackends(reg),
		Discovery:     NewDiscovery(reg),
		OpenAPI:       NewOpenAPI(reg),
		Garbage:       NewGarbage(reg),
		Audit:         NewAudit(reg),
		Authorization: NewAuthorization(reg),
		Auth:          NewAuth(reg),
		Fairness:      NewFairness(reg),
		Backup:        NewBackup(reg),
		Engines:       NewEngines(reg),
		Overload:      NewOverload(reg),
	}
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	reg.MustRegister(c)
	return c
}
