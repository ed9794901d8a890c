package main

import "strings"

const noDevices = "Portico did not serve `resource.k8s.io/v1` at that time"

// reasons contains the reasons for differences between the servers, by package and name of the spec. A name that ends in an
// asterisk matches all names with this prefix.
var reasons = map[string]map[string]string{
	"sigs.k8s.io/controller-runtime/pkg/cache": {
		"Informer Cache without global DeepCopy Cache test as an Informer with metadata-only objects should allow for get informer to be cancelled": "a race in the spec: a cancelled call is to fail, and succeeds if the informer has synced by then",
	},
	"sigs.k8s.io/karpenter/pkg/controllers/disruption":                        {"Consolidation/DRA *": noDevices},
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation": {"*": noDevices},
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle":               {"DRA Initialization Gating *": noDevices},
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning":                      {"Dynamic Resource Allocation *": noDevices},
	"sigs.k8s.io/karpenter/pkg/scheduling/dynamicresources":                   {"*": noDevices},
}

// reasonOf returns the reason and the name or pattern that matched. Both are empty if no entry matches.
func reasonOf(path, name string) (reason, of string) {
	if reason := reasons[path][name]; reason != "" {
		return reason, name
	}
	for pattern, reason := range reasons[path] {
		if prefix, isPattern := strings.CutSuffix(pattern, "*"); isPattern && strings.HasPrefix(name, prefix) {
			return reason, pattern
		}
	}
	return "", ""
}
