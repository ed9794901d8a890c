package apiservice

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// orphanAfter is how long a Service may be missing before its APIService is called an orphan: longer than any
// reinstallation, so that what it says is worth a person's time.
const orphanAfter = 10 * time.Minute

// noteAbsence keeps in mind since when the Service has been missing. before is the object as it was, nil when the entry is
// new: then the status may hold what was found before this process started.
func (e *entry) noteAbsence(before *apiregistrationv1.APIService, now time.Time) {
	p := e.evidence.problem
	if p == nil || p.reason != serviceNotFound {
		e.absentSince = time.Time{}
		return
	}
	if before != nil && !equality.Semantic.DeepEqual(before.Spec.Service, e.object.Spec.Service) {
		e.absentSince = time.Time{} // another Service
	}
	if e.absentSince.IsZero() {
		e.absentSince = now
		if c, ok := find(e.object.Status.Conditions, orphaned); before == nil && ok && c.Status == apiregistrationv1.ConditionTrue {
			e.absentSince = now.Add(-orphanAfter)
		}
	}
	e.evidence.absentSince = e.absentSince
}

// nextChange is how long it takes until time alone changes the conditions, 0 when it never does.
func (e evidence) nextChange(now time.Time) time.Duration {
	var next time.Duration
	for _, at := range []time.Time{
		ifSet(e.absentSince, orphanAfter),
		ifSet(e.heard.last.certificateExpires, -certificateWarning),
	} {
		if left := at.Sub(now); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

func ifSet(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}
