package kinds_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestPriorityLevels(t *testing.T) {
	of := func(spec string) *flowcontrolv1.PriorityLevelConfiguration {
		return kindtest.Decode[flowcontrolv1.PriorityLevelConfiguration](t, "metadata: {name: a}\nspec: {"+spec+"}")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"another exempt level", of("type: Exempt, exempt: {}"),
			[]string{`spec.type: Invalid value: "Exempt": type must be 'Exempt' if and only if name is 'exempt'`}},
		{"a limited level without limits", of("type: Limited, exempt: {}"), []string{
			"spec.limited: Required value",
			"spec.exempt: Forbidden"}},
		{"an unknown type", of("type: Free"), []string{`spec.type: Unsupported value: "Free": supported values: "Exempt", "Limited"`}},
		{"queues for what is rejected", of("type: Limited, limited: {limitResponse: {type: Reject, queuing: {}}}"),
			[]string{"spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited"}},
		{"no queues for what waits", of("type: Limited, limited: {limitResponse: {type: Queue}}"),
			[]string{"spec.limited.limitResponse.queuing: Required value"}},
		{"a hand larger than the deck", of("type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 4, handSize: 5}}}"),
			[]string{"spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)"}},
		{"a hand that no hash can deal", of("type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 512, handSize: 8}}}"), []string{
			"spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60"}},
		{"more lent than there is, a debt of shares", of("type: Limited, limited: {nominalConcurrencyShares: -1, lendablePercent: 101, borrowingLimitPercent: -1, limitResponse: {type: Reject}}"), []string{
			"spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
			"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
			"spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer"}},
		{"more queues than memory", of("type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 10000001, queueLengthLimit: -1}}}"), []string{
			"spec.limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater than 10000000",
			"spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive"}},
	})
	stored := of("type: Limited, limited: {limitResponse: {type: Reject}}")
	stored.ResourceVersion = "1"
	next := stored.DeepCopy()
	next.Status.Conditions = []flowcontrolv1.PriorityLevelConfigurationCondition{{Type: "A"}, {Type: "A"}, {}}
	kindtest.Refused(t, kindtest.StatusErrors(next, stored), `status.conditions[1].type: Duplicate value: "A"`,
		"status.conditions[2].type: Required value: must not be empty")
}
