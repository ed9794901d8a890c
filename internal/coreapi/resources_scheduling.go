package coreapi

import schedulingv1 "k8s.io/api/scheduling/v1"

func schedulingResources() []resource {
	return []resource{
		{
			name: "priorityclasses", singular: "priorityclass", shortNames: []string{"pc"}, clusterScoped: true,
			object: &schedulingv1.PriorityClass{}, list: &schedulingv1.PriorityClassList{}, cached: true, blindUpdate: true,
			generations: true, sameContent: sameAlways,
		},
	}
}
