package metrics

import "github.com/prometheus/client_golang/prometheus"

// Gateway is the metrics of a gateway that only a gateway has. A nil *Gateway counts nothing.
type Gateway struct {
	apiServices *prometheus.GaugeVec
	leads       prometheus.Gauge
}

// NewGateway registers them on reg.
func NewGateway(reg prometheus.Registerer) *Gateway {
	return &Gateway{
		apiServices: register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "portico_gateway_apiservices",
			Help: "APIServices by state: adopted (the API server sends their requests to this gateway) or prepared (it does not yet).",
		}, []string{"state"})),
		leads: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_gateway_leads",
			Help: "Whether this replica of the gateway writes conditions, caBundles and the front-proxy authority.",
		})),
	}
}

// Set sets all of them.
func (g *Gateway) Set(adopted, prepared int, leads bool) {
	if g == nil {
		return
	}
	g.apiServices.WithLabelValues("adopted").Set(float64(adopted))
	g.apiServices.WithLabelValues("prepared").Set(float64(prepared))
	g.leads.Set(0)
	if leads {
		g.leads.Set(1)
	}
}
