//go:build chromium

package pictures

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/tools/doctor"
	"portico.dev/internal/transport"
)

// pictureTime is when all pictures are taken.
var pictureTime = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return pictureTime.Add(-d) }

func stamp(d time.Duration) string { return before(d).Format(time.RFC3339) }

// fixture is an API server with stored responses to GET requests. sample counts the requests for metrics.
type fixture struct {
	documents map[string]any
	metrics   map[string]func(sample int) string
	sample    int
	// down: it answers 503 to everything.
	down bool
}

func (f *fixture) serve(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if text, ok := f.metrics[r.URL.Path]; ok {
			_, _ = fmt.Fprint(w, text(f.sample))
			return
		}
		document, ok := f.documents[r.URL.Path]
		if !ok {
			document, ok = f.documents[r.URL.Path+"?"+r.URL.Query().Get("labelSelector")+r.URL.Query().Get("fieldSelector")]
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if err := json.NewEncoder(w).Encode(document); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

type object = map[string]any

func conditionOf(kind, status, reason, message string, since time.Duration) object {
	return object{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp(since)}
}

func apiServiceOf(name, service string, annotations object, conditions ...object) object {
	version, group, _ := strings.Cut(name, ".")
	spec := object{"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
	if service != "" {
		namespace, rest, _ := strings.Cut(service, "/")
		spec["service"] = object{"namespace": namespace, "name": rest, "port": 443}
	}
	return object{"metadata": object{"name": name, "creationTimestamp": stamp(100 * time.Hour), "annotations": annotations}, "spec": spec, "status": object{"conditions": conditions}}
}

func items(all ...object) object { return object{"items": all} }

const (
	available = "Available"
	passed    = "all checks passed"

	metricAnswers  = "portico_backend_answers_total"
	metricDuration = "portico_backend_header_duration_seconds"
	metricInFlight = "portico_backend_requests_in_flight"
	metricEjection = "portico_backend_ejections_total"

	replicaLabel       = "gateway.portico.dev/replica"
	verdictsAnnotation = "gateway.portico.dev/verdicts"
)

// traffic is the metrics of a front door or of a gateway's pod: backends with requests, of which some fail.
func traffic(backends map[string]float64, failing string) func(int) string {
	return func(sample int) string {
		var b strings.Builder
		for _, m := range []struct{ name, kind string }{{metricAnswers, "counter"}, {metricInFlight, "gauge"}, {metricEjection, "counter"}} {
			fmt.Fprintf(&b, "# TYPE %s %s\n", m.name, m.kind)
			for backend, rate := range backends {
				wave := rate*float64(sample) + 3*rate*(1-math.Cos(float64(sample)/6)) // it only grows
				switch m.name {
				case metricAnswers:
					fmt.Fprintf(&b, "%s{backend=%q,class=\"2xx\"} %.0f\n", m.name, backend, 1000+2*wave)
					if backend == failing {
						fmt.Fprintf(&b, "%s{backend=%q,class=\"5xx\"} %d\n", m.name, backend, 2*sample)
					}
				case metricInFlight:
					fmt.Fprintf(&b, "%s{backend=%q} %d\n", m.name, backend, 1+sample/7%4)
				case metricEjection:
					fmt.Fprintf(&b, "%s{backend=%q} %d\n", m.name, backend, sample/40)
				}
			}
		}
		fmt.Fprintf(&b, "# TYPE %s histogram\n", metricDuration)
		for backend, rate := range backends {
			n := 10000 + int(float64(sample)*rate*20)
			for _, bound := range []struct {
				le    string
				share float64
			}{{"0.005", 0.35}, {"0.025", 0.8}, {"0.1", 0.97}, {"+Inf", 1}} {
				fmt.Fprintf(&b, "%s_bucket{backend=%q,le=%q} %.0f\n", metricDuration, backend, bound.le, float64(n)*bound.share)
			}
			fmt.Fprintf(&b, "%s_count{backend=%q} %d\n%s_sum{backend=%q} %d\n", metricDuration, backend, n, metricDuration, backend, n/50)
		}
		return b.String()
	}
}

func endpointAt(address, zone, state string, inFlight int64, ejections int, failure string) transport.EndpointReport {
	e := transport.EndpointReport{
		Endpoint: transport.Endpoint{Address: address, Zone: zone}, State: state, InFlight: inFlight, Ejections: ejections, Protocol: "h2", LastFailure: failure,
	}
	if failure != "" {
		at := before(40 * time.Second)
		e.LastFailureAt = &at
	}
	return e
}

func backendAt(service, path string, ms float64, endpoints ...transport.EndpointReport) apiservice.BackendState {
	var inFlight int64
	for _, e := range endpoints {
		inFlight += e.InFlight
	}
	return apiservice.BackendState{
		Report: transport.Report{Name: service, InFlight: inFlight, Limit: 400, Endpoints: endpoints},
		Probes: []apiservice.ProbeState{{URL: "https://x.svc:443" + path, Up: true, At: before(3 * time.Second), Milliseconds: ms}},
	}
}

// frontDoorWithTrouble is a front door with two replicas, a dead server, one that only one replica reaches, one with an ejected endpoint,
// a namespace that waits for the dead one, a debt and an APIRoute.
func frontDoorWithTrouble() *fixture {
	const gone = `service/orders in "shop" is not present`
	const half = "replica front-2 does not reach it: dial tcp: connection refused; its clients are answered by front-1"
	services := items(
		apiServiceOf("v1.", "", nil, conditionOf(available, "True", "Local", "Local APIServices are always available", 99*time.Hour)),
		apiServiceOf("v1.apps", "", nil, conditionOf(available, "True", "Local", "Local APIServices are always available", 99*time.Hour)),
		apiServiceOf("v1beta1.metrics.k8s.io", "kube-system/metrics-server", nil, conditionOf(available, "True", "Passed", passed, 40*time.Hour)),
		apiServiceOf("v1beta1.custom.metrics.k8s.io", "monitoring/prometheus-adapter", nil, conditionOf(available, "True", "SomeBackendsAvailable", "backend canary is not available", 26*time.Minute)),
		apiServiceOf("v1.orders.example.com", "shop/orders", nil, conditionOf(available, "False", "ServiceNotFound", gone, 4*time.Minute)),
		apiServiceOf("v1alpha1.widgets.example.com", "shop/widgets", nil, conditionOf(available, "True", "Passed", passed, 3*time.Hour),
			conditionOf("AvailableOnAllReplicas", "False", "SomeReplicas", half, 90*time.Second),
			conditionOf("EndpointsInUse", "False", "EndpointEjected", "10.0.2.7:8443 gets no requests: five answers in a row were 503", 40*time.Second)),
	)
	debug := apiservice.DebugState{Synced: true, Replica: "front-1", WritesStatus: true, APIServices: []apiservice.APIServiceState{
		{Name: "v1beta1.metrics.k8s.io", Available: "True", Reason: "Passed", Message: passed, Since: before(40 * time.Hour), Elsewhere: map[string]string{"front-2": "True"}},
		{Name: "v1beta1.custom.metrics.k8s.io", Available: "True", Reason: "SomeBackendsAvailable", Since: before(26 * time.Minute), Elsewhere: map[string]string{"front-2": "True"}},
		{
			Name: "v1.orders.example.com", Available: "False", Reason: "ServiceNotFound", Message: gone, Since: before(4 * time.Minute), Elsewhere: map[string]string{"front-2": "False"},
			Transitions: []apiservice.Transition{{Time: before(4 * time.Minute), From: "True", To: "False", Reason: "ServiceNotFound", Message: gone}},
		},
		{
			Name: "v1alpha1.widgets.example.com", Available: "True", Reason: "Passed", Message: passed, Since: before(3 * time.Hour), Elsewhere: map[string]string{"front-2": "False"},
			Transitions: []apiservice.Transition{
				{Time: before(25 * time.Minute), From: "True", To: "False", Reason: "FailedDiscoveryCheck", Message: "failing or missing response from https://widgets.shop.svc:443/apis/widgets.example.com/v1alpha1: context deadline exceeded"},
				{Time: before(22 * time.Minute), From: "False", To: "True", Reason: "Passed", Message: passed},
			},
		},
	}, Backends: []apiservice.BackendState{
		backendAt("kube-system/metrics-server:443", "/apis/metrics.k8s.io/v1beta1", 12, endpointAt("10.0.1.4:10250", "zone-a", "well", 2, 0, "")),
		backendAt("monitoring/prometheus-adapter:443", "/apis/custom.metrics.k8s.io/v1beta1", 31, endpointAt("10.0.1.9:6443", "zone-a", "well", 1, 0, ""), endpointAt("10.0.3.2:6443", "zone-b", "half-open", 0, 2, "the connection broke")),
		backendAt("shop/widgets:443", "/apis/widgets.example.com/v1alpha1", 48, endpointAt("10.0.2.6:8443", "zone-a", "well", 7, 0, ""), endpointAt("10.0.2.7:8443", "zone-b", "ejected", 0, 3, "five answers in a row were 503")),
	}}
	route := object{
		"metadata": object{"name": "v1beta1.custom.metrics.k8s.io"},
		"spec": object{
			"backends": []object{{"name": "stable"}, {"name": "canary", "service": object{"namespace": "monitoring", "name": "adapter-canary", "port": 443}}},
			"rules": []object{
				{"name": "try", "backendRefs": []object{{"name": "stable", "weight": 9}, {"name": "canary", "weight": 1}}, "fallback": "stable"},
				{"name": "team-a", "readOnly": true, "backendRefs": []object{{"name": "canary"}}},
			},
		},
		"status": object{
			"conditions": []object{conditionOf("Accepted", "True", "Accepted", "", 2*time.Hour), conditionOf("Available", "True", "SomeBackendsAvailable", "", 26*time.Minute)},
			"backends": []object{
				{"name": "stable", "conditions": []object{conditionOf("Available", "True", "Passed", passed, 2*time.Hour)}},
				{"name": "canary", "conditions": []object{conditionOf("Available", "False", "FailedDiscoveryCheck", "bad status from https://adapter-canary.monitoring.svc:443/apis/custom.metrics.k8s.io/v1beta1: 503", 26*time.Minute)}},
			},
		},
	}
	old := object{
		"metadata": object{"name": "shop-old", "deletionTimestamp": stamp(11 * time.Minute)}, "spec": object{"finalizers": []string{"kubernetes"}},
		"status": object{"conditions": []object{
			conditionOf("NamespaceDeletionDiscoveryFailure", "True", "DiscoveryFailed", "Discovery failed for some groups, 1 failing: APIService v1.orders.example.com is unavailable", 10*time.Minute),
			conditionOf("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances", 10*time.Minute),
		}},
	}
	event := object{
		"metadata": object{"name": "e", "namespace": "default", "uid": "1"}, "involvedObject": object{"kind": "APIService", "name": "v1.orders.example.com"}, "type": "Warning",
		"reason": "BackendUnavailable", "message": "ServiceNotFound: " + gone, "count": 3, "lastTimestamp": stamp(4 * time.Minute), "firstTimestamp": stamp(30 * time.Minute),
	}
	return &fixture{
		documents: map[string]any{
			"/version": object{"gitVersion": "v1.37.2+portico-v0.2.0"}, "/apis/apiregistration.k8s.io/v1/apiservices": services, "/debug/aggregation": debug,
			"/api/v1/namespaces": items(old), "/apis/routing.portico.dev/v1alpha1/apiroutes": items(route),
			"/api/v1/events?involvedObject.kind=APIService": items(event), "/api/v1/events?involvedObject.kind=APIRoute": items(),
			"/debug/debts": object{"debts": []object{{
				"id": "shop-2025.orders", "namespace": "shop-2025", "groupVersion": "orders.example.com/v1", "apiService": "v1.orders.example.com", "since": stamp(70 * time.Hour), "state": "Waiting",
				"message": "the backend is not available",
			}}},
		},
		metrics: map[string]func(int) string{"/metrics": traffic(map[string]float64{
			"kube-system/metrics-server:443": 4, "monitoring/prometheus-adapter:443": 11, "monitoring/adapter-canary:443": 1, "shop/widgets:443": 38,
		}, "shop/widgets:443")},
	}
}

// gatewayBehindKubeAPIServer is a kube-apiserver with APIServices behind a gateway of two replicas, and one without the
// gateway. One server is dead, which only the second hop shows. One server is reached by one replica only.
func gatewayBehindKubeAPIServer() *fixture {
	const dead = "failing or missing response from https://orders.shop.svc:443/apis/orders.example.com/v1: dial tcp: connection refused"
	adopted := func(service string) object {
		return object{
			"gateway.portico.dev/original-service":                  service + ":443",
			"gateway.portico.dev/original-ca-bundle":                "",
			"gateway.portico.dev/original-insecure-skip-tls-verify": "true",
		}
	}
	well := conditionOf(available, "True", "Passed", passed, 9*time.Hour)
	trusted := conditionOf("FrontProxyTrusted", "True", "Trusted", "the extension server believes the gateway's front-proxy certificate", 9*time.Hour)
	behind := func(status, reason, message string, since time.Duration) object {
		return conditionOf("BackendAvailable", status, reason, message, since)
	}
	const gateway = "portico-gateway/portico-gateway"
	lease := func(replica, orders, widgets string) object {
		verdict := func(status string) object {
			reason, message := "Passed", passed
			if status != "True" {
				reason, message = "FailedDiscoveryCheck", dead
			}
			return object{"status": status, "reason": reason, "message": message}
		}
		verdicts, _ := json.Marshal(object{"v1beta1.metrics.k8s.io": verdict("True"), "v1.orders.example.com": verdict(orders), "v1alpha1.widgets.example.com": verdict(widgets)})
		return object{
			"metadata": object{"name": "replica-" + replica, "labels": object{replicaLabel: ""}, "annotations": object{verdictsAnnotation: string(verdicts)}},
			"spec":     object{"holderIdentity": replica, "renewTime": before(2 * time.Second).Format("2006-01-02T15:04:05.000000Z")},
		}
	}
	pod := func(name, address string) object {
		return object{"addresses": []string{address}, "conditions": object{"ready": true}, "targetRef": object{"kind": "Pod", "name": name}, "zone": "zone-a"}
	}
	slices := "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices?kubernetes.io/service-name=%s"
	counted := traffic(map[string]float64{"kube-system/metrics-server:443": 3, "shop/orders:443": 1, "shop/widgets:443": 17}, "shop/orders:443")
	metrics := "/api/v1/namespaces/portico-gateway/pods/%s:9090/proxy/metrics"
	return &fixture{
		documents: map[string]any{
			"/version": object{"gitVersion": "v1.37.1"},
			"/apis/apiregistration.k8s.io/v1/apiservices": items(
				apiServiceOf("v1.apps", "", nil, conditionOf(available, "True", "Local", "Local APIServices are always available", 99*time.Hour)),
				apiServiceOf("v1beta1.metrics.k8s.io", gateway, adopted("kube-system/metrics-server"), well, trusted, behind("True", "Passed", passed, 9*time.Hour)),
				apiServiceOf("v1.orders.example.com", gateway, adopted("shop/orders"), well, trusted, behind("False", "FailedDiscoveryCheck", dead, 6*time.Minute)),
				apiServiceOf("v1alpha1.widgets.example.com", gateway, adopted("shop/widgets"), well, trusted, behind("True", "Passed", passed, 9*time.Hour)),
				apiServiceOf("v1beta1.external.metrics.k8s.io", "monitoring/prometheus-adapter", nil, conditionOf(available, "True", "Passed", passed, 30*time.Hour)),
			),
			"/apis/coordination.k8s.io/v1/namespaces/portico-gateway/leases?" + replicaLabel: items(lease("gateway-7f6d-a", "False", "True"), lease("gateway-7f6d-b", "False", "False")),
			fmt.Sprintf(slices, "portico-gateway", "portico-gateway"):                        items(object{"endpoints": []object{pod("gateway-7f6d-a", "10.0.0.4"), pod("gateway-7f6d-b", "10.0.0.5")}}),
			fmt.Sprintf(slices, "shop", "orders"):                                            items(object{"endpoints": []object{pod("orders-0", "10.0.2.9")}}),
			fmt.Sprintf(slices, "shop", "widgets"):                                           items(object{"endpoints": []object{pod("widgets-0", "10.0.2.6"), pod("widgets-1", "10.0.2.7")}}),
			"/api/v1/namespaces":                                                             items(), "/api/v1/events?involvedObject.kind=APIService": items(), "/api/v1/events?involvedObject.kind=APIRoute": items(),
			"/apis/routing.portico.dev/v1alpha1/apiroutes": items(),
		},
		metrics: map[string]func(int) string{fmt.Sprintf(metrics, "gateway-7f6d-a"): counted, fmt.Sprintf(metrics, "gateway-7f6d-b"): counted},
	}
}

// apiServices is a kube-apiserver with n APIServices, every fiftieth of which is unavailable unless all are healthy.
func apiServices(n int, healthy bool) *fixture {
	var all []object
	for i := range n {
		c := conditionOf(available, "True", "Passed", passed, time.Duration(i)*time.Minute)
		if i%50 == 0 && !healthy {
			c = conditionOf(available, "False", "MissingEndpoints", fmt.Sprintf(`endpointslices for service/server-%d in "team-%d" have no addresses with port name "https"`, i, i%40), time.Duration(i+1)*time.Second)
		}
		all = append(all, apiServiceOf(fmt.Sprintf("v1.group-%03d.example.com", i), fmt.Sprintf("team-%d/server-%d", i%40, i), nil, c))
	}
	return &fixture{documents: map[string]any{
		"/version": object{"gitVersion": "v1.37.1"}, "/apis/apiregistration.k8s.io/v1/apiservices": items(all...), "/api/v1/namespaces": items(),
		"/api/v1/events?involvedObject.kind=APIService": items(), "/api/v1/events?involvedObject.kind=APIRoute": items(),
	}}
}

// examined returns the doctor's report of the dead server.
func examined() *doctor.Report {
	return &doctor.Report{
		APIService: "v1.orders.example.com", Service: "shop/orders:443",
		Available: doctor.Condition{Status: "False", Reason: "ServiceNotFound", Message: `service/orders in "shop" is not present`},
		Hops: []doctor.Hop{
			{Name: "apiservice", State: doctor.OK, Found: "requests for orders.example.com/v1 go to service shop/orders:443"},
			{Name: "service", State: doctor.Failed, Found: `there is no Service "orders" in namespace "shop"`},
			{Name: "endpoints", State: doctor.Skipped}, {Name: "tcp", State: doctor.Skipped}, {Name: "tls", State: doctor.Skipped},
		},
		Broken: &doctor.Diagnosis{
			Hop: "service", Cause: `service/orders in "shop" is not present`, Found: `there is no Service "orders" in namespace "shop"`,
			Mend: []string{"kubectl -n shop get services", "# if the extension server is gone for good:", "kubectl delete apiservice v1.orders.example.com"},
		},
	}
}
