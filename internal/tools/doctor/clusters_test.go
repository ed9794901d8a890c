package doctor

import (
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
)

// testClusterObject returns a Cluster of two API servers with the statuses of its conditions.
func testClusterObject(name string, conditions ...metav1.Condition) v1alpha1.Cluster {
	c := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Server.Endpoints = []string{"10.0.0.1:6443", "10.0.0.2:6443"}
	c.Spec.Credentials.Secret = &v1alpha1.SecretReference{Namespace: "fleet", Name: "cluster-" + name}
	c.Status.Endpoints = []v1alpha1.EndpointStatus{{Address: "10.0.0.1:6443", Ready: true}, {Address: "10.0.0.2:6443"}}
	c.Status.Conditions = conditions
	return c
}

func condition(name string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: message}
}

// clusterDoctor returns a Doctor of an API server that answers requests for Clusters by a handler.
func clusterDoctor(t *testing.T, clusters http.HandlerFunc) *Doctor {
	t.Helper()
	own := newAuthority(t, "cluster-ca")
	address := listen(t, pki.ServerConfig(own.issueFor(net.IPv4(127, 0, 0, 1))), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != clustersPath {
			http.NotFound(w, r)
			return
		}
		clusters(w, r)
	}))
	d, err := New(Config{Client: &rest.Config{Host: "https://" + address, TLSClientConfig: rest.TLSClientConfig{CAData: own.pem}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func TestClustersThatAreNotAvailableOrPermittedAreReported(t *testing.T) {
	available := condition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "Ready", "1 of 2 API servers are ready")
	frontProxy := testClusterObject("proxied", available, condition(v1alpha1.ConditionPermitted, metav1.ConditionFalse, v1alpha1.ReasonMissingRights, "no trust"))
	frontProxy.Spec.Identity.Mode = v1alpha1.FrontProxy
	d := clusterDoctor(t, answering(http.StatusOK, v1alpha1.ClusterList{Items: []v1alpha1.Cluster{
		testClusterObject("well", available, condition(v1alpha1.ConditionPermitted, metav1.ConditionTrue, "RightsGranted", "")),
		testClusterObject("new"),
		testClusterObject("dead", condition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonNoReadyAPIServer, "no API server is ready\n(refused)"),
			condition(v1alpha1.ConditionPermitted, metav1.ConditionUnknown, "ClusterUnavailable", "")),
		testClusterObject("keyless", condition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, "InvalidCredentials", "secret not found")),
		testClusterObject("powerless", available, condition(v1alpha1.ConditionPermitted, metav1.ConditionFalse, v1alpha1.ReasonMissingRights, "lacks rights")),
		testClusterObject("refused", available, condition(v1alpha1.ConditionPermitted, metav1.ConditionUnknown, "CheckFailed", "Unauthorized")),
		frontProxy,
	}}))
	reports, err := d.ExamineClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var names []string
	for _, r := range reports {
		names = append(names, r.Cluster)
		if r.Endpoints != "1/2" {
			t.Errorf("API servers of %s = %s, want 1/2", r.Cluster, r.Endpoints)
		}
		if r.Broken != nil {
			got[r.Cluster] = r.Broken.Hop + "; " + r.Broken.Cause + "; " + r.Broken.Mend[len(r.Broken.Mend)-1]
		}
	}
	if want := "dead keyless new powerless proxied refused well"; strings.Join(names, " ") != want {
		t.Errorf("examined Clusters = %v, want %s", names, want)
	}
	want := map[string]string{
		"dead":      "Available; NoReadyAPIServer: no API server is ready (refused); kubectl --kubeconfig=KUBECONFIG get --raw '/readyz?verbose'",
		"keyless":   "Available; InvalidCredentials: secret not found; aggregator enroll keyless --kubeconfig=KUBECONFIG --namespace=fleet",
		"new":       "Available; no front door has written the condition; the log of the leading replica has the reason; kubectl describe clusters.clusters.portico.dev new",
		"powerless": "Permitted; MissingRights: lacks rights; aggregator enroll powerless --dry-run | kubectl --kubeconfig=KUBECONFIG apply -f -",
		"proxied":   "Permitted; MissingRights: no trust; kubectl describe clusters.clusters.portico.dev proxied",
		"refused":   "Permitted; CheckFailed: Unauthorized; aggregator enroll refused --kubeconfig=KUBECONFIG --namespace=fleet",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("conditions, causes and next steps = %q\nwant %q", got, want)
	}
	if n := BrokenClusters(reports); n != len(want) {
		t.Errorf("broken Clusters = %d, want %d", n, len(want))
	}
}

func TestClustersArePrinted(t *testing.T) {
	broken := testClusterObject("dead", condition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, "InvalidCredentials", "secret not found"))
	reports := []*ClusterReport{examineCluster(&broken), {Cluster: "prod", Endpoints: "3/3"}}
	var text, none, data strings.Builder
	if err := WriteClusters(&text, reports); err != nil {
		t.Fatal(err)
	}
	const want = `
CLUSTER   ENDPOINTS   STATE
dead      1/2         not Available
prod      3/3         ok

cluster dead is not Available
  what to do:
    kubectl -n fleet describe secret cluster-dead
    # KUBECONFIG is that of an administrator of the cluster itself; apply the Secret of the output:
    aggregator enroll dead --kubeconfig=KUBECONFIG --namespace=fleet
  cause: InvalidCredentials: secret not found
`
	if text.String() != want {
		t.Errorf("WriteClusters = %s\nwant %s", text.String(), want)
	}
	if err := WriteClusters(&none, nil); err != nil || none.String() != "" {
		t.Errorf("WriteClusters without Clusters = %v, %q; want nothing", err, none.String())
	}
	if err := WriteJSON(&data, nil, reports[1:]); err != nil || !strings.Contains(strings.Join(strings.Fields(data.String()), ""), `"clusters":[{"cluster":"prod","endpoints":"3/3"}]`) {
		t.Errorf("WriteJSON = %v, %s; want the Cluster", err, data.String())
	}
}

func TestAPIServersWithoutClustersAreNotReported(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"not served": http.NotFound,
		"forbidden":  refusing(http.StatusForbidden, metav1.StatusReasonForbidden, "no right"),
	} {
		if reports, err := clusterDoctor(t, handler).ExamineClusters(t.Context()); err != nil || len(reports) > 0 {
			t.Errorf("ExamineClusters of an API server where Clusters are %s = %v, %v; want none", name, reports, err)
		}
	}
	broken := refusing(http.StatusInternalServerError, metav1.StatusReasonInternalError, "no etcd")
	if _, err := clusterDoctor(t, broken).ExamineClusters(t.Context()); err == nil || !strings.Contains(err.Error(), "no etcd") {
		t.Errorf("ExamineClusters of a broken API server = %v, want an error with the cause", err)
	}
}
