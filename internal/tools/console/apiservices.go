package console

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/transport"
)

// maxVerdicts bounds the number of replicas shown for an APIService.
const maxVerdicts = 32

// wellWhen maps condition types of an APIService to their healthy status (docs/reference/conditions.md).
var wellWhen = map[string]metav1.ConditionStatus{
	string(apiregistrationv1.Available): metav1.ConditionTrue,
	string(adoption.BackendAvailable):   metav1.ConditionTrue,
	string(adoption.FrontProxyTrusted):  metav1.ConditionTrue,
	"CABundleValid":                     metav1.ConditionTrue,
	"AnnotationsValid":                  metav1.ConditionTrue,
	"OpenAPIValid":                      metav1.ConditionTrue,
	"TLSVerified":                       metav1.ConditionTrue,
	"AvailableOnAllReplicas":            metav1.ConditionTrue,
	"EndpointsInUse":                    metav1.ConditionTrue,
	"ServingCertExpiring":               metav1.ConditionFalse,
	"Orphaned":                          metav1.ConditionFalse,
	"HidesLocalResources":               metav1.ConditionFalse,
}

// Severities of conditions that need attention, as the page shows them.
const (
	severityError   = "error"
	severityWarning = "warning"
)

// severityOf returns the severity of a condition, or an empty string if it needs no attention or its type is unknown.
// Only an APIService that cannot be used is an error. Other conditions, such as TLSVerified=False, are warnings.
func severityOf(kind, status string) string {
	well, known := wellWhen[kind]
	switch {
	case !known || status == string(well) || status == string(metav1.ConditionUnknown):
		return ""
	case kind == string(apiregistrationv1.Available) || kind == string(adoption.BackendAvailable):
		return severityError
	}
	return severityWarning
}

func stateOf(status string) string {
	switch status {
	case string(metav1.ConditionTrue):
		return stateUp
	case string(metav1.ConditionFalse):
		return stateDown
	}
	return stateUnknown
}

func conditionsOf(o *apiregistrationv1.APIService) []condition {
	out := make([]condition, 0, len(o.Status.Conditions))
	for _, c := range o.Status.Conditions {
		severity := severityOf(string(c.Type), string(c.Status))
		out = append(out, condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time,
			Severity: severity, Bad: severity != "",
		})
	}
	return out
}

func find(all []condition, kind string) condition {
	if i := slices.IndexFunc(all, func(c condition) bool { return c.Type == kind }); i >= 0 {
		return all[i]
	}
	return condition{Type: kind, Status: string(metav1.ConditionUnknown)}
}

// newRow returns the row of an APIService from the API server's view. front is the display name of the API server.
func newRow(o *apiregistrationv1.APIService, front string) *row {
	r := &row{Name: o.Name}
	all := conditionsOf(o)
	available := find(all, string(apiregistrationv1.Available))
	r.Since, r.Reason, r.Message, r.State = available.Since, available.Reason, causeFirst(available.Message), stateOf(available.Status)
	if o.Spec.Service == nil {
		if r.State == stateUp {
			r.State = stateLocal
		}
		return r
	}
	r.Service = adoption.ServiceOf(o.Spec.Service).String()
	r.pool = pool{r.Service, transport.Trust(o.Spec.CABundle, o.Spec.InsecureSkipTLSVerify)}
	r.Hops = []hop{{From: front, To: r.Service, State: r.State}}
	if original, err := adoption.OriginalOf(o); err == nil && original.Service != adoption.ServiceOf(o.Spec.Service) {
		behind := find(all, string(adoption.BackendAvailable))
		r.Gateway, r.Service = r.Service, original.Service.String()
		r.gatewayPool, r.pool = r.pool, pool{r.Service, transport.Trust(original.CABundle, original.InsecureSkipTLSVerify)}
		r.Hops = append(r.Hops, hop{From: "gateway", To: r.Service, State: stateOf(behind.Status)})
		if r.State == stateUp {
			r.Since, r.Reason, r.Message, r.State = behind.Since, behind.Reason, causeFirst(behind.Message), stateOf(behind.Status)
		}
	}
	for _, c := range all {
		if c.Bad && c.Type != string(apiregistrationv1.Available) && c.Type != string(adoption.BackendAvailable) {
			c.Message = causeFirst(c.Message)
			r.Notes = append(r.Notes, c)
		}
	}
	return r
}

// isDegraded reports whether an available APIService needs attention: it has notes, or some replicas do not reach its
// server.
func (r *row) isDegraded() bool {
	return r.State == stateUp && (len(r.Notes) > 0 || slices.ContainsFunc(r.Verdicts, func(v verdict) bool { return v.State == stateDown }))
}

// compareRows sorts unavailable APIServices first, then unknown, degraded, available and local ones, each by name.
func compareRows(a, b *row) int {
	return cmp.Or(cmp.Compare(a.rank(), b.rank()), strings.Compare(a.Name, b.Name))
}

func (r *row) rank() int {
	switch {
	case r.State == stateDown:
		return 0
	case r.State == stateUnknown:
		return 1
	case r.Degraded:
		return 2
	case r.State == stateUp:
		return 3
	}
	return 4
}

// sortVerdicts sorts replicas that do not reach the server first, and limits the number of verdicts.
func sortVerdicts(all []verdict) []verdict {
	rank := map[string]int{stateDown: 0, stateUnknown: 1}
	slices.SortFunc(all, func(a, b verdict) int {
		return cmp.Or(cmp.Compare(order(rank, a.State), order(rank, b.State)), strings.Compare(a.Of, b.Of), strings.Compare(a.Replica, b.Replica))
	})
	return all[:min(len(all), maxVerdicts)]
}

func order(rank map[string]int, state string) int {
	if n, ok := rank[state]; ok {
		return n
	}
	return len(rank)
}
