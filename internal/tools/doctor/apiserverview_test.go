package doctor

import (
	"net"
	"strings"
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The pods of most clusters are not reachable from an operator's machine. The API server's report counts then, and the
// remaining states stay unknown.
func TestUnreachablePodsUseTheAPIServersReport(t *testing.T) {
	condition := func(message string) []apiregistrationv1.APIServiceCondition {
		return []apiregistrationv1.APIServiceCondition{{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: message,
		}}
	}
	const check = "failing or missing response from https://10.0.0.10:443/apis/shop.example.com/v1: "
	for _, test := range []struct {
		name       string
		harm       func(*testCluster)
		hop, cause string
		tcp, tls   State
	}{
		{
			name: "the API server gets answers", harm: func(*testCluster) {},
			tcp: Unknown, tls: Unknown,
		},
		{
			name: "the incumbent finds the certificate of another authority",
			harm: func(w *testCluster) {
				w.elsewhere = "127.0.0.1:" + itoa(closedPort(w.t))
				w.apiService.Status.Conditions = condition(check + `Get "https://10.0.0.10:443/apis/shop.example.com/v1": tls: failed to verify certificate: x509: certificate signed by unknown authority`)
			},
			hop: HopTLS, cause: "x509: certificate signed by unknown authority", tcp: Unknown, tls: Failed,
		},
		{
			name: "the incumbent finds a certificate for another name",
			harm: func(w *testCluster) {
				w.elsewhere = "127.0.0.1:" + itoa(closedPort(w.t))
				w.apiService.Status.Conditions = condition(check + `Get "https://10.0.0.10:443/apis/shop.example.com/v1": tls: failed to verify certificate: x509: certificate is valid for a.b.svc, not orders.shop.svc`)
			},
			hop: HopTLS, cause: "not orders.shop.svc", tcp: Unknown, tls: Failed,
		},
		{
			name: "the incumbent cannot dial it either",
			harm: func(w *testCluster) {
				w.elsewhere = "127.0.0.1:" + itoa(closedPort(w.t))
				w.apiService.Status.Conditions = condition(check + `Get "https://10.0.0.10:443/apis/shop.example.com/v1": dial tcp 10.0.0.10:443: connect: connection refused`)
			},
			hop: HopTCP, cause: "connection refused", tcp: Failed, tls: Skipped,
		},
		{
			name: "the incumbent says only in its 503 what the certificate lacks",
			harm: func(w *testCluster) { w.apiService.Spec.CABundle = newAuthority(w.t, "old-shop-ca").pem },
			hop:  HopTLS, cause: "error trying to reach service", tcp: Unknown, tls: Failed,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			w.elsewhere = net.JoinHostPort("127.0.0.1", itoa(w.serveExtension()))
			test.harm(w)
			w.slice.Ports[0].Port = new(fullPort(t)) // no server answers there, from this machine
			w.cfg.DialTimeout = 300 * time.Millisecond
			w.serveAPI()
			report := w.examine()
			if got := report.stateOf(HopTCP); got != test.tcp {
				t.Errorf("tcp is %s, want %s", got, test.tcp)
			}
			if got := report.stateOf(HopTLS); got != test.tls {
				t.Errorf("tls is %s, want %s", got, test.tls)
			}
			switch {
			case test.hop == "" && report.Broken != nil:
				t.Errorf("broken = %+v, want none", report.Broken)
			case test.hop == "":
			case report.Broken == nil || report.Broken.Hop != test.hop || !strings.Contains(report.Broken.Cause, test.cause):
				t.Errorf("broken: %+v, want %s: %s", report.Broken, test.hop, test.cause)
			}
		})
	}
}

// The reverse case: this machine reaches addresses that the API server cannot or must not reach.
func TestFaultsSeenOnlyByTheAPIServerAreDiagnosed(t *testing.T) {
	for _, test := range []struct{ name, reason, message, hop, fix string }{
		{
			"a network policy", "FailedDiscoveryCheck",
			"failing or missing response from https://orders.shop.svc:443/apis/shop.example.com/v1: dial tcp: context deadline exceeded", HopTCP, "networkpolicies",
		},
		{
			"loopback, which a front door does not dial for a Service with endpoints", reasonForbidden,
			"failing or missing response from https://orders.shop.svc:443/apis/shop.example.com/v1: the Service leads to an address that must not be dialled: it is a loopback address", HopTCP, "targetPort",
		},
		{
			"a tunnel", "FailedDiscoveryCheck",
			"failing or missing response from https://orders.shop.svc:443/apis/shop.example.com/v1: the tunnel to the cluster network cannot be reached: dial unix: connect: connection refused", HopTCP, "konnectivity",
		},
		{
			"other system authorities", "FailedDiscoveryCheck",
			"failing or missing response from https://orders.shop.svc:443/apis/shop.example.com/v1: tls: failed to verify certificate: x509: certificate signed by unknown authority", HopTLS, "networkpolicies",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			w.elsewhere = net.JoinHostPort("127.0.0.1", itoa(closedPort(t)))
			w.apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
				Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: test.reason, Message: test.message,
			}}
			w.open()
			d := w.examine().Broken
			if d == nil || d.Hop != test.hop || d.Cause != test.message || !strings.Contains(strings.Join(d.Mend, "\n"), test.fix) {
				t.Errorf("diagnosis = %+v, want %s: %s with the fix %q", d, test.hop, test.message, test.fix)
			}
		})
	}
}

// Recorded from kube-apiserver v1.37.1: with its flag for endpoints it reports this for an ExternalName, only in the condition.
func TestUnsupportedExternalNameIsDiagnosed(t *testing.T) {
	const said = `unsupported service type "ExternalName"`
	w := newTestCluster(t)
	external("localhost")(w)
	w.elsewhere = net.JoinHostPort("127.0.0.1", itoa(closedPort(t)))
	w.apiService.Spec.Service.Port = new(closedPort(t))
	w.apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: said,
	}}
	w.open()
	d := w.examine().Broken
	if d == nil || d.Hop != HopService || d.Cause != said || !strings.Contains(d.Found, "--enable-aggregator-routing") {
		t.Errorf("diagnosis = %+v, want the Service and --enable-aggregator-routing", d)
	}
}

func (r *Report) stateOf(hop string) State {
	for _, h := range r.Hops {
		if h.Name == hop {
			return h.State
		}
	}
	return ""
}

func (r *Report) foundAt(hop string) string {
	for _, h := range r.Hops {
		if h.Name == hop {
			return h.Found
		}
	}
	return ""
}

// Messages as kube-apiserver writes them.
func TestAvailabilityMessageIsMappedToHop(t *testing.T) {
	const check = "failing or missing response from https://10.0.0.1:443/apis/a/v1: "
	for message, want := range map[string]string{
		check + `Get "https://10.0.0.1:443/apis/a/v1": dial tcp 10.0.0.1:443: i/o timeout`:                                 HopTCP,
		check + `Get "https://a.b:443/apis/a/v1": dial tcp: lookup a.b on 10.0.0.2:53: no such host`:                       HopDNS,
		check + `Get "https://10.0.0.1:443/apis/a/v1": http: server gave HTTP response to HTTPS client`:                    HopTLS,
		check + `Get "https://10.0.0.1:443/apis/a/v1": net/http: TLS handshake timeout`:                                    HopTLS,
		check + `Get "https://10.0.0.1:443/apis/a/v1": context deadline exceeded (Client.Timeout exceeded while awaiting)`: "",
		check + "bad status from https://10.0.0.1:443/apis/a/v1: 401":                                                      HopIdentity,
		check + "bad status from https://10.0.0.1:443/apis/a/v1: 404":                                                      HopDiscovery,
		`no endpoints available for service "a"`:                                                                           HopEndpoints,
		`error trying to reach service: tls: failed to verify certificate: x509: certificate signed by unknown authority`:  HopTLS,
		"service unavailable": "",
	} {
		if got := blame("FailedDiscoveryCheck", message); got != want {
			t.Errorf("%s: blamed %q, want %q", message, got, want)
		}
	}
	if got := blame("ForbiddenAddress", check+"the Service leads to an address that must not be dialled"); got != HopTCP {
		t.Errorf("blame of a forbidden address = %q, want the TCP hop", got)
	}
}
