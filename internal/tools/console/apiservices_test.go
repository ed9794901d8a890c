package console

import (
	"slices"
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestConditionsThatNeedAttentionHaveSeverity(t *testing.T) {
	for _, test := range []struct{ kind, status, want string }{
		{"Available", "False", severityError},
		{"Available", "True", ""},
		{"Available", "Unknown", ""},
		{"BackendAvailable", "False", severityError},
		{"TLSVerified", "False", severityWarning},
		{"TLSVerified", "True", ""},
		{"ServingCertExpiring", "True", severityWarning},
		{"ServingCertExpiring", "False", ""},
		{"example.com/Other", "False", ""},
	} {
		if got := severityOf(test.kind, test.status); got != test.want {
			t.Errorf("severityOf(%s, %s) = %q, want %q", test.kind, test.status, got, test.want)
		}
	}
}

func TestAPIServicesAreSortedByStateAndName(t *testing.T) {
	object := func(name, service string, conditions ...string) apiregistrationv1.APIService {
		var o apiregistrationv1.APIService
		o.Name = name
		if service != "" {
			o.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "ns", Name: service}
		}
		for i := 0; i < len(conditions); i += 2 {
			o.Status.Conditions = append(o.Status.Conditions, apiregistrationv1.APIServiceCondition{
				Type: apiregistrationv1.APIServiceConditionType(conditions[i]), Status: apiregistrationv1.ConditionStatus(conditions[i+1]),
				Message: "failing or missing response from https://s.ns.svc:443/apis/a/v1: dial tcp: connect: connection refused",
			})
		}
		return o
	}
	s := newState()
	s.setAPIServices([]apiregistrationv1.APIService{
		object("a.local", "", "Available", "True"),
		object("b.available", "s", "Available", "True"),
		object("a.available", "s", "Available", "True", "TLSVerified", "True"),
		object("c.insecure", "s", "Available", "True", "TLSVerified", "False"),
		object("d.unknown", "s"),
		object("z.down", "s", "Available", "False", "TLSVerified", "False"),
		object("y.down", "s", "Available", "False"),
	}, time.Now())
	var got []string
	for _, l := range s.listAPIServices(time.Now()).lines {
		got = append(got, l.cells[0].text+" "+l.cells[1].text+" "+l.cells[5].text)
	}
	const cause = ": connection refused (dial tcp), from https://s.ns.svc:443/apis/a/v1"
	want := []string{
		"y.down unavailable " + cause, "z.down unavailable " + cause + " [TLSVerified=False]", "d.unknown unknown ", "c.insecure degraded [TLSVerified=False]",
		"a.available available ", "b.available available ", "a.local local ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("list = %q, want %q", got, want)
	}
}

func TestReplicaThatDoesNotReachServerDegradesAPIService(t *testing.T) {
	r := &row{State: stateUp, Verdicts: []verdict{{State: stateUp}, {State: stateUnknown}}}
	if r.isDegraded() {
		t.Error("isDegraded with a replica without a verdict = true, want false")
	}
	r.Verdicts[1].State = stateDown
	if !r.isDegraded() {
		t.Error("isDegraded with a replica that does not reach the server = false, want true")
	}
}

func TestChartSpanFollowsSamples(t *testing.T) {
	c, at := newCharts(), time.Now()
	if got := c.span(90, 2); got != 178 {
		t.Errorf("span of 90 points every 2 s before samples = %v, want 178", got)
	}
	for range maxPoints + 5 {
		at = at.Add(10 * time.Second)
		c.next(at)
	}
	if got := c.span(90, 2); got != 890 || len(c.times) != maxPoints {
		t.Errorf("span of 90 points with samples every 10 s = %v of %d times, want 890 of %d", got, len(c.times), maxPoints)
	}
}

func TestQuantityHasNounInRightForm(t *testing.T) {
	for n, want := range map[string]string{"0": "0 objects", "1": "1 object", "12": "12 objects"} {
		if got := quantity(n, "object"); got != want {
			t.Errorf("quantity(%q) = %q, want %q", n, got, want)
		}
	}
}
