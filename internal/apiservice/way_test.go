package apiservice

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestAddressOfAService(t *testing.T) {
	port := corev1.ServicePort{Name: "https", Port: 443}
	for name, c := range map[string]struct {
		service  *corev1.Service
		slices   []*discoveryv1.EndpointSlice
		routing  bool
		want     map[string]bool // every address that is given, given often enough
		problems string
	}{
		"endpoints that take requests, all of them": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", port), routing: true,
			slices: []*discoveryv1.EndpointSlice{slice("a", discoveryv1.AddressTypeIPv4, "https", 8443,
				endpoint("10.1.0.1"), endpoint("10.1.0.2"), endpoint("10.1.0.3", notReady), endpoint("10.1.0.4", leaving))},
			want: map[string]bool{"10.1.0.1:8443": true, "10.1.0.2:8443": true},
		},
		"the cluster address": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", port),
			slices:  []*discoveryv1.EndpointSlice{slice("a", discoveryv1.AddressTypeIPv4, "https", 8443, endpoint("10.1.0.1"))},
			want:    map[string]bool{"10.0.0.1:443": true},
		},
		"another name": {
			service: &corev1.Service{ObjectMeta: service("", "").ObjectMeta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "hooks.example.com"}},
			routing: true, want: map[string]bool{"hooks.example.com:443": true},
		},
		"nobody": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", port), routing: true,
			slices:   []*discoveryv1.EndpointSlice{slice("a", discoveryv1.AddressTypeIPv4, "https", 8443, endpoint("10.1.0.4", leaving))},
			problems: `have no addresses with port name "https"`,
		},
		"a port that the service has not": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", corev1.ServicePort{Port: 80}), routing: true, problems: "is not listening on port 443",
		},
		"no service": {problems: `service/server in "metrics" is not present`},
	} {
		t.Run(name, func(t *testing.T) {
			r := listers(t, c.service, c.slices...)
			ways := Services{Services: r.services, EndpointSlices: r.slices, EndpointRouting: c.routing}
			given := map[string]bool{}
			for range 200 {
				address, err := ways.Address("metrics", "server", 443)
				if c.problems != "" {
					if err == nil || !strings.Contains(err.Error(), c.problems) {
						t.Fatalf("got %q, %v", address, err)
					}
					return
				}
				if err != nil || !c.want[address] {
					t.Fatalf("got %q, %v", address, err)
				}
				given[address] = true
			}
			if len(given) != len(c.want) {
				t.Errorf("of %v only %v", c.want, given)
			}
		})
	}
}
