package kinds_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestFlowcontrolRegistrationTables(t *testing.T) {
	kindtest.Table[flowcontrolv1.FlowSchema](t,
		"metadata: {name: a}\nspec: {matchingPrecedence: 100, priorityLevelConfiguration: {name: p}, distinguisherMethod: {type: ByUser}}\nstatus: {conditions: [{type: Dangling, status: 'False'}]}",
		"metadata: {name: b}\nspec: {matchingPrecedence: 1, priorityLevelConfiguration: {name: p}}")
	kindtest.Table[flowcontrolv1.PriorityLevelConfiguration](t,
		"metadata: {name: exempt}\nspec: {type: Exempt, exempt: {}}",
		"metadata: {name: rejecting}\nspec: {type: Limited, limited: {nominalConcurrencyShares: 0, limitResponse: {type: Reject}}}",
		"metadata: {name: queuing}\nspec: {type: Limited, limited: {nominalConcurrencyShares: 30, limitResponse: {type: Queue, queuing: {queues: 64, handSize: 6, queueLengthLimit: 50}}}}")
}
