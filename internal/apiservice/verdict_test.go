package apiservice

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func refused() *failure {
	return &failure{cause: "dial tcp: connect: connection refused", unreachable: true}
}
func slow() *failure { return &failure{cause: "context deadline exceeded", slow: true} }

// after is the history that outcomes leave; nil passes.
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
		evidence        evidence
		status          apiregistrationv1.ConditionStatus
		reason, message string
	}{
		"local": {
			evidence{local: true}, "True", "Local", "Local APIServices are always available",
		},
		"there is nothing to ask": {
			evidence{problem: falseBecause("ServiceNotFound", "service/server in %q is not present", "metrics"), heard: after(nil)},
			"False", "ServiceNotFound", `service/server in "metrics" is not present`,
		},
		"it cannot be looked up": {
			evidence{problem: unknownBecause("ServiceAccessError", "cannot"), heard: after(nil)},
			"Unknown", "ServiceAccessError", "cannot",
		},
		"the CA bundle is garbage, of which the incumbent says nothing": {
			evidence{bundleError: errors.New("no certificate in it")},
			"False", "InvalidCABundle", "spec.caBundle does not parse: no certificate in it; set it to the PEM certificates that sign the backend's serving certificate",
		},
		"not heard of yet": {
			evidence{url: url}, "Unknown", "NotChecked", "the backend has not answered yet",
		},
		"not heard of since its certificate authority changed": {
			evidence{url: url, before: on("Passed")}, "True", "Passed", "as before",
		},
		"passed": {
			evidence{url: url, heard: after(nil)}, "True", "Passed", "all checks passed",
		},
		"refused": {
			evidence{url: url, heard: after(nil, refused())},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": dial tcp: connect: connection refused",
		},
		"a status that is not 2xx": {
			evidence{url: url, heard: after(nil, failureOfStatus(404))},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": bad status from " + url + ": 404",
		},
		"a redirect": {
			evidence{url: url, heard: after(failureOfStatus(302))},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": bad status from " + url + ": 302",
		},
		"one slow answer of a backend that was well": {
			evidence{url: url, heard: after(nil, slow())}, "True", "Passed", "all checks passed",
		},
		"two slow answers": {
			evidence{url: url, heard: after(nil, slow(), slow())},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": context deadline exceeded",
		},
		"one slow answer of a backend that was never heard of": {
			evidence{url: url, heard: after(slow())},
			"False", "FailedDiscoveryCheck", "failing or missing response from " + url + ": context deadline exceeded",
		},
		"overload counts as slow": {
			evidence{url: url, heard: after(nil, failureOfStatus(503))}, "True", "Passed", "all checks passed",
		},
		"slow, well, slow": {
			evidence{url: url, heard: after(nil, slow(), nil, slow())}, "True", "Passed", "all checks passed",
		},
		"one answer after a long outage": {
			evidence{url: url, heard: after(nil, refused(), refused(), refused(), nil)}, "True", "Passed", "all checks passed",
		},
		"an address that must not be dialled": {
			evidence{url: url, heard: after(&failure{cause: "it is link-local", forbidden: true, unreachable: true})},
			"False", "ForbiddenAddress", "failing or missing response from " + url + ": it is link-local",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := verdict(test.evidence, time.Now())
			if got.Type != apiregistrationv1.Available || got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("got %s %s %q %q, want %s %q %q", got.Type, got.Status, got.Reason, got.Message, test.status, test.reason, test.message)
			}
		})
	}
}

func TestVerdictTimeMovesOnFlipsOnly(t *testing.T) {
	then, now := time.Unix(1000, 0), time.Unix(2000, 0)
	before := verdict(evidence{heard: after(nil)}, then)
	if got := verdict(evidence{heard: after(nil, nil), before: &before}, now); !got.LastTransitionTime.Time.Equal(then) {
		t.Errorf("still up: lastTransitionTime moved to %v", got.LastTransitionTime)
	}
	down := verdict(evidence{heard: after(nil, refused()), before: &before}, now)
	if !down.LastTransitionTime.Time.Equal(now) {
		t.Errorf("went down: lastTransitionTime is %v", down.LastTransitionTime)
	}
	again := verdict(evidence{problem: falseBecause("MissingEndpoints", ""), before: &down}, now.Add(time.Hour))
	if !again.LastTransitionTime.Time.Equal(now) {
		t.Errorf("down for another reason: lastTransitionTime moved to %v", again.LastTransitionTime)
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
		evidence evidence
		want     map[string]string
	}{
		"local":                        {withBundle, evidence{local: true}, nil},
		"system roots":                 {apiregistrationv1.APIServiceSpec{}, evidence{}, nil},
		"a bundle":                     {withBundle, evidence{}, map[string]string{"CABundleValid": "True"}},
		"a bundle that is garbage":     {withBundle, evidence{bundleError: errors.New("no")}, map[string]string{"CABundleValid": "False"}},
		"a certificate with time left": {apiregistrationv1.APIServiceSpec{}, evidence{heard: heard(now.Add(8 * 24 * time.Hour))}, nil},
		"a certificate that ends this week": {
			apiregistrationv1.APIServiceSpec{}, evidence{heard: heard(now.Add(6 * 24 * time.Hour))},
			map[string]string{"ServingCertExpiring": "True"},
		},
		"A24 whoever answers is believed": {
			apiregistrationv1.APIServiceSpec{InsecureSkipTLSVerify: true}, evidence{}, map[string]string{"TLSVerified": "False"},
		},
		"custom resources in the same group-version": {
			apiregistrationv1.APIServiceSpec{}, evidence{hidesLocal: true}, map[string]string{"HidesLocalResources": "True"},
		},
		"annotations that make no sense": {
			apiregistrationv1.APIServiceSpec{}, evidence{wrongAnnotations: []string{"x: no"}}, map[string]string{"AnnotationsValid": "False"},
		},
		"a document that cannot be used": {
			apiregistrationv1.APIServiceSpec{}, evidence{heard: heard(time.Time{}), documentTrouble: "no"}, map[string]string{"OpenAPIValid": "False"},
		},
		"a document that a backend which is down does not give": {apiregistrationv1.APIServiceSpec{}, evidence{documentTrouble: "no"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := extraConditions(&test.spec, test.evidence, now)
			if len(got) != len(test.want) {
				t.Fatalf("got %v, want %v", got, test.want)
			}
			for _, c := range got {
				if string(c.Status) != test.want[string(c.Type)] || c.LastTransitionTime != metav1.NewTime(now) {
					t.Errorf("got %v", c)
				}
			}
		})
	}
}
