package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Gateway holds the metrics that exist only in a gateway. A nil *Gateway counts nothing.
type Gateway struct {
	apiServices *prometheus.GaugeVec
	leads       prometheus.Gauge
	trusted     *prometheus.GaugeVec

	mu    sync.Mutex
	known map[string]bool // the APIServices with a series in trusted
}

// NewGateway registers the metrics on reg.
func NewGateway(reg prometheus.Registerer) *Gateway {
	return &Gateway{
		apiServices: newGaugeVec(reg, "portico_gateway_apiservices",
			"APIServices by state: adopted (the API server sends their requests to this gateway) or prepared (it does not yet).", "state"),
		leads: newGauge(reg, "portico_gateway_leads",
			"Whether this replica of the gateway writes conditions, caBundles and the front-proxy authority."),
		trusted: newGaugeVec(reg, "portico_gateway_front_proxy_trusted",
			"Whether the extension servers of an APIService, by name, believe the gateway's front-proxy certificate. Absent while that is not known.", "name"),
		known: map[string]bool{},
	}
}

// Set sets all metrics. trusted contains the APIServices for which it is known whether their extension servers trust
// the gateway.
func (g *Gateway) Set(adopted, prepared int, leads bool, trusted map[string]bool) {
	if g == nil {
		return
	}
	g.apiServices.WithLabelValues("adopted").Set(float64(adopted))
	g.apiServices.WithLabelValues("prepared").Set(float64(prepared))
	g.leads.Set(0)
	if leads {
		g.leads.Set(1)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.known {
		if _, ok := trusted[name]; !ok {
			g.trusted.DeleteLabelValues(name)
		}
	}
	for name, believed := range trusted {
		value := 0.0
		if believed {
			value = 1
		}
		g.trusted.WithLabelValues(name).Set(value)
	}
	g.known = trusted
}
