package main

// every is the name that stands for all specs of a package without a reason of their own.
const every = "*"

const noDevices = "Portico does not serve `resource.k8s.io/v1`: [local groups](local-groups.md#what-is-not)"

// reasons says why a spec differs between the servers, by package and name.
var reasons = map[string]map[string]string{
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation": {every: noDevices},
}

// reasonOf is empty if there is no reason.
func reasonOf(path, name string) string {
	if reason := reasons[path][name]; reason != "" {
		return reason
	}
	return reasons[path][every]
}
