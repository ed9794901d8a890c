package apiservice

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Reasons of the Available condition. The first four are the incumbent's, as are those in resolve.go.
const (
	reasonPassed               = "Passed"
	reasonLocal                = "Local"
	reasonFailedDiscoveryCheck = "FailedDiscoveryCheck"
	reasonServiceNotFound      = "ServiceNotFound"

	// reasonNotChecked is a backend that was not heard of yet. It is never written to a status.
	reasonNotChecked = "NotChecked"
	// reasonInvalidCABundle replaces the incumbent's silence: it leaves the status as it was and answers requests with 500.
	reasonInvalidCABundle = "InvalidCABundle"
	// reasonForbiddenAddress is a Service that leads where a backend must not be: the metadata address of a cloud, a
	// link-local address, this very server.
	reasonForbiddenAddress = "ForbiddenAddress"
	// CleanupDebt is a backend that is there, and holds objects of namespaces that were finalized without it. Nobody may
	// see those, least of all in a new namespace of the same name.
	CleanupDebt = "CleanupDebt"
)

// Conditions that stand beside Available. Clients ignore types that they do not know.
const (
	caBundleValid      apiregistrationv1.APIServiceConditionType = "CABundleValid"
	servingCertExpires apiregistrationv1.APIServiceConditionType = "ServingCertExpiring"
	orphaned           apiregistrationv1.APIServiceConditionType = "Orphaned"
	annotationsValid   apiregistrationv1.APIServiceConditionType = "AnnotationsValid"
	openAPIValid       apiregistrationv1.APIServiceConditionType = "OpenAPIValid"
	tlsVerified        apiregistrationv1.APIServiceConditionType = "TLSVerified"
	hidesLocal         apiregistrationv1.APIServiceConditionType = "HidesLocalResources"
)

// transientConditions are the conditions of ours that go when what they say no longer holds.
var transientConditions = []apiregistrationv1.APIServiceConditionType{
	caBundleValid, servingCertExpires, orphaned, annotationsValid, openAPIValid, tlsVerified, hidesLocal,
	availableOnAllReplicas,
}

// expiryWarning is how long before a serving certificate ends that the APIService says so.
const expiryWarning = 7 * 24 * time.Hour

// verdictInput is all that a verdict rests on.
type verdictInput struct {
	// local is an APIService without a Service; the rest does not matter then.
	local bool
	// problem is why there is nothing to ask, nil when there is.
	problem *problem
	// bundleError is why spec.caBundle does not parse.
	bundleError error
	// probes is what the probes of the group-version heard, and url is what they asked.
	probes history
	url    string
	// absentSince is since when the Service has been missing, zero while it is there.
	absentSince time.Time
	// invalidAnnotations are those that make no sense, and documentTrouble is what is wrong with the OpenAPI document.
	invalidAnnotations []string
	documentProblem    string
	// debt is what has to be cleaned up at the backend before anybody may use it, empty when nothing.
	debt string
	// hidesLocal is that this server has the group-version too, from a CustomResourceDefinition or built in.
	hidesLocal bool
	// previous is the previous verdict on the same Service, nil when there is none.
	previous *apiregistrationv1.APIServiceCondition
}

// verdict is this replica's Available condition. The same evidence gives the same condition, down to the message, so
// that a condition is written only when something changed.
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
	case e.problem != nil:
		return condition(e.problem.status, e.problem.reason, e.problem.message)
	case e.bundleError != nil:
		return condition(apiregistrationv1.ConditionFalse, reasonInvalidCABundle, CABundleMessage(e.bundleError))
	case !e.probes.probed() && e.previous != nil:
		// A new CA or a moved Service gives a new backend of which nothing is known for a moment. The last verdict
		// stands until the first answer, or every certificate rotation would be an outage.
		return condition(e.previous.Status, e.previous.Reason, e.previous.Message)
	case !e.probes.probed():
		return condition(apiregistrationv1.ConditionUnknown, reasonNotChecked, "the backend has not answered yet")
	case e.probes.up:
		return condition(apiregistrationv1.ConditionTrue, reasonPassed, "all checks passed")
	case e.probes.last.failure.forbidden:
		return condition(apiregistrationv1.ConditionFalse, reasonForbiddenAddress, e.probes.last.failure.text(e.url))
	default:
		return condition(apiregistrationv1.ConditionFalse, reasonFailedDiscoveryCheck, e.probes.last.failure.text(e.url))
	}
}

// extraConditions are the conditions beside Available: one on the CA bundle where there is one, the others only while
// there is something to complain of.
func extraConditions(spec *apiregistrationv1.APIServiceSpec, e verdictInput, now time.Time) []apiregistrationv1.APIServiceCondition {
	var out []apiregistrationv1.APIServiceCondition
	add := func(t apiregistrationv1.APIServiceConditionType, c apiregistrationv1.APIServiceCondition) {
		c.Type, c.LastTransitionTime = t, metav1.NewTime(now)
		out = append(out, c)
	}
	if e.local {
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
	// Of a backend that does not answer at all, Available says what there is to say.
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

// outcome is what one probe heard.
type outcome struct {
	at       time.Time
	duration time.Duration
	// failure is nil when the probe passed.
	failure *failure
	// certificateExpires is the end of the serving certificate's life, zero when none was seen.
	certificateExpires time.Time
	// digest is a hash of what the backend answered, of which nothing else is kept; 0 when it is not known.
	digest uint64
}

// failure is why a probe did not pass.
type failure struct {
	// status is the HTTP status of an answer that was not 2xx; 0 when there was no answer.
	status int
	// message is why there was none. The same fault gives the same words, see describe.
	message string
	// slow failures may be a moment's load: an answer that did not come in time, a 503. The others say something that
	// will not be different a second later: nobody listens, the certificate is wrong, the path is not there.
	slow bool
	// silent is a backend that said nothing to anybody, which is certain until it says something: see suspicion.
	silent bool
	// forbidden is a backend that must not be dialled at all.
	forbidden bool
	// unreachable failures happened before the request was answered and so hold for every group-version of the backend.
	unreachable bool
}

// history is what is known of one group-version at a backend. The zero history is one that was never asked for.
type history struct {
	last outcome
	// up is the conclusion; it means nothing while last is zero.
	up bool
	// failures is how many probes in a row did not pass.
	failures int
}

// histories are those of the group-versions of one backend, in no particular order. There are one or two of them as a rule, for
// which a map is ten times as large.
type histories []struct {
	of schema.GroupVersion
	history
}

// lookup returns where the history of a group-version is, nil when there is none.
func (hs histories) lookup(gv schema.GroupVersion) *history {
	for i := range hs {
		if hs[i].of == gv {
			return &hs[i].history
		}
	}
	return nil
}

func (h history) probed() bool { return !h.last.at.IsZero() }

// good reports that there is nothing to find out in a hurry.
func (h history) good() bool { return h.probed() && h.last.failure == nil }

// withdrawSilence is what is left of a verdict that rested on silence when somebody got an answer: a probe that was too slow.
func (h history) withdrawSilence() history {
	if h.up || h.last.failure == nil || !h.last.failure.silent || h.failures > 1 {
		return h
	}
	was := *h.last.failure
	was.silent, was.slow = false, true
	h.last.failure, h.up = &was, true
	return h
}

// slowFailuresToFall is how many slow answers in a row take a group-version down that was up.
const slowFailuresToFall = 2

// record adds an outcome. What was up falls at once for a failure that is certain and after two for one that is slow;
// what was down rises at the first success, because the cost of a mistake is one request that fails with the truth.
func (h history) record(o outcome) history {
	if o.digest == 0 {
		o.digest = h.last.digest
	}
	if o.failure == nil {
		return history{last: o, up: true}
	}
	if o.certificateExpires.IsZero() {
		o.certificateExpires = h.last.certificateExpires
	}
	failures := h.failures + 1
	return history{
		last:     o,
		up:       h.up && o.failure.slow && failures < slowFailuresToFall,
		failures: failures,
	}
}
