package lifecycle

import (
	"net/netip"
	"testing"

	"go.uber.org/zap/zaptest"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// kube-controller-manager v1.37.1 writes this condition without a reason, and would write it again over any other.
func TestTheConditionOfARangeIsUpstreams(t *testing.T) {
	client := fake.NewClientset()
	c := &serviceCIDRs{client: client, ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, log: zaptest.NewLogger(t)}
	for range 2 { // the first makes the object, the second sees it
		if _, err := c.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r, err := client.NetworkingV1().ServiceCIDRs().Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || len(r.Status.Conditions) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	got := r.Status.Conditions[0]
	got.LastTransitionTime = metav1.Time{}
	if want := (metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready",
	}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	client.ClearActions()
	if _, err := c.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "list" {
			t.Errorf("what is as it should be was written again: %s %s", a.GetVerb(), a.GetSubresource())
		}
	}
}
