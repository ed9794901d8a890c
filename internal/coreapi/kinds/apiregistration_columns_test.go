package kinds_test

import (
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAPIServiceTables(t *testing.T) {
	kindtest.Table[apiregistrationv1.APIService](t,
		"metadata: {name: v1.}\nstatus: {conditions: [{type: Available, status: 'True', reason: Local}]}",
		"metadata: {name: v1.up.example.com}\nspec: {groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: ns, name: s}}\nstatus: {conditions: [{type: Other, status: 'False'}, {type: Available, status: 'True', reason: Passed}]}",
		"metadata: {name: v1.down.example.com}\nspec: {groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: ns, name: s}}\nstatus: {conditions: [{type: Available, status: 'False', reason: MissingEndpoints}]}",
		"metadata: {name: v1.mute.example.com}\nspec: {groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: ns, name: s}}\nstatus: {conditions: [{type: Available, status: 'False'}]}",
		"metadata: {name: v1.new.example.com}\nspec: {groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: ns, name: s}}")
}
