package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Released and unknown gateways have no series.
func TestGatewayMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	g := NewGateway(reg)
	g.Set(2, 1, true, map[string]bool{"v1.a": true, "v1.b": false})
	g.Set(1, 0, true, map[string]bool{"v1.b": false})
	want := `
# HELP portico_gateway_apiservices APIServices by state: adopted (the API server sends their requests to this gateway) or prepared (it does not yet).
# TYPE portico_gateway_apiservices gauge
portico_gateway_apiservices{state="adopted"} 1
portico_gateway_apiservices{state="prepared"} 0
# HELP portico_gateway_front_proxy_trusted Whether the extension servers of an APIService, by name, believe the gateway's front-proxy certificate. Absent while that is not known.
# TYPE portico_gateway_front_proxy_trusted gauge
portico_gateway_front_proxy_trusted{name="v1.b"} 0
# HELP portico_gateway_leads Whether this replica of the gateway writes conditions, caBundles and the front-proxy authority.
# TYPE portico_gateway_leads gauge
portico_gateway_leads 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
