package apiservice

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
)

// The first nine reasons are kube-aggregator's.
//
//reference:conditions Reasons of an APIService's condition Available
const (
	// reasonPassed is set while the backend answers probes.
	reasonPassed = "Passed"
	// reasonLocal is set for an APIService without a Service: this server serves the group-version.
	reasonLocal = "Local"
	// reasonFailedDiscoveryCheck is set if a probe failed. The message contains the response or the error.
	reasonFailedDiscoveryCheck = "FailedDiscoveryCheck"
	// reasonServiceNotFound is set if the Service does not exist.
	reasonServiceNotFound = "ServiceNotFound"
	// reasonServiceAccessError is set if the Service could not be read. The status is Unknown.
	reasonServiceAccessError = "ServiceAccessError"
	// reasonServicePort is set if the Service does not have the port of the APIService.
	reasonServicePort = "ServicePortError"
	// reasonEndpointsAccessError is set if the EndpointSlices could not be read. The status is Unknown.
	reasonEndpointsAccessError = "EndpointsAccessError"
	// reasonEndpointsNotFound is set if the Service has no EndpointSlices.
	reasonEndpointsNotFound = "EndpointsNotFound"
	// reasonMissingEndpoints is set if the EndpointSlices have no ready endpoint with the port.
	reasonMissingEndpoints = "MissingEndpoints"

	// reasonInvalidCABundle is set if spec.caBundle does not parse. kube-aggregator leaves the status unchanged and answers
	// requests with 500.
	reasonInvalidCABundle = "InvalidCABundle"
	// reasonForbiddenAddress is set if the Service has an address that is never dialed: a cloud's metadata address, a
	// link-local address, or this server.
	reasonForbiddenAddress = "ForbiddenAddress"
	// reasonSomeBackends is set for an APIService with an APIRoute if only some of the backends are available. The status
	// is True, and the message names the unavailable ones.
	reasonSomeBackends = "SomeBackendsAvailable"
	// CleanupDebt is set if a backend has returned and may still hold objects of namespaces that were finalized without it.
	// They must not appear in a new namespace of the same name.
	CleanupDebt = "CleanupDebt"
)

// Clients ignore condition types that they do not recognize.
//
//reference:conditions Conditions of an APIService beside Available
const (
	// caBundleValid is False (NotParsable) if spec.caBundle is not a PEM bundle, and True (Parsed) if it is.
	caBundleValid apiregistrationv1.APIServiceConditionType = "CABundleValid"
	// servingCertExpires is True (NearExpiry) from a week before the backend's serving certificate expires.
	servingCertExpires apiregistrationv1.APIServiceConditionType = "ServingCertExpiring"
	// orphaned is True (ServiceNotFound) when the Service has been missing for ten minutes.
	orphaned apiregistrationv1.APIServiceConditionType = "Orphaned"
	// annotationsValid is False (Ignored) while annotations with the prefix portico.dev/ have invalid values.
	annotationsValid apiregistrationv1.APIServiceConditionType = "AnnotationsValid"
	// openAPIValid is False (NotUsable) while the backend's OpenAPI document cannot be merged.
	openAPIValid apiregistrationv1.APIServiceConditionType = "OpenAPIValid"
	// tlsVerified is False (InsecureSkipTLSVerify) while spec.insecureSkipTLSVerify is set.
	tlsVerified apiregistrationv1.APIServiceConditionType = "TLSVerified"
	// hidesLocal is True (GroupVersionServedHere) while this server could also serve the group-version.
	hidesLocal apiregistrationv1.APIServiceConditionType = "HidesLocalResources"
	// AvailableOnAllReplicas is False if some replicas cannot reach the backend (SomeReplicas; the message names them, and
	// the replicas that answer their clients), or if none can (NoReplica).
	AvailableOnAllReplicas apiregistrationv1.APIServiceConditionType = "AvailableOnAllReplicas"
	// EndpointsInUse is False (EndpointEjected) while some endpoints of an available backend get no requests. The message
	// names them and the reasons.
	EndpointsInUse apiregistrationv1.APIServiceConditionType = "EndpointsInUse"
)

// transientConditions are removed from the status when they no longer hold.
var transientConditions = []apiregistrationv1.APIServiceConditionType{
	caBundleValid, servingCertExpires, orphaned, annotationsValid, openAPIValid, tlsVerified, hidesLocal,
	AvailableOnAllReplicas, EndpointsInUse,
}

// expiryWarning is how long before the expiry of a serving certificate the condition appears.
const expiryWarning = 7 * 24 * time.Hour

// verdictInput contains everything that a verdict depends on.
type verdictInput struct {
	// local marks an APIService without a Service. The remaining fields are ignored in that case.
	local bool
	// customResources marks a backend of an APIRoute that consists of the custom resources of the group-version.
	customResources bool
	// derived is the verdict derived from the backends of an APIRoute, nil without an APIRoute.
	derived *apiregistrationv1.APIServiceCondition
	// problem is why the backend cannot be probed, nil if it can.
	problem *problem
	// bundleError is why spec.caBundle does not parse.
	bundleError error
	// probes is the history of the group-version's probes, and url is their URL.
	probes history
	url    string
	// absentSince is the time since which the Service has been missing, zero if it exists.
	absentSince time.Time
	// invalidAnnotations are the ignored annotations, and documentProblem is the error of the OpenAPI document.
	invalidAnnotations []string
	documentProblem    string
	// ejected names the endpoints that are not used, empty if all are used.
	ejected string
	// debt describes the cleanup that the backend needs before it may be used, or is empty.
	debt string
	// hidesLocal is set if this server could also serve the group-version, from a CustomResourceDefinition or built in.
	hidesLocal bool
	// previous is the previous verdict on the same Service, or nil.
	previous *apiregistrationv1.APIServiceCondition
}

// verdict returns this replica's Available condition. Equal inputs give equal conditions, including the message, so that a
// condition is written only if something changed.
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
		// A new CA bundle or Service results in a new backend without probes. The last verdict stands until the first
		// probe. Otherwise every certificate rotation would be an outage.
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

// extraConditions returns the conditions other than Available: one on the CA bundle if there is one, the remaining ones
// only in case of a problem.
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
	// The document of an unavailable backend does not get a condition.
	if e.documentProblem != "" && availableCondition(e).Status == apiregistrationv1.ConditionTrue {
		add(openAPIValid, condition(apiregistrationv1.ConditionFalse, "NotUsable", e.documentProblem))
	}
	return out
}

// CABundleMessage returns the message about a spec.caBundle that does not parse.
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
	// failure is nil if the probe succeeded.
	failure *failure
	// certificateExpires is when the serving certificate expires, zero if none was received.
	certificateExpires time.Time
	// digest is a hash of the response body, 0 if not known.
	digest uint64
}

// failure is why a probe failed.
type failure struct {
	// status is the HTTP status of a response that was not 2xx, 0 without a response.
	status int
	// message is why no response arrived. Equal faults have equal texts, see errorMessage.
	message string
	// slow failures may result from momentary load: a response that did not arrive in time, a 503. Other failures persist:
	// connection refused, a wrong certificate, a missing path.
	slow bool
	// silent marks a backend that does not answer any request, see hangDetector.
	silent bool
	// forbidden marks a backend with an address that must not be dialed.
	forbidden bool
	// unreachable failures happened before the request was sent and therefore apply to every group-version of the backend.
	unreachable bool
	// tunnel failures are failures of the tunnel to the backend.
	tunnel bool
}

// history contains the probes of one group-version at a backend. The zero history means that it was never probed.
type history struct {
	last outcome
	// up reports whether the group-version is available. It is meaningless while last is zero.
	up bool
	// failures is the number of consecutive failed probes.
	failures int
}

// histories contains the histories of the group-versions of one backend, in no particular order. There are usually one or
// two, for which a map would be ten times as large.
type histories []struct {
	of schema.GroupVersion
	history
}

// lookup returns the history of a group-version, or nil.
func (hs histories) lookup(gv schema.GroupVersion) *history {
	for i := range hs {
		if hs[i].of == gv {
			return &hs[i].history
		}
	}
	return nil
}

func (h history) probed() bool { return !h.last.at.IsZero() }

// good reports whether the last probe succeeded.
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

// slowFailureThreshold is the number of consecutive slow failures that make a group-version unavailable.
const slowFailureThreshold = 2

// record adds an outcome. A group-version becomes unavailable at the first failure that is not slow and at the second slow
// one. It becomes available at the first success, because a false positive costs one request, which fails with an accurate
// error.
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
