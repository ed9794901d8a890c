package kinds_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestFlowcontrolDefaults(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"a flow", &flowcontrolv1.FlowSchema{}, "spec: {}",
			"metadata: {}\nspec: {matchingPrecedence: 1000, priorityLevelConfiguration: {name: ''}}\nstatus: {}"},
		{"a priority level that queues", &flowcontrolv1.PriorityLevelConfiguration{}, "spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 2}}}}",
			"metadata: {}\nspec: {type: Limited, limited: {nominalConcurrencyShares: 30, lendablePercent: 0, limitResponse: {type: Queue, queuing: {queues: 2, handSize: 8, queueLengthLimit: 50}}}}\nstatus: {}"},
		{"a priority level with no shares on purpose", &flowcontrolv1.PriorityLevelConfiguration{}, "spec: {limited: {nominalConcurrencyShares: 0}, exempt: {}}",
			"metadata: {}\nspec: {type: '', limited: {nominalConcurrencyShares: 0, lendablePercent: 0, limitResponse: {type: ''}}, exempt: {nominalConcurrencyShares: 0, lendablePercent: 0}}\nstatus: {}"},
	})
}
