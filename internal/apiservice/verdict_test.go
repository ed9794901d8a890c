package apiservice

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func refused() *failure {
	return &failure{message: "dial tcp: connect: connection refused", unreachable: true}
}
func slow() *failure { return &failure{message: "context deadline exceeded", slow: true} }

// after returns the history of the given outcomes; nil is a success.
func after(failures ...*failure) history {
	var h history
	for i, f := range failures {
		h = h.record(outcome{at: time.Unix(int64(i+1), 0), failure: f})
	}
	return h
}

func TestVerdict(t *testing.T) {
	const url = "https://server.metrics.svc:443/apis/metrics.k8s.io/v1"
	on := func(reason string) *apiregistrationv1.APIServiceCondition {
		return &apiregistrationv1.APIServiceCondition{Status: apiregistrationv1.ConditionTrue, Reason: reason, Message: "as before"}
	}
	for name, test := range map[string]struct {
		evidence        verdictInput
		status          apiregistrationv1.ConditionStatus
		reason, message string
	}{
		"local": {
			verdictInput{local: true}, "True", "Local", "Local APIServices are always available",
		},
		"there is nothing to ask": {
			verdictInput{problem: falseProblem("ServiceNotFound", "service/server in %q is not present", "metrics"), probes: after(nil)},
			"False", "ServiceNotFound", `service/server in "metrics" is not present`,
		},
		"it cannot be looked up": {
			verdictInput{problem: unknownProblem("ServiceAccessError", "cannot"), probes: after(nil)},
			"Unknown", "ServiceAccessError", "cannot",
		},
		"the CA bundle is garbage, of which the incumbent says nothing": {
			verdictInput{bundleError: errors.New("no certificate in it")},
			"False", "InvalidCABundle", "spec.caBundle does not parse: no certificate in it; set it to the PEM certificates that sign the backend's serving certificate",
		},
		"not heard of yet": {
			verdictInput{url: url}, "Unknown", "NotChecked", "the backend has not answered yet",
		},
		"not heard of since its certificate authority changed": {
			verdictInput{url: url, previous: on("Passed")}, "True", "Passed", "as before",
		},
		"passed": {
			verdictInput{url: url, probes: after(nil)}, "True", "Passed", "all checks passed",
		},
		"refused": {
			verdictInput{url: url, probes: after(nil, refused())},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": dial tcp: connect: connection refused",
		},
		"a status that is not 2xx": {
			verdictInput{url: url, probes: after(nil, failureFromStatus(404))},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": bad status from " + url + ": 404",
		},
		"a redirect": {
			verdictInput{url: url, probes: after(failureFromStatus(302))},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": bad status from " + url + ": 302",
		},
		"one slow answer of a backend that was well": {
			verdictInput{url: url, probes: after(nil, slow())}, "True", "Passed", "all checks passed",
		},
		"two slow answers": {
			verdictInput{url: url, probes: after(nil, slow(), slow())},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": context deadline exceeded",
		},
		"one slow answer of a backend that was never heard of": {
			verdictInput{url: url, probes: after(slow())},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": context deadline exceeded",
		},
		"overload counts as slow": {
			verdictInput{url: url, probes: after(nil, failureFromStatus(503))}, "True", "Passed", "all checks passed",
		},
		"slow, well, slow": {
			verdictInput{url: url, probes: after(nil, slow(), nil, slow())}, "True", "Passed", "all checks passed",
		},
		"one answer after a long outage": {
			verdictInput{url: url, probes: after(nil, refused(), refused(), refused(), nil)}, "True", "Passed", "all checks passed",
		},
		"an address that must not be dialled": {
			verdictInput{url: url, probes: after(&failure{message: "it is link-local", forbidden: true, unreachable: true})},
			"False", "ForbiddenAddress", "failing or missing response from " + url + ": it is link-local",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := verdict(test.evidence, time.Now())
			if got.Type != apiregistrationv1.Available || got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("verdict() = %s %s %q %q, want %s %q %q", got.Type, got.Status, got.Reason, got.Message, test.status, test.reason, test.message)
			}
		})
	}
}

func TestLastTransitionTimeChangesWithStatusOnly(t *testing.T) {
	then, now := time.Unix(1000, 0), time.Unix(2000, 0)
	before := verdict(verdictInput{probes: after(nil)}, then)
	if got := verdict(verdictInput{probes: after(nil, nil), previous: &before}, now); !got.LastTransitionTime.Time.Equal(then) {
		t.Errorf("still up: lastTransitionTime = %v, want %v", got.LastTransitionTime, then)
	}
	down := verdict(verdictInput{probes: after(nil, refused()), previous: &before}, now)
	if !down.LastTransitionTime.Time.Equal(now) {
		t.Errorf("went down: lastTransitionTime = %v, want %v", down.LastTransitionTime, now)
	}
	again := verdict(verdictInput{problem: falseProblem("MissingEndpoints", ""), previous: &down}, now.Add(time.Hour))
	if !again.LastTransitionTime.Time.Equal(now) {
		t.Errorf("down for another reason: lastTransitionTime = %v, want %v", again.LastTransitionTime, now)
	}
}

func TestExtraConditions(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	heard := func(expires time.Time) history {
		return history{}.record(outcome{at: now, certificateExpires: expires})
	}
	withBundle := apiregistrationv1.APIServiceSpec{CABundle: []byte("x")}
	for name, test := range map[string]struct {
		spec     apiregistrationv1.APIServiceSpec
		evidence verdictInput
		want     map[string]string
	}{
		"local":                        {withBundle, verdictInput{local: true}, nil},
		"system roots":                 {apiregistrationv1.APIServiceSpec{}, verdictInput{}, nil},
		"a bundle":                     {withBundle, verdictInput{}, map[string]string{"CABundleValid": "True"}},
		"a bundle that is garbage":     {withBundle, verdictInput{bundleError: errors.New("no")}, map[string]string{"CABundleValid": "False"}},
		"a certificate with time left": {apiregistrationv1.APIServiceSpec{}, verdictInput{probes: heard(now.Add(8 * 24 * time.Hour))}, nil},
		"a certificate that ends this week": {
			apiregistrationv1.APIServiceSpec{}, verdictInput{probes: heard(now.Add(6 * 24 * time.Hour))},
			map[string]string{"ServingCertExpiring": "True"},
		},
		"A24 whoever answers is believed": {
			apiregistrationv1.APIServiceSpec{InsecureSkipTLSVerify: true}, verdictInput{}, map[string]string{"TLSVerified": "False"},
		},
		"custom resources in the same group-version": {
			apiregistrationv1.APIServiceSpec{}, verdictInput{hidesLocal: true}, map[string]string{"HidesLocalResources": "True"},
		},
		"annotations that make no sense": {
			apiregistrationv1.APIServiceSpec{}, verdictInput{invalidAnnotations: []string{"x: no"}}, map[string]string{"AnnotationsValid": "False"},
		},
		"a document that cannot be used": {
			apiregistrationv1.APIServiceSpec{}, verdictInput{probes: heard(time.Time{}), documentProblem: "no"}, map[string]string{"OpenAPIValid": "False"},
		},
		"a document that a backend which is down does not give": {apiregistrationv1.APIServiceSpec{}, verdictInput{documentProblem: "no"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := extraConditions(&test.spec, test.evidence, now)
			if len(got) != len(test.want) {
				t.Fatalf("extraConditions() = %v, want %v", got, test.want)
			}
			for _, c := range got {
				if string(c.Status) != test.want[string(c.Type)] || c.LastTransitionTime != metav1.NewTime(now) {
					t.Errorf("condition = %v, want one of %v since %v", c, test.want, now)
				}
			}
		})
	}
}
