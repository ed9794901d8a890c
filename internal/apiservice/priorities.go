package apiservice

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// priority places a group-version in discovery: group among groups, version within its group, higher first.
type priority struct{ group, version int32 }

// customPriority is what kube-apiserver gives the APIServices that it keeps for CustomResourceDefinitions.
var customPriority = priority{1000, 100}

// unlistedPriority is where discovery puts a group-version that nobody gave a priority.
var unlistedPriority = priority{1000, 15}

// ownGroupVersion is the group of APIServices themselves. It never has an APIService, so that nobody can point the
// registry of backends at a backend, and it stands first in discovery.
var ownGroupVersion = apiregistrationv1.SchemeGroupVersion

// ownPriority is above what validation lets anybody else ask for.
var ownPriority = priority{20001, 0}

// priorityOf is kube-apiserver's table of built-in priorities, so that discovery has the order that clients know. A
// group-version that is missing here gets no APIService, as there: one that a CRD may also serve would otherwise stay
// registered forever.
func priorityOf(gv schema.GroupVersion) (priority, bool) {
	group, ok := builtIn()[gv.Group]
	if !ok {
		return priority{}, false
	}
	v, ok := group.versions[gv.Version]
	return priority{group.priority, v}, ok
}

type builtInGroup struct {
	priority int32
	versions map[string]int32
}

func builtIn() map[string]builtInGroup {
	return map[string]builtInGroup{
		"":                             {18000, map[string]int32{"v1": 1}},
		"apps":                         {17800, map[string]int32{"v1": 15}},
		"events.k8s.io":                {17750, map[string]int32{"v1": 15, "v1beta1": 5}},
		"authentication.k8s.io":        {17700, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"authorization.k8s.io":         {17600, map[string]int32{"v1": 15}},
		"autoscaling":                  {17500, map[string]int32{"v1": 15, "v2": 30, "v2beta1": 9, "v2beta2": 1}},
		"batch":                        {17400, map[string]int32{"v1": 15, "v1beta1": 9, "v2alpha1": 9}},
		"certificates.k8s.io":          {17300, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"networking.k8s.io":            {17200, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"policy":                       {17100, map[string]int32{"v1": 15, "v1beta1": 9}},
		"rbac.authorization.k8s.io":    {17000, map[string]int32{"v1": 15}},
		"storage.k8s.io":               {16800, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"apiextensions.k8s.io":         {16700, map[string]int32{"v1": 15}},
		"admissionregistration.k8s.io": {16700, map[string]int32{"v1": 15, "v1beta1": 12, "v1alpha1": 9}},
		"scheduling.k8s.io":            {16600, map[string]int32{"v1": 15}},
		"coordination.k8s.io":          {16500, map[string]int32{"v1": 15, "v1beta1": 13, "v1alpha2": 12}},
		"node.k8s.io":                  {16300, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"discovery.k8s.io":             {16200, map[string]int32{"v1": 15, "v1beta1": 12}},
		"resource.k8s.io":              {16200, map[string]int32{"v1": 21, "v1beta2": 15, "v1beta1": 9}},
		"flowcontrol.apiserver.k8s.io": {16100, map[string]int32{"v1": 21, "v1beta3": 18, "v1beta2": 15, "v1beta1": 12, "v1alpha1": 9}},
		"internal.apiserver.k8s.io":    {16000, map[string]int32{"v1alpha1": 9}},
		"storagemigration.k8s.io":      {15800, map[string]int32{"v1beta1": 9}},
		"lifecycle.k8s.io":             {15700, map[string]int32{"v1alpha1": 1}},
	}
}

// apiServiceName is the name that the APIService of a group-version must have; "v1." for the legacy group.
func apiServiceName(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }
