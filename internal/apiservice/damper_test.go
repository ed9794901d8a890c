package apiservice

import (
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestDamper(t *testing.T) {
	type step struct {
		at             time.Duration
		stored, wanted string // "" for absent
		settled        string
		wait           time.Duration
	}
	for name, steps := range map[string][]step{
		"good news at once":                    {{0, "False", "True", "True", 0}},
		"the first news at once":               {{0, "", "False", "False", 0}},
		"other bad news at once":               {{0, "False", "Unknown", "Unknown", 0}},
		"bad news when they are old":           {{0, "True", "False", "True", dampTime}, {time.Second, "True", "False", "True", dampTime - time.Second}, {dampTime, "True", "False", "False", 0}},
		"bad news that turn into other ones":   {{0, "True", "False", "True", dampTime}, {dampTime, "True", "Unknown", "Unknown", 0}},
		"a moment's bad news never":            {{0, "True", "False", "True", dampTime}, {time.Second, "True", "True", "True", 0}, {dampTime, "True", "False", "True", dampTime}},
		"what was written is counted anew":     {{0, "True", "False", "True", dampTime}, {dampTime, "True", "False", "False", 0}, {3 * time.Second, "False", "False", "False", 0}, {4 * time.Second, "True", "False", "True", dampTime}},
		"a write that failed is tried at once": {{0, "True", "False", "True", dampTime}, {dampTime, "True", "False", "False", 0}, {dampTime + time.Second, "True", "False", "False", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var d damper
			for i, s := range steps {
				var stored []apiregistrationv1.APIServiceCondition
				if s.stored != "" {
					stored = append(stored, available(condition(apiregistrationv1.ConditionStatus(s.stored), "R", "stored")))
				}
				wanted := available(condition(apiregistrationv1.ConditionStatus(s.wanted), "R", "wanted"))
				got, wait := d.settle("x", stored, []apiregistrationv1.APIServiceCondition{wanted}, time.Unix(1000, 0).Add(s.at))
				if len(got) != 1 || string(got[0].Status) != s.settled || wait != s.wait {
					t.Fatalf("step %d: got %v, %v; want %v, %v", i, got, wait, s.settled, s.wait)
				}
			}
			d.forget("x")
			if len(d.since) != 0 {
				t.Errorf("left: %v", d.since)
			}
		})
	}
}
