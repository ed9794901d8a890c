package apiservice

import (
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// orphanedAt reports whether an entry is called an orphan.
func orphanedAt(e *entry, now time.Time) bool {
	_, ok := find(extraConditions(&e.object.Spec, e.evidence, now), orphaned)
	return ok
}

func TestAnOrphanIsOneForLongAndNotAfterItsServiceReturned(t *testing.T) {
	object := func(service string) *apiregistrationv1.APIService {
		return &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "test", Name: service}}}
	}
	missing, there := evidence{problem: falseBecause(serviceNotFound, "")}, evidence{problem: falseBecause("MissingEndpoints", "")}
	start := time.Unix(1000, 0)
	e := &entry{object: object("server"), evidence: missing}
	e.noteAbsence(nil, start)
	if orphanedAt(e, start.Add(orphanAfter-1)) {
		t.Error("an orphan before the time")
	}
	if got := e.evidence.nextChange(start.Add(time.Minute)); got != orphanAfter-time.Minute {
		t.Errorf("looked at again after %v", got)
	}
	e.evidence = missing
	e.noteAbsence(e.object, start.Add(5*time.Minute))
	if !orphanedAt(e, start.Add(orphanAfter)) {
		t.Error("not an orphan after the time")
	}
	if got := e.evidence.nextChange(start.Add(orphanAfter)); got != 0 {
		t.Errorf("looked at again after %v although nothing is to come", got)
	}

	e.evidence = there
	e.noteAbsence(e.object, start.Add(orphanAfter))
	if orphanedAt(e, start.Add(time.Hour)) {
		t.Error("the Service is back")
	}
	e.evidence = missing
	e.noteAbsence(e.object, start.Add(time.Hour))
	if orphanedAt(e, start.Add(time.Hour+orphanAfter-1)) {
		t.Error("the time of the first absence counted for the second")
	}

	before := e.object
	e.object, e.evidence = object("other"), missing
	e.noteAbsence(before, start.Add(2*time.Hour))
	if orphanedAt(e, start.Add(2*time.Hour)) {
		t.Error("another Service inherited the time of the one before")
	}
}

func TestARestartDoesNotAdoptAnOrphan(t *testing.T) {
	e := &entry{evidence: evidence{problem: falseBecause(serviceNotFound, "")}, object: &apiregistrationv1.APIService{
		Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "test", Name: "server"}},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{
			{Type: orphaned, Status: apiregistrationv1.ConditionTrue},
		}},
	}}
	now := time.Unix(1000, 0)
	e.noteAbsence(nil, now)
	if !orphanedAt(e, now) {
		t.Error("the condition of before is lost")
	}
}

func TestACertificateIsLookedAtWhenItsLastWeekBegins(t *testing.T) {
	now := time.Unix(1000, 0)
	e := evidence{heard: history{}.record(outcome{at: now, certificateExpires: now.Add(certificateWarning + time.Hour)})}
	if got := e.nextChange(now); got != time.Hour {
		t.Errorf("in %v", got)
	}
}
