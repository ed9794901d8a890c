package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
)

// The doctor reports no faults for these states.
func TestValidStatesReportNoFaults(t *testing.T) {
	refused := refusing(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	for _, test := range []struct {
		name  string
		harm  func(*testCluster)
		hop   string
		state State
		found string
	}{
		{"no watch is offered", func(w *testCluster) { w.offer("get", "list") }, HopWatch, Skipped, "discovery offers no watch"},
		{"nothing can be listed", func(w *testCluster) { w.offer("create") }, HopList, Skipped, "nothing can be listed"},
		{"a watch may not begin with what exists", func(w *testCluster) { w.server.watch = refused }, HopWatch, OK, "422"},
		{"the caller may not list", func(w *testCluster) { w.denied = true }, HopReview, Unknown, "does not let you"},
		{"a client certificate is required", func(w *testCluster) {
			w.tls = func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }
		}, HopTLS, OK, "TLS 1.3"},
		{"a client certificate is required, in TLS 1.2", func(w *testCluster) {
			w.tls = func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 }
		}, HopTLS, OK, "TLS 1.2"},
		{"nobody is verified", func(w *testCluster) {
			w.apiService.Spec.CABundle, w.apiService.Spec.InsecureSkipTLSVerify = nil, true
		}, HopRegistration, OK, "accepts whoever answers"},
		{"one endpoint of two is down", func(w *testCluster) {
			dead := *w.slice.Endpoints[0].DeepCopy()
			dead.Addresses = []string{"127.0.0.2"}
			w.slice.Endpoints = append(w.slice.Endpoints, dead)
		}, HopTCP, OK, "connected to 1 of 2 endpoints"},
		{"the front proxy's certificate is given", func(w *testCluster) { w.cfg.FrontProxy = w.presented() }, HopIdentity, OK, "answers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			test.harm(w)
			w.open()
			report := w.examine()
			if report.Broken != nil {
				t.Errorf("broken = %+v, want none", report.Broken)
			}
			if report.stateOf(test.hop) != test.state || !strings.Contains(report.foundAt(test.hop), test.found) {
				t.Errorf("state of %s = %s: %s; want %s with %q",
					test.hop, report.stateOf(test.hop), report.foundAt(test.hop), test.state, test.found)
			}
		})
	}
}

// moveEndpoints replaces the EndpointSlice by Endpoints that a user wrote for a Service without selector.
func (w *testCluster) moveEndpoints(port string) {
	w.service.Spec.Selector = nil
	//lint:ignore SA1019 deprecated, and still written for Services without selector
	w.objects = append(w.objects, &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"},
		//lint:ignore SA1019 deprecated, and still written for Services without selector
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "127.0.0.1"}}, Ports: []corev1.EndpointPort{{Name: port, Port: *w.slice.Ports[0].Port}},
		}},
	})
	w.slice.Endpoints = nil
}

func TestSelectorlessServiceEndpointsAreExamined(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*testCluster)
		portName string
		want     State
		found    string
	}{
		{"front door", func(w *testCluster) { w.portico = true }, "https", OK, "1 ready, 0 not ready, 0 terminating in the Endpoints object orders"},
		{
			"front door, another port name", func(w *testCluster) { w.portico = true }, "web", Failed,
			`the Service calls port 443 "https", and its Endpoints have ports ["web"]`,
		},
		{
			"front door, label skip-mirror",
			func(w *testCluster) {
				w.portico = true
				w.objects[len(w.objects)-1].SetLabels(map[string]string{discoveryv1.LabelSkipMirror: "true"})
			}, "https", Failed, "its Endpoints object orders has no addresses, or a label or annotation that excludes it",
		},
		{
			"kube-apiserver", func(*testCluster) {}, "https", Failed,
			"no controller has mirrored its Endpoints object orders into EndpointSlices",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			w.open()
			w.moveEndpoints(tt.portName)
			tt.change(w)
			report := w.examine()
			if got, text := report.stateOf(HopEndpoints), report.foundAt(HopEndpoints); got != tt.want || !strings.Contains(text, tt.found) {
				t.Errorf("hop %s is %s: %s; want %s: %s", HopEndpoints, got, text, tt.want, tt.found)
			}
		})
	}
}

// offer makes discovery offer these verbs.
func (w *testCluster) offer(verbs ...string) {
	w.server.discovery = answering(http.StatusOK, metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group + "/" + served,
		APIResources: []metav1.APIResource{{Name: "orders", Kind: "Order", Verbs: verbs}},
	})
}

func TestAdvertisedWatchWith405IsDiagnosed(t *testing.T) {
	w := newTestCluster(t)
	w.server.watch = withVerdict(http.StatusMethodNotAllowed, "text/plain", "405")
	w.open()
	if d := w.examine().Broken; d == nil || d.Hop != HopWatch || !strings.Contains(d.Cause, "405") {
		t.Errorf("diagnosis = %+v, want the watch with status 405", d)
	}
}

func TestSlowDiscoveryIsReportedAsSlowServer(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	discovery := w.server.discovery
	w.server.discovery = func(out http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(300 * time.Millisecond): // the time that the server takes
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // an empty response could still arrive
		}
		discovery(out, r)
	}
	w.cfg.checkTimeout = 100 * time.Millisecond
	w.apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: "FailedDiscoveryCheck",
		Message: "failing or missing response from https://orders.shop.svc:443" + discoveryPath + ": context deadline exceeded",
	}}
	w.open()
	d := w.examine().Broken
	if d == nil || d.Hop != HopDiscovery || !strings.Contains(d.Found, "too slow") || !strings.Contains(d.Found, "100ms at most") || strings.Contains(strings.Join(d.Mend, " "), "networkpolicies") {
		t.Errorf("diagnosis = %+v, want a slow extension server at hop %s", d, HopDiscovery)
	}
}

func TestPatienceDependsOnTheCheckingServer(t *testing.T) {
	for name, test := range map[string]struct {
		portico bool
		gateway *Gateway
		want    time.Duration
	}{
		"kube-apiserver": {want: apiservice.ProbeTimeout},
		"front door":     {portico: true, want: apiservice.HungTimeout},
		"gateway":        {gateway: &Gateway{}, want: apiservice.HungTimeout},
	} {
		x := &exam{Doctor: &Doctor{cfg: Config{checkTimeout: apiservice.ProbeTimeout}}, report: &Report{Gateway: test.gateway}, portico: test.portico}
		if got, _ := x.patience(); got != test.want {
			t.Errorf("patience() of a %s = %s, want %s", name, got, test.want)
		}
	}
}

func TestAllAPIServicesAreExaminedInNameOrder(t *testing.T) {
	w := newTestCluster(t)
	local := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.apps"}, Spec: apiregistrationv1.APIServiceSpec{Group: "apps", Version: "v1"}}
	lost := w.apiService.DeepCopy()
	lost.Name, lost.Spec.Group, lost.Spec.Service.Name = "v1.lost.example.com", "lost.example.com", "nobody"
	w.objects = append(w.objects, local, lost)
	w.open()
	d, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	reports, err := d.ExamineAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range reports {
		names = append(names, r.APIService)
	}
	if got := strings.Join(names, " "); got != "v1.lost.example.com v1.shop.example.com" {
		t.Errorf("examined APIServices = %s, want v1.lost.example.com and v1.shop.example.com", got)
	}
	if Broken(reports) != 1 || reports[0].Broken == nil || reports[1].Broken != nil {
		t.Errorf("broken = %+v and %+v, want only the first", reports[0].Broken, reports[1].Broken)
	}
	var text, data strings.Builder
	if err := WriteSummary(&text, reports); err != nil {
		t.Fatal(err)
	}
	if want := `v1.lost.example.com   shop/nobody:443   broken at service   service/nobody in "shop" is not present`; !strings.Contains(text.String(), want) {
		t.Errorf("summary =\n%s\nwant a line %s", text.String(), want)
	}
	text.Reset()
	if err := WriteWideSummary(&text, reports); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(text.String(), "\n"); !strings.HasPrefix(lines[0], "APISERVICE") || !strings.Contains(lines[0], "GATEWAY") || !strings.Contains(lines[1], " of ") || !strings.Contains(lines[1], "broken at service") {
		t.Errorf("wide summary =\n%s\nwant the columns and the broken hop", text.String())
	}
	if err := WriteJSON(&data, reports, nil); err != nil {
		t.Fatal(err)
	}
	var decoded struct{ APIServices []Report }
	if err := json.Unmarshal([]byte(data.String()), &decoded); err != nil || len(decoded.APIServices) != 2 || decoded.APIServices[0].Broken.Hop != HopService {
		t.Errorf("WriteJSON = %v: %s; want two APIServices, the first broken at the Service", err, data.String())
	}
	report, err := d.Examine(t.Context(), "v1.apps")
	if err != nil || len(report.Hops) != 1 || report.Hops[0].State != OK {
		t.Errorf("Examine of v1.apps = %v: %+v; want one hop without a fault", err, report)
	}
	if _, err := d.Examine(t.Context(), "v9.nowhere"); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "kubectl get apiservices") {
		t.Errorf("Examine of an unknown APIService: error = %v, want NotFound with a command", err)
	}
}

func TestUnreachableAPIServerReturnsError(t *testing.T) {
	d, err := New(Config{Client: &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", closedPort(t))}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.ExamineAll(t.Context()); err == nil {
		t.Error("ExamineAll without an API server returned no error, want one")
	}
}

// The report of a cancelled examination marks the hops that were not examined.
func TestCanceledExaminationLeavesHopsUnknown(t *testing.T) {
	w := newTestCluster(t)
	w.open()
	d, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report := d.examine(ctx, w.apiService, false)
	if report.Broken != nil || report.stateOf(HopWatch) != Unknown {
		t.Errorf("report of a cancelled examination = %+v, want no fault and an unknown watch", report)
	}
}

// A backend chooses messages and an APIService names. Neither may inject text into the terminal or the shell of an operator who
// pastes a command.
func TestHostileNamesAreEscaped(t *testing.T) {
	w := newTestCluster(t)
	w.server.list = withVerdict(http.StatusInternalServerError, "text/plain", "\x1b]0;owned\x07"+strings.Repeat("x", 1<<20))
	w.open()
	if text := w.text(w.examine()); strings.ContainsAny(text, "\x1b\x07") || len(text) > 8<<10 {
		t.Errorf("report with hostile names = %d bytes: %.300q; want at most 8 KiB without control characters", len(text), text)
	}
	const hostile = `a'; echo owned; echo '$(echo owned)`
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "kubectl() { printf '%s\\n' \"$@\"; }; "+Kubectl("-n", hostile, "get", "pods")).Output()
	if err != nil || string(out) != "-n\n"+hostile+"\nget\npods\n" {
		t.Errorf("pasted command = %v: %s; want the name as one argument", err, out)
	}
}
