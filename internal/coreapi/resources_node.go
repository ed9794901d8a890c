package coreapi

import nodev1 "k8s.io/api/node/v1"

func nodeResources() []resource {
	return []resource{
		{
			name: "runtimeclasses", singular: "runtimeclass", clusterScoped: true,
			object: &nodev1.RuntimeClass{}, list: &nodev1.RuntimeClassList{}, cached: true, createOnUpdate: true,
		},
	}
}
