package apiservice

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routetable"
	"portico.dev/internal/routing/v1alpha1"
)

// The first nine reasons are kube-aggregator's.
//
//reference:conditions Reasons of an APIService's condition Available
const (
	// reasonPassed is the reason while the backend answers probes.
	reasonPassed = "Passed"
	// reasonLocal is an APIService without a Service: this server has the group-version itself.
	reasonLocal = "Local"
	// reasonFailedDiscoveryCheck is a probe that failed; the message says what the backend, or the way to it, answered.
	reasonFailedDiscoveryCheck = "FailedDiscoveryCheck"
	// reasonServiceNotFound is a Service that does not exist.
	reasonServiceNotFound = "ServiceNotFound"
	// reasonServiceAccessError is a Service that could not be read. The status is Unknown.
	reasonServiceAccessError = "ServiceAccessError"
	// reasonServicePort is a Service that does not have the port of the APIService.
	reasonServicePort = "ServicePortError"
	// reasonEndpointsAccessError is EndpointSlices that could not be read. The status is Unknown.
	reasonEndpointsAccessError = "EndpointsAccessError"
	// reasonEndpointsNotFound is a Service without EndpointSlices.
	reasonEndpointsNotFound = "EndpointsNotFound"
	// reasonMissingEndpoints is EndpointSlices without a ready endpoint that has the port.
	reasonMissingEndpoints = "MissingEndpoints"

	// reasonInvalidCABundle is a spec.caBundle that does not parse. kube-aggregator leaves the status as it was and answers
	// requests with 500.
	reasonInvalidCABundle = "InvalidCABundle"
	// reasonForbiddenAddress is a Service with an address that is never dialed: a cloud's metadata address, a link-local
	// address, this server itself.
	reasonForbiddenAddress = "ForbiddenAddress"
	// reasonSomeBackends is an APIService with an APIRoute some of whose backends are available. The status is True, and the message
	// names the others.
	reasonSomeBackends = "SomeBackendsAvailable"
	// CleanupDebt is a backend that is back and may still hold objects of namespaces that were finalized without it. They
	// must not appear in a new namespace of the same name.
	CleanupDebt = "CleanupDebt"
)

// Clients ignore condition types that they do not know.
//
//reference:conditions Conditions of an APIService beside Available
const (
	// caBundleValid is False (NotParsable) when spec.caBundle is not a PEM bundle, and True (Parsed) when it is.
	caBundleValid apiregistrationv1.APIServiceConditionType = "CABundleValid"
	// servingCertExpires is True (NearExpiry) in the last week of the backend's serving certificate.
	servingCertExpires apiregistrationv1.APIServiceConditionType = "ServingCertExpiring"
	// orphaned is True (ServiceNotFound) when the Service has been missing for ten minutes.
	orphaned apiregistrationv1.APIServiceConditionType = "Orphaned"
	// annotationsValid is False (Ignored) while annotations with the prefix portico.dev/ have invalid values.
	annotationsValid apiregistrationv1.APIServiceConditionType = "AnnotationsValid"
	// openAPIValid is False (NotUsable) while the backend's OpenAPI document cannot be merged.
	openAPIValid apiregistrationv1.APIServiceConditionType = "OpenAPIValid"
	// tlsVerified is False (InsecureSkipTLSVerify) while spec.insecureSkipTLSVerify is set.
	tlsVerified apiregistrationv1.APIServiceConditionType = "TLSVerified"
	// hidesLocal is True (GroupVersionServedHere) while this server has the group-version too.
	hidesLocal apiregistrationv1.APIServiceConditionType = "HidesLocalResources"
	// AvailableOnAllReplicas is False when some replica cannot reach the backend (SomeReplicas; the message names it, and who answers its
	// clients), or none can (NoReplica).
	AvailableOnAllReplicas apiregistrationv1.APIServiceConditionType = "AvailableOnAllReplicas"
	// EndpointsInUse is False (EndpointEjected) while some endpoints of an available backend get no requests; the message names
	// them and says why.
	EndpointsInUse apiregistrationv1.APIServiceConditionType = "EndpointsInUse"
)

// transientConditions are removed from the status when they no longer hold.
var transientConditions = []apiregistrationv1.APIServiceConditionType{
	caBundleValid, servingCertExpires, orphaned, annotationsValid, openAPIValid, tlsVerified, hidesLocal,
	AvailableOnAllReplicas, EndpointsInUse,
}

// expiryWarning is how long before a serving certificate expires the condition appears.
const expiryWarning = 7 * 24 * time.Hour

// verdictInput is everything that a verdict depends on.
type verdictInput struct {
	// local is an APIService without a Service; the rest does not matter then.
	local bool
	// customResources is a backend of an APIRoute that is the custom resources of the group-version.
	customResources bool
	// derived is the verdict by the backends of an APIRoute, nil for an APIService without one.
	derived *apiregistrationv1.APIServiceCondition
	// problem is why the backend cannot be probed, nil when it can.
	problem *problem
	// bundleError is why spec.caBundle does not parse.
	bundleError error
	// probes is the history of the group-version's probes, and url is their URL.
	probes history
	url    string
	// absentSince is since when the Service has been missing, zero while it is there.
	absentSince time.Time
	// invalidAnnotations are those that are ignored, and documentProblem is what is wrong with the OpenAPI document.
	invalidAnnotations []string
	documentProblem    string
	// ejected says which endpoints are not used, empty when all are.
	ejected string
	// debt describes what has to be cleaned up at the backend before it may be used, empty when nothing.
	debt string
	// hidesLocal: this server could serve the group-version too, from a CustomResourceDefinition or built in.
	hidesLocal bool
	// previous is the previous verdict on the same Service, nil when there is none.
	previous *apiregistrationv1.APIServiceCondition
}

// verdict is this replica's Available condition. The same input gives the same condition, including its message, so that
// a condition is written only when something changed.
func verdict(e verdictInput, now time.Time) apiregistrationv1.APIServiceCondition {
	c := availableCondition(e)
	if e.debt != "" && !e.local && c.Status == apiregistrationv1.ConditionTrue {
		c = condition(apiregistrationv1.ConditionFalse, CleanupDebt, e.debt)
	}
	c.Type = apiregistrationv1.Available
	c.LastTransitionTime = metav1.NewTime(now)
	if e.previous != nil && e.previous.Status == c.Status {
		c.LastTransitionTime = e.previous.LastTransitionTime
	}
	return c
}

func availableCondition(e verdictInput) apiregistrationv1.APIServiceCondition {
	switch {
	case e.local:
		return condition(apiregistrationv1.ConditionTrue, reasonLocal, "Local APIServices are always available")
	case e.derived != nil:
		return *e.derived
	case e.problem != nil:
		return condition(e.problem.status, e.problem.reason, e.problem.message)
	case e.customResources:
		return condition(apiregistrationv1.ConditionTrue, v1alpha1.ReasonCustomResources, "a CustomResourceDefinition serves the version")
	case e.bundleError != nil:
		return condition(apiregistrationv1.ConditionFalse, reasonInvalidCABundle, CABundleMessage(e.bundleError))
	case !e.probes.probed() && e.previous != nil:
		// A new CA bundle or Service gives a new backend without probes. The last verdict stands until the first probe, or
		// every certificate rotation would be an outage.
		return condition(e.previous.Status, e.previous.Reason, e.previous.Message)
	case !e.probes.probed():
		return condition(apiregistrationv1.ConditionUnknown, routetable.ReasonNotChecked, "the backend has not answered yet")
	case e.probes.up:
		return condition(apiregistrationv1.ConditionTrue, reasonPassed, "all checks passed")
	case e.probes.last.failure.forbidden:
		return condition(apiregistrationv1.ConditionFalse, reasonForbiddenAddress, e.probes.last.failure.text(e.url))
	default:
		return condition(apiregistrationv1.ConditionFalse, reasonFailedDiscoveryCheck, e.probes.last.failure.text(e.url))
	}
}

// extraConditions are the conditions beside Available: one on the CA bundle where there is one, the others only while
// there is a problem.
func extraConditions(spec *apiregistrationv1.APIServiceSpec, e verdictInput, now time.Time) []apiregistrationv1.APIServiceCondition {
	var out []apiregistrationv1.APIServiceCondition
	add := func(t apiregistrationv1.APIServiceConditionType, c apiregistrationv1.APIServiceCondition) {
		c.Type, c.LastTransitionTime = t, metav1.NewTime(now)
		out = append(out, c)
	}
	if e.local || e.customResources {
		return nil
	}
	if len(spec.CABundle) > 0 {
		if e.bundleError != nil {
			add(caBundleValid, condition(apiregistrationv1.ConditionFalse, "NotParsable", CABundleMessage(e.bundleError)))
		} else {
			add(caBundleValid, condition(apiregistrationv1.ConditionTrue, "Parsed", "spec.caBundle holds certificates"))
		}
	}
	if end := e.probes.last.certificateExpires; !end.IsZero() && end.Sub(now) < expiryWarning {
		add(servingCertExpires, condition(apiregistrationv1.ConditionTrue, "NearExpiry",
			fmt.Sprintf("the serving certificate of the backend ends at %s: renew it", end.UTC().Format(time.RFC3339))))
	}
	if !e.absentSince.IsZero() && now.Sub(e.absentSince) >= orphanAfter {
		add(orphaned, condition(apiregistrationv1.ConditionTrue, reasonServiceNotFound, fmt.Sprintf(
			"service/%s in %q has been missing for more than %d minutes: if the extension server was removed, delete the APIService too",
			spec.Service.Name, spec.Service.Namespace, int(orphanAfter.Minutes()))))
	}
	if len(e.invalidAnnotations) > 0 {
		add(annotationsValid, condition(apiregistrationv1.ConditionFalse, "Ignored",
			"annotations without effect: "+strings.Join(e.invalidAnnotations, "; ")))
	}
	if spec.InsecureSkipTLSVerify {
		add(tlsVerified, condition(apiregistrationv1.ConditionFalse, "InsecureSkipTLSVerify",
			"spec.insecureSkipTLSVerify accepts whoever answers at the Service's address: set spec.caBundle instead"))
	}
	if e.hidesLocal {
		add(hidesLocal, condition(apiregistrationv1.ConditionTrue, "GroupVersionServedHere", fmt.Sprintf(
			"this server has resources of %s too, and they cannot be reached while this APIService exists: delete it, or serve one of them in another group",
			schema.GroupVersion{Group: spec.Group, Version: spec.Version})))
	}
	if e.ejected != "" && availableCondition(e).Status == apiregistrationv1.ConditionTrue {
		add(EndpointsInUse, condition(apiregistrationv1.ConditionFalse, "EndpointEjected", e.ejected))
	}
	// The document of a backend that is not available is not worth a condition of its own.
	if e.documentProblem != "" && availableCondition(e).Status == apiregistrationv1.ConditionTrue {
		add(openAPIValid, condition(apiregistrationv1.ConditionFalse, "NotUsable", e.documentProblem))
	}
	return out
}

// CABundleMessage is the message about a spec.caBundle that does not parse.
func CABundleMessage(err error) string {
	return fmt.Sprintf("spec.caBundle does not parse: %v; set it to the PEM certificates that sign the backend's serving certificate", err)
}

func condition(s apiregistrationv1.ConditionStatus, reason, message string) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{Status: s, Reason: reason, Message: message}
}

// outcome is the result of one probe.
type outcome struct {
	at       time.Time
	duration time.Duration
	// failure is nil when the probe succeeded.
	failure *failure
	// certificateExpires is when the serving certificate expires, zero when none was seen.
	certificateExpires time.Time
	// digest is a hash of the response body; 0 when it is not known.
	digest uint64
}

// failure is why a probe failed.
type failure struct {
	// status is the HTTP status of a response that was not 2xx; 0 when there was no response.
	status int
	// message is why there was none. The same fault gives the same text, see errorMessage.
	message string
	// slow failures may be momentary load: a response that did not come in time, a 503. The others will not be different a
	// second later: connection refused, a wrong certificate, a missing path.
	slow bool
	// silent is a backend that answers nobody, see hangDetector.
	silent bool
	// forbidden is a backend whose address must not be dialed.
	forbidden bool
	// unreachable failures happened before the request was sent and so hold for every group-version of the backend.
	unreachable bool
	// tunnel failures are those of the tunnel to the backend.
	tunnel bool
}

// history is the probes of one group-version at a backend. The zero history is that of one that was never probed.
type history struct {
	last outcome
	// up is whether the group-version is available; meaningless while last is zero.
	up bool
	// failures counts the probes in a row that failed.
	failures int
}

// histories are those of the group-versions of one backend, in no particular order: usually one or two, for which a map
// would be ten times as large.
type histories []struct {
	of schema.GroupVersion
	history
}

// lookup returns the history of a group-version, nil when there is none.
func (hs histories) lookup(gv schema.GroupVersion) *history {
	for i := range hs {
		if hs[i].of == gv {
			return &hs[i].history
		}
	}
	return nil
}

func (h history) probed() bool { return !h.last.at.IsZero() }

// good reports that the last probe succeeded.
func (h history) good() bool { return h.probed() && h.last.failure == nil }

// withdrawSilence returns the history after a request was answered: a verdict that the backend hangs becomes one slow
// probe.
func (h history) withdrawSilence() history {
	if h.up || h.last.failure == nil || !h.last.failure.silent || h.failures > 1 {
		return h
	}
	was := *h.last.failure
	was.silent, was.slow = false, true
	h.last.failure, h.up = &was, true
	return h
}

// slowFailureThreshold is how many slow failures in a row make a group-version unavailable.
const slowFailureThreshold = 2

// record adds an outcome. A group-version becomes unavailable at the first failure that is not slow and at the second slow
// one. It becomes available at the first success, because a mistake costs one request that fails with an honest error.
func (h history) record(o outcome) history {
	o.digest = cmp.Or(o.digest, h.last.digest)
	if o.failure == nil {
		return history{last: o, up: true}
	}
	if o.certificateExpires.IsZero() {
		o.certificateExpires = h.last.certificateExpires
	}
	failures := h.failures + 1
	return history{
		last:     o,
		up:       h.up && o.failure.slow && failures < slowFailureThreshold,
		failures: failures,
	}
}
