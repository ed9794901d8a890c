package aggregator

//lint:file-ignore SA1019 Endpoints are deprecated, and users still write them for Services without selector.

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Nothing in a front door mirrors Endpoints into EndpointSlices.
func TestHandWrittenEndpointsAreUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	e, stop := openGarbageEnv(t, t.TempDir())
	_, err := e.client.CoreV1().Services("default").Create(e.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{})
	e.must(err)
	reason := func() string {
		object, err := e.apiServices().Get(e.ctx, "v1.notes.example.com", metav1.GetOptions{})
		e.must(err)
		for _, c := range object.Status.Conditions {
			if c.Type == apiregistrationv1.Available {
				return c.Reason
			}
		}
		return ""
	}
	e.registerService("notes.example.com", "v1", "notes", 443, nil)
	e.until("there are no endpoints", func() bool { return reason() == "EndpointsNotFound" })
	// The API refuses loopback addresses, so that no server of this test can be reached: an attempt has to do.
	_, err = e.client.CoreV1().Endpoints("default").Create(e.ctx, &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Name: "https", Port: 443}},
		}},
	}, metav1.CreateOptions{})
	e.must(err)
	e.until("the endpoint is probed", func() bool { return reason() == "FailedDiscoveryCheck" })
	if err := stop(); err != nil {
		t.Error(err)
	}
}
