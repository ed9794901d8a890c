package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestC11NewExternalIPsOfServicesAreDenied(t *testing.T) {
	service := func(ips ...string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{ExternalIPs: ips}}
	}
	for situation, c := range map[string]struct {
		now, old    runtime.Object
		subresource string
		refused     bool
	}{
		"a Service without any":                   {now: service()},
		"a new Service with one":                  {now: service("192.0.2.1"), refused: true},
		"an update that adds one":                 {now: service("192.0.2.1"), old: service(), refused: true},
		"an update that exchanges one":            {now: service("192.0.2.2"), old: service("192.0.2.1"), refused: true},
		"an update that adds another":             {now: service("192.0.2.1", "192.0.2.2"), old: service("192.0.2.1"), refused: true},
		"an update that keeps them, in any order": {now: service("192.0.2.2", "192.0.2.1"), old: service("192.0.2.1", "192.0.2.2")},
		"an update that takes one away":           {now: service("192.0.2.1"), old: service("192.0.2.1", "192.0.2.2")},
		"the status":                              {now: service("192.0.2.1"), old: service(), subresource: "status"},
		"something else":                          {now: &corev1.Pod{}},
	} {
		t.Run(situation, func(t *testing.T) {
			operation := admission.Create
			if c.old != nil {
				operation = admission.Update
			}
			gv := corev1.SchemeGroupVersion
			a := admission.NewAttributesRecord(c.now, c.old, gv.WithKind("Service"), "ns", "s", gv.WithResource("services"), c.subresource, operation, nil, false, &user.DefaultInfo{})
			err := denyServiceExternalIPs{}.Validate(t.Context(), a, nil)
			if (err != nil) != c.refused {
				t.Fatalf("Validate error = %v, want an error: %v", err, c.refused)
			}
			if err != nil && err.Error() != `services "s" is forbidden: Use of external IPs is denied by admission control` {
				t.Errorf("Validate error = %q, want services \"s\" is forbidden: Use of external IPs is denied by admission control", err.Error())
			}
		})
	}
	if !(denyServiceExternalIPs{}).Handles(admission.Create) || !(denyServiceExternalIPs{}).Handles(admission.Update) || (denyServiceExternalIPs{}).Handles(admission.Delete) {
		t.Error("Handles does not accept exactly create and update, want these two operations")
	}
}
