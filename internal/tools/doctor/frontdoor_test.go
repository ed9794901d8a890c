package doctor

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
)

const behindName = "v1.behind.example.com"

// aggregating makes the extension server a front door with further paths.
func (w *testCluster) aggregating(more map[string]http.HandlerFunc) {
	own := w.server.gate
	w.server.gate = func(next http.HandlerFunc) http.HandlerFunc {
		next = own(next)
		return func(rw http.ResponseWriter, r *http.Request) {
			if answer, ok := more[r.URL.Path]; ok {
				answer(rw, r)
				return
			}
			next(rw, r)
		}
	}
}

// unreachedBehind is a front door's response for a backend that it cannot reach.
func unreachedBehind(code int, text string) http.HandlerFunc {
	return answering(code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Message: text,
		Details: &metav1.StatusDetails{Group: registrationGroup, Kind: "APIService", Name: behindName},
	})
}

func TestFrontDoorAsBackendIsReported(t *testing.T) {
	aggregates := answering(http.StatusOK, metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "apiregistration.k8s.io/v1",
		APIResources: []metav1.APIResource{{Name: "apiservices", Kind: "APIService"}},
	})
	denied := refusing(http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden")
	version := func(v string) http.HandlerFunc {
		return answering(http.StatusOK, map[string]string{"gitVersion": v})
	}
	behind := answering(http.StatusOK, apiregistrationv1.APIService{
		TypeMeta: metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "far", Name: "orders"}},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: "MissingEndpoints", Message: "no endpoints",
		}}},
	})
	for _, test := range []struct {
		name   string
		harm   func(*testCluster)
		want   bool
		broken string
		words  []string
	}{
		{name: "an extension server", harm: func(*testCluster) {}},
		{name: "an extension server with a version of Portico", harm: func(w *testCluster) {
			w.aggregating(map[string]http.HandlerFunc{"/version": version("v1.37.2+portico-v0.1.0"), "/apis/apiregistration.k8s.io/v1": denied})
		}},
		{name: "an extension server with a version of its own", harm: func(w *testCluster) {
			w.aggregating(map[string]http.HandlerFunc{"/version": version("v0.7.2"), "/apis/apiregistration.k8s.io/v1": denied})
		}},
		{name: "one that serves apiregistration.k8s.io", want: true, harm: func(w *testCluster) {
			w.aggregating(map[string]http.HandlerFunc{
				"/version": version("v1.36.1"), "/apis/apiregistration.k8s.io/v1": aggregates, apiServicesPath + "/" + name: behind,
			})
		}, words: []string{"is itself a front door", "APIService " + name + " -> far/orders:443", "(v1.36.1), Available is False: no endpoints",
			"aggregator doctor apiservice " + name + " --kubeconfig=KUBECONFIG"}},
		{name: "one that keeps its APIServices to itself", want: true, harm: func(w *testCluster) {
			w.aggregating(map[string]http.HandlerFunc{"/version": version("v1.36.1"), "/apis/apiregistration.k8s.io/v1": denied})
		}, words: []string{"may itself be a front door", "--proxy-client-cert-file"}},
		{name: "one with the certificate of an API server, that trusts another front proxy", want: true, broken: HopIdentity, harm: func(w *testCluster) {
			w.certificate.DNSNames = append(w.certificate.DNSNames, "kubernetes.default.svc")
			w.server.gate = always(refusing(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
		}, words: []string{"may itself be a front door", "for kubernetes.default.svc"}},
		{name: "one whose backend is dead", want: true, broken: HopDiscovery, harm: func(w *testCluster) {
			w.server.gate = always(unreachedBehind(http.StatusServiceUnavailable, "it refused the connection"))
		}, words: []string{behindName, "aggregator doctor apiservice " + behindName + " --kubeconfig=KUBECONFIG", "it refused the connection"}},
		{name: "one whose backend is dead, seen from here, behind an API server of ours", want: true, broken: HopDiscovery, harm: func(w *testCluster) {
			w.portico = true
			w.server.gate = always(unreachedBehind(http.StatusServiceUnavailable, "it refused the connection"))
		}, words: []string{behindName, "asked from here, it answers 503"}},
		{name: "one whose lists fail", want: true, broken: HopList, harm: func(w *testCluster) {
			w.server.list = unreachedBehind(http.StatusServiceUnavailable, "it refused the connection")
		}, words: []string{behindName}},
		{name: "one that forwards no request twice", want: true, broken: HopList, harm: func(w *testCluster) {
			w.portico = true
			w.server.list = unreachedBehind(http.StatusLoopDetected, "the request was forwarded by a front door before")
		}, words: []string{behindName, "register here the server that the APIService there leads to"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			test.harm(w)
			w.open()
			report := w.examine()
			text := w.text(report)
			if (report.FrontDoor != nil) != test.want {
				t.Fatalf("front door in the report = %+v, want one: %v\n%s", report.FrontDoor, test.want, text)
			}
			if broken := report.Broken; (broken != nil) != (test.broken != "") || broken != nil && broken.Hop != test.broken {
				t.Errorf("broken = %+v, want %q", broken, test.broken)
			}
			for _, words := range test.words {
				if !strings.Contains(text, words) {
					t.Errorf("the report has no %q, want it in\n%s", words, text)
				}
			}
			if b := report.Broken; b != nil && test.want && (len(b.Mend) < 2 || !strings.HasPrefix(b.Mend[1], "aggregator doctor ")) {
				t.Errorf("fixes = %q, want the doctor of the other front door second", b.Mend)
			}
			if test.want && test.broken == "" {
				var summary strings.Builder
				if err := WriteSummary(&summary, []*Report{report}); err != nil || !strings.Contains(summary.String(), "leads to another front door") {
					t.Errorf("WriteSummary = %v: %s; want the other front door", err, &summary)
				}
			}
		})
	}
}

func TestEmptyReportIsPrinted(t *testing.T) {
	var text, data strings.Builder
	if err := WriteSummary(&text, nil); err != nil || text.String() != "No APIService leads to an extension server.\n" {
		t.Errorf("WriteSummary without reports = %v: %q; want a sentence", err, text.String())
	}
	if err := WriteJSON(&data, nil, nil); err != nil || strings.Join(strings.Fields(data.String()), "") != `{"apiServices":[]}` {
		t.Errorf("WriteJSON without reports = %v: %q; want an empty list", err, data.String())
	}
}

// If the API server is closer to the pods, its refused connections count, not the dropped packets of this machine.
func TestAPIServersRefusedConnectionTakesPrecedence(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	w.slice.Ports[0].Port = new(fullPort(t))
	w.cfg.DialTimeout = 300 * time.Millisecond
	w.apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: "FailedDiscoveryCheck",
		Message: "failing or missing response from https://10.1.2.3:443/apis/shop.example.com/v1: dial tcp 10.1.2.3:443: connect: connection refused",
	}}
	w.crash()
	w.open()
	d := w.examine().Broken
	if d == nil || d.Hop != HopTCP || !strings.Contains(d.Found, "the extension server is not running: pod orders-0 is Running on node n1, 7 restarts") ||
		len(d.Mend) == 0 || d.Mend[0] != "kubectl -n shop logs orders-0 -c server --previous" {
		t.Errorf("diagnosis = %+v, want the crashing container and its logs", d)
	}
}

func TestDisagreeingReplicasAreReported(t *testing.T) {
	x := &exam{
		object: &apiregistrationv1.APIService{
			Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "shop", Name: "orders"}},
			Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{
				Type: apiservice.AvailableOnAllReplicas, Status: apiregistrationv1.ConditionFalse, Reason: "SomeReplicas",
				Message: "replicas that do not reach the backend: a; they hand its requests to replicas that do: b",
			}}},
		},
		service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}},
	}
	if f := x.endpoints(t.Context()); f.state != Failed || f.blocks || !strings.Contains(f.found, "replicas that do: b") {
		t.Errorf("finding = %+v, want a failure that does not block and names replica b", f)
	}
}

func TestEjectedEndpointsAreReported(t *testing.T) {
	x := &exam{
		object: &apiregistrationv1.APIService{
			Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "shop", Name: "orders"}},
			Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{
				Type: apiservice.EndpointsInUse, Status: apiregistrationv1.ConditionFalse, Reason: "EndpointEjected",
				Message: "1 of 3 endpoints is not used: 192.0.2.7:443 (requests are accepted and none is answered)",
			}}},
		},
		service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}},
	}
	f := x.endpoints(t.Context())
	if f.state != Failed || f.blocks || !strings.Contains(f.found, "192.0.2.7:443") || len(f.fix) != 1 || !strings.Contains(f.fix[0], "endpointslices") {
		t.Errorf("finding = %+v, want a failure that does not block, with the address and one fix", f)
	}
}
